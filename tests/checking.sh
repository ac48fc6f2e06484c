# SPDX-License-Identifier: GPL-2.0 OR MIT
# shellcheck shell=bash disable=SC2034
# The kernels that check: what each needs, what a guest looks at last, and what its log must say. Sourced with the kernel
# in $kernel, debug or kasan.

# By what the checker shows that it is at work: lockdep at the end; KASAN says only that it has begun, and stops after a report.
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

# what_is_wrong LOG: why what in_machine left there is not clean, in a line; nothing if it is. A test may have emptied the
# kernel's log: LOG.dmesg was written along.
what_is_wrong() {
    local reports pattern
    for pattern in "$at_work" 'kmemleak: Kernel memory leak detector initialized'; do
        grep -qE "$pattern" "$1.log" "$1.dmesg" && continue
        echo "the kernel's checker or kmemleak was not at work to the end"
        return
    done
    reports=$(awk -f tests/reports.awk tests/debug.allow "$1.log" "$1.dmesg" | sort -u)
    [ -z "$reports" ] || echo "the kernel reports: $(head -n 5 <<<"$reports" | tr '\n' ';') see $1.log"
}
