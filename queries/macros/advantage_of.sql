-- What is the advantage of a reward in its prompt group?
--
-- grain: call
-- read: (reward - mean), over (deviation + 1e-6) where `divides` and the group has a deviation; exactly 0
--     where all rewards are equal; the reward itself where the batch does not normalise. Null where the
--     reward is null or the figure is beyond float64.

CREATE MACRO advantage_of(reward, mean, deviation, lowest, highest, normalises, divides) AS
    CASE
        WHEN NOT normalises OR reward IS NULL THEN reward
        WHEN lowest = highest THEN 0.0
        WHEN isfinite(mean) AND isfinite(coalesce(deviation, 0.0))
            THEN (reward - mean) / CASE WHEN divides AND deviation IS NOT NULL THEN deviation + 1e-6 ELSE 1.0 END
    END;
