-- What do the metrics of samples average?
--
-- grain: run, split, step, row
-- read: One column a measure, as in pipeline/expressions/measures.py; null where the sample takes no part.
--     signal is in units of the batch's largest magnitude of an advantage, signal_unit.
-- columns:
--     run: training run
--     split: train or eval
--     step: the batch's number
--     adapter_name: LoRA adapter's name; null for no adapter
--     adapter_slot: LoRA adapter's slot; null for no adapter
--     row: 0-based position in the batch, as dumped
--     samples: 1
--     has_status: the sample's status
--     is_correct: whether its reward reaches pass_threshold
--     is_incorrect: whether its reward does not
--     is_truncated: whether its status is truncated
--     is_aborted: whether it is aborted
--     is_failed: whether it is failed
--     is_of_unknown_status: whether no trainer is known to write its status
--     is_not_aborted: whether it is another one than aborted, or absent
--     is_removed: whether it is removed from the loss
--     is_trained: whether it has trainable tokens
--     reward_is_missing: whether its reward is absent
--     reward_is_nan: whether its reward is NaN
--     reward_is_inf: whether its reward is infinite
--     reward_is_other: whether its reward is no number
--     response_length: tokens of the response
--     trainable_tokens: tokens that reach the loss
--     effective_response_length: the mask's sum, else response_length
--     version_oldest: oldest numeric policy version
--     version_newest: newest numeric policy version
--     version_span: newest - oldest
--     staleness: step - oldest
--     is_of_mixed_versions: whether several policy versions generated it
--     has_version: whether it has a numeric policy version
--     cached_tokens: prompt tokens from the prefix cache
--     prompt_tokens: prompt tokens
--     spec_accepted: draft tokens accepted
--     spec_proposed: draft tokens proposed
--     spec_verifications: verification passes
--     spec_tokens: tokens generated under speculative decoding
--     non_generation_time: seconds outside generation
--     tool_calls: messages of role tool
--     is_repetitive: whether its response repeats itself
--     abs_advantage: magnitude of its advantage
--     has_no_signal: whether its advantage is 0
--     signal_tokens: its trainable tokens, where it has an advantage
--     signal_unit: largest magnitude of an advantage in the batch that has tokens to carry it
--     signal: abs_advantage / signal_unit x trainable tokens
--     batch_signal: sum of signal over the batch
--     batch_has_signal: true where that is more than 0, else null
--     category: its entry of log_reward_category

WITH largest AS (
    SELECT run, split, step, max(abs(advantage)) FILTER (WHERE trainable_tokens > 0) AS signal_unit
    FROM samples
    GROUP BY run, split, step
),

batch_signals AS (
    SELECT
        s.run,
        s.split,
        s.step,
        l.signal_unit,
        fsum(abs(s.advantage) / nullif(l.signal_unit, 0.0) * s.trainable_tokens)
            FILTER (WHERE s.trainable_tokens > 0) AS batch_signal
    FROM samples AS s
    INNER JOIN largest AS l ON s.run = l.run AND s.split = l.split AND s.step = l.step
    GROUP BY s.run, s.split, s.step, l.signal_unit
),

entries AS (
    SELECT run, split, step, row, unnest(reward_parts) AS entry
    FROM samples
    WHERE len(reward_parts) > 0
),

categories AS (
    SELECT e.run, e.split, e.step, e.row, coalesce(e.entry.text, label_of(e.entry.value)) AS category
    FROM entries AS e
    INNER JOIN batch_settings AS t ON e.run = t.run AND e.split = t.split AND e.step = t.step
    WHERE e.entry.key = t.log_reward_category
)

SELECT
    s.run,
    s.split,
    s.step,
    s.adapter_name,
    s.adapter_slot,
    s.row,
    1 AS samples,
    s.status AS has_status,
    s.reward >= t.pass_threshold AS is_correct,
    s.reward < t.pass_threshold AS is_incorrect,
    s.status = 'truncated' AS is_truncated,
    s.status = 'aborted' AS is_aborted,
    s.status = 'failed' AS is_failed,
    s.status NOT IN ('pending', 'completed', 'truncated', 'aborted', 'failed') AS is_of_unknown_status,
    s.status IS DISTINCT FROM 'aborted' AS is_not_aborted,
    s.remove_sample AS is_removed,
    s.trainable_tokens > 0 AS is_trained,
    s.reward_state = 'missing' AS reward_is_missing,
    s.reward_state = 'nan' AS reward_is_nan,
    s.reward_state = 'inf' AS reward_is_inf,
    s.reward_state = 'other' AS reward_is_other,
    s.response_length,
    s.trainable_tokens,
    s.effective_response_length,
    s.version_oldest,
    s.version_newest,
    s.version_newest - s.version_oldest AS version_span,
    CASE WHEN s.step BETWEEN -1099511627776 AND 1099511627776 THEN s.step - s.version_oldest END AS staleness,
    coalesce(s.versions_seen > 1, false) AS is_of_mixed_versions,
    s.version_oldest IS NOT NULL AS has_version,
    s.cached_tokens,
    s.prompt_tokens,
    s.spec_accepted,
    s.spec_proposed,
    s.spec_verifications,
    s.spec_tokens,
    s.non_generation_time,
    s.tool_calls,
    s.is_repetitive,
    abs(s.advantage) AS abs_advantage,
    s.advantage = 0 AS has_no_signal,
    CASE WHEN s.advantage IS NOT NULL THEN s.trainable_tokens END AS signal_tokens,
    b.signal_unit,
    CASE
        WHEN s.advantage = 0 OR (s.advantage IS NOT NULL AND s.trainable_tokens = 0) THEN 0.0
        ELSE abs(s.advantage) / b.signal_unit * s.trainable_tokens
    END AS signal,
    b.batch_signal,
    CASE WHEN b.batch_signal > 0 THEN true END AS batch_has_signal,
    c.category
FROM samples AS s
INNER JOIN batch_settings AS t ON s.run = t.run AND s.split = t.split AND s.step = t.step
INNER JOIN batch_signals AS b ON s.run = b.run AND s.split = b.split AND s.step = b.step
LEFT JOIN categories AS c ON s.run = c.run AND s.split = c.split AND s.step = c.step AND s.row = c.row;
