# SPDX-License-Identifier: GPL-2.0-only OR MIT
# storm COUNT: insmod and rmmod COUNT times while the GPU interrupts all the time. With
# --take-turns: one processor patches the function that the other is just calling, and QEMU with a
# thread for each may go on with the translation of a breakpoint that is gone ("Oops: int3", once in
# some 300 cycles).
. "$(dirname "$0")/lib.sh"

interrupts() { grep -m 1 amdgpu /proc/interrupts | awk '{print $2 + $3}'; }

# interrupted: the GPU interrupts, at most 10 s from now.
interrupted() {
    from=$(interrupts)
    for _ in $(seq 100); do
        [ "$(interrupts)" -gt "$from" ] && return 0
        sleep 0.1
    done
    return 1
}

storm() {
    kfd-tests storm 100000 >/dev/null 2>&1 &
    first=$!
    kfd-tests storm 100000 >/dev/null 2>&1 &
    second=$!
    before=$(interrupts) watched=0 meanwhile=0
    for cycle in $(seq "$1"); do
        insmod $module || not_ok "insmod in cycle $cycle"
        [ "$(state)" = serving ] || not_ok "ours does not serve in cycle $cycle: '$(state)'"
        # Not in each: the others go as soon as they have come.
        if [ $((cycle % 5)) = 1 ]; then
            watched=$((watched + 1))
            interrupted && meanwhile=$((meanwhile + 1))
        fi
        rmmod amdkfd || not_ok "rmmod in cycle $cycle"
    done
    after=$(interrupts)
    kill $first $second
    if [ $((after - before)) -gt $((10 * $1)) ]; then
        ok "$1 cycles under $((after - before)) interrupts"
    else not_ok "there were only $((after - before)) interrupts"; fi
    equal "the GPU interrupts while ours serves, in $watched cycles" "$meanwhile" "$watched"
    served_by c
    clean_dmesg
    check "a HIP program runs on the C driver" hip_vadd 1000
    exit $failed
}
