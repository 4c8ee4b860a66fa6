-- The accounting of docs/definitions.md in SQL, as fast as DuckDB was found to do it: keys are small integers, every
-- table is grouped from the smaller one before it, no windows over samples, and one join back to them at the end.
-- It relies on what the benchmark's files are like: every sample has a group_index, the batches of a file lie one after
-- another, no dictionary rewards and no raw rewards. duckdb_sql.py puts in $RUN, $FILES and $OUT.

CREATE TEMP TABLE batch AS
SELECT CAST(row_number() OVER (ORDER BY split, step) - 1 AS INTEGER) AS b, *
FROM (
    SELECT split, step, any_value(filename) AS source, min(file_row_number) AS first_place
    FROM read_parquet($FILES, filename = true, file_row_number = true)
    GROUP BY split, step
);

CREATE TEMP TABLE adapter AS
SELECT CAST(row_number() OVER () - 1 AS INTEGER) AS a, *
FROM (SELECT DISTINCT adapter_name, adapter_slot FROM read_parquet($FILES));

CREATE TEMP TABLE sample AS
SELECT
    b.b * 1024 + a.a AS ba,
    g.file_row_number - b.first_place AS row,
    g.group_index,
    g.rollout_id,
    CAST(CASE WHEN g.rollout_id IS NOT NULL THEN 'rollout' ELSE 'position' END AS ENUM ('rollout', 'position')) AS kind,
    coalesce(g.rollout_id, g.file_row_number - b.first_place) AS id,
    CASE WHEN isfinite(g.reward) THEN g.reward END AS reward,
    CASE
        WHEN g.reward IS NULL THEN 'missing'
        WHEN isnan(g.reward) THEN 'nan'
        WHEN isinf(g.reward) THEN 'inf'
        ELSE 'ok'
    END AS reward_state,
    g.response_length,
    CASE WHEN g.remove_sample THEN 0 ELSE coalesce(g.trainable_tokens, g.response_length) END AS trainable_tokens,
    coalesce(g.trainable_tokens, g.response_length) AS effective_response_length,
    g.remove_sample,
    g.status
FROM read_parquet($FILES, file_row_number = true) AS g
INNER JOIN batch AS b USING (split, step)
INNER JOIN adapter AS a
    ON g.adapter_slot IS NOT DISTINCT FROM a.adapter_slot AND g.adapter_name IS NOT DISTINCT FROM a.adapter_name;

CREATE TEMP TABLE rollout AS
SELECT
    *,
    -best & 4194303 AS mainstream_row,
    (best + 4194303) >> 22 AS mainstream_tokens
FROM (
    SELECT
        ba,
        group_index,
        kind,
        id,
        min(row) AS first_row,
        count(*) AS samples,
        count(reward) AS scored_samples,
        sum(reward) AS raw_total,
        min(reward) AS reward_min,
        max(reward) AS reward_max,
        sum(trainable_tokens) AS tokens,
        -- No ties: the first of the samples with most tokens. A null reward is a value like any other here.
        max(trainable_tokens * 4194304 - row) AS best,
        arg_max_null(reward, trainable_tokens * 4194304 - row) AS mainstream_reward,
        arg_max(status IS NOT DISTINCT FROM 'truncated', trainable_tokens * 4194304 - row) AS mainstream_truncated
    FROM sample
    GROUP BY ba, group_index, kind, id
);

CREATE TEMP TABLE prompt AS
SELECT
    v.*,
    r.* EXCLUDE (ba, group_index),
    row_number() OVER (PARTITION BY v.ba >> 10 ORDER BY v.first_row) - 1 AS prompt_group
FROM (
    SELECT
        ba,
        group_index,
        min(first_row) AS first_row,
        count(*) AS rollouts,
        CAST(sum(samples) AS BIGINT) AS samples,
        count(mainstream_reward) AS n,
        avg(mainstream_reward) AS mean,
        stddev_samp(mainstream_reward) AS std,
        min(mainstream_reward) AS low,
        max(mainstream_reward) AS high
    FROM rollout
    GROUP BY ba, group_index
) AS v
INNER JOIN (
    SELECT
        ba,
        group_index,
        avg(reward) AS row_mean,
        stddev_samp(reward) AS row_std,
        min(reward) AS row_low,
        max(reward) AS row_high
    FROM sample
    GROUP BY ba, group_index
) AS r ON v.ba = r.ba AND v.group_index = r.group_index;

CREATE TEMP TABLE voted AS
SELECT
    r.*,
    p.prompt_group,
    CASE
        WHEN r.mainstream_reward IS NULL THEN NULL
        WHEN p.low = p.high THEN 0.0
        ELSE (r.mainstream_reward - p.mean) / CASE WHEN p.n > 1 THEN p.std + 1e-6 ELSE 1.0 END
    END AS advantage,
    p.row_mean,
    CASE WHEN p.row_low = p.row_high THEN 'inf'::DOUBLE ELSE coalesce(p.row_std + 1e-6, 1.0) END AS row_divisor
