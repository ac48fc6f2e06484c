# SPDX-License-Identifier: GPL-2.0-only OR MIT
# storm COUNT: insmod and rmmod COUNT times while the GPU interrupts all the time. With
# --take-turns: one processor patches the function that the other is just calling, and QEMU with a
# thread for each may go on with the translation of a breakpoint that is gone ("Oops: int3", once in
# some 300 cycles).
. "$(dirname "$0")/lib.sh"

storm() {
    kfd-tests storm 100000 >/dev/null 2>&1 &
    first=$!
    kfd-tests storm 100000 >/dev/null 2>&1 &
    second=$!
    before=$(grep -m 1 amdgpu /proc/interrupts | awk '{print $2 + $3}')
    for cycle in $(seq "$1"); do
        insmod $module || not_ok "insmod in cycle $cycle"
        rmmod amdkfd || not_ok "rmmod in cycle $cycle"
    done
    after=$(grep -m 1 amdgpu /proc/interrupts | awk '{print $2 + $3}')
    kill $first $second
    if [ $((after - before)) -gt $((10 * $1)) ]; then
        ok "$1 cycles under $((after - before)) interrupts"
    else not_ok "there were only $((after - before)) interrupts"; fi
    served_by c
    clean_dmesg
    check "a HIP program runs on the C driver" hip_vadd 1000
    exit $failed
}
