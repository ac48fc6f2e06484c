# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Compares what a library's tests said on two drivers.

judge.py PARTS EXPLAINED C RUST: the files of C and RUST are what run.sh printed. Prints "ok - " or
"not ok - " for each part that was run on either, and a line of a table for records.

EXPLAINED has lines RESULT PATTERN REASON: a test whose name matches the regular expression in whole
may have this result instead of "passed", on both drivers.
"""

import collections
import re
import sys


def lines_of(path):
    with open(path) as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                yield line.rstrip("\n")


def results_of(path):
    """By part: the results of its tests by their names, and its seconds."""
    results, seconds = collections.defaultdict(dict), {}
    for line in lines_of(path):
        part, name, value, *_ = line.split()
        if name == "seconds":
            seconds[part] = int(value)
        else:
            results[part][name] = value
    return results, seconds


def judge(part, least, explained, c, rust):
    """(What is wrong, the reasons of what does not pass)."""
    wrong, reasons = [], collections.Counter()
    for name in sorted(c.keys() | rust.keys()):
        there = c.get(name, "not run"), rust.get(name, "not run")
        if there[0] != there[1]:
            wrong.append(f"{name}: C {there[0]}, ours {there[1]}")
        elif there[0] != "passed":
            for result, pattern, reason in explained:
                if result == there[0] and re.fullmatch(pattern, name):
                    reasons[f"{result}: {reason}"] += 1
                    break
            else:
                wrong.append(f"{name}: {there[0]} on both, which nothing explains")
    passed = sum(result == "passed" for result in rust.values())
    if passed < least:
        wrong.append(f"{passed} passed, and {least} should at least")
    return wrong, reasons


def main(parts, explained, c, rust):
    explained = [line.split(None, 2) for line in lines_of(explained)]
    least = {line.split()[0]: int(line.split()[1]) for line in lines_of(parts)}
    (c, c_seconds), (rust, rust_seconds) = results_of(c), results_of(rust)
    failed, total = False, collections.Counter()
    for part in least:
        if part not in c_seconds and part not in rust_seconds:
            continue
        wrong, reasons = judge(part, least[part], explained, c[part], rust[part])
        counts = [sum(it == "passed" for it in there[part].values()) for there in (c, rust)]
        total.update(tests=len(rust[part]), c=counts[0], rust=counts[1])
        seconds = f"{c_seconds.get(part, '-')} s, {rust_seconds.get(part, '-')} s"
        if wrong:
            failed = True
            for why in wrong[:12]:
                print(f"not ok - {part}: {why}")
        else:
            print(f"ok - {part}: {len(rust[part])} tests, {counts[1]} passed, the same on both "
                  f"({seconds})")
        for reason, count in reasons.items():
            print(f"    {count} {reason}")
    print(f"figure: {total['tests']} tests; passed: {total['c']} on C, {total['rust']} on ours")
    if not total["rust"]:
        print("not ok - no test was run")
        failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
