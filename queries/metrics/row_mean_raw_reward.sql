-- What is the mean over samples, so that fan-out votes?
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
--     count: samples with an ok raw reward

WITH per_adapter AS (
    -- Divided by 2^22 while added, so that the largest doubles cannot overflow; fsum compensates rounding.
    SELECT
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        fsum(raw_reward / 4194304) AS total,
        count(raw_reward) AS count
    FROM samples
    GROUP BY run, split, step, adapter_name, adapter_slot
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
