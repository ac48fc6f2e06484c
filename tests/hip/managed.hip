// SPDX-License-Identifier: GPL-2.0-only OR MIT
// Memory that CPU and GPU share, as a HIP application uses it: managed memory, prefetch, advice,
// more than the GPU has, children; and, where the GPU repeats accesses that find no page
// (HSA_XNACK=1), memory of malloc() and mmap(), static memory and the stack.
//
//	hip_managed CASE...
//
// prints a line for each thing that was looked at, and ends with 1 when an element is wrong. CPU
// and GPU take steps in turns, each of which needs what the other one has written.
#include <hip/hip_runtime.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

static const size_t page_words = 4096 / sizeof(uint32_t);
static const size_t usual_words = 300 * page_words + 77;
static bool all_right = true;

static void check(hipError_t status, const char *what)
{
	if (status != hipSuccess) {
		std::fprintf(stderr, "%s: %s\n", what, hipGetErrorString(status));
		std::exit(1);
	}
}

__host__ __device__ static uint32_t stepped(uint32_t word, size_t i, uint32_t round)
{
	return word * 5 + (uint32_t)i * 7 + round;
}

// A step on every stride-th word.
__global__ void step_kernel(uint32_t *words, size_t n, size_t stride, uint32_t round)
{
	size_t i = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) * stride;

	if (i < n)
		words[i] = stepped(words[i], i, round);
}

static void gpu_begins(uint32_t *words, size_t n, size_t stride, uint32_t round)
{
	size_t threads = (n + stride - 1) / stride;

	step_kernel<<<(unsigned)((threads + 255) / 256), 256>>>(words, n, stride, round);
	check(hipGetLastError(), "launch");
}

static void gpu_steps(uint32_t *words, size_t n, size_t stride, uint32_t round)
{
	gpu_begins(words, n, stride, round);
	check(hipDeviceSynchronize(), "hipDeviceSynchronize");
}

static void cpu_steps(uint32_t *words, size_t n, size_t stride, uint32_t round)
{
	for (size_t i = 0; i < n; i += stride)
		words[i] = stepped(words[i], i, round);
}

// The memory that is tested, and what should be in it.
struct Tested {
	uint32_t *words;
	size_t n;
	std::vector<uint32_t> wanted;

	Tested(void *memory, size_t n) : words((uint32_t *)memory), n(n), wanted(n)
	{
		std::memset(words, 0, n * sizeof(*words));
	}
	void by_cpu(uint32_t round)
	{
		cpu_steps(words, n, 1, round);
		cpu_steps(wanted.data(), n, 1, round);
	}
	void by_gpu(uint32_t round)
	{
		gpu_steps(words, n, 1, round);
		cpu_steps(wanted.data(), n, 1, round);
	}
	size_t wrong() const
	{
		size_t count = 0;

		for (size_t i = 0; i < n; i++)
			count += words[i] != wanted[i];
		return count;
	}
};

static void tell(const char *what, size_t wrong)
{
	std::printf("%s: %zu wrong\n", what, wrong);
	std::fflush(stdout);
	all_right &= wrong == 0;
}

static void turns(const std::string &name, Tested &tested)
{
	for (uint32_t round = 1; round <= 3; round++) {
		tested.by_cpu(round);
		tested.by_gpu(round + 10);
	}
	tell((name + ", in turns").c_str(), tested.wrong());
	tested.by_gpu(21);
	tested.by_gpu(22);
	tell((name + ", twice by the GPU").c_str(), tested.wrong());
}

// Both at the same time, on pages of their own.
static void beside(const std::string &name, Tested &tested)
{
	for (uint32_t round = 1; round <= 4; round++) {
		size_t own = round % 2 * page_words, half = 2 * page_words;

		gpu_begins(tested.words + own, tested.n - own, half, round);
		cpu_steps(tested.words + (page_words - own), tested.n - (page_words - own), half,
			  round);
		check(hipDeviceSynchronize(), "hipDeviceSynchronize");
		cpu_steps(tested.wanted.data() + own, tested.n - own, half, round);
		cpu_steps(tested.wanted.data() + (page_words - own),
			  tested.n - (page_words - own), half, round);
	}
	tell((name + ", at the same time").c_str(), tested.wrong());
}

static void *managed(size_t bytes)
{
	void *memory;

	check(hipMallocManaged(&memory, bytes), "hipMallocManaged");
	return memory;
}

