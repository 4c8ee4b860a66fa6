-- How does a metric go from step to step, adapter by adapter, and where does it jump?
--
-- grain: metric, run, split, scope, adapter_name, adapter_slot, step
-- severity: info
-- read: jump is the change since the step before over the typical change (median) of this adapter: 5 and more
--     is worth a look. Batches in which the adapter has nothing scored are left out.
-- order: the largest jump comes first.
-- parameters:
--     run VARCHAR: only this run
--     split VARCHAR: only train, or only eval
--     from_step BIGINT: no earlier step
--     to_step BIGINT: no later step
--     adapter VARCHAR: only this adapter, by name; the scope batch is left out then
--     limit BIGINT: rows at most, those that matter most; null for all
--     metric VARCHAR = episode_raw_reward: the metric; null for all
-- columns:
--     metric: name of the metric
--     run: training run
--     split: train or eval
--     scope: batch or adapter
--     adapter_name: LoRA adapter's name; null for no adapter
--     adapter_slot: LoRA adapter's slot; null for no adapter
--     step: the batch's number
--     value: value of the metric
--     count: number of things that it is a mean of
--     previous_step: the step before
--     previous_value: value at that step
--     change: value - previous_value
--     typical_change: median of |change| of this adapter
--     jump: |change| / typical_change; null where that is 0

WITH history AS (
    SELECT
        metric,
        run,
        split,
        scope,
        adapter_name,
        adapter_slot,
        step,
        value,
        count,
        lag(step) OVER w AS previous_step,
        lag(value) OVER w AS previous_value,
        value - lag(value) OVER w AS change
    FROM metrics
    WHERE count > 0
        AND ($metric IS NULL OR metric = $metric)
        AND ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
        AND ($adapter IS NULL OR adapter_name = $adapter)
    WINDOW w AS (PARTITION BY metric, run, split, scope, adapter_name, adapter_slot ORDER BY step)
),

measured AS (
    SELECT
        *,
        median(abs(change)) OVER (PARTITION BY metric, run, split, scope, adapter_name, adapter_slot) AS typical_change
    FROM history
)

SELECT
    metric,
    run,
    split,
    scope,
    adapter_name,
    adapter_slot,
    step,
    value,
    count,
    previous_step,
    previous_value,
    change,
    typical_change,
    abs(change) / nullif(typical_change, 0) AS jump
FROM measured
ORDER BY
    jump DESC NULLS LAST,
    abs(change) DESC NULLS LAST,
    metric,
    run,
    split,
    scope,
    adapter_name,
    adapter_slot,
    step
LIMIT $limit;
