-- Which adapter names had several slots or registrations, and whose ids start again?
--
-- grain: run, split, adapter_name, adapter_slot, registration_id
-- severity: warning
-- read: A name that is registered again gets a new data source, whose ids start at 0: equal ids of two
--     registrations are different prompts, and slots are handed on to other names. restarts counts the
--     batches whose largest id lies below that of the name's batch before.
-- order: restarts come first, then names with the most slots and registrations.
-- parameters:
--     run VARCHAR: only this run
--     split VARCHAR: only train, or only eval
--     from_step BIGINT: no earlier step
--     to_step BIGINT: no later step
--     adapter VARCHAR: only this adapter, by name, in whatever slot
--     limit BIGINT: rows at most, those that matter most; null for all
-- columns:
--     run: training run
--     split: train or eval
--     adapter_name: LoRA adapter's name; null for no adapter
--     adapter_slot: LoRA adapter's slot; null for no adapter
--     registration_id: registration of the adapter, where dumped
--     batches: batches with samples of it
--     samples: samples of it
--     first_step: first step with a sample of it
--     last_step: last step with a sample of it
--     smallest_id: smallest id of its samples, rows not counted as ids
--     largest_id: largest id of its samples
--     restarts: batches whose largest id is below that of the batch before
--     first_restart: step of the first of these
--     name_slots: slots that the name has had in the run and split
--     name_registrations: registrations that it has had
--     slot_names: names that the slot has had

WITH by_batch AS (
    SELECT
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        registration_id,
        count(*) AS samples,
        min(id) FILTER (WHERE kind <> 'position') AS smallest_id,
        max(id) FILTER (WHERE kind <> 'position') AS largest_id
    FROM samples
    WHERE ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
    GROUP BY ALL
),

in_order AS (
    SELECT
        *,
        coalesce(largest_id < lag(largest_id) OVER w, false) AS restarts
    FROM by_batch
    WINDOW w AS (PARTITION BY run, split, adapter_name ORDER BY step, adapter_slot, registration_id)
),

by_registration AS (
    SELECT
        run,
        split,
        adapter_name,
        adapter_slot,
        registration_id,
        count(*) AS batches,
        CAST(sum(samples) AS BIGINT) AS samples,
        min(step) AS first_step,
        max(step) AS last_step,
        min(smallest_id) AS smallest_id,
        max(largest_id) AS largest_id,
        count(*) FILTER (WHERE restarts) AS restarts,
        min(step) FILTER (WHERE restarts) AS first_restart
    FROM in_order
    GROUP BY ALL
),

counted AS (
    SELECT
        *,
        count(DISTINCT adapter_slot) OVER (PARTITION BY run, split, adapter_name) AS name_slots,
        count(DISTINCT registration_id) OVER (PARTITION BY run, split, adapter_name) AS name_registrations,
        count(DISTINCT adapter_name) OVER (PARTITION BY run, split, adapter_slot) AS slot_names
    FROM by_registration
)

SELECT
    run,
    split,
    adapter_name,
    adapter_slot,
    registration_id,
    batches,
    samples,
    first_step,
    last_step,
    smallest_id,
    largest_id,
    restarts,
    first_restart,
    name_slots,
    name_registrations,
    slot_names
FROM counted
WHERE $adapter IS NULL OR adapter_name = $adapter
ORDER BY
    restarts DESC,
    greatest(name_slots, name_registrations, slot_names) DESC,
    run,
    split,
    adapter_name,
    first_step,
    adapter_slot,
    registration_id
LIMIT $limit;
