# SPDX-License-Identifier: Apache-2.0 OR MIT
# Sourced by `init`: what may happen to a host in the middle of an observation. The kernel's own account of two processes
# (/proc/PID/schedstat) is read all the while, and printed with each recording.

# One process on each CPU, which deburr need not wait for; where one CPU goes away, they share the other one.
spin() { deburr lab-worker --nice 19 --comm "$1" --cpu "$2" spin >/dev/null 2>&1 & }
spin stays 0
stays=$!
spin moves 1
moves=$!
sleep 1

# Lines of: the monotonic clock; running, waiting and slices of the one process, and of the other.
accounts() {
    while [ -e /tmp/sampling ]; do
        echo $(grep -m 1 "^now at" /proc/timer_list; cat "/proc/$stays/schedstat" "/proc/$moves/schedstat")
        sleep 0.2
    done
}

# during NAME SECONDS COMMAND...: runs the command in the middle of an observation of that length.
during() {
    name=$1 seconds=$2 file=/tmp/$1.deburr
    shift 2
    touch /tmp/sampling
    accounts >"/tmp/$name.accounts" &
    sampler=$!
    deburr record -q -d "$seconds" -o "$file" >"/tmp/$name.said" 2>&1 &
    recorder=$!
    attached $recorder
    sleep 2
    part "$name" "$@"
    wait $recorder
    echo "exit status $?" >>"/tmp/$name.said"
    # An account from after the end of the window.
    lines=$(wc -l <"/tmp/$name.accounts")
    until [ "$(wc -l <"/tmp/$name.accounts")" -gt $((lines + 1)) ]; do sleep 0.2; done
    rm /tmp/sampling
    wait $sampler
    part "${name}_accounts" cat "/tmp/$name.accounts"
    part "${name}_said" cat "/tmp/$name.said"
    part "${name}_check" deburr check "$file"
    part "${name}_report" deburr report --json "$file"
    part "${name}_recording" base64 "$file"
}

step_forward() { date -s "@$(($(date +%s) + 3600))"; }
step_back() { date -s "@$(($(date +%s) - 7200))"; }
hotplug() {
    echo 0 >/sys/devices/system/cpu/cpu1/online
    cat /sys/devices/system/cpu/online
    sleep 3
    echo 1 >/sys/devices/system/cpu/cpu1/online
    cat /sys/devices/system/cpu/online
    # Its affinity went with the CPU.
    taskset -p 2 "$moves"
}
comes() {
    echo 1 >/sys/devices/system/cpu/cpu1/online
    taskset -p 2 "$moves"
}
suspend() {
    echo +5 >/sys/class/rtc/rtc0/wakealarm
    echo mem >/sys/power/state && echo resumed
}

during forward 12 step_forward
during back 12 step_back
during hotplug 14 hotplug
# A CPU that comes online after the programs were attached.
echo 0 >/sys/devices/system/cpu/cpu1/online
during comes 12 comes
during suspend 12 suspend
