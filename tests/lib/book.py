# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""The commands of Documentation/book, to be run, and what they print, to be compared.

    book.py script DIRECTORY       prints a shell script that runs the commands of all chapters
    book.py host DIRECTORY         prints the commands for the reader's own machine, a line each
    book.py check DIRECTORY FILE   compares with what that script has printed
    book.py show FILE              prints what the commands printed, as chapters show it

A chapter's commands are in blocks ```console, each after "$ ", what it prints below it; a line that
ends with a backslash goes on in the next. A chapter is one shell. What is printed must be what is
shown, line by line, but for numbers and the width of blanks. A line "..." stands for any lines, one
that ends with "..." for all that begin so.
"""

import pathlib
import re
import shlex
import sys

MARK = "@@@book"


def chapters(directory):
    """(name, [(command, lines)]) in the order of SUMMARY.md."""
    root = pathlib.Path(directory) / "src"
    for name in re.findall(r"\]\(([\w-]+\.md)\)", (root / "SUMMARY.md").read_text()):
        text = (root / name).read_text()
        blocks = re.findall(r"^```console\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
        yield name, [step for block in blocks for step in steps(block)]


def steps(block):
    """The commands of one block with what they print."""
    found = []
    lines = iter(block.splitlines())
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command = command[:-1] + next(lines).strip()
            found.append((command, []))
        else:
            found[-1][1].append(line)
    return found


def script(directory):
    print("cd /mnt/share\nexport PATH=$PWD:$PATH TMPDIR=/tmp")
    for name, all_steps in chapters(directory):
        lines = []
        for number, (command, _) in enumerate(all_steps):
            lines += [f"echo '{MARK} {name} {number}'", f"eval {shlex.quote(command)} 2>&1"]
        lines.append(f"echo '{MARK} end'")
        print("bash -c " + shlex.quote("\n".join(lines)) + " </dev/null")


def host(directory):
    for path in sorted((pathlib.Path(directory) / "src").glob("*.md")):
        for block in re.findall(r"^```sh\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE):
            print("\n".join(line.split("  #")[0].rstrip() for line in block.splitlines()))


def shape(line):
    """Without what is another one each time."""
    line = re.sub(r"[█▉▊▋▌▍▎▏░]+", "BAR", line)
    line = re.sub(r"\b(0x[0-9a-f]+|[0-9a-f]{8,})\b", "X", line)
    line = re.sub(r"\d+(\.\d+)?", "N", line)
    return " ".join(line.split())


def is_as_shown(want, have):
    """Whether `have` has all lines of `want`, in their order, and no others but where "..." is."""
    if not want:
        return not have
    if want[0] == "...":
        return any(is_as_shown(want[1:], have[skip:]) for skip in range(len(have) + 1))
    if not have:
        return False
    if want[0].endswith("..."):
        same = have[0].startswith(want[0][:-3].rstrip())
    else:
        same = want[0] == have[0]
    return same and is_as_shown(want[1:], have[1:])


def printed(path):
    """What each command printed, by chapter and number."""
    found, lines = {}, []
    for line in pathlib.Path(path).read_text(errors="replace").splitlines():
        line = line.rstrip("\r")
        if line.startswith(MARK):
            lines = found.setdefault(tuple(line.split()[1:]), [])
        elif line.strip():
            lines.append(line)
    return found


def check(directory, path):
    have, failed = printed(path), False
    for name, all_steps in chapters(directory):
        wrong = []
        for number, (command, lines) in enumerate(all_steps):
            got = have.get((name, str(number)))
            want = [shape(line) for line in lines if line.strip()]
            if got is None:
                wrong.append(f"{command}: not run")
            elif not is_as_shown(want, [shape(line) for line in got]):
                wrong.append(f"{command}: it printed: " + " | ".join(got[:12]))
        for why in wrong:
            print(f"not ok - {name}: {why}")
        if not wrong:
            print(f"ok - {name}: {len(all_steps)} commands")
        failed |= bool(wrong) or (not all_steps and name not in ("intro.md",))
    return failed


def show(path):
    for place, lines in printed(path).items():
        print("==", *place)
        print("\n".join(lines))


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    sys.exit({"script": script, "host": host, "check": check, "show": show}[what](*rest))
