-- The latest facts of every device; a partition's disk by its name.
CREATE VIEW devices AS
SELECT d.device, d.name, coalesce(w.name, d.disk) AS disk_name, d.start_sector, d.sectors, d.backing, d.gone
FROM device d
JOIN (SELECT device, max(seq) AS seq FROM device GROUP BY device) last ON last.seq = d.seq
LEFT JOIN device w ON w.device = d.disk AND w.seq = (SELECT max(seq) FROM device WHERE device = d.disk);

-- The best name of every file.
CREATE VIEW files AS
SELECT f.file, f.path, f.state, f.fs, f.ino, f.generation, p.comm AS dirtied_by_comm, p.pid AS dirtied_by_pid
FROM file f
JOIN (SELECT file, max(seq) AS seq FROM file GROUP BY file) last ON last.seq = f.seq
LEFT JOIN processes p ON p.proc = f.dirtied_by;

-- Every setting as it was last.
CREATE VIEW settings AS
SELECT s.path, s.value, s.t_ns
FROM setting s
JOIN (SELECT path, max(seq) AS seq FROM setting GROUP BY path) last ON last.seq = s.seq
ORDER BY s.path;

-- What was transferred over the whole recording, by file or other purpose, most bytes first.
CREATE VIEW io_by_file AS
SELECT d.name AS device_name, i.op, i.what, f.path, p.comm AS submitter_comm, p.pid AS submitter_pid, i.reason,
       sum(i.ios) AS ios, sum(i.bytes) AS bytes, sum(i.total_ns) AS total_ns, max(i.max_ns) AS max_ns, i.file
FROM io_tick i
LEFT JOIN devices d USING (device) LEFT JOIN files f USING (file) LEFT JOIN processes p ON p.proc = i.submitter
GROUP BY i.device, i.op, i.what, i.file, i.submitter, i.reason ORDER BY sum(i.bytes) DESC, sum(i.ios) DESC;

-- The same, second by second, by purpose and without the files.
CREATE VIEW io_seconds AS
SELECT k.t0_ns, k.t1_ns, d.name AS device_name, i.op, i.what, i.reason, p.comm AS submitter_comm,
       sum(i.ios) AS ios, sum(i.bytes) AS bytes, sum(i.total_ns) AS total_ns, max(i.max_ns) AS max_ns
FROM io_tick i JOIN tick k USING (tick)
LEFT JOIN devices d USING (device) LEFT JOIN processes p ON p.proc = i.submitter
GROUP BY k.t0_ns, k.t1_ns, i.device, i.op, i.what, i.reason, i.submitter ORDER BY k.t0_ns, sum(i.bytes) DESC;

-- A device's activity in its bins of 10 ms, those without activity left out.
CREATE VIEW device_activity AS
SELECT k.t0_ns + (k.t1_ns - k.t0_ns) * json_extract(a.value, '$[0]') / b.bins AS t0_ns, d.name AS device_name,
       json_extract(a.value, '$[1]') AS busy_ns, json_extract(a.value, '$[2]') AS depth_ns,
       json_extract(a.value, '$[3]') AS ios, json_extract(a.value, '$[4]') AS bytes
FROM device_bins b JOIN tick k USING (tick) JOIN json_each(b.active) a LEFT JOIN devices d USING (device)
ORDER BY b.seq, json_extract(a.value, '$[0]');

-- Passes of the flusher.
CREATE VIEW passes AS
SELECT w.t0_ns / 1e9 AS begin_s, (w.t1_ns - w.t0_ns) / 1e9 AS length_s, coalesce(d.name, w.device) AS device_name,
       w.reason, w.inodes, w.ios, w.bytes
FROM writeback_pass w LEFT JOIN devices d USING (device) ORDER BY w.t0_ns;

-- By what processes were held up in block IO, most time first.
CREATE VIEW io_wait_totals AS
SELECT p.pid, p.comm, w.kind, d.name AS device_name, sum(json_extract(s.value, '$[1]')) AS waits,
       sum(json_extract(s.value, '$[2]')) AS ns, max(w.max_ns) AS max_ns
FROM io_wait w JOIN json_each(w.waits) s LEFT JOIN processes p USING (proc) LEFT JOIN devices d USING (device)
GROUP BY w.proc, w.kind, w.device ORDER BY sum(json_extract(s.value, '$[2]')) DESC;

-- Beside whose requests processes waited for theirs, most time first.
CREATE VIEW io_blame_totals AS
SELECT v.pid AS victim_pid, v.comm AS victim_comm, d.name AS device_name, b.culprit, c.pid AS culprit_pid,
       c.comm AS culprit_comm, g.path AS owner_path, sum(b.ns) AS ns
FROM io_blame b LEFT JOIN devices d USING (device) LEFT JOIN processes v ON v.proc = b.victim
LEFT JOIN processes c ON c.proc = b.proc LEFT JOIN cgroups g ON g.cgroup = b.cgroup
GROUP BY b.victim, b.device, b.culprit, b.proc, b.cgroup ORDER BY sum(b.ns) DESC;
