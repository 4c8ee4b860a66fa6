-- How many prompt groups are constant in the reward, or the raw reward, by its value?
--
-- grain: run, split, step, scope, adapter_name, adapter_slot, metric
-- read: The metrics `zero_std/count_VALUE` and `raw_zero_std/count_VALUE`, a second time, from
--     `measures_of_prompt_group`.
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

WITH constants AS (
    SELECT
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        unnest([
            {'prefix': 'zero_std', 'label': reward_constant, 'is_numeric': reward_is_numeric},
            {'prefix': 'raw_zero_std', 'label': raw_constant, 'is_numeric': raw_is_numeric}
        ], recursive := true)
    FROM measures_of_prompt_group
),

per_adapter AS (
    SELECT
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        prefix,
        label,
        count(label) AS members,
        count(*) FILTER (WHERE is_numeric) AS numeric
    FROM constants
    GROUP BY run, split, step, adapter_name, adapter_slot, prefix, label
),

per_scope AS (
    SELECT run, split, step, 'adapter' AS scope, adapter_name, adapter_slot, prefix, label, members, numeric
    FROM per_adapter

    UNION ALL

    SELECT run, split, step, 'batch', NULL, NULL, prefix, label, sum(members), sum(numeric)
    FROM per_adapter
    GROUP BY run, split, step, prefix, label
),

among AS (
    SELECT
        *,
        sum(numeric) OVER (PARTITION BY run, split, step, scope, adapter_name, adapter_slot, prefix) AS whole
    FROM per_scope
)

SELECT
    run,
    split,
    step,
    scope,
    adapter_name,
    adapter_slot,
    prefix || '/count_' || label AS metric,
    CAST(members AS DOUBLE) AS value,
    CAST(whole AS BIGINT) AS count
FROM among
WHERE label IS NOT NULL;
