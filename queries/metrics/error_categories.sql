-- Which share of samples is of which category?
--
-- grain: run, split, step, scope, adapter_name, adapter_slot, metric
-- read: The metrics `error_cat/CATEGORY`, a second time, from `measures_of_sample`.
-- columns:
--     run: training run
--     split: train or eval
--     step: the batch's number
--     scope: batch or adapter
--     adapter_name: LoRA adapter's name; null for no adapter
--     adapter_slot: LoRA adapter's slot; null for no adapter
--     metric: name of the metric
--     value: share of the samples
--     count: samples

WITH per_adapter AS (
    SELECT
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        category,
        count(*) AS members
    FROM measures_of_sample
    GROUP BY run, split, step, adapter_name, adapter_slot, category
),

per_scope AS (
    SELECT run, split, step, 'adapter' AS scope, adapter_name, adapter_slot, category, members
    FROM per_adapter

    UNION ALL

    SELECT run, split, step, 'batch', NULL, NULL, category, sum(members)
    FROM per_adapter
    GROUP BY run, split, step, category
),

among AS (
    SELECT
        *,
        sum(members) OVER (PARTITION BY run, split, step, scope, adapter_name, adapter_slot) AS whole
    FROM per_scope
)

SELECT
    run,
    split,
    step,
    scope,
    adapter_name,
    adapter_slot,
    'error_cat/' || category AS metric,
    members / whole AS value,
    CAST(whole AS BIGINT) AS count
FROM among
WHERE category IS NOT NULL;
