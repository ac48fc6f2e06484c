# SPDX-License-Identifier: GPL-2.0 OR MIT
# shellcheck shell=bash disable=SC2034
# The kernels that check: what each needs, what a guest looks at last, and what its log must say. Sourced with the kernel
# in $kernel, debug or kasan.

# By what the checker shows that it is at work to the end.
case $kernel in
    debug) machine=() at_work='^ *debug_locks: +1$' ;;
    # A shadow of an eighth of the memory, and what was freed is kept for a while.
    kasan) machine=(--mem 4G) at_work='KernelAddressSanitizer initialized' ;;
    *) echo "there is no kernel $kernel" >&2; exit 2 ;;
esac

# What the guest does last, with the test's status in $status. kmemleak takes an object for lost that it saw twice, and is
# older than 5 seconds.
examine='echo "examined: status $status"; echo scan >/sys/kernel/debug/kmemleak; sleep 6
    echo scan >/sys/kernel/debug/kmemleak; cat /sys/kernel/debug/kmemleak
    grep -s debug_locks /proc/lockdep_stats; dmesg; exit $status'

# in_machine LOG KFD-VM-ARGUMENTS...: with our module for that kernel. What is said goes to LOG.log, complaints to LOG.err.
in_machine() {
    local log=$1; shift
    tools/kfd-vm run --kernel "$kernel" --kfd rust "${machine[@]}" --module "build/$kernel/amdkfd.ko" --log "$log.dmesg" "$@" \
        >"$log.log" 2>"$log.err" </dev/null
}

# what_is_wrong LOG: why this log is not a clean one, in a line; nothing if it is.
what_is_wrong() {
    local reports
    if ! grep -qE "$at_work" "$1" || ! grep -q 'kmemleak: Kernel memory leak detector initialized' "$1"; then
        echo "the kernel's checker or kmemleak was not at work to the end"
        return
    fi
    reports=$(awk -f tests/reports.awk tests/debug.allow "$1")
    [ -z "$reports" ] || echo "the kernel reports: $(head -n 5 <<<"$reports" | tr '\n' ';') see $1"
}
