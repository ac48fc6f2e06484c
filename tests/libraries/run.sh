#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# In a guest of the root "libraries": runs the parts of a library's tests that FILE lists, and
# prints a line for each test, PART TEST RESULT, where RESULT is passed, failed, skipped or lost
# (begun, and then the program ended or was ended), and one for each part: PART seconds SECONDS
# STATUS. What a program said before a test failed goes to standard error.
#
#   run.sh FILE LATE [PART...]     LATE: seconds that a part may take
#
# FILE has a line for each part: its name, how many tests of it pass at least (what the host looks
# at), the program below /usr/libexec/rocm with its options, and after "--" gtest's filter.
set -u
list=$1 late=$2; shift 2
# A message for each interrupt would take the guest's only serial line longer than a test has.
dmesg -n 1
# rocBLAS's own listener leaves out what passes.
export GTEST_LISTENER=PASS_LINE_IN_LOG TMPDIR=/tmp
cd /tmp || exit 1
while read -r part least words; do
    case $part in '' | '#'*) continue ;; esac
    [ $# -eq 0 ] || [[ " $* " = *" $part "* ]] || continue
    read -ra command <<<"${words% -- *}"
    started=$SECONDS
    command[0]=${LIBRARIES_PROGRAMS:-/usr/libexec/rocm}/${command[0]}
    timeout --kill-after=20 "$late" "${command[@]}" --gtest_filter="${words##* -- }" >said 2>&1 \
        </dev/null
    status=$?
    awk -v part="$part" '
        # A parameter is told after a comma, how long it took in parentheses.
        function name(line) {
            sub(/^\[[ A-Z]*\] */, "", line); sub(/,.*/, "", line); sub(/ \([0-9]+ ms\)$/, "", line)
            gsub(/ /, "_", line)
            return line
        }
        function told(result) { print part, running, result; running = "" }
        /^\[ RUN  / { if (running != "") told("lost"); running = name($0); next }
        running == "" || !/^\[ / || name($0) != running { next }
        /^\[ *OK \]/ { told("passed") }
        /^\[ *FAILED *\]/ { told("failed") }
        /^\[ *SKIPPED *\]/ { told("skipped") }
        END { if (running != "") told("lost") }' said
    echo "$part seconds $((SECONDS - started)) $status"
    if [ $status -ne 0 ]; then
        echo "== $part: status $status"
        grep -v -e ' RUN  ' -e ' OK \]' said | tail -n 60
        dmesg | tail -n 3
    fi >&2
done <"$list"
