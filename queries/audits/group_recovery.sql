-- Which rule found the prompt groups of a batch, and are the groups complete?
--
-- grain: run, split, step
-- severity: warning
-- read: explicit and group_index are what a dump says itself. fixed_fanout and whole_batch are fallbacks:
--     right only if the batch is laid out as the settings say, or is one group. A group is incomplete with
--     fewer rollouts than expected: the setting n_samples_per_prompt, else the size that most groups of the
--     run and split have.
-- order: fallbacks come first, then the batch with the most incomplete groups.
-- parameters:
--     run VARCHAR: only this run
--     split VARCHAR: only train, or only eval
--     from_step BIGINT: no earlier step
--     to_step BIGINT: no later step
--     adapter VARCHAR: count only groups of this adapter, by name
--     limit BIGINT: rows at most, those that matter most; null for all
-- columns:
--     run: training run
--     split: train or eval
--     step: the batch's number
--     group_source: rule that found the groups: explicit, group_index, fixed_fanout, whole_batch
--     is_fallback: whether the dump does not say its groups
--     prompt_groups: prompt groups counted
--     expected_rollouts: rollouts that a group should have
--     incomplete_groups: groups with fewer
--     overfull_groups: groups with more
--     smallest_group: fewest rollouts of a group
--     largest_group: most rollouts of a group
--     mixed_blocks: blocks of the batch that hold several adapters (warnings)

WITH sizes AS (
    SELECT run, split, rollouts, count(*) AS groups
    FROM prompt_groups
    GROUP BY run, split, rollouts
),

usual AS (
    SELECT run, split, arg_max(rollouts, [groups, rollouts]) AS rollouts
    FROM sizes
    GROUP BY run, split
),

expected AS (
    -- What the settings say; else the size that most groups of run and split have, the larger of two.
    SELECT
        b.run,
        b.split,
        b.step,
        coalesce(b.n_samples_per_prompt, u.rollouts) AS rollouts
    FROM batch_settings AS b
    LEFT JOIN usual AS u USING (run, split)
),

mixed AS (
    SELECT run, split, step, count(*) AS blocks
    FROM findings
    WHERE code = 'group_mixes_adapters'
    GROUP BY run, split, step
)

SELECT
    b.run,
    b.split,
    b.step,
    b.group_source,
    b.group_source IN ('fixed_fanout', 'whole_batch') AS is_fallback,
    count(g.prompt_group) AS prompt_groups,
    any_value(e.rollouts) AS expected_rollouts,
    count(*) FILTER (WHERE g.rollouts < e.rollouts) AS incomplete_groups,
    count(*) FILTER (WHERE g.rollouts > e.rollouts) AS overfull_groups,
    min(g.rollouts) AS smallest_group,
    max(g.rollouts) AS largest_group,
    coalesce(any_value(m.blocks), 0) AS mixed_blocks
FROM batches AS b
INNER JOIN expected AS e USING (run, split, step)
LEFT JOIN mixed AS m USING (run, split, step)
LEFT JOIN prompt_groups AS g
    ON b.run = g.run
    AND b.split = g.split
    AND b.step = g.step
    AND ($adapter IS NULL OR g.adapter_name = $adapter)
WHERE ($run IS NULL OR b.run = $run)
    AND ($split IS NULL OR b.split = $split)
    AND ($from_step IS NULL OR b.step >= $from_step)
    AND ($to_step IS NULL OR b.step <= $to_step)
GROUP BY b.run, b.split, b.step, b.group_source
HAVING $adapter IS NULL OR count(g.prompt_group) > 0
ORDER BY is_fallback DESC, incomplete_groups DESC, overfull_groups DESC, b.run, b.split, b.step
LIMIT $limit;
