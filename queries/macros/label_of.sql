-- How is a number written as part of a metric's name?
--
-- grain: value
-- read: Correctly rounded to one decimal, never -0.0; from 1e15 on with an exponent and one digit.

CREATE MACRO label_of(number) AS
    CASE
        WHEN abs(number) >= 1e15 THEN format('{:.0e}', number)
        WHEN format('{:.1f}', number) = '-0.0' THEN '0.0'
        ELSE format('{:.1f}', number)
    END;
