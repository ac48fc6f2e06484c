# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Multiplies matrices on the GPU with tinygrad's AMD backend, which talks to /dev/kfd itself.

matmul.py SITE N...: tinygrad lies in SITE. For each N a product of two N x N matrices of small
whole numbers, whose sums are exact, is compared with the CPU's.
"""
import sys

sys.path.insert(0, sys.argv[1])
from tinygrad import Device, Tensor  # noqa: E402


def matrix(n, a, b, m):
    return [[(i * a + j * b) % m - m // 2 for j in range(n)] for i in range(n)]


failed = 0
for n in map(int, sys.argv[2:]):
    left, right = matrix(n, 7, 3, 13), matrix(n, 5, 2, 11)
    on_gpu = [Tensor(rows, dtype="float32", device="AMD").realize() for rows in (left, right)]
    got = (on_gpu[0] @ on_gpu[1]).tolist()
    columns = list(zip(*right))
    want = [[sum(x * y for x, y in zip(row, column)) for column in columns] for row in left]
    wrong = sum(x != y for rows in zip(got, want) for x, y in zip(*rows))
    failed += wrong
    print(f"{n}x{n}: {wrong} wrong of {n * n}", flush=True)
device = Device["AMD"]
queue = "AQL" if device.is_aql else "PM4"
interface = type(device.iface).__name__
print(f"{device.arch} by {interface}, {queue} queue, SDMA: {device.has_sdma_queue}")
sys.exit(failed != 0)
