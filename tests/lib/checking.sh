# SPDX-License-Identifier: GPL-2.0-only OR MIT
# shellcheck shell=bash disable=SC2034
# The kernels that check: what each needs, what a guest looks at last, and what its log must say.
# Sourced with the kernel in $kernel: debug, kasan, kcsan; or coverage, which is the stock kernel
# and our module with a record.

# By what the checker shows that it is at work: lockdep at the end; KASAN says only that it has
# begun, and stops after a report; KCSAN counts what it has watched; a record has lines.
case $kernel in
    debug) machine=(--kernel debug) at_work='^ *debug_locks: +1$' ;;
    # A shadow of an eighth of the memory, and what was freed is kept for a while.
    kasan) machine=(--kernel kasan --mem 4G) at_work='KernelAddressSanitizer initialized' ;;
    kcsan) machine=(--kernel kcsan) at_work='^setup_watchpoints: [1-9]' ;;
    coverage) machine=(--also build/guest/faults.ko) at_work='^plain ' ;;
    *) echo "there is no kernel $kernel" >&2; exit 2 ;;
esac

# What the guest does last, with the test's status in $status. kmemleak takes an object for lost
# that it saw twice, and is older than 5 seconds.
examine='echo "examined: status $status"; cat /sys/kernel/debug/places 2>/dev/null
    [ -e /sys/kernel/debug/kmemleak ] || exit $status
    cat /sys/kernel/debug/kcsan 2>/dev/null; echo scan >/sys/kernel/debug/kmemleak; sleep 6
    echo scan >/sys/kernel/debug/kmemleak; cat /sys/kernel/debug/kmemleak
    grep -s debug_locks /proc/lockdep_stats; dmesg; exit $status'

# in_machine LOG KFD-VM-ARGUMENTS...: with our module for that kernel. What is said goes to LOG.log,
# complaints to LOG.err.
in_machine() {
    local log=$1; shift
    tools/kfd-vm run --kfd rust "${machine[@]}" --module "build/$kernel/amdkfd.ko" \
        --log "$log.dmesg" "$@" \
        >"$log.log" 2>"$log.err" </dev/null
}

# what_is_wrong LOG: why what in_machine left there is not clean, in a line; nothing if it is. A
# test may have emptied the
# kernel's log: LOG.dmesg was written along.
what_is_wrong() {
    local reports pattern
    local signs=("$at_work" 'kmemleak: Kernel memory leak detector initialized')
    [ "$kernel" != coverage ] || signs=("$at_work")
    for pattern in "${signs[@]}"; do
        grep -qE "$pattern" "$1.log" "$1.dmesg" && continue
        echo "the kernel's checker, or kmemleak, or the record was not at work to the end"
        return
    done
    reports=$(awk -f tests/lib/reports.awk tests/lib/debug.allow "$1.log" "$1.dmesg" | sort -u)
    [ -z "$reports" ] || reports=$(head -n 5 <<<"$reports" | tr '\n' ';')
    [ -z "$reports" ] || echo "the kernel reports: $reports see $1.log"
}
