-- What is the unbiased standard deviation (n - 1) of a group's numbers?
--
-- grain: group
-- read: An aggregate. Squares of numbers beyond 1e154 overflow, so those are divided by 2^600 first; null for
--     fewer than two numbers.

CREATE MACRO deviation_of(number) AS
    CASE
        WHEN max(abs(number)) < 1e150 THEN stddev_samp(number)
        ELSE stddev_samp(number / pow(2.0, 600)) * pow(2.0, 600)
    END;
