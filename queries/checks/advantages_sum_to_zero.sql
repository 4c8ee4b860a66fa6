-- Do the advantages of a prompt group add up to 0?
--
-- grain: run, split, step, adapter_name, adapter_slot, prompt_group
-- severity: error
-- read: Every scored rollout votes once, so the advantages of its group cancel. Only batches that normalise
--     are checked. The tolerance grows with the largest reward over the divisor, as rounding does.
-- order: the total furthest from 0 comes first.
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
--     scored_rollouts: rollouts with a vote
--     advantages: rollouts with an advantage
--     total: sum of their advantages

WITH totals AS (
    SELECT
        run,
        split,
        step,
        prompt_group,
        count(advantage) AS advantages,
        fsum(advantage) AS total,
        max(abs(advantage)) AS largest
    FROM rollouts
    WHERE split = 'train'
        AND ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
        AND ($adapter IS NULL OR adapter_name = $adapter)
    GROUP BY run, split, step, prompt_group
)

SELECT
    g.run,
    g.split,
    g.step,
    g.adapter_name,
    g.adapter_slot,
    g.prompt_group,
    g.rollouts,
    g.scored_rollouts,
    t.advantages,
    t.total
FROM totals AS t
INNER JOIN prompt_groups AS g USING (run, split, step, prompt_group)
INNER JOIN batch_settings AS b USING (run, split, step)
WHERE b.normalises
    AND (
        t.advantages <> g.scored_rollouts
        OR NOT agrees(
            coalesce(t.total, 0.0),
            0.0,
            g.scored_rollouts * greatest(
                coalesce(t.largest, 0.0),
                coalesce(greatest(abs(g.reward_min), abs(g.reward_max)), 0.0)
                / CASE WHEN b.divides AND g.reward_std IS NOT NULL THEN g.reward_std + 1e-6 ELSE 1.0 END
            )
        )
    )
ORDER BY abs(t.total) DESC NULLS FIRST, g.run, g.split, g.step, g.prompt_group
LIMIT $limit;
