-- Which rollouts are judged by a sample that should hardly speak for them?
--
-- grain: run, split, step, adapter_name, adapter_slot, prompt_group, kind, id
-- severity: warning
-- read: The mainstream sample gives the rollout its reward. Here it was cut off (truncated), carries no
--     gradient (removed, no_tokens), won by being first among equally long siblings of other rewards (tied),
--     is further from every scored sibling than they are from each other (outlier), or has no reward although
--     a sibling has one (unscored).
-- order: the rollout with the most risks comes first, of equal ones that with the larger advantage.
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
--     mainstream_tokens: trainable tokens of the mainstream sample
--     reward_min: smallest ok reward of its samples
--     reward_max: largest ok reward of its samples
--     advantage: normalised reward of the rollout; null for eval or where it is not scored
--     truncated: the mainstream sample was truncated
--     removed: it is removed from the loss
--     no_tokens: it has no trainable tokens
--     tied: a later sibling has as many tokens and another reward
--     outlier: it is further from every scored sibling than they are from each other
--     unscored: it has no ok reward, and a sibling has
--     risks: how many of these are true

WITH removed AS (
    SELECT run, split, step, row AS mainstream_row
    FROM samples
    WHERE is_mainstream
        AND remove_sample
        AND ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
        AND ($adapter IS NULL OR adapter_name = $adapter)
),

choosable AS (
    -- Rollouts in which it matters which sample is the mainstream one.
    SELECT
        run,
        split,
        step,
        prompt_group,
        kind,
        id,
        mainstream_row,
        mainstream_reward,
        mainstream_tokens
    FROM rollouts
    WHERE (siblings_differ OR (mainstream_reward IS NULL AND reward_min IS NOT NULL))
        AND ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
        AND ($adapter IS NULL OR adapter_name = $adapter)
),

siblings AS (
    SELECT
        s.run,
        s.split,
        s.step,
        s.prompt_group,
        s.kind,
        s.id,
        c.mainstream_reward,
        count(s.reward) AS scored,
        min(s.reward) AS lowest,
        max(s.reward) AS highest,
        bool_or(
            s.trainable_tokens = c.mainstream_tokens AND s.reward IS DISTINCT FROM c.mainstream_reward
        ) AS ties
    FROM samples AS s
    INNER JOIN choosable AS c
        ON s.run = c.run
        AND s.split = c.split
        AND s.step = c.step
        AND s.prompt_group = c.prompt_group
        AND s.kind = c.kind
        AND s.id = c.id
        AND s.row <> c.mainstream_row
    GROUP BY ALL
),

judged AS (
    SELECT
        r.*,
        r.mainstream_truncated AS truncated,
        m.mainstream_row IS NOT NULL AS removed,
        r.mainstream_tokens = 0 AS no_tokens,
        coalesce(s.ties, false) AS tied,
        coalesce(
            s.scored > 1
            AND (
                s.mainstream_reward - s.highest > s.highest - s.lowest
                OR s.lowest - s.mainstream_reward > s.highest - s.lowest
            ),
            false
        ) AS outlier,
        r.mainstream_reward IS NULL AND r.reward_min IS NOT NULL AS unscored,
        CAST(truncated AS BIGINT) + CAST(removed AS BIGINT) + CAST(no_tokens AS BIGINT) + CAST(tied AS BIGINT)
            + CAST(outlier AS BIGINT) + CAST(unscored AS BIGINT) AS risks
    FROM rollouts AS r
    LEFT JOIN removed AS m USING (run, split, step, mainstream_row)
    LEFT JOIN siblings AS s USING (run, split, step, prompt_group, kind, id)
    WHERE ($run IS NULL OR r.run = $run)
        AND ($split IS NULL OR r.split = $split)
        AND ($from_step IS NULL OR r.step >= $from_step)
        AND ($to_step IS NULL OR r.step <= $to_step)
        AND ($adapter IS NULL OR r.adapter_name = $adapter)
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
    mainstream_tokens,
    reward_min,
    reward_max,
    advantage,
    truncated,
    removed,
    no_tokens,
    tied,
    outlier,
    unscored,
    risks
FROM judged
WHERE risks > 0
ORDER BY risks DESC, abs(advantage) DESC NULLS LAST, run, split, step, prompt_group, kind, id
LIMIT $limit;
