-- Which rollouts have siblings with different rewards, and what would another choice of reward do?
--
-- grain: run, split, step, adapter_name, adapter_slot, prompt_group, kind, id
-- severity: warning
-- read: The mainstream sample (most trainable tokens) stands for the rollout. advantage_first is the
--     advantage it would have if every rollout of its group were given the reward of its first scored sample
--     instead, and so on. spread is how far its siblings are apart.
-- order: the rollout whose advantage depends most on the choice comes first.
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
--     adapter_name: LoRA adapter's name; null for no adapter
--     adapter_slot: LoRA adapter's slot; null for no adapter
--     prompt_group: ordinal of the prompt group in the batch
--     kind: what identifies the rollout: rollout, sample, position
--     id: the rollout's id of that kind
--     samples: its samples (siblings)
--     mainstream_row: row of the mainstream sample
--     mainstream_reward: reward of the mainstream sample; null where not ok
--     first_reward: reward of its first scored sample
--     last_reward: reward of its last scored sample
--     mean_reward: mean of its scored samples
--     reward_min: smallest ok reward of its samples
--     reward_max: largest ok reward of its samples
--     spread: reward_max - reward_min
--     advantage: normalised reward of the rollout; null for eval or where it is not scored
--     advantage_first: advantage if the first reward stood for every rollout
--     advantage_last: advantage if the last reward did
--     advantage_mean: advantage if the mean did
--     largest_change: largest distance of these three from advantage

WITH differing AS (
    SELECT run, split, step, prompt_group, kind, id
    FROM rollouts
    WHERE siblings_differ
        AND ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
        AND ($adapter IS NULL OR adapter_name = $adapter)
),

sibling_rewards AS (
    SELECT
        s.run,
        s.split,
        s.step,
        s.prompt_group,
        s.kind,
        s.id,
        arg_min(s.reward, s.row) AS first_reward,
        arg_max(s.reward, s.row) AS last_reward,
        favg(s.reward / 4194304) * 4194304 AS mean_reward
    FROM samples AS s
    SEMI JOIN differing AS d
        ON s.run = d.run
        AND s.split = d.split
        AND s.step = d.step
        AND s.prompt_group = d.prompt_group
        AND s.kind = d.kind
        AND s.id = d.id
    WHERE s.reward IS NOT NULL
    GROUP BY ALL
),

choices AS (
    -- Every rollout of a group that has one with differing siblings. The others have one reward whatever the choice.
    SELECT
        r.*,
        coalesce(s.first_reward, r.reward_min) AS first_reward,
        coalesce(s.last_reward, r.reward_min) AS last_reward,
        coalesce(s.mean_reward, r.reward_min) AS mean_reward
    FROM rollouts AS r
    SEMI JOIN differing USING (run, split, step, prompt_group)
    LEFT JOIN sibling_rewards AS s USING (run, split, step, prompt_group, kind, id)
),

chosen_groups AS (
    SELECT
        run,
        split,
        step,
        prompt_group,
        avg(first_reward) AS first_mean,
        stddev_samp(first_reward) AS first_std,
        min(first_reward) AS first_min,
        max(first_reward) AS first_max,
        avg(last_reward) AS last_mean,
        stddev_samp(last_reward) AS last_std,
        min(last_reward) AS last_min,
        max(last_reward) AS last_max,
        avg(mean_reward) AS mean_mean,
        stddev_samp(mean_reward) AS mean_std,
        min(mean_reward) AS mean_min,
        max(mean_reward) AS mean_max
    FROM choices
    GROUP BY run, split, step, prompt_group
),

compared AS (
    SELECT
        c.*,
        CASE
            WHEN c.split = 'train'
                THEN advantage_of(
                    c.first_reward, g.first_mean, g.first_std, g.first_min, g.first_max, b.normalises, b.divides
                )
        END AS advantage_first,
        CASE
            WHEN c.split = 'train'
                THEN advantage_of(
                    c.last_reward, g.last_mean, g.last_std, g.last_min, g.last_max, b.normalises, b.divides
                )
        END AS advantage_last,
        CASE
            WHEN c.split = 'train'
                THEN advantage_of(
                    c.mean_reward, g.mean_mean, g.mean_std, g.mean_min, g.mean_max, b.normalises, b.divides
                )
        END AS advantage_mean
    FROM choices AS c
    INNER JOIN chosen_groups AS g USING (run, split, step, prompt_group)
    INNER JOIN batch_settings AS b USING (run, split, step)
    WHERE c.siblings_differ
)

SELECT
    run,
    split,
    step,
    adapter_name,
    adapter_slot,
    prompt_group,
    kind,
    id,
    samples,
    mainstream_row,
    mainstream_reward,
    first_reward,
    last_reward,
    mean_reward,
    reward_min,
    reward_max,
    reward_max - reward_min AS spread,
    advantage,
    advantage_first,
    advantage_last,
    advantage_mean,
    greatest(
        abs(advantage_first - advantage), abs(advantage_last - advantage), abs(advantage_mean - advantage)
    ) AS largest_change
FROM compared
ORDER BY largest_change DESC NULLS LAST, spread DESC, run, split, step, prompt_group, kind, id
LIMIT $limit;
