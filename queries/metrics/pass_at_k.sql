-- What is the chance that one of k rollouts of a prompt passes?
--
-- grain: run, split, step, scope, adapter_name, adapter_slot, metric
-- read: The metrics `pass@k`, a second time, from `measures_of_prompt_group`: 1 - C(n - c, k) / C(n, k) as a
--     product of k factors, or of c where that is shorter.
-- columns:
--     run: training run
--     split: train or eval
--     step: the batch's number
--     scope: batch or adapter
--     adapter_name: LoRA adapter's name; null for no adapter
--     adapter_slot: LoRA adapter's slot; null for no adapter
--     metric: name of the metric
--     value: mean over the groups used; null where there is none
--     count: prompt groups used: complete, all scored

WITH powers AS (
    SELECT CAST(1 AS BIGINT) << exponent AS k
    FROM range(0, 32) AS exponents (exponent)
),

wanted AS (
    SELECT
        g.run,
        g.split,
        g.step,
        g.adapter_name,
        g.adapter_slot,
        g.rollouts AS n,
        g.passes AS c,
        p.k,
        g.rollouts = g.expected AND g.scored = g.rollouts AND p.k <= g.rollouts AS used
    FROM measures_of_prompt_group AS g
    INNER JOIN powers AS p ON p.k <= greatest(g.expected, 1)
),

cases AS (
    SELECT DISTINCT n, c, k
    FROM wanted
    WHERE used
),

factors AS (
    SELECT n, c, k, unnest(range(0, least(c, k))) AS i
    FROM cases
    WHERE c > 0 AND n - c >= k
),

failing AS (
    SELECT n, c, k, product((n - greatest(c, k) - i) / CAST(n - i AS DOUBLE)) AS chance
    FROM factors
    GROUP BY n, c, k
),

estimates AS (
    SELECT
        w.run,
        w.split,
        w.step,
        w.adapter_name,
        w.adapter_slot,
        w.k,
        CASE
            WHEN NOT w.used THEN NULL
            WHEN w.c = 0 THEN 0.0
            WHEN w.n - w.c < w.k THEN 1.0
            ELSE 1.0 - f.chance
        END AS estimate
    FROM wanted AS w
    LEFT JOIN failing AS f ON w.used AND w.n = f.n AND w.c = f.c AND w.k = f.k
)
SELECT
    run,
    split,
    step,
    'adapter' AS scope,
    adapter_name,
    adapter_slot,
    'pass@' || k AS metric,
    favg(estimate) AS value,
    count(estimate) AS count
FROM estimates
GROUP BY run, split, step, adapter_name, adapter_slot, k

UNION ALL

SELECT
    run,
    split,
    step,
    'batch' AS scope,
    CAST(NULL AS VARCHAR) AS adapter_name,
    CAST(NULL AS BIGINT) AS adapter_slot,
    'pass@' || k AS metric,
    favg(estimate) AS value,
    count(estimate) AS count
FROM estimates
GROUP BY run, split, step, k;
