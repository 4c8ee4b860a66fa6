-- What is missing: steps of a run, group indexes of a batch, rollouts of a group?
--
-- grain: gap, run, split, step, adapter_name, adapter_slot
-- severity: warning
-- read: missing_steps: no batch from first to last (a train run counts every step, an evaluation the smallest
--     distance it ever had). missing_groups: the adapter's group indexes of the batch lie from first to last,
--     and some of them are absent, as dynamic filters leave them: the reward is that of the kept groups only.
--     first is what follows the step before, where the adapter's counter goes on from it. missing_rollouts:
--     groups of the adapter have fewer rollouts than expected (n_samples_per_prompt, else what most groups
--     have); first and last are the smallest and the expected size.
-- order: missing steps come first, then groups, then rollouts; the most missing first.
-- parameters:
--     run VARCHAR: only this run
--     split VARCHAR: only train, or only eval
--     from_step BIGINT: no earlier step
--     to_step BIGINT: no later step
--     adapter VARCHAR: only this adapter, by name, in whatever slot; missing steps are nobody's
--     limit BIGINT: rows at most, those that matter most; null for all
-- columns:
--     gap: missing_steps, missing_groups or missing_rollouts
--     run: training run
--     split: train or eval
--     step: the batch's number
--     adapter_name: LoRA adapter's name; null for no adapter
--     adapter_slot: LoRA adapter's slot; null for no adapter
--     first: start of the range
--     last: end of the range
--     found: how many there are
--     expected: how many there should be
--     missing: expected - found

WITH neighbours AS (
    SELECT
        run,
        split,
        step,
        CAST(lag(step) OVER (PARTITION BY run, split ORDER BY step) AS HUGEINT) AS previous
    FROM batches
),

strides AS (
    SELECT
        run,
        split,
        step,
        previous,
        CASE split WHEN 'train' THEN 1 ELSE min(step - previous) OVER (PARTITION BY run, split) END AS stride
    FROM neighbours
),

group_ranges AS (
    SELECT
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        CAST(min(group_index) AS HUGEINT) AS lowest,
        CAST(max(group_index) AS HUGEINT) AS highest,
        count(DISTINCT group_index) AS found
    FROM rollouts
    WHERE group_index IS NOT NULL
        AND ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($adapter IS NULL OR adapter_name = $adapter)
    GROUP BY run, split, step, adapter_name, adapter_slot
),

followed AS (
    SELECT
        *,
        lag(step) OVER same_adapter AS previous_step,
        lag(highest) OVER same_adapter AS previous_highest
    FROM group_ranges
    WINDOW same_adapter AS (PARTITION BY run, split, adapter_name, adapter_slot ORDER BY step)
),

group_indexes AS (
    -- An adapter's counter goes on from step to step, from 0 at step 0; where it does not, its own lowest is the first.
    SELECT
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        highest,
        found,
        CASE
            WHEN previous_step + 1 = step AND lowest > previous_highest THEN previous_highest + 1
            WHEN previous_step IS NULL AND step = 0 THEN least(lowest, 0)
            ELSE lowest
        END AS lowest
    FROM followed
),

sizes AS (
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

missing AS (
    SELECT
        'missing_steps' AS gap,
        run,
        split,
        step,
        NULL AS adapter_name,
        NULL AS adapter_slot,
        previous + stride AS first,
        step - stride AS last,
        0 AS found,
        (step - previous) // stride - 1 AS expected
    FROM strides
    WHERE step - previous > stride
        AND $adapter IS NULL
        AND ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)

    UNION ALL

    SELECT
        'missing_groups' AS gap,
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        lowest AS first,
        highest AS last,
        found,
        highest - lowest + 1 AS expected
    FROM group_indexes
    WHERE found < highest - lowest + 1
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)

    UNION ALL

    SELECT
        'missing_rollouts' AS gap,
        run,
        split,
        step,
        g.adapter_name,
        g.adapter_slot,
        min(g.rollouts) AS first,
        max(e.rollouts) AS last,
        sum(g.rollouts) AS found,
        sum(e.rollouts) AS expected
    FROM prompt_groups AS g
    INNER JOIN expected AS e USING (run, split, step)
    WHERE g.rollouts < e.rollouts
        AND ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
        AND ($adapter IS NULL OR adapter_name = $adapter)
    GROUP BY run, split, step, g.adapter_name, g.adapter_slot
)

SELECT
    gap,
    run,
    split,
    step,
    adapter_name,
    adapter_slot,
    CAST(first AS BIGINT) AS first,
    CAST(last AS BIGINT) AS last,
    CAST(found AS BIGINT) AS found,
    CAST(least(expected, 9223372036854775807) AS BIGINT) AS expected,
    CAST(least(expected - found, 9223372036854775807) AS BIGINT) AS missing
FROM missing
ORDER BY
    list_position(['missing_steps', 'missing_groups', 'missing_rollouts'], gap),
    missing DESC,
    run,
    split,
    step,
    adapter_name,
    adapter_slot
LIMIT $limit;
