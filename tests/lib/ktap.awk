# SPDX-License-Identifier: GPL-2.0-only OR MIT
# ktap.awk: reads a kernel log with the results of KUnit (KTAP) and prints "ok - SUITE: CASE"
# or "not ok - SUITE: CASE" for each case. What a log may lack is a failure too: a case that the
# plan of its suite promised, a suite that failed with all its cases well, all of it.
#
# Suites stand at the margin ("ok 2 suite"), cases are indented ("    ok 3 case").

function fail(what) { print "not ok - " what }

function is_ok() { return $1 == "ok" }

# The plan "1..N" of a suite or of all.
function planned() { return substr($1, 4) + 0 }

function name(    from) { from = is_ok() ? 3 : 4; return $from }

{ sub(/^(<[0-9]+>)?\[ *[0-9]+\.[0-9]+\] ?/, "") }

/^KTAP version/ { next }
/^1\.\.[0-9]+$/ { suites_planned += planned(); next }
/^    KTAP version/ { cases = 0; cases_planned = -1; bad_cases = 0; next }
/^    # Subtest: / { suite = $3; next }
/^    1\.\.[0-9]+$/ { cases_planned = planned(); next }

/^    (not )?ok [0-9]+ / {
    cases++
    if (/# SKIP/) { print "# skipped - " suite ": " name(); next }
    if (!is_ok()) bad_cases++
    print (is_ok() ? "ok" : "not ok") " - " suite ": " name()
    next
}

/^(not )?ok [0-9]+ / {
    suites++
    if (name() != suite) fail(name() ": the log of the suite is incomplete")
    else if (cases != cases_planned) fail(suite ": " cases " of " cases_planned " cases have run")
    else if (!is_ok() && !bad_cases) fail(suite ": the suite failed, and none of its cases")
    suite = ""
}

END {
    if (suite != "") fail(suite ": the suite has not ended")
    if (!suites_planned) fail("no test has run")
    else if (suites != suites_planned) fail(suites + 0 " of " suites_planned " suites have run")
}
