# SPDX-License-Identifier: Apache-2.0 OR MIT
# Sourced by `init`: unloads a module for experiments. `brd` makes disks in memory, of which /proc/diskstats has a line each:
# reading that file takes the longer, the more there are.

release=$(uname -r)
home=/lib/modules/$release
mkdir -p "$home/kernel"
for file in /brd.ko* /dummy.ko*; do
    mv "$file" "$home/kernel/"
    # One that this kernel does not decompress.
    [ -e /sys/module/compression ] || [ "$file" != /brd.ko ] || { gzip "$home/kernel/brd.ko" && file=/brd.ko.gz; }
    echo "kernel$file:" >>"$home/modules.dep"
done
brd=$(ls "$home"/kernel/brd.ko*)
part file echo "$brd"
part decompresses cat /sys/module/compression

# What is known of the module: nothing if it is not loaded.
state() {
    cat /sys/module/brd/initstate 2>/dev/null
    for parameter in /sys/module/brd/parameters/*; do
        [ -e "$parameter" ] && echo "${parameter##*/}=$(cat "$parameter")"
    done
    ls -d /sys/block/ram* 2>/dev/null | wc -l
}
# until_so COMMAND...: waits until it succeeds, a minute at most.
until_so() {
    for _ in $(seq 600); do "$@" && return; sleep 0.1; done
    echo "it never was so: $*"
    return 1
}
loaded() { [ -e /sys/module/brd/initstate ] && grep -q live /sys/module/brd/initstate; }
unloaded() { ! [ -e /sys/module/brd ]; }
clean() { ! ls /run/deburr/*.journal >/dev/null 2>&1; }
load() { insmod "$brd" rd_nr=200 max_part=4; }
# What it prints, and its exit status.
refused() {
    "$@"
    echo "exit status $?"
}

set="--set module:brd=unloaded"
proves="deburr prove --yes --json -q -d 3 --block 2 --least 40 --seed 7 --measure probe:p50"
changes="deburr lab-worker changes --hold-ms 60000"

# Refusals, before which nothing is changed.
part absent refused $changes module:brd=unloaded
load
part before state
part no_flag refused $proves $set --probe true
part builtin refused $changes module:printk=unloaded
part unknown_module refused $changes module:no-such-module=unloaded
sleep 60 </dev/ram0 &
user=$!
part in_use refused $changes module:brd=unloaded
kill $user
wait $user
# A parameter without a file in sysfs.
insmod "$home"/kernel/dummy.ko* numdummies=2
part unreadable refused deburr lab-worker changes --hold-ms 1 module:dummy=unloaded </dev/null
part unreadable_after cat /sys/module/dummy/initstate
part refused_after state

# Its time depends on the module; and one whose time does not.
# A hundred times the same name makes one process read the file as often.
names() { for _ in $(seq 100); do echo "$1"; done | tr '\n' ' '; }
part true $proves --allow-module $set --probe "cat $(names /proc/diskstats)"
part true_after state
part decoy $proves --allow-module $set --probe "cat $(names /proc/vmstat)"
part decoy_after state

# An experiment that is killed in the middle.
$proves --allow-module $set --probe true >/dev/null 2>&1 &
runner=$!
until_so unloaded && kill -9 $runner
wait $runner
until_so loaded
until_so clean
part killed state

# start: a process that has unloaded the module, and holds it so; its input stays open.
start() {
    mkfifo /tmp/hold
    $changes module:brd=unloaded </tmp/hold >/tmp/changes 2>&1 &
    runner=$!
    exec 8>/tmp/hold
    rm /tmp/hold
    until_so grep -q '^changed' /tmp/changes
}
# Its janitor, too.
start
part unloaded state
kill -STOP $runner
kill -9 $(cat /proc/$runner/task/$runner/children)
kill -9 $runner
wait $runner
exec 8>&-
sleep 1
part both_killed state
part told refused deburr prove --yes $set --allow-module --measure probe --probe true -d 1
part recover refused deburr prove --recover
part recovered state

# Somebody loads it in the middle, with another parameter: it stays so.
start
insmod "$brd" rd_nr=4
kill -9 $runner
wait $runner
exec 8>&-
until_so clean
part others state
part others_told cat /tmp/changes
rmmod brd
load
# In the middle of a block: that was no block without it.
{
    until_so unloaded
    sleep 0.5
    load
} &
part others_in_block refused deburr prove --yes -q -d 2 --block 8 --measure probe --allow-module $set --probe true
wait
part others_in_block_after state
