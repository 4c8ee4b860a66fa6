-- Which rollout keys stand for several adapters once the adapter is left out, and where are their samples?
--
-- grain: run, split, step, kind, id, group_index
-- severity: warning
-- read: Every row is one key that rollouts of several adapters share. merged_reward is the one vote that they
--     would have together; adapter_rewards are the votes that they have apart.
-- order: the key with the most samples comes first.
-- parameters:
--     run VARCHAR: only this run
--     split VARCHAR: only train, or only eval
--     from_step BIGINT: no earlier step
--     to_step BIGINT: no later step
--     adapter VARCHAR: only keys that this adapter has a sample under
--     limit BIGINT = 1000: rows at most, those that matter most; null for all
-- columns:
--     run: training run
--     split: train or eval
--     step: the batch's number
--     kind: what identifies the rollout: rollout, sample, position
--     id: the rollout's id of that kind
--     group_index: group_index as dumped
--     adapters: adapters under the key, as name#slot
--     adapter_rewards: mean raw reward of the rollout of each, in the same order
--     merged_reward: mean raw reward over all of their samples
--     samples: samples under the key
--     rows: their rows in the batch

WITH merged AS (
    SELECT
        run,
        split,
        step,
        kind,
        id,
        group_index,
        count(*) AS samples
    FROM samples
    WHERE ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
    GROUP BY run, split, step, kind, id, group_index
    HAVING
        (min(adapter_name) <> max(adapter_name)
            OR min(adapter_slot) <> max(adapter_slot)
            OR count(adapter_name) NOT IN (0, count(*)))
        AND bool_or($adapter IS NULL OR adapter_name = $adapter)
    ORDER BY samples DESC, run, split, step, kind, id, group_index
    LIMIT $limit
),

apart AS (
    SELECT
        m.run,
        m.split,
        m.step,
        m.kind,
        m.id,
        m.group_index,
        coalesce(s.adapter_name || '#' || s.adapter_slot, 'no adapter') AS adapter,
        min(s.row) AS first_row,
        list(s.row ORDER BY s.row) AS rows,
        favg(s.raw_reward / 4194304) * 4194304 AS reward,
        count(s.raw_reward) AS scored_samples
    FROM samples AS s
    INNER JOIN merged AS m
        ON s.run = m.run
        AND s.split = m.split
        AND s.step = m.step
        AND s.kind = m.kind
        AND s.id = m.id
        AND s.group_index IS NOT DISTINCT FROM m.group_index
    GROUP BY ALL
)

SELECT
    run,
    split,
    step,
    kind,
    id,
    group_index,
    list(adapter ORDER BY first_row) AS adapters,
    list(reward ORDER BY first_row) AS adapter_rewards,
    favg(reward / 4194304 * scored_samples) / nullif(avg(scored_samples) FILTER (WHERE reward IS NOT NULL), 0)
        * 4194304 AS merged_reward,
    CAST(sum(len(rows)) AS BIGINT) AS samples,
    list_sort(flatten(list(rows))) AS rows
FROM apart
GROUP BY run, split, step, kind, id, group_index
ORDER BY samples DESC, run, split, step, kind, id, group_index;
