-- What do the metrics of rollouts average?
--
-- grain: run, split, step, adapter_name, adapter_slot, kind, id, prompt_group
-- read: One row a rollout within its prompt group, one column a measure, as in pipeline/stages/units.py, made
--     from samples alone.
-- columns:
--     run: training run
--     split: train or eval
--     step: the batch's number
--     adapter_name: LoRA adapter's name; null for no adapter
--     adapter_slot: LoRA adapter's slot; null for no adapter
--     kind: what identifies the rollout: rollout, sample, position
--     id: the rollout's id of that kind
--     prompt_group: ordinal of the prompt group in the batch
--     samples: its samples
--     is_fan_out: whether there are several
--     mainstream_reward: reward of the mainstream sample; null where not ok
--     advantage: advantage of the rollout
--     rollout_tokens: trainable tokens of all its samples
--     trains_nothing: whether there are none
--     any_truncated: whether a sample was truncated
--     mainstream_truncated: whether the mainstream sample was truncated
--     any_aborted: whether a sample was aborted
--     mainstream_removed: whether the mainstream sample is removed
--     has_status: true where a sample has a status, else null
--     has_parts: true where the mainstream sample has a dictionary for a reward, else null
--     raw_low: smallest ok raw reward
--     raw_high: largest ok raw reward
--     vote_change: how far the advantage would move if rollouts of a removed mainstream sample had no vote

WITH cut AS (
    SELECT
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        kind,
        id,
        prompt_group,
        count(*) AS samples,
        max(reward) FILTER (WHERE is_mainstream) AS mainstream_reward,
        max(advantage) FILTER (WHERE is_mainstream) AS advantage,
        CAST(sum(trainable_tokens) AS BIGINT) AS rollout_tokens,
        coalesce(bool_or(status = 'truncated'), false) AS any_truncated,
        coalesce(bool_or(status = 'truncated') FILTER (WHERE is_mainstream), false) AS mainstream_truncated,
        coalesce(bool_or(status = 'aborted'), false) AS any_aborted,
        bool_or(remove_sample) FILTER (WHERE is_mainstream) AS mainstream_removed,
        CASE WHEN count(status) > 0 THEN true END AS has_status,
        CASE WHEN max(len(reward_parts)) FILTER (WHERE is_mainstream) > 0 THEN true END AS has_parts,
        min(raw_reward) AS raw_low,
        max(raw_reward) AS raw_high
    FROM samples
    GROUP BY run, split, step, adapter_name, adapter_slot, kind, id, prompt_group
),

kept AS (
    -- Votes that are left without removed mainstream samples, of the groups that have one.
    SELECT
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        prompt_group,
        favg(mainstream_reward / 4194304) FILTER (WHERE NOT mainstream_removed) * 4194304 AS mean,
        deviation_of(CASE WHEN NOT mainstream_removed THEN mainstream_reward END) AS std,
        min(mainstream_reward) FILTER (WHERE NOT mainstream_removed) AS low,
        max(mainstream_reward) FILTER (WHERE NOT mainstream_removed) AS high
    FROM cut
    GROUP BY run, split, step, adapter_name, adapter_slot, prompt_group
    HAVING bool_or(mainstream_removed)
)

SELECT
    c.run,
    c.split,
    c.step,
    c.adapter_name,
    c.adapter_slot,
    c.kind,
    c.id,
    c.prompt_group,
    c.samples,
    c.samples > 1 AS is_fan_out,
    c.mainstream_reward,
    c.advantage,
    c.rollout_tokens,
    c.rollout_tokens = 0 AS trains_nothing,
    c.any_truncated,
    c.mainstream_truncated,
    c.any_aborted,
    c.mainstream_removed,
    c.has_status,
    c.has_parts,
    c.raw_low,
    c.raw_high,
    CASE
        WHEN NOT t.normalises OR c.advantage IS NULL THEN NULL
        WHEN k.run IS NULL THEN 0.0
        WHEN c.mainstream_removed THEN NULL
        ELSE abs(advantage_of(c.mainstream_reward, k.mean, k.std, k.low, k.high, true, t.divides) - c.advantage)
    END AS vote_change
FROM cut AS c
INNER JOIN batch_settings AS t ON c.run = t.run AND c.split = t.split AND c.step = t.step
LEFT JOIN kept AS k
    ON c.run = k.run
    AND c.split = k.split
    AND c.step = k.step
    AND c.adapter_name IS NOT DISTINCT FROM k.adapter_name
    AND c.adapter_slot IS NOT DISTINCT FROM k.adapter_slot
    AND c.prompt_group = k.prompt_group;
