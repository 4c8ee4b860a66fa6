-- What is the mean of every entry of a dictionary reward?
--
-- grain: run, split, step, scope, adapter_name, adapter_slot, metric
-- read: The metrics `reward/KEY`, a second time, over mainstream samples. Divided by 2^22 while it is added,
--     so that the largest doubles cannot overflow.
-- columns:
--     run: training run
--     split: train or eval
--     step: the batch's number
--     scope: batch or adapter
--     adapter_name: LoRA adapter's name; null for no adapter
--     adapter_slot: LoRA adapter's slot; null for no adapter
--     metric: name of the metric
--     value: mean of the entry; null where it is never an ok number
--     count: rollouts whose mainstream sample has the entry as an ok number

WITH entries AS (
    SELECT run, split, step, adapter_name, adapter_slot, unnest(reward_parts) AS entry
    FROM samples
    WHERE is_mainstream AND len(reward_parts) > 0
),

ok_entries AS (
    SELECT
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        entry.key AS entry_key,
        CASE WHEN entry.state = 'ok' THEN entry.value END AS value
    FROM entries
)
SELECT
    run,
    split,
    step,
    'adapter' AS scope,
    adapter_name,
    adapter_slot,
    'reward/' || entry_key AS metric,
    favg(value / 4194304) * 4194304 AS value,
    count(value) AS count
FROM ok_entries
GROUP BY run, split, step, adapter_name, adapter_slot, entry_key

UNION ALL

SELECT
    run,
    split,
    step,
    'batch' AS scope,
    CAST(NULL AS VARCHAR) AS adapter_name,
    CAST(NULL AS BIGINT) AS adapter_slot,
    'reward/' || entry_key AS metric,
    favg(value / 4194304) * 4194304 AS value,
    count(value) AS count
FROM ok_entries
GROUP BY run, split, step, entry_key;