FROM rollout AS r
INNER JOIN prompt AS p ON r.ba = p.ba AND r.group_index = p.group_index;

COPY (
    SELECT
        '$RUN' AS run,
        b.split,
        b.step,
        s.row,
        a.adapter_name,
        a.adapter_slot,
        s.kind,
        s.id,
        s.group_index,
        v.prompt_group,
        s.rollout_id,
        s.reward,
        s.reward_state,
        s.reward AS raw_reward,
        s.reward_state AS raw_reward_state,
        s.response_length,
        s.trainable_tokens,
        s.remove_sample,
        s.status,
        s.row = v.mainstream_row AS is_mainstream,
        v.advantage,
        (s.reward - v.row_mean) / v.row_divisor AS row_advantage,
        s.effective_response_length,
        -- What these dumps do not hold; the columns of a table are fixed.
        NULL::VARCHAR AS registration_id,
        NULL::BIGINT AS sample_index,
        NULL::BIGINT AS versions_seen,
        NULL::BIGINT AS version_oldest,
        NULL::BIGINT AS version_newest,
        NULL::BIGINT AS cached_tokens,
        NULL::BIGINT AS prompt_tokens,
        NULL::BIGINT AS spec_accepted,
        NULL::BIGINT AS spec_proposed,
        NULL::BIGINT AS spec_verifications,
        NULL::BIGINT AS spec_tokens,
        NULL::DOUBLE AS non_generation_time,
        NULL::BIGINT AS tool_calls,
        NULL::BOOLEAN AS is_repetitive,
        NULL::STRUCT("key" VARCHAR, "value" DOUBLE, state VARCHAR, "text" VARCHAR)[] AS reward_parts
    FROM sample AS s
    INNER JOIN voted AS v ON s.ba = v.ba AND s.group_index = v.group_index AND s.id = v.id AND s.kind = v.kind
    INNER JOIN batch AS b ON s.ba >> 10 = b.b
    INNER JOIN adapter AS a ON s.ba & 1023 = a.a
) TO '$OUT/samples.parquet' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1);

COPY (
    SELECT
        '$RUN' AS run,
        b.split,
        b.step,
        a.adapter_name,
        a.adapter_slot,
        v.kind,
        v.id,
        v.group_index,
        v.prompt_group,
        v.samples,
        v.scored_samples,
        v.raw_total / nullif(v.scored_samples, 0) AS raw_reward,
        v.mainstream_row,
        v.mainstream_reward,
        v.mainstream_tokens,
        v.reward_min,
        v.reward_max,
        coalesce(v.reward_min < v.reward_max, false) AS siblings_differ,
        v.mainstream_truncated,
        v.advantage
    FROM voted AS v
    INNER JOIN batch AS b ON v.ba >> 10 = b.b
    INNER JOIN adapter AS a ON v.ba & 1023 = a.a
) TO '$OUT/rollouts.parquet' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1);

COPY (
    SELECT
        '$RUN' AS run,
        b.split,
        b.step,
        a.adapter_name,
        a.adapter_slot,
        p.prompt_group,
        p.rollouts,
        p.n AS scored_rollouts,
        p.samples,
        CASE WHEN p.low = p.high THEN p.low ELSE p.mean END AS reward_mean,
        CASE WHEN p.low = p.high AND p.n > 1 THEN 0.0 ELSE p.std END AS reward_std,
        p.low AS reward_min,
        p.high AS reward_max,
        coalesce(p.low = p.high, false) AS is_constant
    FROM prompt AS p
    INNER JOIN batch AS b ON p.ba >> 10 = b.b
    INNER JOIN adapter AS a ON p.ba & 1023 = a.a
) TO '$OUT/prompt_groups.parquet' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1);

CREATE TEMP TABLE bucket AS
SELECT ba >> 10 AS b, kind, id, group_index, sum(raw_total) AS total, sum(scored_samples) AS n
FROM rollout
GROUP BY ba >> 10, kind, id, group_index
HAVING sum(scored_samples) > 0;

CREATE TEMP TABLE weighed AS
WITH adapters AS (
    SELECT
        ba,
        CAST(sum(samples) AS BIGINT) AS samples,
        count(*) AS rollouts,
        count(raw_total) AS scored_rollouts,
        CAST(sum(tokens) AS BIGINT) AS trainable_tokens,
        sum(raw_total / scored_samples) FILTER (scored_samples > 0) AS episode_total,
        sum(raw_total) AS row_total,
        CAST(sum(scored_samples) AS BIGINT) AS ok_samples
    FROM rollout
    GROUP BY ba
),

shares AS (
    SELECT r.ba, sum(r.scored_samples / u.n) AS share
    FROM rollout AS r
    INNER JOIN bucket AS u
        ON r.ba >> 10 = u.b AND r.kind = u.kind AND r.id = u.id AND r.group_index = u.group_index
    GROUP BY r.ba
)

