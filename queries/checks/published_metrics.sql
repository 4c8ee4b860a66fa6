-- Is every published metric what SQL makes of the samples?
--
-- grain: run, split, step, scope, adapter_name, adapter_slot, metric
-- severity: error
-- read: `recomputed_metrics` computes every metric a second time, from the SQL of its record or a file in
--     queries/metrics. A row is a figure that differs, or that only one side has. A metric without such SQL is
--     a difference as well. A million samples take some ten seconds: ask a large ledger for a range of steps.
-- order: the largest difference comes first.
-- parameters:
--     run VARCHAR: only this run
--     split VARCHAR: only train, or only eval
--     from_step BIGINT: no earlier step
--     to_step BIGINT: no later step
--     adapter VARCHAR: only this adapter, by name, in whatever slot
--     limit BIGINT = 1000: rows at most, those that matter most; null for all
-- columns:
--     run: training run
--     split: train or eval
--     step: the batch's number
--     scope: batch or adapter
--     adapter_name: LoRA adapter's name; null for no adapter
--     adapter_slot: LoRA adapter's slot; null for no adapter
--     metric: name of the metric
--     published: value in metrics
--     recomputed: value recomputed; null as well where there is no recomputation
--     published_count: count in metrics; null where it is not published
--     recomputed_count: count recomputed; null where there is no recomputation
--     difference: published - recomputed

WITH asked AS (
    SELECT *
    FROM metrics
    WHERE ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
),

recomputed AS (
    -- Asked for here, and not of what comes out: the samples of other steps are not read then.
    SELECT *
    FROM recomputed_metrics
    WHERE ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
),

compared AS (
    SELECT
        coalesce(p.run, r.run) AS run,
        coalesce(p.split, r.split) AS split,
        coalesce(p.step, r.step) AS step,
        coalesce(p.scope, r.scope) AS scope,
        coalesce(p.adapter_name, r.adapter_name) AS adapter_name,
        coalesce(p.adapter_slot, r.adapter_slot) AS adapter_slot,
        coalesce(p.metric, r.metric) AS metric,
        p.value AS published,
        r.value AS recomputed,
        p.count AS published_count,
        r.count AS recomputed_count
    FROM asked AS p
    FULL JOIN recomputed AS r
        ON p.run = r.run
        AND p.split = r.split
        AND p.step = r.step
        AND p.scope = r.scope
        AND p.adapter_name IS NOT DISTINCT FROM r.adapter_name
        AND p.adapter_slot IS NOT DISTINCT FROM r.adapter_slot
        AND p.metric = r.metric
    LEFT JOIN batch_settings AS t ON r.run = t.run AND r.split = t.split AND r.step = t.step
    -- With the setting `metrics` some are left out on purpose.
    WHERE p.metric IS NOT NULL OR NOT t.selects_metrics
),

differing AS (
    SELECT *
    FROM compared
    WHERE (
            published_count IS DISTINCT FROM recomputed_count
            OR (published IS NULL) <> (recomputed IS NULL)
            OR (published IS NOT NULL AND NOT agrees(published, recomputed, 0.0))
        )
        AND ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
        AND ($adapter IS NULL OR adapter_name = $adapter)
),

looked_at AS (
    SELECT s.run, s.split, s.step, s.raw_reward, s.reward, s.reward_parts
    FROM samples AS s
    SEMI JOIN differing AS d ON s.run = d.run AND s.split = d.split AND s.step = d.step
),

numbers AS (
    SELECT run, split, step, raw_reward AS number
    FROM looked_at

    UNION ALL

    SELECT run, split, step, reward
    FROM looked_at

    UNION ALL

    SELECT run, split, step, part.value
    FROM (SELECT run, split, step, unnest(reward_parts) AS part FROM looked_at)
),

sizes AS (
    -- The largest number that went into a figure, where one differs: the tolerance grows with it, as rounding does.
    SELECT run, split, step, max(abs(number)) AS size
    FROM numbers
    GROUP BY run, split, step
),

sized AS (
    -- A change of an advantage is one of rewards over a divisor of 1e-6 or more.
    SELECT f.*, coalesce(z.size, 0.0) * CASE WHEN f.metric = 'removed_vote_effect/max' THEN 1e6 ELSE 1.0 END AS size
    FROM differing AS f
    LEFT JOIN sizes AS z ON f.run = z.run AND f.split = z.split AND f.step = z.step
)

SELECT
    run,
    split,
    step,
    scope,
    adapter_name,
    adapter_slot,
    metric,
    published,
    recomputed,
    published_count,
    recomputed_count,
    published - recomputed AS difference
FROM sized
WHERE published_count IS DISTINCT FROM recomputed_count
    OR (published IS NULL) <> (recomputed IS NULL)
    OR (published IS NOT NULL AND NOT agrees(published, recomputed, size))
ORDER BY abs(difference) DESC NULLS FIRST, run, split, step, scope, adapter_name, adapter_slot, metric
LIMIT $limit;
