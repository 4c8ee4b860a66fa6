-- Do the weights of a batch's adapters add up to 1 under every definition?
--
-- grain: run, split, step, weight
-- severity: error
-- read: A row is a batch and a weight that does not add up to 1, or that is given although nothing in the
--     batch is scored.
-- order: the total furthest from 1 comes first.
-- parameters:
--     run VARCHAR: only this run
--     split VARCHAR: only train, or only eval
--     from_step BIGINT: no earlier step
--     to_step BIGINT: no later step
--     adapter VARCHAR: only batches that this adapter is in, by name
--     limit BIGINT = 1000: rows at most, those that matter most; null for all
-- columns:
--     run: training run
--     split: train or eval
--     step: the batch's number
--     weight: which weight
--     total: sum over the adapters; null where none has one
--     adapters: adapters of the batch
--     scored_rollouts: scored rollouts of the batch

WITH totals AS (
    SELECT
        run,
        split,
        step,
        count(*) AS adapters,
        CAST(sum(scored_rollouts) AS BIGINT) AS scored_rollouts,
        sum(weight_by_rows) AS weight_by_rows,
        sum(weight_unscoped) AS weight_unscoped,
        sum(weight_scoped) AS weight_scoped,
        sum(weight_macro) AS weight_macro
    FROM adapters
    WHERE ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
    GROUP BY run, split, step
    HAVING bool_or($adapter IS NULL OR adapter_name = $adapter)
),

long AS (
    SELECT run, split, step, adapters, scored_rollouts, weight, total
    FROM totals UNPIVOT INCLUDE NULLS (
        total FOR weight IN (weight_by_rows, weight_unscoped, weight_scoped, weight_macro)
    )
)

SELECT
    run,
    split,
    step,
    weight,
    total,
    adapters,
    scored_rollouts
FROM long
WHERE CASE WHEN scored_rollouts > 0 THEN NOT agrees(total, 1.0, 1.0) ELSE total IS NOT NULL END
ORDER BY abs(total - 1) DESC NULLS FIRST, run, split, step, weight
LIMIT $limit;
