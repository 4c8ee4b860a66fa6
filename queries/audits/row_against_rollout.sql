-- How far off are the advantages of the row-level rule, in which every sample votes?
--
-- grain: run, split, step, adapter_name, adapter_slot, prompt_group
-- severity: info
-- read: advantage is the rollout's, row_advantage what each sample had before rollouts were the unit. A sign
--     flip pushes a sample the wrong way. Only groups in which the two rules differ are listed.
-- order: the group with the largest difference comes first.
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
--     samples: samples of the group
--     compared: samples that have an advantage under both rules
--     rollout_mean: mean of the scored mainstream rewards
--     row_mean: mean of the ok rewards of all samples
--     largest_difference: largest |advantage - row_advantage|
--     mean_difference: mean |advantage - row_advantage|
--     sign_flips: samples that the two rules push in opposite directions
--     one_sided: samples with an advantage under one of the rules only

WITH differences AS (
    SELECT
        run,
        split,
        step,
        prompt_group,
        count(advantage - row_advantage) AS compared,
        favg(reward / 4194304) * 4194304 AS row_mean,
        max(abs(advantage - row_advantage)) AS largest_difference,
        favg(abs(advantage - row_advantage)) AS mean_difference,
        count(*) FILTER (WHERE sign(advantage) * sign(row_advantage) < 0) AS sign_flips,
        count(*) FILTER (WHERE (advantage IS NULL) <> (row_advantage IS NULL)) AS one_sided
    FROM samples
    WHERE split = 'train'
        AND ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
        AND ($adapter IS NULL OR adapter_name = $adapter)
    GROUP BY run, split, step, prompt_group
    HAVING largest_difference > 0 OR one_sided > 0
)

SELECT
    g.run,
    g.split,
    g.step,
    g.adapter_name,
    g.adapter_slot,
    g.prompt_group,
    g.rollouts,
    g.samples,
    d.compared,
    g.reward_mean AS rollout_mean,
    d.row_mean,
    d.largest_difference,
    d.mean_difference,
    d.sign_flips,
    d.one_sided
FROM prompt_groups AS g
INNER JOIN differences AS d USING (run, split, step, prompt_group)
ORDER BY d.largest_difference DESC NULLS LAST, d.sign_flips DESC, g.run, g.split, g.step, g.prompt_group
LIMIT $limit;
