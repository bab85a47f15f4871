# SPDX-License-Identifier: Apache-2.0 OR MIT
# Sourced by `init`: a host that is short of memory. What processes lose by that is told by the kernel's own account of
# them (taskstats), which they print themselves.

disk() {
    for _ in 1 2 3 4 5 6 7 8 9 10; do [ -b /dev/vdb ] && break; sleep 0.5; done
    mkdir /disk
    mount -t ext4 /dev/vda /disk
    dd if=/dev/zero of=/disk/file bs=1M count=96
    dd if=/dev/zero of=/disk/other bs=1M count=288
    sync
}
part disk disk

# What takes memory leaves so little of it.
available() { awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo; }
LEFT_MIB=35

# spare PID: where memory runs out, the kernel ends another process.
spare() { echo -1000 >"/proc/$1/oom_score_adj"; }

# observed NAME PID SECONDS COMMAND...: observes that process, and runs the command in the middle of it.
observed() {
    name=$1 pid=$2 seconds=$3
    shift 3
    deburr record -q -p "$pid" -d "$seconds" -o "/tmp/$name.deburr" >"/tmp/$name.said" 2>&1 &
    recorder=$!
    attached $recorder
    sleep 2
    "$@"
    wait $recorder
    echo "exit status $?" >>"/tmp/$name.said"
    # An account from after the end of the window.
    sleep 1
    part "${name}_said" cat "/tmp/$name.said"
    part "${name}_check" deburr check "/tmp/$name.deburr"
    part "${name}_report" deburr report --json "/tmp/$name.deburr"
    deburr export -q --jsonl - "/tmp/$name.deburr" >/tmp/rows
    part "${name}_meta" grep -m 1 '"table": *"meta"' /tmp/rows
    rm "/tmp/$name.deburr" /tmp/rows
}

cp /memory /tmp/serves
cp /memory /tmp/takes

# What it reads was never in memory, and has room there.
echo 3 >/proc/sys/vm/drop_caches
first() {
    /tmp/serves read /disk/other >/tmp/other.account 2>&1 &
    reader=$!
}
first
observed first "$reader" 6 true
part other_account cat /tmp/other.account
kill -9 "$reader"
wait

# All that it needs is in memory.
rm /disk/other
cat /disk/file >/dev/null
/tmp/serves read /disk/file >/tmp/file.account 2>&1 &
reader=$!
sleep 8
observed calm "$reader" 5 true

# Another process takes most of the memory.
take() {
    /tmp/takes "$1" $(($(available) - LEFT_MIB)) 5000 >/tmp/takes.account 2>&1 &
    taker=$!
    spare $taker
}
observed taken "$reader" 18 take take
# It has done so before.
observed held "$reader" 6 true
part memory free -m
part file_account cat /tmp/file.account
kill -9 "$reader" "$taker"
wait

# What it needs is swapped out when another process needs as much.
part swap sh -c 'mkswap /dev/vdb && swapon /dev/vdb && cat /proc/swaps'
/tmp/serves need 200 0 >/tmp/swapped.account 2>&1 &
reader=$!
sleep 5
take_more() {
    /tmp/takes need $(($(available) + 150)) 1000 >/tmp/takes.account 2>&1 &
    taker=$!
}
observed swapped "$reader" 16 take_more
part swapped_account cat /tmp/swapped.account
part takes_account cat /tmp/takes.account
part vmstat grep -E "^(allocstall|pgscan|pswp|workingset_refault|pgmajfault)" /proc/vmstat
kill -9 "$reader" "$taker"
wait
