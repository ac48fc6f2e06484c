# SPDX-License-Identifier: GPL-2.0-only OR MIT
# A copy queue that stays on its engine although the firmware has confirmed that it left, in a slot
# that the firmware has picked; on top of lib.sh, recover.sh and inject.sh.

said() { dmesg | grep -cE "$1"; }
was_said() { [ "$(said "$1")" -gt 0 ]; }
hangs() {
    for _ in $(seq 100); do [ "$(injected)" -gt 0 ] && return 0; sleep 0.1; done
    return 1
}

# stays: a process whose queue does, and somebody else's end, which has all taken off.
stays() {
    start stays kfd-tests copy-stays; stays=$pid
    wait_for copies /tmp/stays || return 1
    hangs || return 1
    inject_flags 0
    kfdctl run vadd -n 4097
}
