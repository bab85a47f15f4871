-- The latest facts of every process, with its cgroup's path.
CREATE VIEW processes AS
SELECT p.proc, p.pid, p.comm, p.cmdline, c.path AS cgroup_path, p.in_target
FROM process p
JOIN (SELECT proc, max(seq) AS seq FROM process GROUP BY proc) last ON last.seq = p.seq
LEFT JOIN cgroups c ON c.cgroup = p.cgroup;

-- The latest limits of every cgroup.
CREATE VIEW cgroups AS
SELECT g.cgroup, g.parent, g.path, g.version, g.quota_us, g.period_us, g.burst_us, g.weight, g.container
FROM cgroup g
JOIN (SELECT cgroup, max(seq) AS seq FROM cgroup GROUP BY cgroup) last ON last.seq = g.seq;

-- Where each process's wall time went over the whole recording, most run-queue waiting first.
CREATE VIEW process_totals AS
SELECT p.pid, p.comm, p.cgroup_path,
       sum(t.wall_ns) AS wall_ns, sum(t.on_cpu_ns) AS on_cpu_ns, sum(t.queued_ns) AS queued_ns,
       sum(t.throttled_ns) AS throttled_ns, sum(t.block_io_ns) AS block_io_ns,
       sum(t.mem_stall_ns) AS mem_stall_ns, sum(t.uninterruptible_ns) AS uninterruptible_ns,
       sum(t.sleep_ns) AS sleep_ns, sum(t.stopped_ns) AS stopped_ns,
       max(t.wait_max_ns) AS wait_max_ns, sum(t.switches) AS switches, t.proc
FROM process_tick t LEFT JOIN processes p USING (proc)
GROUP BY t.proc ORDER BY sum(t.queued_ns) DESC;

-- Who waited behind whom, and for how long, over the whole recording.
CREATE VIEW blame_totals AS
SELECT v.pid AS victim_pid, v.comm AS victim_comm,
       CASE b.culprit WHEN -1 THEN '(migrated)' WHEN -2 THEN '(not sampled)' ELSE c.comm END AS culprit_comm,
       c.pid AS culprit_pid, c.cgroup_path AS culprit_cgroup_path, sum(b.ns) AS ns
FROM blame b LEFT JOIN processes v ON v.proc = b.victim LEFT JOIN processes c ON c.proc = b.culprit
GROUP BY b.victim, b.culprit ORDER BY sum(b.ns) DESC;

-- Sizes of each process's waits: bucket 0 is below 1 us, bucket i is [2^(i-1), 2^i) us.
CREATE VIEW wait_sizes AS
SELECT t.proc, p.pid, p.comm, json_extract(w.value, '$[0]') AS bucket,
       sum(json_extract(w.value, '$[1]')) AS waits, sum(json_extract(w.value, '$[2]')) AS ns
FROM process_tick t JOIN json_each(t.waits) w LEFT JOIN processes p USING (proc)
GROUP BY t.proc, bucket ORDER BY t.proc, bucket;

-- One second after the other: where a process's time went.
CREATE VIEW process_seconds AS
SELECT k.t0_ns, k.t1_ns, p.pid, p.comm, t.wall_ns, t.on_cpu_ns, t.queued_ns, t.throttled_ns,
       t.block_io_ns, t.sleep_ns, t.wait_max_ns
FROM process_tick t JOIN tick k USING (tick) LEFT JOIN processes p USING (proc) ORDER BY t.seq;
