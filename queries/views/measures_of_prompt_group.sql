-- What do the metrics of prompt groups average?
--
-- grain: run, split, step, adapter_name, adapter_slot, prompt_group
-- read: One row a prompt group, one column a measure, as in pipeline/stages/units.py, made from
--     `measures_of_rollout`. expected is n_samples_per_prompt, else the size that most groups of the adapter have.
-- columns:
--     run: training run
--     split: train or eval
--     step: the batch's number
--     adapter_name: LoRA adapter's name; null for no adapter
--     adapter_slot: LoRA adapter's slot; null for no adapter
--     prompt_group: ordinal of the prompt group in the batch
--     rollouts: its rollouts
--     scored: those with a scored mainstream sample
--     passes: those whose reward reaches pass_threshold
--     expected: how many rollouts there should be
--     is_incomplete: whether there are fewer
--     is_overfull: whether there are more
--     reward_is_numeric: whether a mainstream reward is scored
--     reward_is_not_numeric: whether none is
--     reward_is_constant: whether all scored ones are equal; null if none
--     reward_is_all_zero: whether all are 0
--     reward_is_all_one: whether all are 1
--     reward_constant: that constant as part of a name
--     raw_is_numeric: whether a raw reward is ok
--     raw_is_not_numeric: whether none is
--     raw_is_constant: whether all ok ones are equal; null if none
--     raw_is_all_zero: whether all are 0
--     raw_is_all_one: whether all are 1
--     raw_constant: that constant as part of a name
--     is_phantom: whether the raw reward is constant and the reward is not
--     is_constant_where_not_aborted: reward_is_constant without rollouts that have an aborted sample
--     has_gradient: whether a rollout has an advantage other than 0 and trainable tokens; null for
--         evaluation
--     has_advantages: true for train batches, else null
--     has_status: true where a sample has a status, else null

WITH grouped AS (
    -- The rollouts are read once, and every window has the batch among its keys, so that a range of steps is all
    -- that is read where a range is asked for.
    SELECT
        r.run,
        r.split,
        r.step,
        r.adapter_name,
        r.adapter_slot,
        r.prompt_group,
        any_value(t.n_samples_per_prompt) AS n_samples_per_prompt,
        count(*) AS rollouts,
        count(r.mainstream_reward) AS scored,
        count(*) FILTER (WHERE r.mainstream_reward >= t.pass_threshold) AS passes,
        min(r.mainstream_reward) AS reward_low,
        max(r.mainstream_reward) AS reward_high,
        min(r.raw_low) AS raw_low,
        max(r.raw_high) AS raw_high,
        min(r.mainstream_reward) FILTER (WHERE NOT r.any_aborted) AS kept_low,
        max(r.mainstream_reward) FILTER (WHERE NOT r.any_aborted) AS kept_high,
        coalesce(bool_or(r.advantage <> 0 AND r.rollout_tokens > 0), false) AS has_gradient,
        CASE WHEN count(r.has_status) > 0 THEN true END AS has_status
    FROM measures_of_rollout AS r
    INNER JOIN batch_settings AS t ON r.run = t.run AND r.split = t.split AND r.step = t.step
    GROUP BY r.run, r.split, r.step, r.adapter_name, r.adapter_slot, r.prompt_group
),

counted AS (
    SELECT
        *,
        count(*) OVER (PARTITION BY run, split, step, adapter_name, adapter_slot, rollouts) AS groups_of_size
    FROM grouped
),

sized AS (
    SELECT
        *,
        coalesce(
            n_samples_per_prompt,
            first_value(rollouts) OVER (
                PARTITION BY run, split, step, adapter_name, adapter_slot
                ORDER BY groups_of_size DESC, rollouts DESC
            )
        ) AS expected
    FROM counted
)

SELECT
    run,
    split,
    step,
    adapter_name,
    adapter_slot,
    prompt_group,
    rollouts,
    scored,
    passes,
    expected,
    rollouts < expected AS is_incomplete,
    rollouts > expected AS is_overfull,
    reward_low IS NOT NULL AS reward_is_numeric,
    reward_low IS NULL AS reward_is_not_numeric,
    reward_low = reward_high AS reward_is_constant,
    reward_low = 0 AND reward_high = 0 AS reward_is_all_zero,
    reward_low = 1 AND reward_high = 1 AS reward_is_all_one,
    CASE WHEN reward_low = reward_high THEN label_of(reward_low) END AS reward_constant,
    raw_low IS NOT NULL AS raw_is_numeric,
    raw_low IS NULL AS raw_is_not_numeric,
    raw_low = raw_high AS raw_is_constant,
    raw_low = 0 AND raw_high = 0 AS raw_is_all_zero,
    raw_low = 1 AND raw_high = 1 AS raw_is_all_one,
    CASE WHEN raw_low = raw_high THEN label_of(raw_low) END AS raw_constant,
    coalesce(raw_low = raw_high AND reward_low < reward_high, false) AS is_phantom,
    kept_low = kept_high AS is_constant_where_not_aborted,
    CASE WHEN split = 'train' THEN has_gradient END AS has_gradient,
    CASE WHEN split = 'train' THEN true END AS has_advantages,
    has_status
FROM sized;
