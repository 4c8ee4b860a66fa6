-- Into how many samples are rollouts cut, adapter by adapter?
--
-- grain: run, split, adapter_name, adapter_slot
-- severity: info
-- read: A rollout of four samples has four votes in every mean over samples. overweight is what that does to
--     the adapter: its share of the samples over its share of the rollouts, within run and split.
-- order: the adapter with the most samples a rollout comes first.
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
--     batches: batches that the adapter is in
--     rollouts: its rollouts, within prompt groups
--     samples: its samples
--     samples_per_rollout: samples / rollouts
--     largest: most samples of one rollout
--     with_1: rollouts of one sample
--     with_2: rollouts of two samples
--     with_3: rollouts of three samples
--     with_4_or_more: rollouts of four samples and more
--     overweight: share of samples / share of rollouts; 1 is fair

WITH counted AS (
    SELECT
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        count(*) AS rollouts,
        sum(samples) AS samples,
        max(samples) AS largest,
        count(*) FILTER (WHERE samples = 1) AS with_1,
        count(*) FILTER (WHERE samples = 2) AS with_2,
        count(*) FILTER (WHERE samples = 3) AS with_3,
        count(*) FILTER (WHERE samples > 3) AS with_4_or_more
    FROM rollouts
    WHERE ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
    GROUP BY run, split, step, adapter_name, adapter_slot
),

by_adapter AS (
    SELECT
        run,
        split,
        adapter_name,
        adapter_slot,
        count(*) AS batches,
        CAST(sum(rollouts) AS BIGINT) AS rollouts,
        CAST(sum(samples) AS BIGINT) AS samples,
        sum(samples) / sum(rollouts) AS samples_per_rollout,
        max(largest) AS largest,
        CAST(sum(with_1) AS BIGINT) AS with_1,
        CAST(sum(with_2) AS BIGINT) AS with_2,
        CAST(sum(with_3) AS BIGINT) AS with_3,
        CAST(sum(with_4_or_more) AS BIGINT) AS with_4_or_more,
        samples_per_rollout * sum(sum(rollouts)) OVER w / sum(sum(samples)) OVER w AS overweight
    FROM counted
    GROUP BY run, split, adapter_name, adapter_slot
    WINDOW w AS (PARTITION BY run, split)
)

SELECT
    run,
    split,
    adapter_name,
    adapter_slot,
    batches,
    rollouts,
    samples,
    samples_per_rollout,
    largest,
    with_1,
    with_2,
    with_3,
    with_4_or_more,
    overweight
FROM by_adapter
WHERE $adapter IS NULL OR adapter_name = $adapter
ORDER BY samples_per_rollout DESC, run, split, adapter_name, adapter_slot
LIMIT $limit;
