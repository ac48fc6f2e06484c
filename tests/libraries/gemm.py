# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Multiplies matrices of single-precision numbers on the GPU with rocBLAS, and checks the products.

gemm.py N...: for each N a product of two N x N matrices of small whole numbers, whose sums are
exact in whatever order they are made. Checked by vectors: C x = A (B x), for six of random whole
numbers, of 128 each: a row with a wrong element passes all of them once in 2^42 times.
"""

import array
import ctypes
import operator
import random
import sys
import time

hip = ctypes.CDLL("libamdhip64.so.7")
blas = ctypes.CDLL("librocblas.so.5")
TO_DEVICE, TO_HOST, NO_TRANSPOSE = 1, 2, 111


def called(what, status):
    if status:
        sys.exit(f"{what}: error {status}")


def memory(data, fill=True):
    at = ctypes.c_void_p()
    size = len(data) * data.itemsize
    called("hipMalloc", hip.hipMalloc(ctypes.byref(at), ctypes.c_size_t(size)))
    if fill:
        copy(at, data.buffer_info()[0], size, TO_DEVICE)
    return at


def copy(to, source, size, kind):
    to, source = (at if isinstance(at, ctypes.c_void_p) else ctypes.c_void_p(at)
                  for at in (to, source))
    called("hipMemcpy", hip.hipMemcpy(to, source, ctypes.c_size_t(size), kind))



def times(matrix, n, vector):
    """`matrix` lies by columns, as BLAS has it: a sum of its columns."""
    result = [0] * n
    for k in range(n):
        factor = vector[k]
        result = [r + factor * e for r, e in zip(result, matrix[k * n : (k + 1) * n])]
    return result


handle = ctypes.c_void_p()
started = time.monotonic()
called("rocblas_create_handle", blas.rocblas_create_handle(ctypes.byref(handle)))
print(f"rocBLAS is up after {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)
failed = 0
chance = random.Random(1)
for n in map(int, sys.argv[1:]):
    left = array.array("f", (i * 7 % 13 - 6 for i in range(n * n)))
    right = array.array("f", (i * 5 % 11 - 5 for i in range(n * n)))
    # What is not written is not a number, and equal to nothing.
    product = array.array("f", [float("nan")]) * (n * n)
    a, b, c = memory(left), memory(right), memory(product)
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    started = time.monotonic()
    size = ctypes.c_int(n)
    called("rocblas_sgemm", blas.rocblas_sgemm(
        handle, NO_TRANSPOSE, NO_TRANSPOSE, size, size, size, ctypes.byref(one), a, size, b, size,
        ctypes.byref(zero), c, size))
    called("hipDeviceSynchronize", hip.hipDeviceSynchronize())
    seconds = time.monotonic() - started
    copy(product.buffer_info()[0], c, n * n * 4, TO_HOST)
    wrong = 0
    for _ in range(6):
        vector = [chance.randrange(-64, 64) for _ in range(n)]
        want = times(left, n, times(right, n, vector))
        wrong = max(wrong, sum(map(operator.ne, want, times(product, n, vector))))
    failed += wrong
    print(f"{n}x{n}x{n}: {wrong} of {n} rows wrong", flush=True)
    print(f"{n}x{n}x{n}: {seconds:.1f} s", file=sys.stderr, flush=True)
    for at in (a, b, c):
        called("hipFree", hip.hipFree(at))
sys.exit(failed != 0)
