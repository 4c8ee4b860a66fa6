-- Who weighs how much in the mean reward, and whom do fan-out and merged ids overweight?
--
-- grain: run, split, step, adapter_name, adapter_slot
-- severity: warning
-- read: weight_scoped is the right weight. Where overweight_unscoped is 1.5, a trainer that leaves the
--     adapter out of the rollout key counts this adapter half as often again as it should; overweight_by_rows
--     says the same of a mean over samples. token_share is what the loss sees of it.
-- order: the adapter whose weight is furthest off comes first.
-- parameters:
--     run VARCHAR: only this run
--     split VARCHAR: only train, or only eval
--     from_step BIGINT: no earlier step
--     to_step BIGINT: no later step
--     adapter VARCHAR: only this adapter, by name, in whatever slot
--     limit BIGINT: rows at most, those that matter most; null for all
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
--     overweight_by_rows: weight_by_rows / weight_scoped: the factor by which fan-out overweights it
--     overweight_unscoped: weight_unscoped / weight_scoped: the factor by which merged ids overweight it
--     contribution_by_rows: its part of row_mean_raw_reward
--     contribution_unscoped: its part of unscoped_raw_reward
--     contribution_scoped: its part of episode_raw_reward
--     contribution_macro: its part of adapter_macro_raw_reward

SELECT
    run,
    split,
    step,
    adapter_name,
    adapter_slot,
    samples,
    rollouts,
    scored_rollouts,
    trainable_tokens,
    token_share,
    episode_raw_reward,
    weight_by_rows,
    weight_unscoped,
    weight_scoped,
    weight_macro,
    overweight_by_rows,
    overweight_unscoped,
    contribution_by_rows,
    contribution_unscoped,
    contribution_scoped,
    contribution_macro
FROM adapter_weighting
WHERE ($run IS NULL OR run = $run)
    AND ($split IS NULL OR split = $split)
    AND ($from_step IS NULL OR step >= $from_step)
    AND ($to_step IS NULL OR step <= $to_step)
    AND ($adapter IS NULL OR adapter_name = $adapter)
ORDER BY
    greatest(abs(weight_unscoped - weight_scoped), abs(weight_by_rows - weight_scoped)) DESC NULLS LAST,
    run,
    split,
    step,
    adapter_name,
    adapter_slot
LIMIT $limit;
