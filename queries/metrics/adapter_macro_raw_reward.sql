-- What is the mean of the adapters' own means, every adapter one vote?
--
-- grain: run, split, step, scope, adapter_name, adapter_slot
-- read: The metric a second time, from `samples`: the mean of what `recomputed_episode_raw_reward` says of
--     each adapter. Divided by 2^22 while it is added, so that the largest doubles cannot overflow.
-- columns:
--     run: training run
--     split: train or eval
--     step: the batch's number
--     scope: batch or adapter
--     adapter_name: LoRA adapter's name; null for no adapter
--     adapter_slot: LoRA adapter's slot; null for no adapter
--     value: the value recomputed; null where an adapter has nothing to average, 0 where a batch has not
--     count: adapters with a scored rollout

SELECT
    run,
    split,
    step,
    'batch' AS scope,
    CAST(NULL AS VARCHAR) AS adapter_name,
    CAST(NULL AS BIGINT) AS adapter_slot,
    coalesce(favg(value / 4194304) * 4194304, 0.0) AS value,
    count(value) AS count
FROM recomputed_episode_raw_reward
WHERE scope = 'adapter'
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
