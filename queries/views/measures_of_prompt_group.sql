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
    SELECT
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        prompt_group,
        count(*) AS rollouts,
        count(mainstream_reward) AS scored,
        min(mainstream_reward) AS reward_low,
        max(mainstream_reward) AS reward_high,
        min(raw_low) AS raw_low,
        max(raw_high) AS raw_high,
        min(mainstream_reward) FILTER (WHERE NOT any_aborted) AS kept_low,
        max(mainstream_reward) FILTER (WHERE NOT any_aborted) AS kept_high,
        coalesce(bool_or(advantage <> 0 AND rollout_tokens > 0), false) AS has_gradient,
        CASE WHEN count(has_status) > 0 THEN true END AS has_status
    FROM measures_of_rollout
    GROUP BY run, split, step, adapter_name, adapter_slot, prompt_group
),

passing AS (
    SELECT
        r.run,
        r.split,
        r.step,
        r.adapter_name,
        r.adapter_slot,
        r.prompt_group,
        count(*) AS passes
    FROM measures_of_rollout AS r
    INNER JOIN batch_settings AS t ON r.run = t.run AND r.split = t.split AND r.step = t.step
    WHERE r.mainstream_reward >= t.pass_threshold
    GROUP BY r.run, r.split, r.step, r.adapter_name, r.adapter_slot, r.prompt_group
),

frequent AS (
    SELECT run, split, step, adapter_name, adapter_slot, rollouts AS size
    FROM grouped
    GROUP BY run, split, step, adapter_name, adapter_slot, rollouts
    QUALIFY row_number() OVER (
        PARTITION BY run, split, step, adapter_name, adapter_slot
        ORDER BY count(*) DESC, rollouts DESC
    ) = 1
),

sized AS (
    SELECT
        g.*,
        coalesce(p.passes, 0) AS passes,
        coalesce(t.n_samples_per_prompt, f.size) AS expected
    FROM grouped AS g
    INNER JOIN batch_settings AS t ON g.run = t.run AND g.split = t.split AND g.step = t.step
    INNER JOIN frequent AS f
        ON g.run = f.run
        AND g.split = f.split
        AND g.step = f.step
        AND g.adapter_name IS NOT DISTINCT FROM f.adapter_name
        AND g.adapter_slot IS NOT DISTINCT FROM f.adapter_slot
    LEFT JOIN passing AS p
        ON g.run = p.run
        AND g.split = p.split
        AND g.step = p.step
        AND g.adapter_name IS NOT DISTINCT FROM p.adapter_name
        AND g.adapter_slot IS NOT DISTINCT FROM p.adapter_slot
        AND g.prompt_group = p.prompt_group
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
