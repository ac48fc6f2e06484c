// SPDX-License-Identifier: GPL-2.0-only OR MIT
// A matrix product that stays on the GPU until it is told to go on: something for `kfdctl top` to
// look at. It prints what its own runtime says of its queues, as often as a line comes on stdin:
//
//	queue RING SIZE write INDEX read INDEX
//
// Each empty line asks again; "go" lets the product end. Then it checks the result.
#include <hip/hip_runtime.h>
#include <hsa/hsa.h>
#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

static std::mutex lock;
static std::vector<hsa_queue_t *> queues;

// HIP asks for its queues by this name too: it gets here first, and we remember them.
extern "C" hsa_status_t hsa_queue_create(hsa_agent_t agent, uint32_t size, hsa_queue_type32_t type,
					 void (*callback)(hsa_status_t, hsa_queue_t *, void *),
					 void *data, uint32_t private_size, uint32_t group_size,
					 hsa_queue_t **queue)
{
	static auto real =
		reinterpret_cast<decltype(&hsa_queue_create)>(dlsym(RTLD_NEXT, "hsa_queue_create"));
	hsa_status_t status =
		real(agent, size, type, callback, data, private_size, group_size, queue);

	if (status == HSA_STATUS_SUCCESS) {
		std::lock_guard<std::mutex> guard(lock);
		queues.push_back(*queue);
	}
	return status;
}

static void check(hipError_t status, const char *what)
{
	if (status != hipSuccess) {
		std::fprintf(stderr, "%s: %s\n", what, hipGetErrorString(status));
		std::exit(1);
	}
}

// The first work-item of each group waits for `go`.
__global__ void gemm(const float *a, const float *b, float *c, int n, volatile int *go)
{
	int row = blockIdx.y * blockDim.y + threadIdx.y;
	int column = blockIdx.x * blockDim.x + threadIdx.x;
	float sum = 0;

	if (threadIdx.x == 0 && threadIdx.y == 0)
		while (!__atomic_load_n((int *)go, __ATOMIC_ACQUIRE))
			__builtin_amdgcn_s_sleep(8);
	__syncthreads();
	for (int k = 0; k < n; k++)
		sum += a[row * n + k] * b[k * n + column];
	c[row * n + column] = sum;
}

static void tell()
{
	std::lock_guard<std::mutex> guard(lock);

	for (hsa_queue_t *queue : queues)
		std::printf("queue %p %u write %llu read %llu\n", queue->base_address,
			    queue->size * 64,
			    (unsigned long long)hsa_queue_load_write_index_scacquire(queue),
			    (unsigned long long)hsa_queue_load_read_index_scacquire(queue));
	std::printf("told\n");
	std::fflush(stdout);
}

int main(int argc, char **argv)
{
	const int n = argc > 1 ? std::atoi(argv[1]) : 32;
	const size_t size = sizeof(float) * n * n;
	std::vector<float> a(n * n), b(n * n), c(n * n);
	float *da, *db, *dc;
	int *go, wrong = 0;
	char line[64];

	for (int i = 0; i < n * n; i++) {
		a[i] = i % 7;
		b[i] = i % 5;
	}
	check(hipMalloc(&da, size), "hipMalloc");
	check(hipMalloc(&db, size), "hipMalloc");
	check(hipMalloc(&dc, size), "hipMalloc");
	check(hipHostMalloc(&go, sizeof(*go), hipHostMallocCoherent), "hipHostMalloc");
	*go = 0;
	check(hipMemcpy(da, a.data(), size, hipMemcpyHostToDevice), "hipMemcpy");
	check(hipMemcpy(db, b.data(), size, hipMemcpyHostToDevice), "hipMemcpy");
	gemm<<<dim3(n / 16, n / 16), dim3(16, 16)>>>(da, db, dc, n, go);
	check(hipGetLastError(), "launch");
	tell();
	while (std::fgets(line, sizeof(line), stdin) && std::strcmp(line, "go\n"))
		tell();
	__atomic_store_n(go, 1, __ATOMIC_RELEASE);
	check(hipMemcpy(c.data(), dc, size, hipMemcpyDeviceToHost), "hipMemcpy back");
	for (int row = 0; row < n; row++)
		for (int column = 0; column < n; column++) {
			float sum = 0;

			for (int k = 0; k < n; k++)
				sum += a[row * n + k] * b[k * n + column];
			wrong += c[row * n + column] != sum;
		}
	std::printf("gemm: %dx%d, %d wrong\n", n, n, wrong);
	return wrong != 0;
}
