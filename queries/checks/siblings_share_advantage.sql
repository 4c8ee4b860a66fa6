-- Do all samples of a rollout have the advantage of the rollout?
--
-- grain: run, split, step, adapter_name, adapter_slot, prompt_group, kind, id
-- severity: error
-- read: A row is a rollout some of whose samples have another advantage than it has itself. Only batches that
--     normalise are checked: without, each sample keeps its own reward.
-- order: the widest spread comes first.
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
--     kind: what identifies the rollout: rollout, sample, position
--     id: the rollout's id of that kind
--     samples: its samples
--     with_advantage: those with an advantage
--     lowest: smallest advantage of a sample
--     highest: largest advantage of a sample
--     advantage: advantage of the rollout

WITH hashes AS (
    SELECT
        run,
        split,
        step,
        hash(adapter_name, adapter_slot, prompt_group, kind, id, advantage) % 4294967296 AS hash,
        1 AS times
    FROM samples

    UNION ALL

    SELECT
        run,
        split,
        step,
        hash(adapter_name, adapter_slot, prompt_group, kind, id, advantage) % 4294967296 AS hash,
        -samples AS times
    FROM rollouts
),

suspects AS (
    -- Compared by batch first, by sums of hashes: only where samples and rollouts differ they are compared one by one.
    SELECT run, split, step
    FROM hashes
    GROUP BY run, split, step
    HAVING sum(CAST(hash AS BIGINT) * times) <> 0
),

spread AS (
    SELECT
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        prompt_group,
        kind,
        id,
        count(*) FILTER (WHERE is_sample) AS samples,
        count(advantage) FILTER (WHERE is_sample) AS with_advantage,
        min(advantage) FILTER (WHERE is_sample) AS lowest,
        max(advantage) FILTER (WHERE is_sample) AS highest,
        max(advantage) FILTER (WHERE NOT is_sample) AS advantage
    FROM (
        SELECT true AS is_sample, run, split, step, adapter_name, adapter_slot, prompt_group, kind, id, advantage
        FROM samples

        UNION ALL

        SELECT false AS is_sample, run, split, step, adapter_name, adapter_slot, prompt_group, kind, id, advantage
        FROM rollouts
    )
    INNER JOIN suspects USING (run, split, step)
    WHERE split = 'train'
        AND ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
        AND ($adapter IS NULL OR adapter_name = $adapter)
    GROUP BY run, split, step, adapter_name, adapter_slot, prompt_group, kind, id
    HAVING
        lowest IS DISTINCT FROM advantage
        OR highest IS DISTINCT FROM advantage
        OR with_advantage NOT IN (0, samples)
)

SELECT
    run,
    split,
    step,
    adapter_name,
    adapter_slot,
    prompt_group,
    kind,
    id,
    samples,
    with_advantage,
    lowest,
    highest,
    advantage
FROM spread
SEMI JOIN (SELECT run, split, step FROM batch_settings WHERE normalises) AS b USING (run, split, step)
ORDER BY highest - lowest DESC NULLS LAST, run, split, step, prompt_group, kind, id
LIMIT $limit;
