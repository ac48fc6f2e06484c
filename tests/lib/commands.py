#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""commands.py PROGRAM.d ROOT FILE...: a line "COMMAND KEY" for each command of kfd-tests. The key
is that of the sources that the command is made of, so that it stays when others change: each FILE;
of PROGRAM.d, which cargo wrote, all that is not below ROOT; there, the files of the module that has
the command, those of modules that these name as crate::MODULE, of commands that they have in
quotation marks, which they may run, and so on; of main.rs the lines of these commands and what is
of no command."""
import hashlib
import re
import sys
from pathlib import Path


def kebab(name):
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


def variants(main):
    """Of each command of main.rs: its lines, and the modules that these name."""
    declared = main[main.index("enum Command {"):]
    declared = declared[:declared.index("\n}")]
    known, lines = {}, []
    for line in declared.splitlines()[1:]:
        lines.append(line)
        found = re.match(r"    ([A-Z]\w*)", line)
        if found:
            name = found[1]
            known[name] = []
        # What stands above a command is its own; what stands below, up to its brace, as well.
        if found or line == "    },":
            known[name] += lines
            lines = []
    for name, own in known.items():
        own += re.findall(r"^ *Command::%s\b.*$" % name, main, re.M)
    return known


def main(listed, root, *more):
    root = Path(root).resolve()
    files = [Path(word).resolve() for word in open(listed).read().split(": ", 1)[1].split()]
    below = {file: file.relative_to(root) for file in files if file.is_relative_to(root)}
    common = hashlib.sha1()
    for file in [*files, *map(Path, more)]:
        if file not in below:
            common.update(file.read_bytes())
    modules = {}
    for file, path in below.items():
        modules.setdefault(path.parts[0].removesuffix(".rs"), []).append(file)
    text = {name: b"".join(file.read_bytes() for file in sorted(of))
            for name, of in modules.items()}
    top = "|".join(sorted(modules))
    names = {}
    for name in modules:
        said = text[name].decode(errors="replace")
        used = set(re.findall(r"\bcrate::(%s)\b" % top, said))
        # use crate::{a, b::C};
        for group in re.findall(r"\bcrate::\{(.*?)\};", said, re.S):
            used |= set(re.findall(r"\b(%s)\b" % top, group))
        # In the module's own file, `super` is main.rs.
        for file in modules[name]:
            if below[file].parts == (name + ".rs",):
                used |= set(re.findall(r"\bsuper::(%s)\b" % top, file.read_text()))
        names[name] = used - {"main"}

    known = variants(text["main"].decode())
    own = {line for lines in known.values() for line in lines}
    for line in text["main"].decode().splitlines():
        if line not in own and not line.startswith("mod "):
            common.update(line.encode())
    commands = {kebab(name): "\n".join(lines)
                for name, lines in known.items()}
    for command in commands:
        ran, used = set(), set()
        left = [(commands, command)]
        while left:
            kind, name = left.pop()
            if name in (ran if kind is commands else used):
                continue
            if kind is commands:
                ran.add(name)
                left += [(text, module) for module in
                         set(re.findall(r"\b(%s)::" % top, commands[name]))]
            else:
                used.add(name)
                left += [(text, module) for module in names[name]]
                left += [(commands, other) for other in commands
                         if b'"%s"' % other.encode() in text[name]]
        if not used:
            sys.exit("commands.py: no module has the command " + command)
        key = common.copy()
        for part in [*(commands[name].encode() for name in sorted(ran)),
                     *(text[name] for name in sorted(used))]:
            key.update(part)
        print(command, key.hexdigest()[:16])


main(*sys.argv[1:])
