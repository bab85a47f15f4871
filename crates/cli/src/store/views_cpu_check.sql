-- Steps of a check of CPUs: how even their workers were.
CREATE VIEW cpu_steps AS
SELECT workers,
       min(chunks * 1e9 / cpu_ns) / max(chunks * 1e9 / cpu_ns) AS evenness,
       avg(cpu_ns * 1.0 / wall_ns) AS cpu_share,
       sum(migrations) AS migrations
FROM cpu_worker WHERE cpu_ns > 0 AND wall_ns > 0 GROUP BY workers ORDER BY workers;