SELECT a.ba, a.ba >> 10 AS b, a.* EXCLUDE (ba), coalesce(s.share, 0.0) AS share
FROM adapters AS a
LEFT JOIN shares AS s ON a.ba = s.ba;

CREATE TEMP TABLE counted AS
SELECT
    w.b,
    sum(w.samples) AS samples,
    sum(w.rollouts) AS rollouts,
    sum(w.scored_rollouts) AS scored_rollouts,
    sum(w.episode_total) AS episode_total,
    sum(w.row_total) AS row_total,
    sum(w.ok_samples) AS ok_samples,
    count(w.episode_total) AS scored_adapters,
    avg(w.episode_total / nullif(w.scored_rollouts, 0)) AS macro,
    any_value(u.mean) AS unscoped,
    any_value(u.buckets) AS buckets
FROM weighed AS w
LEFT JOIN (SELECT b, avg(total / n) AS mean, count(*) AS buckets FROM bucket GROUP BY b) AS u ON w.b = u.b
GROUP BY w.b;

COPY (
    SELECT
        '$RUN' AS run,
        b.split,
        b.step,
        a.adapter_name,
        a.adapter_slot,
        w.samples,
        w.rollouts,
        w.scored_rollouts,
        w.trainable_tokens,
        w.episode_total / nullif(w.scored_rollouts, 0) AS episode_raw_reward,
        w.ok_samples / nullif(c.ok_samples, 0) AS weight_by_rows,
        CASE WHEN c.ok_samples > 0 THEN w.share / c.buckets END AS weight_unscoped,
        w.scored_rollouts / nullif(c.scored_rollouts, 0) AS weight_scoped,
        CASE WHEN w.scored_rollouts > 0 THEN 1.0 ELSE 0.0 END / nullif(c.scored_adapters, 0) AS weight_macro
    FROM weighed AS w
    INNER JOIN counted AS c ON w.b = c.b
    INNER JOIN batch AS b ON w.b = b.b
    INNER JOIN adapter AS a ON w.ba & 1023 = a.a
) TO '$OUT/adapters.parquet' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1);

COPY (
    SELECT '$RUN' AS run, b.split, b.step, m.* EXCLUDE (b)
    FROM (
        SELECT
            b,
            'batch' AS scope,
            NULL::VARCHAR AS adapter_name,
            NULL::BIGINT AS adapter_slot,
            unnest([
                {'metric': 'num_training_samples', 'value': samples::DOUBLE, 'count': samples::BIGINT},
                {
                    'metric': 'episode_raw_reward',
                    'value': coalesce(episode_total / nullif(scored_rollouts, 0), 0.0),
                    'count': scored_rollouts::BIGINT
                },
                {
                    'metric': 'row_mean_raw_reward',
                    'value': coalesce(row_total / nullif(ok_samples, 0), 0.0),
                    'count': ok_samples::BIGINT
                },
                {'metric': 'unscoped_raw_reward', 'value': coalesce(unscoped, 0.0), 'count': coalesce(buckets, 0)},
                {'metric': 'adapter_macro_raw_reward', 'value': coalesce(macro, 0.0), 'count': scored_adapters}
            ], recursive := true)
        FROM counted
        UNION ALL
        SELECT
            w.b,
            'adapter' AS scope,
            a.adapter_name,
            a.adapter_slot,
            unnest([
                {'metric': 'num_training_samples', 'value': w.samples::DOUBLE, 'count': w.samples},
                {
                    'metric': 'episode_raw_reward',
                    'value': w.episode_total / nullif(w.scored_rollouts, 0),
                    'count': w.scored_rollouts
                },
                {
                    'metric': 'row_mean_raw_reward',
                    'value': w.row_total / nullif(w.ok_samples, 0),
                    'count': w.ok_samples
                }
            ], recursive := true)
        FROM weighed AS w
        INNER JOIN adapter AS a ON w.ba & 1023 = a.a
    ) AS m
    INNER JOIN batch AS b ON m.b = b.b
) TO '$OUT/metrics.parquet' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1);

COPY (
    SELECT
        '$RUN' AS run,
        b.split,
        b.step,
        b.source,
        c.samples::BIGINT AS samples,
        c.rollouts::BIGINT AS rollouts,
        c.scored_rollouts::BIGINT AS scored_rollouts,
        p.prompt_groups,
        s.reward_missing,
        s.reward_nan,
        s.reward_inf
    FROM counted AS c
    INNER JOIN batch AS b ON c.b = b.b
    INNER JOIN (SELECT ba >> 10 AS b, count(*) AS prompt_groups FROM prompt GROUP BY ba >> 10) AS p ON c.b = p.b
    INNER JOIN (
        SELECT
            ba >> 10 AS b,
            count(*) FILTER (reward_state = 'missing') AS reward_missing,
            count(*) FILTER (reward_state = 'nan') AS reward_nan,
            count(*) FILTER (reward_state = 'inf') AS reward_inf
        FROM sample
        GROUP BY ba >> 10
    ) AS s ON c.b = s.b
) TO '$OUT/batches.parquet' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1);
