/* Whose reward is it? The last training step, adapter by adapter: what each earns per rollout, and the say that it has
   in the batch's mean reward if every row votes, if equal local ids of different adapters are taken for one rollout,
   and if every rollout of every adapter votes once. The last line is the mean that each of the three comes to. */
WITH last AS (
    SELECT run, split, max(step) AS step FROM batches WHERE split = 'train' GROUP BY ALL
),
means AS (
    SELECT run, split, step,
        any_value(value) FILTER (metric = 'row_mean_raw_reward') AS by_rows,
        any_value(value) FILTER (metric = 'unscoped_raw_reward') AS unscoped,
        any_value(value) FILTER (metric = 'episode_raw_reward') AS scoped
    FROM metrics WHERE scope = 'batch' GROUP BY ALL
)
SELECT adapter, samples, rollouts, round(episode_raw_reward, 3) AS episode_raw_reward,
    round(weight_by_rows, 3) AS weight_by_rows, round(weight_unscoped, 3) AS weight_unscoped,
    round(weight_scoped, 3) AS weight_scoped
FROM (
    SELECT adapter_slot AS place, concat(adapter_name, '#', adapter_slot) AS adapter, samples, rollouts,
        episode_raw_reward, weight_by_rows, weight_unscoped, weight_scoped
    FROM adapters JOIN last USING (run, split, step)
    UNION ALL
    SELECT NULL, 'mean reward', samples, rollouts,
        scoped, by_rows, unscoped, scoped
    FROM batches JOIN last USING (run, split, step) JOIN means USING (run, split, step)
)
ORDER BY place NULLS LAST
