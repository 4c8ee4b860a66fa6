-- Whose loss denominator changes if the adapter is left out of the rollout key?
--
-- grain: run, split, step, kind, id, group_index, adapter_name, adapter_slot
-- severity: warning
-- read: A loss that is averaged per rollout divides by the trainable tokens of the rollout. Listed are the
--     rollouts whose id another adapter of the batch has as well: tokens is the right divisor,
--     tokens_without_adapter what they are divided by if the adapter is left out of the key, tokens_by_id if the
--     group is left out too, as trainers do that sum by id alone. factor and factor_by_id say how much too little
--     each token then counts. adapter_token_share is the adapter's part of all trainable tokens of the batch.
-- order: the id with the most tokens comes first, its rollouts together.
-- parameters:
--     run VARCHAR: only this run
--     split VARCHAR: only train, or only eval
--     from_step BIGINT: no earlier step
--     to_step BIGINT: no later step
--     adapter VARCHAR: only ids that this adapter has a sample under
--     limit BIGINT = 1000: rows at most, those that matter most; null for all
-- columns:
--     run: training run
--     split: train or eval
--     step: the batch's number
--     kind: what identifies the rollout: rollout, sample, position
--     id: the rollout's id of that kind
--     group_index: group_index as dumped
--     adapter_name: LoRA adapter's name; null for no adapter
--     adapter_slot: LoRA adapter's slot; null for no adapter
--     rows: rows of the rollout in the batch
--     samples: samples of the rollout
--     tokens: trainable tokens of the rollout
--     tokens_without_adapter: trainable tokens of all rollouts that differ in the adapter only
--     tokens_by_id: trainable tokens of all rollouts of the batch with this kind and id
--     factor: tokens_without_adapter / tokens; null where it has none
--     factor_by_id: tokens_by_id / tokens; null where it has none
--     changes: whether any of the totals differs from tokens
--     adapter_tokens: trainable tokens of the adapter in the batch
--     adapter_token_share: its share of those of the batch

WITH merged AS (
    SELECT
        run,
        split,
        step,
        kind,
        id,
        sum(trainable_tokens) AS tokens
    FROM samples
    WHERE ($run IS NULL OR run = $run)
        AND ($split IS NULL OR split = $split)
        AND ($from_step IS NULL OR step >= $from_step)
        AND ($to_step IS NULL OR step <= $to_step)
    GROUP BY run, split, step, kind, id
    HAVING
        (min(adapter_name) <> max(adapter_name)
            OR min(adapter_slot) <> max(adapter_slot)
            OR count(adapter_name) NOT IN (0, count(*)))
        AND bool_or($adapter IS NULL OR adapter_name = $adapter)
    ORDER BY tokens DESC, run, split, step, kind, id
    LIMIT $limit
),

apart AS (
    SELECT
        m.run,
        m.split,
        m.step,
        m.kind,
        m.id,
        s.group_index,
        s.adapter_name,
        s.adapter_slot,
        list(s.row ORDER BY s.row) AS rows,
        count(*) AS samples,
        CAST(sum(s.trainable_tokens) AS BIGINT) AS tokens,
        CAST(any_value(m.tokens) AS BIGINT) AS tokens_by_id
    FROM samples AS s
    INNER JOIN merged AS m
        ON s.run = m.run
        AND s.split = m.split
        AND s.step = m.step
        AND s.kind = m.kind
        AND s.id = m.id
    GROUP BY ALL
),

totals AS (
    SELECT
        *,
        CAST(
            sum(tokens) OVER (PARTITION BY run, split, step, kind, id, group_index) AS BIGINT
        ) AS tokens_without_adapter
    FROM apart
),

shares AS (
    SELECT
        run,
        split,
        step,
        adapter_name,
        adapter_slot,
        trainable_tokens AS adapter_tokens,
        trainable_tokens / nullif(sum(trainable_tokens) OVER (PARTITION BY run, split, step), 0) AS adapter_token_share
    FROM adapters
)

SELECT
    p.run,
    p.split,
    p.step,
    p.kind,
    p.id,
    p.group_index,
    p.adapter_name,
    p.adapter_slot,
    p.rows,
    p.samples,
    p.tokens,
    p.tokens_without_adapter,
    p.tokens_by_id,
    p.tokens_without_adapter / nullif(p.tokens, 0) AS factor,
    p.tokens_by_id / nullif(p.tokens, 0) AS factor_by_id,
    p.tokens_without_adapter <> p.tokens OR p.tokens_by_id <> p.tokens AS changes,
    h.adapter_tokens,
    h.adapter_token_share
FROM totals AS p
INNER JOIN shares AS h
    ON p.run = h.run
    AND p.split = h.split
    AND p.step = h.step
    AND p.adapter_name IS NOT DISTINCT FROM h.adapter_name
    AND p.adapter_slot IS NOT DISTINCT FROM h.adapter_slot
ORDER BY p.tokens_by_id DESC, p.run, p.split, p.step, p.kind, p.id, p.rows
LIMIT $limit;
