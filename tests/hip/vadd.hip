// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A vector addition as any HIP program does it: the witness that unmodified ROCm runs. Prints
// "vadd: N wrong".
#include <hip/hip_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <vector>

static void check(hipError_t status, const char *what)
{
	if (status != hipSuccess) {
		std::fprintf(stderr, "%s: %s\n", what, hipGetErrorString(status));
		std::exit(1);
	}
}

__global__ void vadd(const float *a, const float *b, float *c, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		c[i] = a[i] + b[i];
}

int main(int argc, char **argv)
{
	const int n = argc > 1 ? std::atoi(argv[1]) : 100000;
	const size_t size = n * sizeof(float);
	std::vector<float> a(n), b(n), c(n);
	float *da, *db, *dc;
	int wrong = 0;

	for (int i = 0; i < n; i++) {
		a[i] = i % 1000;
		b[i] = 0.5f * (i % 77);
	}
	check(hipMalloc(&da, size), "hipMalloc");
	check(hipMalloc(&db, size), "hipMalloc");
	check(hipMalloc(&dc, size), "hipMalloc");
	check(hipMemcpy(da, a.data(), size, hipMemcpyHostToDevice), "hipMemcpy to the device");
	check(hipMemcpy(db, b.data(), size, hipMemcpyHostToDevice), "hipMemcpy to the device");
	vadd<<<(n + 255) / 256, 256>>>(da, db, dc, n);
	check(hipGetLastError(), "launch");
	check(hipMemcpy(c.data(), dc, size, hipMemcpyDeviceToHost), "hipMemcpy to the host");
	for (int i = 0; i < n; i++)
		wrong += c[i] != a[i] + b[i];
	check(hipFree(da), "hipFree");
	check(hipFree(db), "hipFree");
	check(hipFree(dc), "hipFree");
	std::printf("vadd: %d elements, %d wrong\n", n, wrong);
	return wrong != 0;
}
