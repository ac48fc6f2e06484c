# SPDX-License-Identifier: GPL-2.0-only OR MIT
# shellcheck shell=bash
# What a machine's logs tell against a script, beside what it says itself. Sourced where head_of is.

# reports SCRIPT LOG: what the kernel reports in its log, but for what the script expects of it.
reports() {
    local expected
    expected=$(head_of "$1" reports)
    { awk -f tests/lib/reports.awk <(echo "$expected") "$2" || echo "awk cannot tell what"; } |
        sed -E 's/^/not ok - the kernel reports: /' | head -n 5
}

# unmodelled SCRIPT REPORT...: what the model was asked for and lacks, by its reports, but for what
# the script expects.
unmodelled() {
    local script=$1 expected
    shift
    expected=$(head_of "$script" unmodelled)
    [ -e "$1" ] || { echo "not ok - the model wrote no report"; return; }
    { awk -v expected="${expected:-^$}" '
        /^# dword reads writes/ || /^# [^,]*: count, what$/ { listed = 1; next }
        /^#/ { listed = 0 }
        # The packet is at fault.
        / AQL packet refused$/ { next }
        listed && $0 !~ expected { print "not ok - the model lacks: " $0 }' "$@" ||
        echo "not ok - awk cannot tell what the model lacks"; } | head -n 5
}
