// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A HIP program for debuggers.
//
//	hip_debugged        a kernel counts in a word until a line comes in
//	hip_debugged fault  a kernel stores to where nothing is
//
// It says "ready" and the addresses of the word and of the results, and at the end which results
// are not what they should be. Each work-item keeps its result in v40 while it waits: a debugger
// may change it there.
#include <hip/hip_runtime.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

static const unsigned groups = 2, items = 128;

static void check(hipError_t status, const char *what)
{
	if (status != hipSuccess) {
		std::fprintf(stderr, "%s: %s\n", what, hipGetErrorString(status));
		std::exit(1);
	}
}

// Each work-item's result, from its number.
__host__ __device__ static uint32_t result(uint32_t item) { return item * 3 + 1; }

// The compiler uses few registers here, and not v40.
__global__ void count(volatile uint32_t *flag, volatile uint32_t *ticks, uint32_t *out)
{
	uint32_t item = blockIdx.x * blockDim.x + threadIdx.x, x = result(item);

	asm volatile("v_mov_b32 v40, %0" : : "v"(x) : "v40");
	do {
		if (item == 0)
			*ticks = *ticks + 1;
		__builtin_amdgcn_s_sleep(1);
	} while (!*flag);
	asm volatile("v_mov_b32 %0, v40" : "=v"(x));
	out[item] = x;
}

__global__ void fault(volatile uint32_t *nowhere) { *nowhere = 1; }

static void *host_memory(size_t size)
{
	void *memory;

	check(hipHostMalloc(&memory, size, hipHostMallocCoherent), "hipHostMalloc");
	std::memset(memory, 0, size);
	return memory;
}

int main(int argc, char **argv)
{
	const bool faults = argc > 1 && std::strcmp(argv[1], "fault") == 0;
	auto *flag = (volatile uint32_t *)host_memory(4096);
	auto *ticks = (volatile uint32_t *)host_memory(4096);
	auto *out = (uint32_t *)host_memory(4096);
	char line[16];
	int wrong = 0;

	std::printf("ready %p %p\n", (void *)ticks, (void *)out);
	std::fflush(stdout);
	// The debugger may want to be there before.
	if (faults && !std::fgets(line, sizeof(line), stdin))
		return 1;
	if (faults)
		fault<<<1, 64>>>((volatile uint32_t *)(1ull << 45));
	else
		count<<<groups, items>>>(flag, ticks, out);
	check(hipGetLastError(), "launch");
	while (!faults && *ticks == 0)
		;
	std::printf("running\n");
	std::fflush(stdout);
	if (!faults && !std::fgets(line, sizeof(line), stdin))
		return 1;
	*flag = 1;
	check(hipDeviceSynchronize(), "hipDeviceSynchronize");
	for (unsigned item = 0; item < groups * items; item++) {
		if (out[item] == result(item))
			continue;
		std::printf("result %u is %u\n", item, out[item]);
		wrong++;
	}
	std::printf("%d of %u results are not what they should be\n", wrong, groups * items);
	return 0;
}
