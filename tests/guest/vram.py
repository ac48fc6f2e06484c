# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""What becomes of VRAM. Each command allocates buffers of 2 MiB with a process of its own.

leave COUNT      fills them, frees them, and says "left"
find COUNT       says how many of them have a byte that is not 0
drop COUNT       says "ready"; frees them when /tmp/vram-drop is there, and says "dropped"
keep COUNT       fills them and says "kept"; when /tmp/vram-look is there, says how many of them
                 have other contents, and whether the process was told of a lost GPU
fill             a client of the render node says "ready", takes more VRAM than there is free when
                 /tmp/vram-fill is there, says "filled", and gives it back when /tmp/vram-look is
                 there
away COUNT       as keep; it does not come back before hold_info.ko lets go, once it has left
late COUNT       a client of the render node takes COUNT buffers, and says "ready"; at the next
                 reset of a ring moves all that is in VRAM, its own first, and says "moved"; ends
                 when /tmp/vram-look is there

The errno, if a buffer is refused."""
import ctypes, fcntl, glob, mmap, os, struct, sys, time

SIZE, START = 2 << 20, 1 << 40
ACQUIRE_VM, ALLOC, FREE = 0x40084b15, 0xc0284b16, 0x40084b17
CREATE_EVENT, WAIT_EVENTS = 0xc0204b08, 0xc0184b0c
GEM_CREATE, CHUNK = 0xc0206440, 16 << 20
# Writable, public, VRAM.
FLAGS = 1 << 31 | 1 << 29 | 1
HOLD_INFO, EVICT = "/sys/kernel/debug/hold_info", "/sys/kernel/debug/dri/0/amdgpu_evict_vram"
HW_EXCEPTION, MOST_OVER = 3, 256 << 20
PATTERN = struct.pack("<Q", 0x5ec12e7d0ddba11) * (SIZE // 8)

def gpu():
    """The first GPU's id, and its render node's name."""
    for node in sorted(glob.glob("/sys/class/kfd/kfd/topology/nodes/*")):
        number = int(open(node + "/gpu_id").read())
        if number:
            facts = dict(line.split() for line in open(node + "/properties"))
            return number, "renderD" + facts["drm_render_minor"]
    raise SystemExit("no GPU")

def say(*words):
    print(*words, flush=True)

def await_file(path):
    while not os.path.exists(path):
        time.sleep(0.02)

class Process:
    def __init__(self):
        self.number, node = gpu()
        self.kfd = os.open("/dev/kfd", os.O_RDWR)
        self.render = os.open("/dev/dri/" + node, os.O_RDWR)
        fcntl.ioctl(self.kfd, ACQUIRE_VM, struct.pack("<II", self.render, self.number))
        self.made = 0

    def allocate(self):
        memory = struct.pack("<4Q2I", START + self.made * SIZE, SIZE, 0, 0, self.number, FLAGS)
        try:
            memory = fcntl.ioctl(self.kfd, ALLOC, memory)
        except OSError as error:
            say("refused", error.errno)
            sys.exit(1)
        self.made += 1
        _, _, handle, offset, _, _ = struct.unpack("<4Q2I", memory)
        return handle, mmap.mmap(self.render, SIZE, offset=offset)

    def free(self, buffers):
        for handle, seen in buffers:
            seen.close()
            fcntl.ioctl(self.kfd, FREE, struct.pack("<Q", handle))

    def hold(self):
        """Has a child of its own wait while the process's buffers are held."""
        if os.fork() == 0:
            with open(HOLD_INFO, "w") as hold:
                hold.write(str(self.render))
            os._exit(0)
        while open(HOLD_INFO).read() != "held":
            time.sleep(0.02)

    def listen(self):
        event = struct.pack("<Q6I", 0, 0, HW_EXCEPTION, 0, self.number, 0, 0)
        self.event = struct.unpack("<Q6I", fcntl.ioctl(self.kfd, CREATE_EVENT, event))[5]

    def told(self):
        """Whether its GPU was lost. It is told by a worker: so long it is waited for."""
        data = ctypes.create_string_buffer(48)
        struct.pack_into("<I", data, 40, self.event)
        wait = struct.pack("<Q4I", ctypes.addressof(data), 1, 1, 3000, 0)
        result = struct.unpack("<Q4I", fcntl.ioctl(self.kfd, WAIT_EVENTS, wait))[4]
        return result == 0

def fill():
    _, node = gpu()
    render = os.open("/dev/dri/" + node, os.O_RDWR)
    read = lambda name: int(open(f"/sys/class/drm/{node}/device/mem_info_vram_{name}").read())
    say("ready")
    await_file("/tmp/vram-fill")
    for _ in range((read("total") - read("used") + MOST_OVER) // CHUNK):
        fcntl.ioctl(render, GEM_CREATE, struct.pack("<4Q", CHUNK, 4096, 4, 0))
    say("filled")
    await_file("/tmp/vram-look")

def late(count):
    _, node = gpu()
    render = os.open("/dev/dri/" + node, os.O_RDWR)
    for _ in range(count):
        fcntl.ioctl(render, GEM_CREATE, struct.pack("<4Q", SIZE, 4096, 4, 0))
    log = os.open("/dev/kmsg", os.O_RDONLY)
    os.lseek(log, 0, os.SEEK_END)
    say("ready")
    while b" reset succeeded" not in os.read(log, 8192):
        pass
    open(EVICT).read()
    say("moved")
    await_file("/tmp/vram-look")

command, count = sys.argv[1], int((sys.argv[2:] or ["0"])[0])
if command in ("fill", "late"):
    fill() if command == "fill" else late(count)
    sys.exit(0)
process = Process()
process.listen()
buffers = [process.allocate() for _ in range(count)]
if command == "find":
    say(sum(seen[:].count(0) != SIZE for _, seen in buffers))
elif command == "leave":
    for _, seen in buffers:
        seen[:] = PATTERN
    process.free(buffers)
    say("left")
elif command == "drop":
    say("ready")
    await_file("/tmp/vram-drop")
    process.free(buffers)
    say("dropped")
elif command in ("keep", "away"):
    for _, seen in buffers:
        seen[:] = PATTERN
    if command == "away":
        process.hold()
    say("kept")
    await_file("/tmp/vram-look")
    # The process is brought back first.
    time.sleep(2)
    wrong = sum(seen[:] != PATTERN for _, seen in buffers)
    say(wrong, "told" if process.told() else "not told")
