# SPDX-License-Identifier: GPL-2.0-only OR MIT
# What tests of reset and suspend share; on top of lib.sh.

recover=/sys/kernel/debug/dri/0/amdgpu_gpu_recover

# A reset of the whole GPU, waited for: amdgpu's file answers when it is over.
reset_gpu() { timeout 60 cat $recover >/dev/null; }

# wait_for TEXT FILE: until the file has it, at most 30 s.
wait_for() {
    for try in $(seq 300); do grep -q "$1" "$2" 2>/dev/null && return 0; sleep 0.1; done
    return 1
}

# start NAME CMD...: in the background; $pid. Its output is in /tmp/NAME.
start() {
    name=$1; shift
    "$@" >"/tmp/$name" 2>&1 &
    pid=$!
}

# start_waiting NAME OPTIONS: a process that waits for an exception.
start_waiting() {
    name=$1; shift
    start "$name" kfd-tests exception "$@"
    wait_for waiting "/tmp/$name" || echo "$name: does not get as far as to wait"
}

# Until the process holds doorbells and sleeps: its dispatch is on the GPU.
start_spinning() {
    start "$1" kfdctl run spin -n 1000000000 --timeout 600
    wait_for /dev/kfd "/proc/$pid/maps" || echo "$1: has no doorbells"
    sleep 1
}

# ended NAME PID: how it ended, at most 30 s from now, and what it said.
ended() {
    for try in $(seq 300); do kill -0 "$2" 2>/dev/null || break; sleep 0.1; done
    kill -9 "$2" 2>/dev/null && echo "$1: still there"
    wait "$2" 2>/dev/null
    echo "$1: status $?"
    sed "s/^/$1: /" "/tmp/$1"
}

# computes WHEN: vadd, as a new process.
computes() {
    if tried timeout 60 kfdctl run vadd -n 4097 && echo "$out" |
        grep -q ' 1 interrupts,.* 0 wrong'; then
        echo "$1: vadd computes"
    else echo "$1: vadd fails: $out"; fi
}

# Ours alone: nothing is left of any process, not later than after 20 s.
nothing_left() {
    for try in $(seq 200); do
        left=$(cat /sys/kernel/debug/amdkfd/counts) || return 1
        if echo "$left" | grep -q '^processes 0$' && ! echo "$left" | grep -qv ' 0$'; then
            return 0
        fi
        sleep 0.1
    done
    echo "$left" | grep -v ' 0$'
    return 1
}

# gone: of no process is anything left, on either driver.
gone() {
    for try in $(seq 200); do
        [ -z "$(ls /sys/class/kfd/kfd/proc)" ] && break
        sleep 0.1
    done
    echo "processes left: $(ls /sys/class/kfd/kfd/proc | wc -l)"
    if [ -e /sys/module/amdkfd ]; then nothing_left || return 1; fi
}

alarm=/sys/class/rtc/rtc0/wakealarm
# What of a suspend can be tried, in $whole: the debug kernel has no clock that could wake it.
if [ -e $alarm ]; then whole=none; else whole=core; fi
# asleep TEST: to where the kernel's test of that name goes, or all of it (none), and back. An alarm
# that rings before the machine sleeps would not wake it; as a wake-up event it ends the attempt.
asleep() {
    echo "$1" >/sys/power/pm_test
    if [ ! -e $alarm ]; then
        echo mem >/sys/power/state
        return
    fi
    for _ in 1 2 3; do
        events=$(cat /sys/power/wakeup_count)
        echo 0 >$alarm
        echo +5 >$alarm
        echo "$events" >/sys/power/wakeup_count && echo mem >/sys/power/state && return
        # It has rung already, which the kernel has a word for.
        [ -n "$(cat $alarm)" ] ||
            echo 'Freezing .* aborted|early wake event detected' >>/tmp/dmesg.patterns
    done
    return 1
}
