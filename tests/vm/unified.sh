# SPDX-License-Identifier: Apache-2.0 OR MIT
# Sourced by `init`: a host with cgroup v2 only, on which one of the two CPUs is offline.

ip link set lo up
echo 0 >/sys/devices/system/cpu/cpu1/online

# Sweeps a service that echoes lines, each with more work than 40 a second have in a twentieth of a CPU, on a fast host too.
sweep() {
    deburr sweep --json -q --rate 40 --url tcp://127.0.0.1:7 --cpus "$1" --seconds 1 --warmup 0.3 --reps 1 \
        --vary env:TOKIO_WORKER_THREADS=1,32 -- deburr lab-worker fanout --port 7 --steps 4 --work 30000
}

part refused sweep 1
echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
part sweep sweep 0.05
# Half a CPU for a command that would use a whole one for a second.
part command deburr sweep --cmd --json -q --reps 1 --cpus 0.5 -- sh -c 'timeout -s KILL 1 deburr lab-worker spin; true'
part left ls -d /sys/fs/cgroup/*sweep* /tmp/*sweep*

mkdir -p /sys/fs/cgroup/pod/own
echo "50000 100000" >/sys/fs/cgroup/pod/cpu.max
part limited deburr lab-worker --cgroup /sys/fs/cgroup/pod/own exec cpu-check --quick --json -o /tmp/limited.deburr
part check deburr check /tmp/limited.deburr
