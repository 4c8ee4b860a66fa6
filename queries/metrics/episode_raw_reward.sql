-- What is the mean over rollouts of the mean of their raw rewards, ids scoped by adapter?
--
-- grain: run, split, step, scope, adapter_name, adapter_slot
-- read: The metric a second time, from `samples` alone; `batches` only tells that there is a batch without
--     samples.
-- columns:
--     run: training run
--     split: train or eval
--     step: the batch's number
--     scope: batch or adapter
--     adapter_name: LoRA adapter's name; null for no adapter
--     adapter_slot: LoRA adapter's slot; null for no adapter
--     value: the value recomputed; null where an adapter has nothing to average, 0 where a batch has not
--     count: scored rollouts

WITH numbered AS (
    -- One number for each adapter of a batch: grouping millions of rollouts by it is faster than by names.
    SELECT run, split, step, adapter_name, adapter_slot, CAST(row_number() OVER () AS INTEGER) AS number
    FROM (SELECT DISTINCT run, split, step, adapter_name, adapter_slot FROM samples)
),

rollout_rewards AS (
    -- Divided by 2^22 while added, so that the largest doubles cannot overflow; fsum compensates rounding.
    SELECT n.number, avg(s.raw_reward / 4194304) AS reward
    FROM samples AS s
    INNER JOIN numbered AS n
        ON s.run = n.run
        AND s.split = n.split
        AND s.step = n.step
        AND s.adapter_name IS NOT DISTINCT FROM n.adapter_name
        AND s.adapter_slot IS NOT DISTINCT FROM n.adapter_slot
    GROUP BY n.number, s.kind, s.id, s.group_index
),

totals AS (
    SELECT number, fsum(reward) AS total, count(reward) AS count
    FROM rollout_rewards
    GROUP BY number
),

per_adapter AS (
    SELECT n.run, n.split, n.step, n.adapter_name, n.adapter_slot, t.total, t.count
    FROM totals AS t
    INNER JOIN numbered AS n USING (number)
)

SELECT
    run,
    split,
    step,
    'adapter' AS scope,
    adapter_name,
    adapter_slot,
    total / nullif(count, 0) * 4194304 AS value,
    count
FROM per_adapter

UNION ALL

SELECT
    run,
    split,
    step,
    'batch' AS scope,
    CAST(NULL AS VARCHAR) AS adapter_name,
    CAST(NULL AS BIGINT) AS adapter_slot,
    coalesce(fsum(total) / nullif(sum(count), 0) * 4194304, 0.0) AS value,
    CAST(sum(count) AS BIGINT) AS count
FROM per_adapter
GROUP BY run, split, step

UNION ALL

SELECT
    run,
    split,
    step,
    'batch' AS scope,
    CAST(NULL AS VARCHAR) AS adapter_name,
    CAST(NULL AS BIGINT) AS adapter_slot,
    0.0 AS value,
    0 AS count
FROM batches
WHERE samples = 0;
