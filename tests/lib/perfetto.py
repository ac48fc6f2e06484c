#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""perfetto.py FILE KERNEL: checks a timeline of a HIP program, by a decoder that shares no code
with what wrote it. Fields of Perfetto's trace format by their numbers (perfetto.dev, "Trace Packet
Proto Reference")."""
import sys

MS = 1_000_000


def fields(data):
    """The fields of a protobuf message: number and value; a value is a number or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while at < len(data):
        key = varint()
        number, kind = key >> 3, key & 7
        if kind == 0:
            yield number, varint()
        elif kind == 2:
            size = varint()
            if at + size > len(data):
                raise ValueError("a field reaches beyond its message")
            yield number, data[at:at + size]
            at += size
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
            yield number, int.from_bytes(data[at:at + size], "little")
            at += size
        else:
            raise ValueError("wire type %d" % kind)


def one(message, number, default=None):
    return next((value for known, value in fields(message) if known == number), default)


class Track:
    def __init__(self, descriptor):
        process, thread = one(descriptor, 3), one(descriptor, 4)
        name = one(descriptor, 2)
        if process is not None:
            name = one(process, 6)
        if thread is not None:
            name = one(thread, 5)
        self.name = (name or b"").decode()
        self.is_thread, self.is_process = thread is not None, process is not None
        self.parent = one(descriptor, 5)
        self.is_counter = one(descriptor, 8) is not None
        self.slices, self.instants, self.counts, self.open = [], [], [], []


class Event:
    def __init__(self, begin, event):
        self.begin, self.end = begin, None
        self.name = one(event, 23, b"").decode()
        self.facts = {}
        for number, value in fields(event):
            if number == 4:
                name, text = one(value, 10, b"").decode(), one(value, 6)
                self.facts[name] = one(value, 3) if text is None else text.decode()


def load(path):
    """All tracks; what Perfetto would not show as it is meant is an error."""
    tracks, last = {}, {}
    for number, packet in fields(open(path, "rb").read()):
        assert number == 1, "a trace consists of packets"
        at, writer = one(packet, 8, 0), one(packet, 10, 0)
        descriptor, event = one(packet, 60), one(packet, 11)
        if descriptor is not None:
            uuid = one(descriptor, 1)
            assert uuid not in tracks, "two tracks have the number %d" % uuid
            tracks[uuid] = Track(descriptor)
        if event is None:
            continue
        assert at >= last.get(writer, 0), "time goes back, of writer %d" % writer
        last[writer] = at
        track, kind = tracks[one(event, 11)], one(event, 9)
        if kind == 1:
            track.open.append(Event(at, event))
        elif kind == 2:
            slice = track.open.pop()
            slice.end = at
            track.slices.append(slice)
        elif kind == 3:
            track.instants.append(Event(at, event))
        elif kind == 4:
            track.counts.append((at, one(event, 30)))
        else:
            raise ValueError("an event of kind %s" % kind)
    for track in tracks.values():
        assert not track.open, "slices of %s do not end" % track.name
        assert track.parent is None or track.parent in tracks, "no parent of %s" % track.name
    return list(tracks.values())


def check(what, good, why=""):
    print(("ok - " if good else "not ok - ") + what + ("" if good else ": %s" % (why,)))


def main(path, kernel):
    tracks = load(path)
    check("it decodes, slices nest, time does not go back", True)
    filled = [t for t in tracks if t.slices or t.instants or t.counts]
    names = sorted({t.name for t in filled})
    print("# " + ", ".join(names))
    check("it has seven tracks and more", len(filled) >= 7, names)

    def named(*parts):
        return [t for t in filled if all(part in t.name for part in parts)]

    calls = [s for t in filled if t.is_thread for s in t.slices]
    call = {name: [s for s in calls if s.name == name] for name in
            ("CREATE_QUEUE", "amdkfd CREATE_QUEUE", "ALLOC_MEMORY_OF_GPU")}
    for name, found in call.items():
        check("calls: " + name, len(found) > 0, sorted({s.name for s in calls}))
    outer, inner = call["CREATE_QUEUE"], call["amdkfd CREATE_QUEUE"]
    outside = [i for i in inner
               if not any(o.begin <= i.begin and i.end <= o.end for o in outer)]
    check("what the driver does of a call lies in the call", not outside,
          [[(s.begin, s.end) for s in some] for some in (outside, outer)])
    for part in ("interrupts of GPU", "queues", "events", "doorbells", "run lists", "SDMA"):
        check("a track: " + part, len(named(part)) > 0, names)
    waves = named("waves in flight")
    check("waves are counted", len(waves) == 1 and max(c for _, c in waves[0].counts) > 0)
    check("and none is left", len(waves) == 1 and waves[0].counts[-1][1] == 0)

    seen = [s for t in named("queue ", "on GPU") for s in t.slices + t.instants
            if s.name == kernel]
    ran = [s for t in named("MEC", "AQL") for s in t.slices if s.name == kernel]
    groups = [s for t in named("CU ", "place") for s in t.slices if s.name == kernel]
    check("the ring had one %s" % kernel, len(seen) == 1, [s.name for s in seen])
    check("the model ran one", len(ran) == 1, names)
    if not seen or not ran:
        return
    ring, run = seen[0], ran[0]
    for fact in ("grid", "workgroup", "kernel"):
        check("both know its " + fact, ring.facts[fact] == run.facts[fact], run.facts)
    size = lambda s: [int(n) for n in s.split("x")]
    grid, group = size(run.facts["grid"]), size(run.facts["workgroup"])
    count = 1
    for all_items, items in zip(grid, group):
        count *= -(-all_items // items)
    check("its %d work-groups ran" % count, len(groups) == count, len(groups))
    # Both clocks are one: the ring is looked at after the model has done what it shows.
    margin = 5 * MS
    check("work-groups lie in the dispatch",
          all(run.begin <= g.begin and g.end <= run.end for g in groups))
    check("it ran after its queue was created", run.begin >= min(c.begin for c in outer) - margin,
          run.begin)
    check("the ring shows its end after it", run.end <= (ring.end or ring.begin) + margin,
          (run.end, ring.end))
    raised = [i for t in named("interrupts") if "of GPU" not in t.name for i in t.instants]
    for t in named("interrupts of GPU"):
        late = [i for i in t.instants if not any(
            r.name == i.name and r.begin - margin <= i.begin <= r.begin + 1000 * MS
            for r in raised)]
        check("each interrupt of the driver's was raised before", not late,
              [i.name for i in late][:3])


main(*sys.argv[1:])
