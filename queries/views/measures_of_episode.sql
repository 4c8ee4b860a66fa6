-- What do the metrics of whole rollouts average?
--
-- grain: run, split, step, adapter_name, adapter_slot, kind, id, group_index
-- read: One row a rollout of the episode metrics (own group_index in the key), one column a measure, as in
--     pipeline/stages/units.py, made from samples alone.
-- columns:
--     run: training run
--     split: train or eval
--     step: the batch's number
--     adapter_name: LoRA adapter's name; null for no adapter
--     adapter_slot: LoRA adapter's slot; null for no adapter
--     kind: what identifies the rollout: rollout, sample, position
--     id: the rollout's id of that kind
--     group_index: group_index as dumped
--     episode_reward: mean of its ok raw rewards; null if none
--     reward_zero_filled: the same, 0 if none
--     reward_where_trained: the same where it has trainable tokens
--     reward_where_not_aborted: the same where none of its samples was aborted
--     episode_response_length: trainable tokens of all its samples
--     episode_total_response_length: tokens of all its samples, masked and unmasked; null where none is
--         known
--     has_status: true where a sample has a status, else null

WITH cut AS (
    -- Divided by 2^22 while added, so that the largest doubles cannot overflow.
    SELECT
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        kind,
        id,
        group_index,
        avg(raw_reward / 4194304) * 4194304 AS episode_reward,
        CAST(sum(trainable_tokens) AS BIGINT) AS episode_response_length,
        CAST(sum(response_length) AS BIGINT) AS episode_total_response_length,
        coalesce(bool_or(status = 'aborted'), false) AS any_aborted,
        CASE WHEN count(status) > 0 THEN true END AS has_status
    FROM samples
    GROUP BY run, split, step, adapter_name, adapter_slot, kind, id, group_index
)

SELECT
    run,
    split,
    step,
    adapter_name,
    adapter_slot,
    kind,
    id,
    group_index,
    episode_reward,
    coalesce(episode_reward, 0.0) AS reward_zero_filled,
    CASE WHEN episode_response_length > 0 THEN episode_reward END AS reward_where_trained,
    CASE WHEN NOT any_aborted THEN episode_reward END AS reward_where_not_aborted,
    episode_response_length,
    episode_total_response_length,
    has_status
FROM cut;
