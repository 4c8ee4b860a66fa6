-- How many samples has a batch, and each of its adapters?
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
--     count: samples

WITH per_adapter AS (
    SELECT
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        count(*) AS count
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
    CAST(count AS DOUBLE) AS value,
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
    CAST(sum(count) AS DOUBLE) AS value,
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
