-- Is every sample in exactly one rollout and one prompt group, and is every count of samples right?
--
-- grain: run, split, step, adapter_name, adapter_slot, prompt_group, kind, id
-- severity: error
-- read: A row is a rollout that is not listed exactly once, whose samples are not as many as it says, that
--     has not exactly one mainstream sample, or whose prompt group is not listed exactly once.
-- order: by key.
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
--     samples: samples found
--     samples_listed: samples that the rollouts of this key say they have
--     rollouts_listed: rollouts listed under the key
--     mainstream: mainstream samples found
--     groups_listed: prompt groups listed under the key

WITH hashes AS (
    SELECT
        run,
        split,
        step,
        hash(adapter_name, adapter_slot, prompt_group, kind, id) % 4294967296 AS rollout_hash,
        hash(adapter_name, adapter_slot, prompt_group) % 4294967296 AS group_hash,
        1 AS samples,
        CAST(is_mainstream AS INTEGER) AS rollouts,
        1 AS group_samples,
        0 AS groups
    FROM samples

    UNION ALL

    SELECT
        run,
        split,
        step,
        hash(adapter_name, adapter_slot, prompt_group, kind, id) % 4294967296 AS rollout_hash,
        hash(adapter_name, adapter_slot, prompt_group) % 4294967296 AS group_hash,
        -samples AS samples,
        -1 AS rollouts,
        0 AS group_samples,
        -1 AS groups
    FROM rollouts

    UNION ALL

    SELECT
        run,
        split,
        step,
        0 AS rollout_hash,
        hash(adapter_name, adapter_slot, prompt_group) % 4294967296 AS group_hash,
        0 AS samples,
        0 AS rollouts,
        -samples AS group_samples,
        rollouts AS groups
    FROM prompt_groups
),

suspects AS (
    -- Compared by batch first, by sums of hashes: only where the relations differ they are compared rollout by rollout.
    SELECT run, split, step
    FROM hashes
    GROUP BY run, split, step
    HAVING
        sum(CAST(rollout_hash AS BIGINT) * samples) <> 0
        OR sum(CAST(rollout_hash AS BIGINT) * rollouts) <> 0
        OR sum(CAST(group_hash AS BIGINT) * group_samples) <> 0
        OR sum(CAST(group_hash AS BIGINT) * groups) <> 0
),

members AS (
    SELECT
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        prompt_group,
        kind,
        id,
        1 AS samples,
        0 AS samples_listed,
        0 AS rollouts_listed,
        CAST(is_mainstream AS INTEGER) AS mainstream
    FROM samples

    UNION ALL

    SELECT
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        prompt_group,
        kind,
        id,
        0 AS samples,
        samples AS samples_listed,
        1 AS rollouts_listed,
        0 AS mainstream
    FROM rollouts
),

rollout_counts AS (
    SELECT
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        prompt_group,
        kind,
        id,
        CAST(sum(samples) AS BIGINT) AS samples,
        CAST(sum(samples_listed) AS BIGINT) AS samples_listed,
        CAST(sum(rollouts_listed) AS BIGINT) AS rollouts_listed,
        CAST(sum(mainstream) AS BIGINT) AS mainstream
    FROM members
    INNER JOIN suspects USING (run, split, step)
    WHERE ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
        AND ($adapter IS NULL OR adapter_name = $adapter)
    GROUP BY ALL
),

group_counts AS (
    SELECT run, split, step, adapter_name, adapter_slot, prompt_group, count(*) AS groups_listed
    FROM prompt_groups
    INNER JOIN suspects USING (run, split, step)
    GROUP BY ALL
)

SELECT
    r.run,
    r.split,
    r.step,
    r.adapter_name,
    r.adapter_slot,
    r.prompt_group,
    r.kind,
    r.id,
    r.samples,
    r.samples_listed,
    r.rollouts_listed,
    r.mainstream,
    coalesce(g.groups_listed, 0) AS groups_listed
FROM rollout_counts AS r
LEFT JOIN group_counts AS g
    ON r.run = g.run
    AND r.split = g.split
    AND r.step = g.step
    AND r.prompt_group = g.prompt_group
    AND r.adapter_name IS NOT DISTINCT FROM g.adapter_name
    AND r.adapter_slot IS NOT DISTINCT FROM g.adapter_slot
WHERE r.samples <> r.samples_listed OR r.rollouts_listed <> 1 OR r.mainstream <> 1 OR groups_listed <> 1
ORDER BY r.run, r.split, r.step, r.prompt_group, r.kind, r.id
LIMIT $limit;
