# SPDX-License-Identifier: GPL-2.0-only OR MIT
# awk -f reports.awk ALLOW LOG: the first line of each report in LOG (what
# kmemleak shows, and a kernel log), but for those of which a line matches a pattern of ALLOW. Of
# debug.allow, a pattern never excuses a report with a line of our module's: what a script expects
# of itself may.
#
# A report of kmemleak is its first line and the indented ones after it; one of debug_print_object
# or WARN ends with "end trace"; any other is one line.
#
# KCSAN reports races in all of the kernel, which has many that are meant. Its report, between two
# lines of "=", counts where one of the two accesses is in our code, or in what our code calls for
# it.

FNR == NR {
    if ($0 != "" && $0 !~ /^#/) allowed[$0]
    if (FILENAME ~ /debug\.allow$/) not_ours = 1
    next
}

function finish() {
    if (report != "" && (!harmless || not_ours && of_ours)) print report
    report = ""
    harmless = of_ours = 0
}

function start(line) { finish(); report = line }

/^unreferenced object/ { start($0); indented = 1; next }
indented && /^  / { look(); next }
indented { finish(); indented = 0 }

# Those of two CPUs may be in each other, and then are one report.
/\[ cut here \]/ { if (!inside++) finish(); next }
/\[ end trace / { if (inside && !--inside) finish(); next }

/BUG: KCSAN:/ { end_race(); finish(); race = $0; next }
race != "" && /=====/ { end_race(); next }
race != "" && / (by|on cpu) .*:$/ { frame = 0; next }
race != "" && /Reported by Kernel Concurrency Sanitizer/ { frame = 99 }
race != "" { if (++frame <= 2 && /\[amdkfd\]/) ours = 1; if (is_allowed()) allowed_race = 1; next }

/WARNING:|BUG:|INFO: (possible|task|rcu|trying)|ODEBUG:|KASAN|UBSAN|Oops|general protection/ ||
    /suspicious RCU|possible recursive|inconsistent lock|refcount_t:|sleeping function/ ||
    /sysfs: cannot create duplicate|kobject_add_internal failed|list_(add|del) corruption/ ||
    /held lock freed|bad unlock balance|lock held when returning|scheduling while atomic/ ||
    /detector disabled|turning off the locking|rcu: .*stall/ {
    if (report == "" || !inside) start($0)
}
{ look(); if (!inside) finish() }

function is_allowed(    pattern) {
    for (pattern in allowed) if ($0 ~ pattern) return 1
    return 0
}

function look() {
    if (is_allowed()) harmless = 1
    if (/\[amdkfd\]/) of_ours = 1
}

function end_race() {
    if (race != "" && ours) { start(race); harmless = allowed_race && !not_ours; finish() }
    race = ""
    ours = allowed_race = 0
}

END { end_race(); finish() }