static void managed_case()
{
	for (size_t n : {(size_t)1, page_words, usual_words}) {
		void *memory = managed(n * sizeof(uint32_t));
		Tested tested(memory, n);

		turns("managed " + std::to_string(n), tested);
		if (n > page_words)
			beside("managed " + std::to_string(n), tested);
		check(hipFree(memory), "hipFree");
	}
}

static const char *place(int device)
{
	switch (device) {
	case hipCpuDeviceId:
		return "the CPU";
	case hipInvalidDeviceId:
		return "none";
	case 0:
		return "GPU 0";
	default:
		return "another one";
	}
}

static int attribute(hipMemRangeAttribute which, const void *memory, size_t bytes)
{
	int value = 12345;

	check(hipMemRangeGetAttribute(&value, sizeof(value), which, memory, bytes),
	      "hipMemRangeGetAttribute");
	return value;
}

static void fetch(void *memory, size_t bytes, int device)
{
	check(hipMemPrefetchAsync(memory, bytes, device, 0), "hipMemPrefetchAsync");
	check(hipStreamSynchronize(0), "hipStreamSynchronize");
	std::printf("prefetched to %s: %s\n", place(device),
		    place(attribute(hipMemRangeAttributeLastPrefetchLocation, memory, bytes)));
}

static void prefetch_case()
{
	size_t bytes = usual_words * sizeof(uint32_t);
	void *memory = managed(bytes);
	Tested tested(memory, usual_words);

	for (uint32_t round = 1; round <= 2; round++) {
		tested.by_cpu(round);
		fetch(memory, bytes, 0);
		tested.by_gpu(round + 10);
		tell("prefetched, read by the CPU", tested.wrong());
		fetch(memory, bytes, 0);
		tested.by_gpu(round + 20);
		fetch(memory, bytes, hipCpuDeviceId);
		tell("prefetched back", tested.wrong());
		tested.by_gpu(round + 30);
	}
	// A part of it, while the rest stays.
	fetch((char *)memory + 100 * 4096, 50 * 4096, 0);
	tested.by_gpu(41);
	tested.by_cpu(42);
	tell("a part prefetched", tested.wrong());
	check(hipFree(memory), "hipFree");
}

static const struct Advice {
	const char *name;
	hipMemoryAdvise set, unset;
	// What tells of it, and whether as a place.
	hipMemRangeAttribute told;
	bool is_place;
} advices[] = {
	{"read mostly", hipMemAdviseSetReadMostly, hipMemAdviseUnsetReadMostly,
	 hipMemRangeAttributeReadMostly, false},
	{"preferred location", hipMemAdviseSetPreferredLocation,
	 hipMemAdviseUnsetPreferredLocation, hipMemRangeAttributePreferredLocation, true},
	{"accessed by", hipMemAdviseSetAccessedBy, hipMemAdviseUnsetAccessedBy,
	 hipMemRangeAttributeAccessedBy, true},
	{"coarse grain", hipMemAdviseSetCoarseGrain, hipMemAdviseUnsetCoarseGrain,
	 hipMemRangeAttributeCoherencyMode, false},
};

static void advised(const Advice &advice, hipMemoryAdvise what, int device, Tested &tested)
{
	size_t bytes = tested.n * sizeof(uint32_t);
	hipError_t status = hipMemAdvise(tested.words, bytes, what, device);
	std::string name = std::string(what == advice.set ? "" : "no ") + advice.name + ", " +
			   place(device);

	std::printf("%s: %s", name.c_str(), hipGetErrorName(status));
	(void)hipGetLastError();
	int told = attribute(advice.told, tested.words, bytes);
	if (advice.is_place)
		std::printf(", told %s\n", place(told));
	else
		std::printf(", told %d\n", told);
	turns(name, tested);
}

static void advise_case()
{
	for (const Advice &advice : advices) {
		for (int device : {0, hipCpuDeviceId}) {
			void *memory = managed(usual_words * sizeof(uint32_t));
			Tested tested(memory, usual_words);

			advised(advice, advice.set, device, tested);
			advised(advice, advice.unset, device, tested);
			check(hipFree(memory), "hipFree");
		}
	}
}

// A child looks at the memory and writes to it; what the parent and its GPU see stays.
static void fork_from(const char *name, Tested &tested)
{
	for (uint32_t round = 1; round <= 2; round++) {
		int status = -1;

		tested.by_cpu(round);
		tested.by_gpu(round + 10);
		std::fflush(stdout);
		pid_t child = fork();
		if (child == 0) {
			size_t wrong = tested.wrong();

			std::memset(tested.words, 0x5a, tested.n * sizeof(uint32_t));
			_exit(wrong ? 1 : tested.words[tested.n - 1] != 0x5a5a5a5a);
		}
		if (child < 0 || waitpid(child, &status, 0) != child)
			check(hipErrorUnknown, "fork");
		std::printf("%s, what a child sees: status %d\n", name, status);
		all_right &= status == 0;
		tested.by_gpu(round + 20);
		tell(name, tested.wrong());
	}
}

