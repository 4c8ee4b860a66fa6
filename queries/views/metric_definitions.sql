-- What is the mean reward of a batch under each definition, and how far are they apart?
--
-- grain: run, split, step
-- read: episode_raw_reward is the right one. row_mean lets a rollout vote once a sample, unscoped merges
--     rollouts of different adapters that have the same local id, macro gives every adapter one vote. A
--     difference of 0 means that the definition happens to do no harm here.
-- columns:
--     run: training run
--     split: train or eval
--     step: the batch's number
--     samples: samples in the batch
--     rollouts: rollouts of the episode metrics (own group_index in the key)
--     scored_rollouts: those with at least one ok raw reward: what episode_raw_reward averages
--     scored_samples: samples with an ok raw reward: what row_mean_raw_reward averages
--     merged_buckets: rollouts left once ids of different adapters merge: what unscoped_raw_reward averages
--     scored_adapters: adapters with a scored rollout: what adapter_macro_raw_reward averages
--     episode_raw_reward: mean over rollouts, ids scoped by adapter
--     row_mean_raw_reward: mean over samples: fan-out votes
--     unscoped_raw_reward: mean over rollouts with ids of different adapters merged
--     adapter_macro_raw_reward: mean of the adapters' own means
--     row_mean_difference: row_mean_raw_reward - episode_raw_reward
--     unscoped_difference: unscoped_raw_reward - episode_raw_reward
--     macro_difference: adapter_macro_raw_reward - episode_raw_reward
--     lowest_adapter_reward: smallest episode_raw_reward of an adapter
--     highest_adapter_reward: largest episode_raw_reward of an adapter
--     signs_cancel: whether adapters of opposite sign hide in the pooled mean

WITH adapter_range AS (
    SELECT
        run,
        split,
        step,
        min(episode_raw_reward) AS lowest,
        max(episode_raw_reward) AS highest
    FROM adapters
    GROUP BY run, split, step
)

SELECT
    b.run,
    b.split,
    b.step,
    b.samples,
    b.rollouts,
    b.scored_rollouts,
    m.row_mean_raw_reward_count AS scored_samples,
    m.unscoped_raw_reward_count AS merged_buckets,
    m.adapter_macro_raw_reward_count AS scored_adapters,
    m.episode_raw_reward,
    m.row_mean_raw_reward,
    m.unscoped_raw_reward,
    m.adapter_macro_raw_reward,
    m.row_mean_raw_reward - m.episode_raw_reward AS row_mean_difference,
    m.unscoped_raw_reward - m.episode_raw_reward AS unscoped_difference,
    m.adapter_macro_raw_reward - m.episode_raw_reward AS macro_difference,
    r.lowest AS lowest_adapter_reward,
    r.highest AS highest_adapter_reward,
    coalesce(r.lowest < 0 AND r.highest > 0, false) AS signs_cancel
FROM batches AS b
INNER JOIN metrics_wide AS m ON b.run = m.run AND b.split = m.split AND b.step = m.step AND m.scope = 'batch'
LEFT JOIN adapter_range AS r ON b.run = r.run AND b.split = r.split AND b.step = r.step;
