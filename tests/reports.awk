# SPDX-License-Identifier: GPL-2.0 OR MIT
# tests/reports.awk: awk -f reports.awk ALLOW LOG: the first line of each report in LOG (what kmemleak shows,
# and a kernel log), but for those of which a line matches a pattern of ALLOW.
#
# A report of kmemleak is its first line and the indented ones after it; one of debug_print_object or WARN
# ends with "end trace"; any other is one line.

FNR == NR { if ($0 != "" && $0 !~ /^#/) allowed[$0]; next }

function finish() {
    if (report != "" && !harmless) print report
    report = ""
    harmless = 0
}

function start(line) { finish(); report = line }

/^unreferenced object/ { start($0); indented = 1; next }
indented && /^  / { look(); next }
indented { finish(); indented = 0 }

# Those of two CPUs may be in each other, and then are one report.
/\[ cut here \]/ { if (!inside++) finish(); next }
/\[ end trace / { if (inside && !--inside) finish(); next }

/WARNING:|BUG:|INFO: (possible|task|rcu|trying)|ODEBUG:|suspicious RCU|possible recursive|inconsistent lock|KASAN|UBSAN|Oops|general protection|refcount_t:|sleeping function|detector disabled|turning off the locking|rcu: .*stall/ {
    if (report == "" || !inside) start($0)
}
{ look(); if (!inside) finish() }

function look(    pattern) {
    for (pattern in allowed) if ($0 ~ pattern) harmless = 1
}

END { finish() }
