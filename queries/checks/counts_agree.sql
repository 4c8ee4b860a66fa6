-- Does every relation count the samples of a batch alike?
--
-- grain: run, split, step
-- severity: error
-- read: A row is a batch of which the relations do not hold the same samples.
-- order: by key.
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
--     batch_samples: samples that the batch says it has; null for no such batch
--     samples: rows of samples
--     different_rows: different values of row from 0 to samples - 1
--     rollout_samples: samples that its rollouts say they have
--     group_samples: samples that its prompt groups say they have
--     adapter_samples: samples that its adapters say they have

WITH sample_counts AS (
    SELECT run, split, step, count(*) AS samples, sum(CAST(hash(row) % 4294967296 AS BIGINT)) AS row_hashes
    FROM samples
    GROUP BY run, split, step
),

numbers AS (
    SELECT unnest(range(max(samples))) AS number
    FROM sample_counts
),

expected AS (
    SELECT
        number + 1 AS samples,
        sum(CAST(hash(number) % 4294967296 AS BIGINT)) OVER (ORDER BY number) AS row_hashes
    FROM numbers
),

suspects AS (
    -- Rows are compared with 0 to samples - 1 by a sum of hashes: only where that differs they are counted one by one.
    SELECT c.run, c.split, c.step, c.samples
    FROM sample_counts AS c
    LEFT JOIN expected AS e USING (samples)
    WHERE c.row_hashes IS DISTINCT FROM e.row_hashes
),

different_rows AS (
    SELECT s.run, s.split, s.step, count(DISTINCT s.row) FILTER (WHERE s.row BETWEEN 0 AND b.samples - 1) AS rows
    FROM samples AS s
    INNER JOIN suspects AS b USING (run, split, step)
    GROUP BY s.run, s.split, s.step
),

counts AS (
    SELECT run, split, step, 'batches' AS relation, samples, CAST(NULL AS BIGINT) AS rows
    FROM batches

    UNION ALL

    SELECT run, split, step, 'samples' AS relation, samples, coalesce(rows, samples) AS rows
    FROM sample_counts
    LEFT JOIN different_rows USING (run, split, step)

    UNION ALL

    SELECT run, split, step, 'rollouts' AS relation, sum(samples) AS samples, NULL AS rows
    FROM rollouts
    GROUP BY run, split, step

    UNION ALL

    SELECT run, split, step, 'prompt_groups' AS relation, sum(samples) AS samples, NULL AS rows
    FROM prompt_groups
    GROUP BY run, split, step

    UNION ALL

    SELECT run, split, step, 'adapters' AS relation, sum(samples) AS samples, NULL AS rows
    FROM adapters
    GROUP BY run, split, step
),

wide AS (
    SELECT
        run,
        split,
        step,
        CAST(max(samples) FILTER (WHERE relation = 'batches') AS BIGINT) AS batch_samples,
        CAST(coalesce(max(samples) FILTER (WHERE relation = 'samples'), 0) AS BIGINT) AS samples,
        CAST(coalesce(max(rows), 0) AS BIGINT) AS different_rows,
        CAST(coalesce(max(samples) FILTER (WHERE relation = 'rollouts'), 0) AS BIGINT) AS rollout_samples,
        CAST(coalesce(max(samples) FILTER (WHERE relation = 'prompt_groups'), 0) AS BIGINT) AS group_samples,
        CAST(coalesce(max(samples) FILTER (WHERE relation = 'adapters'), 0) AS BIGINT) AS adapter_samples
    FROM counts
    WHERE ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
    GROUP BY run, split, step
)

SELECT
    run,
    split,
    step,
    batch_samples,
    samples,
    different_rows,
    rollout_samples,
    group_samples,
    adapter_samples
FROM wide
WHERE
    (
        batch_samples IS NULL
        OR least(batch_samples, samples, different_rows, rollout_samples, group_samples, adapter_samples)
        <> greatest(batch_samples, samples, different_rows, rollout_samples, group_samples, adapter_samples)
    )
    AND (
        $adapter IS NULL
        OR (run, split, step) IN (SELECT (run, split, step) FROM adapters WHERE adapter_name = $adapter)
    )
ORDER BY run, split, step
LIMIT $limit;
