-- What are the metrics of a batch and of each of its adapters, side by side?
--
-- grain: run, split, step, scope, adapter_name, adapter_slot
-- read: `metrics` with a column a metric and a column for what it is a mean of. A metric that has no meaning
--     for one adapter is null there.
-- columns:
--     run: training run
--     split: train or eval
--     step: the batch's number
--     scope: batch or adapter
--     adapter_name: LoRA adapter's name; null for no adapter
--     adapter_slot: LoRA adapter's slot; null for no adapter
--     num_training_samples: value of the metric num_training_samples
--     num_training_samples_count: number of things that num_training_samples is a mean of
--     episode_raw_reward: value of the metric episode_raw_reward
--     episode_raw_reward_count: number of things that episode_raw_reward is a mean of
--     row_mean_raw_reward: value of the metric row_mean_raw_reward
--     row_mean_raw_reward_count: number of things that row_mean_raw_reward is a mean of
--     unscoped_raw_reward: value of the metric unscoped_raw_reward
--     unscoped_raw_reward_count: number of things that unscoped_raw_reward is a mean of
--     adapter_macro_raw_reward: value of the metric adapter_macro_raw_reward
--     adapter_macro_raw_reward_count: number of things that adapter_macro_raw_reward is a mean of

SELECT
    run,
    split,
    step,
    scope,
    adapter_name,
    adapter_slot,
    max(value) FILTER (WHERE metric = 'num_training_samples') AS num_training_samples,
    max(count) FILTER (WHERE metric = 'num_training_samples') AS num_training_samples_count,
    max(value) FILTER (WHERE metric = 'episode_raw_reward') AS episode_raw_reward,
    max(count) FILTER (WHERE metric = 'episode_raw_reward') AS episode_raw_reward_count,
    max(value) FILTER (WHERE metric = 'row_mean_raw_reward') AS row_mean_raw_reward,
    max(count) FILTER (WHERE metric = 'row_mean_raw_reward') AS row_mean_raw_reward_count,
    max(value) FILTER (WHERE metric = 'unscoped_raw_reward') AS unscoped_raw_reward,
    max(count) FILTER (WHERE metric = 'unscoped_raw_reward') AS unscoped_raw_reward_count,
    max(value) FILTER (WHERE metric = 'adapter_macro_raw_reward') AS adapter_macro_raw_reward,
    max(count) FILTER (WHERE metric = 'adapter_macro_raw_reward') AS adapter_macro_raw_reward_count
FROM metrics
GROUP BY run, split, step, scope, adapter_name, adapter_slot;
