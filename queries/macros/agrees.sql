-- Are two figures equal, as far as float64 can tell?
--
-- grain: call
-- read: true within 1e-9 of the larger figure or 1e-12, plus 64 units in the last place of `size`, the
--     largest number that went into either figure: where large numbers cancel, no float64 addition can keep
--     more. For rewards of everyday size the addition is below 1e-12. False for null and NaN.

CREATE MACRO agrees(a, b, size) AS
    coalesce(
        NOT isnan(a) AND (a = b OR abs(a - b) <= greatest(1e-9 * greatest(abs(a), abs(b)), 1e-12) + 1.4e-14 * size),
        false
    );
