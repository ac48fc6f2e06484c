#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""trace.py OUTPUT TRACE: what the GPU was given for each operation of `kfd-tests script`.

OUTPUT is what that program printed, TRACE the model's trace. A line each: the scheduler's packets
with all words that hold no address, and register writes, in their order.
"""

import re
import sys

BEGIN, END = 0xBEEF0001, 0xBEEF0002
PACKET = re.compile(r"pm4: SlotId \{ xcc: (\d+), me: (\d+), pipe: (\d+), queue: (\d+) \} "
                    r"(\w+) \[([0-9a-f, ]*)\]")
LIST = re.compile(r"pm4: run list (\w+) \[([0-9a-f, ]*)\]")
WRITE = re.compile(r"mmio: W (\S+) 0x[0-9a-f]+ = 0x([0-9a-f]+)")
# Jobs of amdgpu's own copy rings write it, at times of their own.
NOT_OURS = "GPU_HDP_FLUSH_REQ"
SCHEDULES = ("SET_RESOURCES MAP_PROCESS MAP_QUEUES UNMAP_QUEUES QUERY_STATUS RUN_LIST "
             "INVALIDATE_TLBS WRITE_DATA").split()


def address(word):
    """Where something lies is the driver's affair, but not whether it does."""
    return "somewhere" if word else "nowhere"


def high(word):
    """The high half of an address."""
    return f"high half {word >> 16:#x}"


def pasid(word):
    """The lowest 16 bits are a process's number."""
    return f"a pasid, {word >> 16:#x}"


# Words after the header that are shown otherwise than as they are.
SHOWN = {
    "RUN_LIST": {0: address, 1: high},
    "MAP_PROCESS": {0: pasid, 1: lambda word: f"page tables, flags {word & 0xfff:#x}", 2: high},
    # The doorbell within its process's two pages.
    "MAP_QUEUES": {1: lambda word: f"doorbell {word & 0xf0001fff:#x}", 2: address, 3: high,
                   4: address, 5: high},
    # C's fence is always the same number, ours counts.
    "QUERY_STATUS": {2: address, 3: high, 4: lambda word: "a fence" if word else "no fence"},
    "INVALIDATE_TLBS": {0: lambda word: f"a pasid, {word & ~(0xffff << 5):#x}"},
    # The KIQ's fence.
    "WRITE_DATA": {3: lambda word: "a fence" if word else "no fence"},
}


def packet(name, words):
    """A packet as it is compared."""
    values = [int(word, 16) for word in words.split(", ") if word]
    shown = SHOWN.get(name, {})
    return f"{name} " + ", ".join(shown.get(at, hex)(word) for at, word in enumerate(values))


def operations(lines):
    """The lines of the trace that belong to each operation."""
    current = None
    for line in lines:
        write = WRITE.search(line)
        value = int(write[2], 16) if write else None
        if value == BEGIN:
            if current is not None:
                sys.exit("trace.py: an operation begins inside another")
            current = []
        elif value == END and current is not None:
            yield current
            current = None
        elif current is not None:
            current.append(line)


def said(lines):
    """What there is to compare of an operation."""
    for line in lines:
        if match := PACKET.search(line):
            # All that the HIQ (ME 2, pipe 0) executes, and orders elsewhere.
            if match[5] in SCHEDULES or (match[2], match[3]) == ("2", "0"):
                yield f"{match[2]}.{match[3]}.{match[4]} {packet(match[5], match[6])}"
        elif match := LIST.search(line):
            yield f"    {packet(match[1], match[2])}"
        elif (match := WRITE.search(line)) and not match[1].endswith(NOT_OURS):
            yield f"write {match[1]} = {int(match[2], 16):#x}"


def main():
    """Prints them."""
    with open(sys.argv[1], encoding="utf-8") as output:
        titles = re.findall(r"^operation: (.*)$", output.read(), re.MULTILINE)
    with open(sys.argv[2], encoding="utf-8", errors="replace") as trace:
        found = [list(said(lines)) for lines in operations(trace)]
    if len(found) != len(titles):
        sys.exit(f"trace.py: {len(titles)} operations, and {len(found)} in the trace")
    for title, lines in zip(titles, found):
        for line in lines:
            print(f"{title}: {line}")


if __name__ == "__main__":
    main()
