-- Which prompt groups learn from a spread that is not in the raw reward?
--
-- grain: run, split, step, adapter_name, adapter_slot, prompt_group
-- severity: warning
-- read: All rollouts of the group have the same raw reward, and yet their rewards differ: a length penalty or
--     another shaping term is all that the advantages are made of. The group passes a filter that looks at
--     rewards.
-- order: the group with the largest spread comes first.
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
--     rollouts: rollouts of the group
--     raw_reward: the raw reward that all of them have
--     reward_mean: mean of the scored mainstream rewards; null if none
--     reward_std: their unbiased standard deviation (n - 1); null for n < 2
--     reward_min: smallest ok reward of its samples
--     reward_max: largest ok reward of its samples
--     spread: reward_max - reward_min

WITH raw AS (
    SELECT
        run,
        split,
        step,
        prompt_group,
        min(raw_reward) AS lowest,
        max(raw_reward) AS highest
    FROM rollouts
    WHERE ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
        AND ($adapter IS NULL OR adapter_name = $adapter)
    GROUP BY run, split, step, prompt_group
    HAVING lowest = highest AND min(mainstream_reward) < max(mainstream_reward)
)

SELECT
    g.run,
    g.split,
    g.step,
    g.adapter_name,
    g.adapter_slot,
    g.prompt_group,
    g.rollouts,
    r.lowest AS raw_reward,
    g.reward_mean,
    g.reward_std,
    g.reward_min,
    g.reward_max,
    g.reward_max - g.reward_min AS spread
FROM prompt_groups AS g
INNER JOIN raw AS r USING (run, split, step, prompt_group)
ORDER BY spread DESC, g.run, g.split, g.step, g.prompt_group
LIMIT $limit;
