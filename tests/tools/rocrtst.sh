#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# In a guest of Debian experimental: runs rocrtst's tests, each in a process of its own, and prints
# a line for each: NAME RESULT SECONDS, where RESULT is passed, skipped, failed, crashed (by a
# signal) or late. What a test that did not pass said goes to standard error. A test with a race of
# its own ("mostly" in rocrtst.explained) runs 20 times: its RESULT is mostly if it passes 10 times
# or more, and else seldom.
#
#   rocrtst.sh LATE [NAME...]      LATE: seconds that a test may take
#
# Those that rocrtst.explained, beside this file, leaves out have the result left-out.
# Performance tests are left out: they measure, and the model has no timing.
set -u
here=$(cd "$(dirname "$0")" && pwd)
late=$1; shift
mkdir -p /tmp/lib
# The package was built against an amd-smi that the archive no longer has; nothing of it is called
# without -m.
ln -sf "$(ls /usr/lib/x86_64-linux-gnu/libamd_smi.so.[0-9]* | head -n 1)" /tmp/lib/libamd_smi.so.26
export LD_LIBRARY_PATH=/tmp/lib
cd /usr/libexec/rocm/libhsa-runtime64-tests/gfx942 || exit 1
# A message for each interrupt would take the guest's only serial line longer than the test has.
dmesg -n 1
[ $# -gt 0 ] || mapfile -t names < <(./rocrtst64 --gtest_list_tests |
    awk '/^[^ ]/ {suite = $1} /^ / && suite != "rocrtstPerf." {print suite $1}')
[ $# -eq 0 ] || names=("$@")
left_out=$(awk '!/^#/ && $3 == "left-out" {print $1}' "$here/rocrtst.explained")
races=$(awk '!/^#/ && $3 == "mostly" {print $1}' "$here/rocrtst.explained")
# run NAME: once; sets result.
run() {
    local status
    timeout --kill-after=20 "$late" ./rocrtst64 \
        --gtest_also_run_disabled_tests --gtest_filter="$1" \
        >/tmp/said 2>&1 </dev/null
    status=$?
    if grep -q '^\[  SKIPPED \] 1' /tmp/said; then result=skipped
    elif [ $status -eq 0 ] && grep -q '^\[  PASSED  \] 1' /tmp/said; then result=passed
    elif [ $status -eq 124 ] || [ $status -eq 137 ]; then result=late
    elif [ $status -gt 128 ]; then result=crashed
    else result=failed
    fi
}
for name in "${names[@]}"; do
    if grep -qxF "$name" <<<"$left_out"; then echo "$name left-out 0"; continue; fi
    started=$SECONDS
    if grep -qxF "$name" <<<"$races"; then
        passed=0
        for _ in {1..20}; do
            run "$name"
            [ $result != passed ] || passed=$((passed + 1))
        done
        result=seldom
        [ $passed -lt 10 ] || result=mostly
    else
        run "$name"
    fi
    echo "$name $result $((SECONDS - started))"
    [[ $result = passed || $result = mostly ]] || {
        echo "== $name: $result"
        tail -n 40 /tmp/said
        dmesg | tail -n 5
    } >&2
done