static void fork_case()
{
	size_t bytes = usual_words * sizeof(uint32_t);
	void *memory = managed(bytes);
	Tested tested(memory, usual_words);

	fork_from("managed memory of a parent", tested);
	fetch(memory, bytes, 0);
	fork_from("prefetched memory of a parent", tested);
	check(hipFree(memory), "hipFree");
}

// Twice what is free of the GPU's memory, of which each part is fetched in turn, and one word of
// each page used.
static void oversubscribe_case()
{
	const size_t parts = 16;
	std::vector<uint32_t *> words;
	size_t available, total;

	check(hipMemGetInfo(&available, &total), "hipMemGetInfo");
	size_t bytes = (available / 8 + 4095) & ~(size_t)4095;
	size_t n = bytes / sizeof(uint32_t), wrong = 0;
	for (size_t part = 0; part < parts; part++)
		words.push_back((uint32_t *)managed(bytes));
	std::printf("oversubscribed: at least 300 MiB, and twice what is free on the GPU: %d\n",
		    parts * bytes >= 2 * available && parts * bytes >= 300 << 20);
	std::fflush(stdout);
	for (uint32_t *part : words) {
		cpu_steps(part, n, page_words, 1);
		check(hipMemPrefetchAsync(part, bytes, 0, 0), "hipMemPrefetchAsync");
		gpu_steps(part, n, page_words, 11);
	}
	// By the GPU once more, wherever it is now.
	for (uint32_t *part : words)
		gpu_steps(part, n, page_words, 12);
	for (uint32_t *part : words) {
		for (size_t i = 0; i < n; i += page_words)
			wrong += part[i] != stepped(stepped(stepped(0, i, 1), i, 11), i, 12);
		check(hipFree(part), "hipFree");
	}
	tell("oversubscribed", wrong);
}

static void malloc_case()
{
	void *memory = std::malloc(usual_words * sizeof(uint32_t));
	Tested tested(memory, usual_words);

	turns("memory of malloc", tested);
	beside("memory of malloc", tested);
	std::free(memory);
	memory = std::malloc(64 * sizeof(uint32_t));
	Tested small(memory, 64);
	turns("a little memory of malloc", small);
	std::free(memory);
	memory = std::malloc(usual_words * sizeof(uint32_t));
	Tested child(memory, usual_words);
	fork_from("memory of malloc of a parent", child);
	std::free(memory);
}

static void mmap_of(const char *name, int flags)
{
	size_t bytes = usual_words * sizeof(uint32_t);
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		check(hipErrorOutOfMemory, "mmap");
	Tested tested(memory, usual_words);
	turns(name, tested);
	// Its pages are others from then on.
	if (madvise((char *)memory + 4096, 16 * 4096, MADV_DONTNEED))
		check(hipErrorUnknown, "madvise");
	if (flags & MAP_PRIVATE)
		std::fill_n(tested.wanted.begin() + page_words, 16 * page_words, 0);
	tested.by_gpu(31);
	tell(name, tested.wrong());
	munmap(memory, bytes);
}

static uint32_t static_words[5000];

static void mmap_case()
{
	uint32_t stack[3000];

	mmap_of("private memory of mmap", MAP_PRIVATE);
	mmap_of("shared memory of mmap", MAP_SHARED);
	Tested of_static(static_words, 5000);
	turns("static memory", of_static);
	Tested of_stack(stack, 3000);
	turns("the stack", of_stack);
}

static const struct {
	const char *name;
	void (*run)();
} cases[] = {
	{"managed", managed_case},
	{"prefetch", prefetch_case},
	{"advise", advise_case},
	{"fork", fork_case},
	{"oversubscribe", oversubscribe_case},
	{"malloc", malloc_case},
	{"mmap", mmap_case},
};

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	for (int i = 1; i < argc; i++) {
		bool known = false;

		for (const auto &one : cases) {
			if (std::strcmp(argv[i], one.name))
				continue;
			known = true;
			one.run();
		}
		if (!known) {
			std::fprintf(stderr, "no case '%s'\n", argv[i]);
			return 2;
		}
	}
	return !all_right;
}
