-- How many prompt groups are constant in the raw reward, by its value?
--
-- grain: run, split, step, scope, adapter_name, adapter_slot, metric
-- read: The metrics `raw_zero_std/count_VALUE`, a second time, from `measures_of_prompt_group`.
-- columns:
--     run: training run
--     split: train or eval
--     step: the batch's number
--     scope: batch or adapter
--     adapter_name: LoRA adapter's name; null for no adapter
--     adapter_slot: LoRA adapter's slot; null for no adapter
--     metric: name of the metric
--     value: prompt groups with that constant
--     count: prompt groups with a value at all

WITH per_adapter AS (
    SELECT
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        raw_constant AS label,
        count(*) FILTER (WHERE raw_constant IS NOT NULL) AS members,
        count(*) FILTER (WHERE raw_is_numeric) AS numeric
    FROM measures_of_prompt_group
    GROUP BY run, split, step, adapter_name, adapter_slot, raw_constant
),

per_scope AS (
    SELECT run, split, step, 'adapter' AS scope, adapter_name, adapter_slot, label, members, numeric
    FROM per_adapter

    UNION ALL

    SELECT run, split, step, 'batch', NULL, NULL, label, sum(members), sum(numeric)
    FROM per_adapter
    GROUP BY run, split, step, label
),

among AS (
    SELECT
        *,
        sum(numeric) OVER (PARTITION BY run, split, step, scope, adapter_name, adapter_slot) AS whole
    FROM per_scope
)

SELECT
    run,
    split,
    step,
    scope,
    adapter_name,
    adapter_slot,
    'raw_zero_std/count_' || label AS metric,
    CAST(members AS DOUBLE) AS value,
    CAST(whole AS BIGINT) AS count
FROM among
WHERE label IS NOT NULL;
