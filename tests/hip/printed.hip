// SPDX-License-Identifier: GPL-2.0-only OR MIT
// hipcc: -mprintf-kind=buffered
// A kernel that prints through a buffer as HIP does it, and one beside it that does not. Only the
// kernels are of use.
#include <hip/hip_runtime.h>

extern "C" __global__ void says(int number)
{
	printf("%d of %s\n", number, "a");
}

extern "C" __global__ void ones(int *to)
{
	to[threadIdx.x] = 1;
}

int main()
{
	return 0;
}
