-- How many rollout keys merge if the adapter, or the kind of id, is left out, and what would it move?
--
-- grain: run, split, step, dropped
-- severity: warning
-- read: One row says what would happen if `dropped` were no part of the key. merged_keys says how many keys
--     then stand for rollouts of several adapters (or for a rollout_id and an index that are equal), and
--     moves by how much the mean reward of the batch would change. The ids themselves are nobody's fault:
--     every adapter numbers its data from 0. `merged_keys` lists the keys.
-- order: the batch whose mean would move furthest comes first.
-- parameters:
--     run VARCHAR: only this run
--     split VARCHAR: only train, or only eval
--     from_step BIGINT: no earlier step
--     to_step BIGINT: no later step
--     adapter VARCHAR: only keys that this adapter has a sample under
--     limit BIGINT: rows at most, those that matter most; null for all
-- columns:
--     run: training run
--     split: train or eval
--     step: the batch's number
--     dropped: what is left out of the key: adapter or kind
--     keys: rollout keys left without it
--     merged_keys: those that stand for several rollouts
--     samples: samples under a merged key
--     first_rows: first row of each merged key, the 20 smallest
--     largest_key: the merged key with the most samples, the first of equal ones
--     largest_key_samples: samples under it
--     episode_raw_reward: mean over rollouts with the full key
--     value_if_dropped: the same without it
--     moves: value_if_dropped - episode_raw_reward

WITH adapter_dropped AS (
    SELECT
        run,
        split,
        step,
        concat(kind, ' ', id, ' in group ', coalesce(CAST(group_index AS VARCHAR), 'null')) AS key,
        count(*) AS samples,
        min(row) AS first_row,
        min(adapter_name) <> max(adapter_name)
            OR min(adapter_slot) <> max(adapter_slot)
            OR count(adapter_name) NOT IN (0, count(*)) AS merges,
        bool_or($adapter IS NULL OR adapter_name = $adapter) AS asked_for
    FROM samples
    WHERE ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
    GROUP BY run, split, step, kind, id, group_index
),

of_several_kinds AS (
    SELECT run, split, step
    FROM samples
    WHERE ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
    GROUP BY run, split, step
    HAVING min(kind) <> max(kind)
),

kind_dropped AS (
    SELECT
        run,
        split,
        step,
        concat(id, ' in group ', coalesce(CAST(group_index AS VARCHAR), 'null')) AS key,
        count(*) AS samples,
        min(row) AS first_row,
        min(kind) <> max(kind) AS merges,
        favg(raw_reward / 4194304) AS scaled_reward,
        bool_or($adapter IS NULL OR adapter_name = $adapter) AS asked_for
    FROM samples
    SEMI JOIN of_several_kinds USING (run, split, step)
    GROUP BY run, split, step, adapter_name, adapter_slot, id, group_index
),

counted AS (
    SELECT
        run,
        split,
        step,
        'adapter' AS dropped,
        count(*) AS keys,
        count(*) FILTER (WHERE merges AND asked_for) AS merged_keys,
        sum(samples) FILTER (WHERE merges AND asked_for) AS samples,
        min(first_row, 20) FILTER (WHERE merges AND asked_for) AS first_rows,
        arg_max(key, [samples, -first_row]) FILTER (WHERE merges AND asked_for) AS largest_key,
        max(samples) FILTER (WHERE merges AND asked_for) AS largest_key_samples,
        CAST(NULL AS DOUBLE) AS value_if_dropped
    FROM adapter_dropped
    GROUP BY run, split, step

    UNION ALL

    SELECT
        run,
        split,
        step,
        'kind' AS dropped,
        count(*) AS keys,
        count(*) FILTER (WHERE merges AND asked_for) AS merged_keys,
        sum(samples) FILTER (WHERE merges AND asked_for) AS samples,
        min(first_row, 20) FILTER (WHERE merges AND asked_for) AS first_rows,
        arg_max(key, [samples, -first_row]) FILTER (WHERE merges AND asked_for) AS largest_key,
        max(samples) FILTER (WHERE merges AND asked_for) AS largest_key_samples,
        coalesce(favg(scaled_reward) * 4194304, 0.0) AS value_if_dropped
    FROM kind_dropped
    GROUP BY run, split, step
)

SELECT
    c.run,
    c.split,
    c.step,
    c.dropped,
    c.keys,
    c.merged_keys,
    CAST(c.samples AS BIGINT) AS samples,
    c.first_rows,
    c.largest_key,
    c.largest_key_samples,
    m.episode_raw_reward,
    coalesce(c.value_if_dropped, m.unscoped_raw_reward) AS value_if_dropped,
    coalesce(c.value_if_dropped, m.unscoped_raw_reward) - m.episode_raw_reward AS moves
FROM counted AS c
INNER JOIN metrics_wide AS m ON c.run = m.run AND c.split = m.split AND c.step = m.step AND m.scope = 'batch'
WHERE c.merged_keys > 0
ORDER BY abs(moves) DESC, c.merged_keys DESC, c.run, c.split, c.step, c.dropped
LIMIT $limit;
