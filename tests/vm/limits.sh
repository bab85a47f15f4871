# SPDX-License-Identifier: Apache-2.0 OR MIT
# Sourced by a test: starts processes in nested v2 cgroups, in cgroup namespaces and with cpusets, and runs `deburr
# limits` on them. Beside this file lies `/unshare`, and optionally `/service`, a Go program that sleeps.

tree=/sys/fs/cgroup
echo "+cpu +cpuset" >$tree/cgroup.subtree_control
# A pod with a tighter quota than each of its containers; below them, levels without a controller.
mkdir $tree/pod
echo "+cpu" >$tree/pod/cgroup.subtree_control
for leaf in open wide; do mkdir $tree/pod/$leaf $tree/pod/$leaf/below; done
echo "90000 100000" >$tree/pod/cpu.max
echo "270000 100000" >$tree/pod/wide/cpu.max
echo 20000 >$tree/pod/wide/cpu.max.burst
# A cpuset of one CPU, with a level below that has no cpuset of its own.
mkdir $tree/set $tree/set/below
echo 1 >$tree/set/cpuset.cpus
ifconfig lo 127.0.0.1 up

# within GROUP COMMAND...: starts a process in that cgroup.
within() {
    group=$1
    shift
    sh -c 'echo 0 >"$0"/cgroup.procs && exec "$@"' $tree/"$group" "$@" >/dev/null 2>&1 &
}

# Sleeps where another command would be looked for by its name.
within pod/wide/below sleep 600
nested=$!
within pod/open /unshare -C sleep 600
namespaced=$!
within pod/wide /unshare -Cm sh -c "umount $tree && mount -t cgroup2 cgroup2 $tree && exec sleep 600"
mounted=$!
within set/below sleep 600
set=$!
within set/below taskset -c 0,1 sleep 600
asked=$!
within . taskset -c 0 sleep 600
pinned=$!
TOKIO_WORKER_THREADS=8 within pod/open deburr lab-worker fanout --port 8001
tokio=$!
# Go's own choice: under a quota of its own cgroup, under one of the level above only, which it does not see, and where
# only a part of the tree is mounted.
if [ -e /service ]; then
    within pod/wide /service
    go_wide=$!
    within pod/open /service
    go_open=$!
    mkdir /tmp/part
    within pod/wide /unshare -m sh -c "mount --bind $tree/pod/wide /tmp/part && umount $tree && exec /service"
    go_part=$!
fi
sleep 3
part limits deburr limits --json $nested $namespaced $mounted $set $asked $pinned $tokio $go_wide $go_open $go_part
echo "=== names"
for name in nested namespaced mounted set asked pinned tokio go_wide go_open go_part; do
    eval "echo $name \$$name"
done
# From inside a cgroup namespace with its own mount, as in a container.
echo "=== contained"
sh -c 'echo 0 >"$0"/cgroup.procs && exec /unshare -Cm sh -c "umount $1 && mount -t cgroup2 cgroup2 $1 && sleep 60 & sleep 2; exec deburr limits --json \$!"' \
    $tree/pod/wide $tree 2>&1
kill -9 $nested $namespaced $mounted $set $asked $pinned $tokio $go_wide $go_open $go_part
