-- With which settings was a batch computed?
--
-- grain: run, split, step
-- read: `batches.settings` as columns. normalises and divides are what the settings come to: whether
--     advantages are rewards less their group's mean, and whether that is divided by the deviation.
-- columns:
--     run: training run
--     split: train or eval
--     step: the batch's number
--     advantage_estimator: setting advantage_estimator
--     rewards_normalization: setting rewards_normalization
--     grpo_std_normalization: setting grpo_std_normalization
--     reward_key: setting reward_key; null for none
--     n_samples_per_prompt: setting n_samples_per_prompt; null for none
--     rollout_batch_size: setting rollout_batch_size; null for none
--     sibling_rewards: setting sibling_rewards
--     pass_threshold: setting pass_threshold
--     log_reward_category: setting log_reward_category; null for none
--     selects_metrics: whether the setting metrics selects some, and others are not published
--     normalises: whether the advantage is the reward less the mean of its group
--     divides: whether that is divided by the deviation of the group

WITH given AS (
    SELECT
        run,
        split,
        step,
        json_extract_string(settings, '$.advantage_estimator') AS advantage_estimator,
        CAST(json_extract_string(settings, '$.rewards_normalization') AS BOOLEAN) AS rewards_normalization,
        CAST(json_extract_string(settings, '$.grpo_std_normalization') AS BOOLEAN) AS grpo_std_normalization,
        json_extract_string(settings, '$.reward_key') AS reward_key,
        CAST(json_extract_string(settings, '$.n_samples_per_prompt') AS BIGINT) AS n_samples_per_prompt,
        CAST(json_extract_string(settings, '$.rollout_batch_size') AS BIGINT) AS rollout_batch_size,
        json_extract_string(settings, '$.sibling_rewards') AS sibling_rewards,
        coalesce(CAST(json_extract_string(settings, '$.pass_threshold') AS DOUBLE), 1.0) AS pass_threshold,
        json_extract_string(settings, '$.log_reward_category') AS log_reward_category,
        json_extract_string(settings, '$.metrics') IS NOT NULL AS selects_metrics
    FROM batches
)

SELECT
    run,
    split,
    step,
    advantage_estimator,
    rewards_normalization,
    grpo_std_normalization,
    reward_key,
    n_samples_per_prompt,
    rollout_batch_size,
    sibling_rewards,
    pass_threshold,
    log_reward_category,
    selects_metrics,
    rewards_normalization AND advantage_estimator IN ('grpo', 'gspo', 'reinforce_plus_plus_baseline') AS normalises,
    rewards_normalization AND grpo_std_normalization AND advantage_estimator IN ('grpo', 'gspo') AS divides
FROM given;
