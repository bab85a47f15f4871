# SPDX-License-Identifier: Apache-2.0 OR MIT
# Sourced by `init`: sets up several situations, and runs deburr in each.

echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
for group in victim neighbour limited worker; do mkdir /sys/fs/cgroup/$group; done
# Set before deburr runs: some hooks are only needed where there is a quota.
echo "50000 100000" >/sys/fs/cgroup/limited/cpu.max

# spin NAME CPU: starts a process that computes for ever, in the cgroup of that name.
spin() { deburr lab-worker --cgroup "/sys/fs/cgroup/$1" --comm "$1" --cpu "$2" spin >/dev/null & }

counters() {
    cut -d ' ' -f 1 /proc/uptime
    cat /sys/fs/cgroup/limited/cpu.stat
}

part doctor deburr doctor --json

# One process against two of another cgroup on its CPU; the other CPU is as busy.
spin victim 1
victim=$!
for cpu in 0 0 1 1; do
    spin neighbour "$cpu"
    neighbours="$neighbours $!"
done
sleep 1
part neighbour deburr -p "$victim" -d 5 --json
kill -9 "$victim" $neighbours
wait

# Who reads from a pipe what a shell writes now and then.
mkfifo /pipe
sh -c 'echo $$ >/reader; exec cat' </pipe >/dev/null &
sh -c 'while :; do echo line; sleep 0.2; done' >/pipe &
writer=$!
sleep 1
part asleep deburr -p "$(cat /reader)" -d 4 --json
kill -9 "$writer" "$(cat /reader)"
wait

# Nobody writes, so that it is woken when its time is up.
mkfifo /quiet
sh -c 'while :; do read -t 1 line <>/quiet; done' &
waits=$!
sleep 1
part timeout deburr -p "$waits" -d 4 --json
kill -9 "$waits"

# Who asks with datagrams, and who listens to what comes.
ip link set lo up
for mode in anew listens; do
    /asks "$mode" &
    asks=$!
    sleep 1
    part "$mode" deburr -p "$asks" -d 4 --json
    kill -9 "$asks"
    wait
    # The server that it has started has its port until it has ended, too.
    sleep 1
done

# The kernel's own count of throttled time is printed beside the report.
spin limited 1
limited=$!
sleep 1
part quota_before counters
# On the other CPU: where deburr loads its probes, the process would wait and use up less of its quota, before the window.
part quota taskset 1 deburr -p "$limited" -d 5 --json
part quota_after counters
kill -9 "$limited"

# A process that does nothing but compute, in one function of this program.
spin worker 1
worker=$!
sleep 1
part profile deburr -p "$worker" -d 4 --profile --json
kill -9 "$worker"

# New threads that wait: children of a shell, more at a time than the quota has room for.
mkdir /sys/fs/cgroup/crowd
echo "20000 100000" >/sys/fs/cgroup/crowd/cpu.max
sh -c 'echo $$ >/sys/fs/cgroup/crowd/cgroup.procs
    child() { i=0; while [ $i -lt 500 ]; do i=$((i + 1)); done; }
    while :; do child & child & child & child & child & child & wait; done' &
crowd=$!
sleep 1
part crowd deburr --cgroup /crowd -d 5 --json
kill -9 "$crowd"

# Two levels with a quota, of which the one above is tighter.
mkdir /sys/fs/cgroup/above
echo +cpu >/sys/fs/cgroup/above/cgroup.subtree_control
mkdir /sys/fs/cgroup/above/own
echo "50000 100000" >/sys/fs/cgroup/above/cpu.max
echo "150000 100000" >/sys/fs/cgroup/above/own/cpu.max
spin above/own 1
inner=$!
sleep 1
part limits deburr limits --json "$inner"
kill -9 "$inner"
wait

# Two disks with a filesystem each; the second one is slow (`SLOW_IOPS` of `matrix`).
mkdir /fast /slow
mounted() {
    for _ in 1 2 3 4 5 6 7 8 9 10; do [ -b /dev/vdb ] && break; sleep 0.5; done
    mount -t ext4 /dev/vda /fast && mount -t ext4 /dev/vdb /slow && echo yes
}
part disks mounted

# Files of known lengths, written in several ways; the recording leaves the machine on the disk.
part files deburr record -q -o /tmp/files.deburr -- sh /write-files
cp /tmp/files.deburr /fast/
umount /fast

# A process that reads a disk again and again, in a cgroup whose parent has little memory.
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/small
echo +memory >/sys/fs/cgroup/small/cgroup.subtree_control
mkdir /sys/fs/cgroup/small/in
echo 16M >/sys/fs/cgroup/small/memory.max
sh -c 'echo $$ >/sys/fs/cgroup/small/in/cgroup.procs
    i=0
    while [ $i -lt 400 ]; do set -- "$@" /dev/vda; i=$((i + 1)); done
    exec cat "$@"' >/dev/null &
reader=$!
sleep 1
part reclaim_run deburr record -q -p "$reader" -d 4 -o /tmp/reclaim.deburr
kill -9 "$reader"
wait
rows() { deburr export -q --jsonl - /tmp/reclaim.deburr | grep -E '"table": ?"(reclaim|cgroup|process)"'; }
part reclaim rows
rm /tmp/reclaim.deburr

# A commit log beside a copy, on the slow disk.
writer() {
    deburr lab-worker --cgroup "/sys/fs/cgroup/$1" --comm "$1" writer --dir "/slow/$1" --spec "$2" >/dev/null &
}
mkdir /slow/victim /slow/neighbour
writer victim '{"direct": true, "random": false, "depth": 1, "block_kib": 4, "file_mib": 1, "per_s": null}'
victim=$!
writer neighbour '{"direct": true, "random": false, "depth": 8, "block_kib": 16, "file_mib": 1, "per_s": null}'
neighbour=$!
sleep 3
part disk deburr -p "$victim" -d 8 --json
kill -9 "$victim" "$neighbour"
wait
