-- What would each definition have said of a batch, and how far is it from the right one?
--
-- grain: run, split, step
-- severity: info
-- read: A difference of 0 means that the definition happens to do no harm in this batch. Where signs_cancel
--     is true, look at the adapters instead of any pooled mean.
-- order: the batch whose row mean or unscoped mean is furthest off comes first.
-- parameters:
--     run VARCHAR: only this run
--     split VARCHAR: only train, or only eval
--     from_step BIGINT: no earlier step
--     to_step BIGINT: no later step
--     adapter VARCHAR: only batches that this adapter is in, by name
--     limit BIGINT: rows at most, those that matter most; null for all
-- columns:
--     run: training run
--     split: train or eval
--     step: the batch's number
--     samples: samples in the batch
--     rollouts: rollouts of the episode metrics (own group_index in the key)
--     scored_rollouts: those with at least one ok raw reward: what episode_raw_reward averages
--     scored_samples: samples with an ok raw reward: what row_mean_raw_reward averages
--     merged_buckets: rollouts left once ids of different adapters merge
--     scored_adapters: adapters with a scored rollout
--     episode_raw_reward: mean over rollouts, ids scoped by adapter: the right one
--     row_mean_raw_reward: mean over samples: fan-out votes
--     unscoped_raw_reward: mean over rollouts with ids of different adapters merged
--     adapter_macro_raw_reward: mean of the adapters' own means
--     row_mean_difference: row_mean_raw_reward - episode_raw_reward
--     unscoped_difference: unscoped_raw_reward - episode_raw_reward
--     macro_difference: adapter_macro_raw_reward - episode_raw_reward
--     lowest_adapter_reward: smallest episode_raw_reward of an adapter
--     highest_adapter_reward: largest episode_raw_reward of an adapter
--     signs_cancel: whether adapters of opposite sign hide in the pooled mean

SELECT
    run,
    split,
    step,
    samples,
    rollouts,
    scored_rollouts,
    scored_samples,
    merged_buckets,
    scored_adapters,
    episode_raw_reward,
    row_mean_raw_reward,
    unscoped_raw_reward,
    adapter_macro_raw_reward,
    row_mean_difference,
    unscoped_difference,
    macro_difference,
    lowest_adapter_reward,
    highest_adapter_reward,
    signs_cancel
FROM metric_definitions
WHERE ($run IS NULL OR run = $run)
    AND ($split IS NULL OR split = $split)
    AND ($from_step IS NULL OR step >= $from_step)
    AND ($to_step IS NULL OR step <= $to_step)
    AND (
        $adapter IS NULL
        OR (run, split, step) IN (SELECT (run, split, step) FROM adapters WHERE adapter_name = $adapter)
    )
ORDER BY greatest(abs(row_mean_difference), abs(unscoped_difference)) DESC, run, split, step
LIMIT $limit;
