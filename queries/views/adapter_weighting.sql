-- How much does each adapter weigh in the mean reward of its batch, under each definition?
--
-- grain: run, split, step, adapter_name, adapter_slot
-- read: weight_scoped is the right weight: the adapter's share of the scored rollouts. overweight_by_rows and
--     overweight_unscoped are factors on it: 1.5 says that the definition counts the adapter half as often
--     again as it should. The contributions of a batch's adapters add up to its mean under that definition.
-- columns:
--     run: training run
--     split: train or eval
--     step: the batch's number
--     adapter_name: LoRA adapter's name; null for no adapter
--     adapter_slot: LoRA adapter's slot; null for no adapter
--     samples: samples of the adapter
--     rollouts: its rollouts
--     scored_rollouts: those with at least one ok raw reward
--     trainable_tokens: trainable tokens of its samples
--     token_share: its share of the batch's trainable tokens; null if the batch has none
--     episode_raw_reward: mean over its scored rollouts; null if none
--     weight_by_rows: its share of the batch's ok samples; null if none
--     weight_unscoped: its share where equal local ids of different adapters merge
--     weight_scoped: its share of the batch's scored rollouts: the right weight
--     weight_macro: 1 / scored adapters; 0 where it has no scored rollout
--     overweight_by_rows: weight_by_rows / weight_scoped; null where it has no scored rollout
--     overweight_unscoped: weight_unscoped / weight_scoped; null where it has no scored rollout
--     contribution_by_rows: its part of row_mean_raw_reward
--     contribution_unscoped: its part of unscoped_raw_reward
--     contribution_scoped: its part of episode_raw_reward
--     contribution_macro: its part of adapter_macro_raw_reward

WITH buckets AS (
    -- A rollout's key without the adapter, as if ids of different adapters were the same rollout's.
    SELECT
        run,
        split,
        step,
        kind,
        id,
        group_index,
        count(*) AS ok_samples
    FROM samples
    WHERE raw_reward IS NOT NULL
    GROUP BY run, split, step, kind, id, group_index
),

unscoped AS (
    -- Each sample has 1 / (ok samples of its bucket) of the bucket's vote. Divided by 2^22 while added, so that the
    -- largest doubles cannot overflow.
    SELECT
        s.run,
        s.split,
        s.step,
        s.adapter_name,
        s.adapter_slot,
        sum(s.raw_reward / b.ok_samples / 4194304) AS votes
    FROM samples AS s
    INNER JOIN buckets AS b
        ON s.run = b.run
        AND s.split = b.split
        AND s.step = b.step
        AND s.kind = b.kind
        AND s.id = b.id
        AND s.group_index IS NOT DISTINCT FROM b.group_index
    WHERE s.raw_reward IS NOT NULL
    GROUP BY s.run, s.split, s.step, s.adapter_name, s.adapter_slot
)

SELECT
    a.run,
    a.split,
    a.step,
    a.adapter_name,
    a.adapter_slot,
    a.samples,
    a.rollouts,
    a.scored_rollouts,
    a.trainable_tokens,
    a.trainable_tokens / nullif(sum(a.trainable_tokens) OVER (PARTITION BY a.run, a.split, a.step), 0) AS token_share,
    a.episode_raw_reward,
    a.weight_by_rows,
    a.weight_unscoped,
    a.weight_scoped,
    a.weight_macro,
    a.weight_by_rows / nullif(a.weight_scoped, 0) AS overweight_by_rows,
    a.weight_unscoped / nullif(a.weight_scoped, 0) AS overweight_unscoped,
    a.weight_by_rows * m.row_mean_raw_reward AS contribution_by_rows,
    u.votes / d.merged_buckets * 4194304 AS contribution_unscoped,
    a.weight_scoped * a.episode_raw_reward AS contribution_scoped,
    a.weight_macro * a.episode_raw_reward AS contribution_macro
FROM adapters AS a
INNER JOIN metrics_wide AS m
    ON a.run = m.run
    AND a.split = m.split
    AND a.step = m.step
    AND m.scope = 'adapter'
    AND a.adapter_name IS NOT DISTINCT FROM m.adapter_name
    AND a.adapter_slot IS NOT DISTINCT FROM m.adapter_slot
INNER JOIN metric_definitions AS d ON a.run = d.run AND a.split = d.split AND a.step = d.step
LEFT JOIN unscoped AS u
    ON a.run = u.run
    AND a.split = u.split
    AND a.step = u.step
    AND a.adapter_name IS NOT DISTINCT FROM u.adapter_name
    AND a.adapter_slot IS NOT DISTINCT FROM u.adapter_slot;
