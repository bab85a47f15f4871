# SPDX-License-Identifier: Apache-2.0 OR MIT
# Sourced by `init`: turns the levers of `deburr prove` that this kernel has. Whether a setting changed is read by this shell.
#
# The first disk is slow and has a filesystem; the settings of the second one's queue are changed.

for driver in /*.ko; do insmod "$driver" || :; done
for _ in $(seq 20); do [ -b /dev/vdb ] && break; sleep 0.5; done
mkdir /slow
part disk mount -t ext4 /dev/vda /slow
slow=$(cat /sys/block/vda/dev)
other=$(cat /sys/block/vdb/dev)
tree=/sys/fs/cgroup
for controller in cpu cpuset io; do echo +$controller >$tree/cgroup.subtree_control; done
mkdir $tree/a $tree/b $tree/ends
# An interrupt that may be moved, and one whose CPUs the kernel chooses itself.
for file in /proc/irq/*/smp_affinity_list; do
    irq=${file#/proc/irq/}
    irq=${irq%/*}
    if cat "$file" 2>/dev/null >/tmp/list && cat /tmp/list 2>/dev/null >"$file"; then movable=$irq; else fixed=$irq; fi
done 2>/dev/null
echo "=== irqs"
echo "movable $movable, fixed $fixed"

# Values that are not the defaults: the kernel puts those back by itself.
initial() {
    echo "80000 100000" >$tree/a/cpu.max
    echo 5000 >$tree/a/cpu.max.burst
    echo 50 >$tree/a/cpu.weight
    echo 0 >$tree/b/cpu.idle
    echo 60 >$tree/b/cpu.weight
    echo 0-1 >$tree/a/cpuset.cpus
    echo >$tree/b/cpuset.cpus
    echo "$slow riops=500 rbps=max wbps=max wiops=max" >$tree/a/io.max
    echo "$other riops=max rbps=max wbps=max wiops=300" >$tree/a/io.max
    if [ -e $tree/a/io.weight ]; then
        echo "$other enable=1" >$tree/io.cost.qos
        echo "$other 40" >$tree/a/io.weight
        echo "default 70" >$tree/a/io.weight
    fi
    echo mq-deadline >/sys/block/vdb/queue/scheduler
    echo 333 >/sys/block/vdb/queue/iosched/read_expire
    echo 60 >/sys/block/vdb/queue/nr_requests
    echo 54321 >/sys/block/vdb/queue/wbt_lat_usec
    echo 50 >/sys/block/vda/queue/nr_requests
    echo 65432 >/sys/block/vda/queue/wbt_lat_usec
    echo 512 >/sys/block/vda/queue/max_sectors_kb
    echo 96 >/sys/block/vda/queue/read_ahead_kb
    echo 0 >/sys/block/vda/queue/rq_affinity
    echo 90 >/sys/class/bdi/$slow/max_ratio
    echo 1 >/sys/class/bdi/$slow/min_ratio
    for limit in min:15000 max:805000; do
        file=/sys/class/bdi/$slow/${limit%:*}_ratio_fine
        [ -e "$file" ] && echo "${limit#*:}" >"$file"
    done
    [ -e /sys/class/bdi/$slow/strict_limit ] && echo 0 >/sys/class/bdi/$slow/strict_limit
    echo 0-1 >/proc/irq/$movable/smp_affinity_list
    echo madvise >/sys/kernel/mm/transparent_hugepage/enabled
    echo defer >/sys/kernel/mm/transparent_hugepage/defrag
    for policy in /sys/devices/system/cpu/cpufreq/policy*; do
        [ -e "$policy" ] && echo performance >"$policy/scaling_governor" && echo 1600000 >"$policy/scaling_max_freq"
    done
    for setting in $sysctls; do
        file=/proc/sys/$(echo "${setting%%=*}" | tr . /)
        [ -e "$file" ] && echo "${setting#*=}" >"$file"
    done
    # Older kernels forget its choice with each change of its cpuset.
    [ -z "$chosen" ] || taskset -p 1 $chosen
}
sysctls="vm.dirty_writeback_centisecs=600 vm.dirty_expire_centisecs=2500 vm.dirty_background_ratio=9 vm.dirty_ratio=21
    vm.dirtytime_expire_seconds=40000 vm.swappiness=61 vm.vfs_cache_pressure=99 vm.watermark_scale_factor=11
    vm.stat_interval=2 vm.compaction_proactiveness=21 kernel.sched_autogroup_enabled=1
    kernel.sched_cfs_bandwidth_slice_us=4000 kernel.numa_balancing=0 kernel.timer_migration=1 net.core.busy_poll=1
    net.core.busy_read=1 net.core.netdev_budget=301 net.core.netdev_budget_usecs=8001"

# SETTING;FILE;VALUE;a value that somebody else gives it meanwhile
levers() {
    cat <<END
cgroup:/a:cpu.max;$tree/a/cpu.max;50000 200000;60000 100000
cgroup:/a:cpu.max.burst;$tree/a/cpu.max.burst;10000;9000
cgroup:/a:cpu.weight;$tree/a/cpu.weight;300;400
cgroup:/b:cpu.idle;$tree/b/cpu.idle;1;
cgroup:/a:cpuset.cpus;$tree/a/cpuset.cpus;1;0
cgroup:/b:cpuset.cpus;$tree/b/cpuset.cpus;0;1
cgroup:/a:io.max;$tree/a/io.max;$slow wbps=1048576;$slow rbps=2097152
cgroup:/a:io.weight;$tree/a/io.weight;30;default 80
block:vdb:scheduler;/sys/block/vdb/queue/scheduler;none;
block:vda:nr_requests;/sys/block/vda/queue/nr_requests;32;40
block:vda:wbt_lat_usec;/sys/block/vda/queue/wbt_lat_usec;12345;23456
block:vda:max_sectors_kb;/sys/block/vda/queue/max_sectors_kb;64;128
block:vda:read_ahead_kb;/sys/block/vda/queue/read_ahead_kb;64;32
block:vda:rq_affinity;/sys/block/vda/queue/rq_affinity;2;1
bdi:$slow:max_ratio;/sys/class/bdi/$slow/max_ratio;50;40
bdi:$slow:min_ratio;/sys/class/bdi/$slow/min_ratio;3;2
bdi:$slow:strict_limit;/sys/class/bdi/$slow/strict_limit;1;
irq:$movable:smp_affinity_list;/proc/irq/$movable/smp_affinity_list;1;0
thp:enabled;/sys/kernel/mm/transparent_hugepage/enabled;always;never
thp:defrag;/sys/kernel/mm/transparent_hugepage/defrag;never;always
cpu:scaling_governor;/sys/devices/system/cpu/cpufreq/policy0/scaling_governor;schedutil;
cpu:scaling_max_freq;/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq;1200000;2000000
cpu:dma_latency_us;/dev/cpu_dma_latency;7;
END
    for setting in $sysctls; do
        name=${setting%%=*}
        now=${setting#*=}
        case $now in 0) to=1 ;; 1) to=0 ;; *) to=$((now - 1)) ;; esac
        echo "$name;/proc/sys/$(echo "$name" | tr . /);$to;"
    done
}
queues=$(for disk in vda vdb; do readlink -f /sys/block/$disk; done | sed 's|$|/queue/*|; p; s|[*]$|iosched/*|')
bdis=$(for disk in $slow $other; do readlink -f /sys/class/bdi/$disk; done | sed 's|$|/*_ratio*|; p; s|[*]_ratio|strict_limit|')
initial >/tmp/initial 2>&1
part initial cat /tmp/initial
: >/tmp/absent
levers | while IFS=';' read -r setting file value third; do
    if [ -e "$file" ]; then
        echo "$setting;$(readlink -f "$file");$value;$third" >>/tmp/levers
        echo "$setting=$value" >>/tmp/knobs
    else
        echo "$setting" >>/tmp/absent
    fi
done
part levers cat /tmp/levers
part absent cat /tmp/absent

# Everything that a lever may have changed, each line with its file.
state() {
    grep -Hs '' $(cut -d ';' -f 2 /tmp/levers | grep -v ^/dev/) $tree/[ab]/cpu.weight* $tree/[ab]/cpu*.effective \
        $queues $bdis /sys/devices/system/cpu/cpufreq/policy*/scaling_[gm]* /proc/sys/vm/dirty_*bytes | sort -u
    grep -H Cpus_allowed_list /proc/$chosen/status
    echo "/dev/cpu_dma_latency:$(hexdump -n 4 -e '1/4 "%d"' /dev/cpu_dma_latency)"
}
# until_so COMMAND...: waits until it succeeds, a minute at most.
until_so() {
    for _ in $(seq 600); do "$@" && return; sleep 0.1; done
    echo "it never was so: $*"
    return 1
}
clean() { ! ls /run/deburr/*.journal >/dev/null 2>&1; }
# What it prints, and its exit status.
refused() {
    "$@"
    echo "exit status $?"
}
changes="deburr lab-worker changes"
# start KNOB...: a process that has changed settings, and holds them so; its input stays open.
start() {
    mkfifo /tmp/hold
    $changes --hold-ms 60000 "$@" </tmp/hold >/tmp/changes 2>&1 &
    runner=$!
    exec 8>/tmp/hold
    rm /tmp/hold
    until_so grep -Eq '^changed|^Error|error:' /tmp/changes
}
# start_all: the same, with all that there is.
start_all() {
    IFS='
'
    set -- $(cat /tmp/knobs)
    unset IFS
    start "$@"
}
# Lets it end by itself.
finish() {
    exec 8>&-
    wait $runner
    until_so clean
}

# A thread that has chosen one of the CPUs of its cpuset.
sh -c "echo 0 >$tree/a/cgroup.procs && exec taskset -c 0 sleep 10000" </dev/null &
chosen=$!
until_so grep -q 'Cpus_allowed_list:.0$' /proc/$chosen/status

part before state
start_all
part changed state
finish
part ended state
part ended_said cat /tmp/changes

start_all
kill -9 $runner
finish
part killed state

start_all
kill -STOP $runner
kill -9 $(cat /proc/$runner/task/$runner/children)
kill -9 $runner
wait $runner
exec 8>&-
sleep 1
part both_killed state
part told refused deburr prove --yes --set vm.swappiness=1 --measure probe --probe true -d 1
part recover refused deburr prove --recover
part recovered state

# Somebody else changes what can have a third value.
others() {
    while IFS=';' read -r setting file value third; do
        [ -z "$third" ] || echo "$third" >"$file"
    done </tmp/levers
}
start_all
others
part others_before state
finish
part others state
part others_said cat /tmp/changes
initial >/dev/null 2>&1
start_all
others
kill -9 $runner
finish
part others_killed state
part others_killed_said cat /tmp/changes
initial >/dev/null 2>&1
part reset state

# Levers of which one resets the other.
start block:vdb:nr_requests=30 block:vdb:scheduler=none block:vda:read_ahead_kb=48 block:vda:max_sectors_kb=96
part together state
finish
part together_said cat /tmp/changes
part together_after state

# What the kernel or deburr refuses.
while IFS=';' read -r name knob; do
    part "refused_$name" refused $changes --hold-ms 1 "$knob" </dev/null
done <<END
requests;block:vda:nr_requests=65536
scheduler;block:vda:scheduler=no-such
ratio;bdi:$slow:min_ratio=95
thp;thp:enabled=sometimes
irq;irq:9999:smp_affinity_list=0
fixed_irq;irq:$fixed:smp_affinity_list=0
irq_cpu;irq:$movable:smp_affinity_list=7
cpuset;cgroup:/a:cpuset.cpus=7
version;cgroup:/a:cpu.shares=2
burst;cgroup:/a:cpu.max.burst=90000000
io;cgroup:/a:io.max=99:99 wbps=1000000
governor;cpu:scaling_governor=no-such
END
mount -o remount,ro /sys
part refused_mounted refused $changes --hold-ms 1 thp:enabled=never </dev/null
mount -o remount,rw /sys
start cgroup:/ends:cpu.weight=10
rmdir $tree/ends
finish
part removed cat /tmp/changes
part refused_after state
kill $chosen

# Experiments. Every value that the file has meanwhile is printed once for each time that it changed.
proves="deburr prove --yes --json -q -d 4 --block 2 --seed 7"
prove() {
    part "before_$1" cat /proc/uptime
    name=$1
    file=$2
    shift 2
    rm -f /tmp/over
    { while [ ! -e /tmp/over ]; do echo $(cat "$file") && sleep 0.25; done | uniq -c >/tmp/seen; } &
    watch=$!
    part "$name" refused $proves "$@"
    touch /tmp/over
    wait $watch
    part "${name}_seen" cat /tmp/seen
    part "${name}_after" cat "$file"
}
spin() { deburr lab-worker --cgroup "$tree/$1" --comm "$1" --cpu "$2" spin >/dev/null & }
mkdir $tree/limited $tree/victim $tree/neighbour
echo "50000 100000" >$tree/limited/cpu.max
echo "300000 100000" >$tree/victim/cpu.max

spin limited 0
limited=$!
sleep 1
prove quota $tree/limited/cpu.max SCH002 -p $limited
kill -9 $limited

spin victim 1
victim=$!
spin neighbour 1
neighbour=$!
sleep 1
prove decoy_quota $tree/victim/cpu.max --set "cgroup:/victim:cpu.max=600000 100000" --measure queued -p $victim
# Somebody sets it back in the middle of a changed block: that was no block with it.
{
    until_so grep -qx 10 $tree/neighbour/cpu.weight && sleep 1 && echo 100 >$tree/neighbour/cpu.weight
} &
part others_in_block refused deburr prove --yes --json -q -d 2 --block 4 --seed 7 --set cgroup:/neighbour:cpu.weight=10 \
    --measure queued -p $victim
kill -9 $victim $neighbour
wait

# A victim on the slow disk, and one that keeps it busy.
writer() {
    mkdir /slow/$1
    deburr lab-worker --cgroup $tree/$1 --comm $1 writer --dir /slow/$1 --spec \
        "{\"direct\": true, \"random\": false, \"depth\": $2, \"block_kib\": $3, \"file_mib\": 1, \"per_s\": $4}" >/dev/null &
}
writer victim 1 4 10
victim=$!
writer neighbour 8 16 null
neighbour=$!
sleep 3
prove io $tree/neighbour/io.max --set "cgroup:/neighbour:io.max=$slow wiops=10" --measure block-io -p $victim
kill -9 $victim $neighbour
wait
