-- What is the mean over rollouts if equal ids of different adapters were one rollout?
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
--     count: merged buckets with an ok raw reward

WITH bucket_rewards AS (
    -- Divided by 2^22 while added, so that the largest doubles cannot overflow; fsum compensates rounding.
    SELECT
        run,
        split,
        step,
        avg(raw_reward / 4194304) * 4194304 AS reward
    FROM samples
    GROUP BY run, split, step, kind, id, group_index
)

SELECT
    run,
    split,
    step,
    'batch' AS scope,
    CAST(NULL AS VARCHAR) AS adapter_name,
    CAST(NULL AS BIGINT) AS adapter_slot,
    coalesce(favg(reward / 4194304) * 4194304, 0.0) AS value,
    count(reward) AS count
FROM bucket_rewards
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
