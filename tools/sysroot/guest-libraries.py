# SPDX-License-Identifier: GPL-2.0-only OR MIT
"""Run by the Python of the guest's root for the libraries, when it is made.

rocblas-test reads a file of 1.5 million cases, 0.9 GB, once for each of some 400 functions: more
than 170 s on an emulated CPU before the first test. This puts in its place, as some.data, up to
MOST cases of each function, evenly taken from those marked "quick".

The file: a signature with a struct as an example ("rocBLAS" to "ROCblas"), then structs of one
size, which begin with three names of 64 bytes: the function, the test, the category.
"""

import collections
import os

MOST = 24
DIRECTORY = "/usr/share/librocblas5-tests/data/"
NAME = 64


def name(case, at):
    return case[at * NAME : (at + 1) * NAME].rstrip(b"\0")


def cases(file, size):
    while block := file.read(size * 4096):
        if len(block) % size:
            raise SystemExit("rocblas_gtest.data: a part of a case")
        for start in range(0, len(block), size):
            yield block[start : start + size]


def main():
    whole = DIRECTORY + "rocblas_gtest.data"
    with open(whole, "rb") as file:
        start = file.read(4096)
        header = start.index(b"ROCblas\0") + 8
        # Between the two words stands one struct, whose bytes count up in each field.
        size = header - 16
        if not start.startswith(b"rocBLAS\0"):
            raise SystemExit("rocblas_gtest.data has another format")
        file.seek(header)
        counts = collections.Counter(
            name(case, 0) for case in cases(file, size) if name(case, 2) == b"quick"
        )
        seen = collections.Counter()
        file.seek(header)
        with open(DIRECTORY + "some.data", "wb") as some:
            some.write(start[:header])
            for case in cases(file, size):
                function = name(case, 0)
                if name(case, 2) != b"quick":
                    continue
                at, of = seen[function], counts[function]
                seen[function] += 1
                # As many as the steps that MOST / of makes past a whole number.
                if of <= MOST or at * MOST // of != (at - 1) * MOST // of:
                    some.write(case)
    if len(counts) < 100:
        raise SystemExit(f"rocblas_gtest.data: only {len(counts)} functions")
    os.remove(whole)


main()
