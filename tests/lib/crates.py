#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""crates.py [--itself] WORKSPACE...: that each crate in the workspaces' lock files has a licence
and a source that deny.toml allows, and wants no newer Rust than ours say. It prints "error: CRATE
VERSION: WHY" of those that do not, and ends with 1 then. --itself has it look at crates whose
answers are known."""
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path


def is_allowed(expression, allowed):
    """Of an SPDX expression, or of the older form with slashes."""
    words = re.findall(r"[()/]|[^\s()/]+", expression)

    def one():
        if words[0] == "(":
            words.pop(0)
            good = either()
            if words.pop(0) != ")":
                raise ValueError(expression)
            return good
        name = words.pop(0)
        if words[:1] == ["WITH"]:
            name += " WITH " + words[1]
            del words[:2]
        return name in allowed

    def both():
        good = one()
        while words[:1] == ["AND"]:
            words.pop(0)
            good &= one()
        return good

    def either():
        good = both()
        while words[:1] in (["OR"], ["/"]):
            words.pop(0)
            good |= both()
        return good

    good = either()
    if words:
        raise ValueError(expression)
    return good


def version(text):
    return [int(part) for part in text.split(".")[:2]]


def wrong(package, rules, rust):
    registries = ["registry+" + name for name in rules["sources"]["allow-registry"]]
    if package["source"] not in registries:
        return "from " + package["source"]
    licence = package["license"] or ""
    try:
        good = is_allowed(licence, rules["licenses"]["allow"])
    except (IndexError, ValueError):
        good = False
    if not good:
        return f"its licence is {licence!r}"
    wants = package["rust_version"]
    if wants and rust and version(wants) > version(rust):
        return f"it wants Rust {wants}, and ours say {rust}"
    return None


def itself():
    known = {"MIT": True, "GPL-3.0": False, "GPL-3.0 OR MIT": True, "GPL-3.0/MIT": True,
             "GPL-3.0 AND MIT": False, "MIT AND (GPL-3.0 OR ISC)": True,
             "MIT OR GPL-3.0 AND ISC": True, "(MIT OR ISC) AND GPL-3.0": False,
             "Apache-2.0 WITH LLVM-exception": True, "GPL-3.0 WITH LLVM-exception": False}
    allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"]
    rules = {"licenses": {"allow": allowed}, "sources": {"allow-registry": ["here"]}}
    good = all(is_allowed(text, allowed) == answer for text, answer in known.items())
    for source, licence, wants, answer in [
            ("registry+here", "MIT", None, True), ("registry+here", "MIT", "1.85.1", True),
            ("registry+here", "MIT", "1.9", True), ("registry+here", "MIT", "1.86", False),
            ("registry+here", None, None, False), ("registry+here", "MIT ISC", None, False),
            ("registry+there", "MIT", None, False), ("git+here", "MIT", None, False)]:
        package = {"source": source, "license": licence, "rust_version": wants}
        good &= (wrong(package, rules, "1.85") is None) == answer
    return good


if sys.argv[1:2] == ["--itself"]:
    sys.exit(not itself())
with open(Path(__file__).parents[2] / "deny.toml", "rb") as file:
    rules = tomllib.load(file)
failed = False
for workspace in sys.argv[1:]:
    metadata = subprocess.run(
        ["cargo", "metadata", "--locked", "--format-version", "1", "--manifest-path",
         workspace + "/Cargo.toml"], stdout=subprocess.PIPE, check=True)
    packages = json.loads(metadata.stdout)["packages"]
    ours = [package["rust_version"] for package in packages if package["source"] is None]
    rust = min(filter(None, ours), key=version, default=None)
    for package in packages:
        if package["source"] and (why := wrong(package, rules, rust)):
            print(f"error: {package['name']} {package['version']}: {why}")
            failed = True
sys.exit(failed)
