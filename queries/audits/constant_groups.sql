-- Which prompt groups teach nothing because all their rollouts have the same reward, and which reward is it?
--
-- grain: run, split, adapter_name, adapter_slot, value
-- severity: info
-- read: A constant group has the advantage 0 everywhere. share is its part of the adapter's scored groups:
--     all_zero groups are too hard, all_one groups too easy (for rewards from 0 to 1). A group with one
--     scored rollout is constant as well; single counts those.
-- order: the value that the most groups are constant at comes first.
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
--     adapter_name: LoRA adapter's name; null for no adapter
--     adapter_slot: LoRA adapter's slot; null for no adapter
--     value: the reward that all rollouts of the group have
--     label: all_zero, all_one, or constant
--     groups: constant groups with this value
--     single: those with one scored rollout
--     rollouts: rollouts in them
--     scored_groups: groups of the adapter with a scored rollout
--     share: groups / scored_groups
--     steps: steps in which there is one
--     first_step: the first of these
--     last_step: the last of these

WITH chosen AS (
    -- -0.0 and 0.0 are one value.
    SELECT
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        rollouts,
        scored_rollouts,
        is_constant,
        reward_min + 0.0 AS value
    FROM prompt_groups
    WHERE scored_rollouts > 0
        AND ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
        AND ($adapter IS NULL OR adapter_name = $adapter)
),

scored AS (
    SELECT run, split, adapter_name, adapter_slot, count(*) AS groups
    FROM chosen
    GROUP BY ALL
)

SELECT
    c.run,
    c.split,
    c.adapter_name,
    c.adapter_slot,
    c.value,
    CASE c.value WHEN 0 THEN 'all_zero' WHEN 1 THEN 'all_one' ELSE 'constant' END AS label,
    count(*) AS groups,
    count(*) FILTER (WHERE c.scored_rollouts = 1) AS single,
    CAST(sum(c.rollouts) AS BIGINT) AS rollouts,
    any_value(s.groups) AS scored_groups,
    count(*) / any_value(s.groups) AS share,
    count(DISTINCT c.step) AS steps,
    min(c.step) AS first_step,
    max(c.step) AS last_step
FROM chosen AS c
INNER JOIN scored AS s
    ON c.run = s.run
    AND c.split = s.split
    AND c.adapter_name IS NOT DISTINCT FROM s.adapter_name
    AND c.adapter_slot IS NOT DISTINCT FROM s.adapter_slot
WHERE c.is_constant
GROUP BY c.run, c.split, c.adapter_name, c.adapter_slot, c.value
ORDER BY groups DESC, c.run, c.split, c.adapter_name, c.adapter_slot, c.value
LIMIT $limit;
