# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""A filesystem at /tmp/mute in which "stuck", "stuck1", "stuck2" and so on are never read, and
"begins", "copies" and "shares" never written to: a file for each user, who would wait for the one
before otherwise."""
import ctypes, os, struct, sys
HEADER, ANSWER = struct.Struct("<IIQQIIIHH"), struct.Struct("<IiQ")
FORGET, READ, WRITE, ENOSYS, ENOENT = 2, 15, 16, 38, 2
FILES = {b"stuck": 2, b"begins": 3, b"copies": 4, b"shares": 5}
MUTE = {(READ, 2), (WRITE, 3), (WRITE, 4), (WRITE, 5)}
# The nodes of those with a number.
NUMBERED = 1 << 32

def file(name):
    """Its node."""
    number = name.removeprefix(b"stuck")
    return NUMBERED + int(number) if number != name and number.isdigit() else FILES.get(name)

def attributes(node):
    mode = 0o40755 if node == 1 else 0o100666
    return struct.pack("<6Q10I", node, 1 << 20, 2048, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

def answer(opcode, node, body):
    """An errno, or what the kernel gets."""
    if opcode == 26:  # INIT
        return struct.pack("<4I2H2I2H8I", 7, 31, 4096, 0, 12, 9, 4096, 1, 1, 0, *[0] * 8)
    if opcode == 1:  # LOOKUP
        found = file(body.rstrip(b"\0"))
        return struct.pack("<4Q2I", found, 1, 60, 60, 0, 0) + attributes(found) if found else ENOENT
    if opcode in (3, 4):  # GETATTR, SETATTR
        return struct.pack("<Q2I", 60, 0, 0) + attributes(node)
    if opcode == 14:  # OPEN
        return struct.pack("<QIi", 0, 0, 0)
    if opcode == READ:
        return b"\0" * struct.unpack_from("<QQI", body)[2]
    return b"" if opcode in (18, 25) else ENOSYS  # RELEASE, FLUSH

fuse = os.open("/dev/fuse", os.O_RDWR)
options = b"fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % fuse
if ctypes.CDLL(None, use_errno=True).mount(b"mute", b"/tmp/mute", b"fuse", 0, options):
    sys.exit(os.strerror(ctypes.get_errno()))
print("serves", flush=True)
while True:
    request = os.read(fuse, 1 << 20)
    _, opcode, unique, node, *_ = HEADER.unpack_from(request)
    if opcode == FORGET or (opcode, node) in MUTE or opcode == READ and node > NUMBERED:
        continue
    body = answer(opcode, node, request[HEADER.size :])
    error, body = (-body, b"") if isinstance(body, int) else (0, body)
    os.write(fuse, ANSWER.pack(ANSWER.size + len(body), error, unique) + body)
