#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only OR MIT
# gpu-suite.sh PRESET [--root SUITE] NAME...: tests of the guests and comparisons with another GPU
# (tests/run --gpu), each as a line "ok - ..." or "not ok - ...". What a run shows is in
# build/tests/gpu-PRESET.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
mkdir -p build/tests
tests/run --gpu "$@" 2>&1 | tee "build/tests/tools-$1-suite.said" | awk '
    $3 == "passed" && $5 == "failed" {
        lines = $8 ? ", " $8 " lines" : ""
        print ($4 == 0 && $2 > 0 ? "ok - " : "not ok - ") $1 ": " $2 " passed, " $4 " failed" lines
    }
    /^    / { print "#" $0 }
    { last = $0 }
    END { if (last !~ /^[1-9][0-9]* passed, 0 failed$/) { print "not ok - " last; exit 1 } }'
