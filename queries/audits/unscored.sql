-- Which samples have no usable reward, why, and whose are they?
--
-- grain: run, split, adapter_name, adapter_slot, measure, state
-- severity: warning
-- read: Samples that are not ok never enter a mean and are never read as 0. `reward` decides advantages:
--     where the mainstream sample has none, its rollout has no vote. `raw_reward` decides the episode
--     metrics.
-- order: the state with the most samples comes first.
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
--     measure: reward or raw_reward
--     state: missing, nan, inf or other
--     unscored_samples: samples in this state
--     samples: samples of the adapter
--     share: unscored_samples / samples
--     mainstream: those that stand for their rollout
--     steps: steps in which there is one
--     first_step: the first of these
--     last_step: the last of these

WITH states AS (
    SELECT
        run,
        split,
        adapter_name,
        adapter_slot,
        'reward' AS measure,
        reward_state AS state,
        count(*) AS unscored_samples,
        count(*) FILTER (WHERE is_mainstream) AS mainstream,
        count(DISTINCT step) AS steps,
        min(step) AS first_step,
        max(step) AS last_step
    FROM samples
    WHERE reward_state <> 'ok'
        AND ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
        AND ($adapter IS NULL OR adapter_name = $adapter)
    GROUP BY ALL

    UNION ALL

    SELECT
        run,
        split,
        adapter_name,
        adapter_slot,
        'raw_reward' AS measure,
        raw_reward_state AS state,
        count(*) AS unscored_samples,
        count(*) FILTER (WHERE is_mainstream) AS mainstream,
        count(DISTINCT step) AS steps,
        min(step) AS first_step,
        max(step) AS last_step
    FROM samples
    WHERE raw_reward_state <> 'ok'
        AND ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
        AND ($adapter IS NULL OR adapter_name = $adapter)
    GROUP BY ALL
),

totals AS (
    SELECT run, split, adapter_name, adapter_slot, CAST(sum(samples) AS BIGINT) AS samples
    FROM adapters
    WHERE ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
        AND ($adapter IS NULL OR adapter_name = $adapter)
    GROUP BY ALL
)

SELECT
    s.run,
    s.split,
    s.adapter_name,
    s.adapter_slot,
    s.measure,
    s.state,
    s.unscored_samples,
    t.samples,
    s.unscored_samples / t.samples AS share,
    s.mainstream,
    s.steps,
    s.first_step,
    s.last_step
FROM states AS s
INNER JOIN totals AS t
    ON s.run = t.run
    AND s.split = t.split
    AND s.adapter_name IS NOT DISTINCT FROM t.adapter_name
    AND s.adapter_slot IS NOT DISTINCT FROM t.adapter_slot
ORDER BY s.unscored_samples DESC, s.run, s.split, s.adapter_name, s.adapter_slot, s.measure, s.state
LIMIT $limit;
