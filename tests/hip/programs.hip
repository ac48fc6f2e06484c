// SPDX-License-Identifier: GPL-2.0-only OR MIT
// The HIP programs of the test matrix, as an application writes them: vector add, saxpy, reduction,
// transpose, matrix products (naive, through LDS tiles, on the matrix cores), each checked against
// the CPU.
//
//	hip_programs [-g GPU] [-r REPEAT] [PROGRAM|SIZE]...
//
// runs each program for each size (default: all, for 1 63 64 65 1000 1048577), prints a line for
// each and ends with 1 when an element is wrong. The values are small enough for every sum to be
// exact in any order, so that results are compared bit by bit.
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

static void check(hipError_t status, const char *what)
{
	if (status != hipSuccess) {
		std::fprintf(stderr, "%s: %s\n", what, hipGetErrorString(status));
		std::exit(1);
	}
}

// An array on the GPU, freed at the end of its scope.
template <class T> class Array {
public:
	explicit Array(size_t n) : n(n)
	{
		check(hipMalloc(&data, n * sizeof(T)), "hipMalloc");
	}
	explicit Array(const std::vector<T> &from) : Array(from.size())
	{
		check(hipMemcpy(data, from.data(), n * sizeof(T), hipMemcpyHostToDevice),
		      "hipMemcpy to the device");
	}
	Array(const Array &) = delete;
	~Array() { check(hipFree(data), "hipFree"); }
	void fill(int byte) { check(hipMemset(data, byte, n * sizeof(T)), "hipMemset"); }
	std::vector<T> read() const
	{
		std::vector<T> to(n);

		check(hipMemcpy(to.data(), data, n * sizeof(T), hipMemcpyDeviceToHost),
		      "hipMemcpy to the host");
		return to;
	}
	T *data;

private:
	size_t n;
};

static void launched() { check(hipGetLastError(), "launch"); }
static unsigned blocks(size_t n, unsigned each) { return (n + each - 1) / each; }

template <class T> static size_t count_wrong(const std::vector<T> &is, const std::vector<T> &wanted)
{
	size_t wrong = 0;

	for (size_t i = 0; i < wanted.size(); i++) {
		if (std::memcmp(&is[i], &wanted[i], sizeof(T)) == 0)
			continue;
		if (wrong++ < 3)
			std::fprintf(stderr, "element %zu is %g, not %g\n", i, (double)is[i],
				     (double)wanted[i]);
	}
	return wrong;
}

// Multiples of 1/8 and of 1/2, different for neighbours and for rows.
static std::vector<float> series(size_t n, unsigned period, float step)
{
	std::vector<float> v(n);

	for (size_t i = 0; i < n; i++)
		v[i] = step * (float)((i * 7 + i / period) % period);
	return v;
}

__global__ void vadd_kernel(const float *a, const float *b, float *c, size_t n)
{
	size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;

	if (i < n)
		c[i] = a[i] + b[i];
}

static size_t vadd(size_t n)
{
	std::vector<float> a = series(n, 1009, 0.125f), b = series(n, 77, 0.5f), wanted(n);
	Array<float> da(a), db(b), dc(n);

	for (size_t i = 0; i < n; i++)
		wanted[i] = a[i] + b[i];
	vadd_kernel<<<blocks(n, 256), 256>>>(da.data, db.data, dc.data, n);
	launched();
	return count_wrong(dc.read(), wanted);
}

// A stride loop: fewer threads than elements.
__global__ void saxpy_kernel(float factor, const float *x, float *y, size_t n)
{
	size_t stride = (size_t)gridDim.x * blockDim.x;

	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += stride)
		y[i] = factor * x[i] + y[i];
}

static size_t saxpy(size_t n)
{
	std::vector<float> x = series(n, 911, 0.125f), y = series(n, 64, 0.5f), wanted(n);
	Array<float> dx(x), dy(y);

	for (size_t i = 0; i < n; i++)
		wanted[i] = std::fmaf(2.5f, x[i], y[i]);
	saxpy_kernel<<<std::min(blocks(n, 64), 512u), 64>>>(2.5f, dx.data, dy.data, n);
	launched();
	return count_wrong(dy.read(), wanted);
}

// Each block sums in LDS down to a wave, the wave by exchanges between lanes; an atomic adds the
// blocks.
__global__ void reduce_kernel(const float *x, float *sum, size_t n)
{
	__shared__ float part[256];
	float own = 0;

	for (size_t i = blockIdx.x * (size_t)256 + threadIdx.x; i < n; i += (size_t)gridDim.x * 256)
		own += x[i];
	part[threadIdx.x] = own;
	__syncthreads();
	for (unsigned half = 128; half >= 64; half /= 2) {
		if (threadIdx.x < half)
			part[threadIdx.x] += part[threadIdx.x + half];
		__syncthreads();
	}
	if (threadIdx.x < 64) {
		own = part[threadIdx.x];
		for (int step = 32; step; step /= 2)
			own += __shfl_down(own, step);
		if (threadIdx.x == 0)
			atomicAdd(sum, own);
	}
}

static size_t reduce(size_t n)
{
	std::vector<float> x = series(n, 13, 1.0f), wanted(1);
	Array<float> dx(x), sum(1);

	for (float v : x)
		wanted[0] += v;
	sum.fill(0);
	reduce_kernel<<<std::min(blocks(n, 256), 256u), 256>>>(dx.data, sum.data, n);
	launched();
	return count_wrong(sum.read(), wanted);
}

// Rows and columns whose product is n, as square as n allows.
static void factors(size_t n, size_t *rows, size_t *columns)
{
	size_t small = (size_t)std::sqrt((double)n);

	while (n % small)
		small--;
	*columns = small;
	*rows = n / small;
}

// 32 x 32 tiles through LDS, whose rows are padded to spread over its banks.
__global__ void transpose_kernel(const float *in, float *out, size_t rows, size_t columns)
{
	__shared__ float tile[32][33];
	size_t x = blockIdx.y * (size_t)32 + threadIdx.x, y = blockIdx.x * (size_t)32 + threadIdx.y;

	for (unsigned j = 0; j < 32; j += 8)
		if (x < columns && y + j < rows)
			tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * columns + x];
	__syncthreads();
	x = blockIdx.x * (size_t)32 + threadIdx.x;
	y = blockIdx.y * (size_t)32 + threadIdx.y;
	for (unsigned j = 0; j < 32; j += 8)
		if (x < rows && y + j < columns)
			out[(y + j) * rows + x] = tile[threadIdx.x][threadIdx.y + j];
}

static size_t transpose(size_t n)
{
	size_t rows, columns;

	factors(n, &rows, &columns);
	std::vector<float> in = series(n, 65521, 1.0f), wanted(n);
	Array<float> din(in), dout(n);

	for (size_t i = 0; i < rows; i++)
		for (size_t j = 0; j < columns; j++)
			wanted[j * rows + i] = in[i * columns + j];
	dim3 grid(blocks(rows, 32), blocks(columns, 32));
	transpose_kernel<<<grid, dim3(32, 8)>>>(din.data, dout.data, rows, columns);
	launched();
	return count_wrong(dout.read(), wanted);
}

// Matrix products C = A B, of shape m x n with inner dimension k, row by row.
struct Shape {
	size_t m, n, k;
};

// Up to 128 the cube of that edge; beyond, n elements of C and a million products or 7 each.
static Shape shape(size_t n)
{
	Shape s = {n, n, n};

	if (n > 128) {
		factors(n, &s.m, &s.n);
		s.k = std::max<size_t>(1000000 / n, 7);
	}
	return s;
}

// Integers from -3 to 4.
template <class T> static std::vector<T> elements(size_t n, unsigned seed)
{
	std::vector<T> v(n);
	uint32_t x = seed;

	for (T &e : v) {
		x = x * 1664525 + 1013904223;
		e = (T)(float)((int)(x >> 29) - 3);
	}
	return v;
}

template <class T, class U>
static std::vector<U> product(const std::vector<T> &a, const std::vector<T> &b, Shape s)
{
	std::vector<U> c(s.m * s.n);
	std::vector<float> fa(a.size()), fb(b.size()), row(s.n);

	for (size_t i = 0; i < a.size(); i++)
		fa[i] = (float)a[i];
	for (size_t i = 0; i < b.size(); i++)
		fb[i] = (float)b[i];
	for (size_t i = 0; i < s.m; i++) {
		row.assign(s.n, 0);
		for (size_t l = 0; l < s.k; l++)
			for (size_t j = 0; j < s.n; j++)
				row[j] += fa[i * s.k + l] * fb[l * s.n + j];
		for (size_t j = 0; j < s.n; j++)
			c[i * s.n + j] = (U)row[j];
	}
	return c;
}

template <class T, class U, class Launch> static size_t gemm(size_t size, Launch launch)
{
	Shape s = shape(size);
	std::vector<T> a = elements<T>(s.m * s.k, 1), b = elements<T>(s.k * s.n, 2);
	Array<T> da(a), db(b);
	Array<U> dc(s.m * s.n);

	dc.fill(0xff);
	launch(da.data, db.data, dc.data, s);
	launched();
	return count_wrong(dc.read(), product<T, U>(a, b, s));
}

__global__ void naive_kernel(const float *a, const float *b, float *c, Shape s)
{
	size_t i = blockIdx.x * (size_t)16 + threadIdx.y, j = blockIdx.y * (size_t)16 + threadIdx.x;
	float sum = 0;

	if (i >= s.m || j >= s.n)
		return;
	for (size_t l = 0; l < s.k; l++)
		sum += a[i * s.k + l] * b[l * s.n + j];
	c[i * s.n + j] = sum;
}

static size_t gemm_naive(size_t size)
{
	return gemm<float, float>(size, [](float *a, float *b, float *c, Shape s) {
		naive_kernel<<<dim3(blocks(s.m, 16), blocks(s.n, 16)), dim3(16, 16)>>>(a, b, c, s);
	});
}

__global__ void tiled_kernel(const float *a, const float *b, float *c, Shape s)
{
	__shared__ float ta[16][16], tb[16][17];
	unsigned x = threadIdx.x, y = threadIdx.y;
	size_t i = blockIdx.x * (size_t)16 + y, j = blockIdx.y * (size_t)16 + x;
	float sum = 0;

	for (size_t l = 0; l < s.k; l += 16) {
		ta[y][x] = i < s.m && l + x < s.k ? a[i * s.k + l + x] : 0;
		tb[y][x] = j < s.n && l + y < s.k ? b[(l + y) * s.n + j] : 0;
		__syncthreads();
		for (unsigned t = 0; t < 16; t++)
			sum += ta[y][t] * tb[t][x];
		__syncthreads();
	}
	if (i < s.m && j < s.n)
		c[i * s.n + j] = sum;
}

static size_t gemm_tiled(size_t size)
{
	return gemm<float, float>(size, [](float *a, float *b, float *c, Shape s) {
		tiled_kernel<<<dim3(blocks(s.m, 16), blocks(s.n, 16)), dim3(16, 16)>>>(a, b, c, s);
	});
}

// The matrix cores: a wave makes a 16 x 16 tile of C. For each type of element, how many of them a
// lane holds of A and B, the instruction, and which row of the tile the lane's r-th result belongs
// to.
template <class T, int N> using Vector = T __attribute__((ext_vector_type(N)));

struct F32 {
	using Element = float;
	using Result = float;
	static constexpr int each = 1;
	__device__ static Vector<float, 4> multiply(const float *a, const float *b,
						    Vector<float, 4> c)
	{
		return __builtin_amdgcn_mfma_f32_16x16x4f32(a[0], b[0], c, 0, 0, 0);
	}
	__device__ static int row(int lane, int r) { return lane / 16 * 4 + r; }
};

struct F16 {
	using Element = _Float16;
	using Result = float;
	static constexpr int each = 4;
	__device__ static Vector<float, 4> multiply(const _Float16 *a, const _Float16 *b,
						    Vector<float, 4> c)
	{
		Vector<_Float16, 4> va = {a[0], a[1], a[2], a[3]}, vb = {b[0], b[1], b[2], b[3]};

		return __builtin_amdgcn_mfma_f32_16x16x16f16(va, vb, c, 0, 0, 0);
	}
	__device__ static int row(int lane, int r) { return lane / 16 * 4 + r; }
};

// The upper half of a float, kept by its bits: hipcc 5.7 has no such type of its own.
struct Brain {
	int16_t bits;
	Brain() = default;
	__host__ __device__ Brain(float v)
	{
		uint32_t u;

		memcpy(&u, &v, 4);
		bits = (int16_t)(u >> 16);
	}
	__host__ __device__ operator float() const
	{
		uint32_t u = (uint32_t)(uint16_t)bits << 16;
		float v;

		memcpy(&v, &u, 4);
		return v;
	}
};

struct BF16 {
	using Element = Brain;
	using Result = float;
	static constexpr int each = 4;
	__device__ static Vector<float, 4> multiply(const Brain *a, const Brain *b,
						    Vector<float, 4> c)
	{
		Vector<short, 4> va = {a[0].bits, a[1].bits, a[2].bits, a[3].bits};
		Vector<short, 4> vb = {b[0].bits, b[1].bits, b[2].bits, b[3].bits};

		return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(va, vb, c, 0, 0, 0);
	}
	__device__ static int row(int lane, int r) { return lane / 16 * 4 + r; }
};

struct F64 {
	using Element = double;
	using Result = double;
	static constexpr int each = 1;
	__device__ static Vector<double, 4> multiply(const double *a, const double *b,
						     Vector<double, 4> c)
	{
		return __builtin_amdgcn_mfma_f64_16x16x4f64(a[0], b[0], c, 0, 0, 0);
	}
	__device__ static int row(int lane, int r) { return lane / 16 + r * 4; }
};

struct I8 {
	using Element = int8_t;
	using Result = int32_t;
	static constexpr int each = 8;
	__device__ static Vector<int32_t, 4> multiply(const int8_t *a, const int8_t *b,
						      Vector<int32_t, 4> c)
	{
#ifdef __gfx90a__
		// It has half as many products in an instruction.
		for (int half = 0; half < 8; half += 4) {
			int va, vb;

			memcpy(&va, a + half, 4);
			memcpy(&vb, b + half, 4);
			c = __builtin_amdgcn_mfma_i32_16x16x16i8(va, vb, c, 0, 0, 0);
		}
		return c;
#else
		long va, vb;

		memcpy(&va, a, 8);
		memcpy(&vb, b, 8);
		return __builtin_amdgcn_mfma_i32_16x16x32_i8(va, vb, c, 0, 0, 0);
#endif
	}
	__device__ static int row(int lane, int r) { return lane / 16 * 4 + r; }
};

template <class M>
__global__ void mfma_kernel(const typename M::Element *a, const typename M::Element *b,
			    typename M::Result *c, Shape s)
{
	int lane = threadIdx.x, line = lane % 16, first = lane / 16 * M::each;
	size_t i = blockIdx.x * (size_t)16 + line, j = blockIdx.y * (size_t)16 + line;
	Vector<typename M::Result, 4> sum = {0, 0, 0, 0};

	for (size_t l = first; l < s.k + first; l += 4 * M::each) {
		typename M::Element va[M::each], vb[M::each];

		for (int t = 0; t < M::each; t++) {
			auto none = (typename M::Element)0.0f;
			va[t] = i < s.m && l + t < s.k ? a[i * s.k + l + t] : none;
			vb[t] = j < s.n && l + t < s.k ? b[(l + t) * s.n + j] : none;
		}
		sum = M::multiply(va, vb, sum);
	}
	for (int r = 0; r < 4; r++) {
		i = blockIdx.x * (size_t)16 + M::row(lane, r);
		if (i < s.m && j < s.n)
			c[i * s.n + j] = sum[r];
	}
}

template <class M> static size_t gemm_mfma(size_t size)
{
	using T = typename M::Element;
	using U = typename M::Result;

	return gemm<T, U>(size, [](T *a, T *b, U *c, Shape s) {
		mfma_kernel<M><<<dim3(blocks(s.m, 16), blocks(s.n, 16)), 64>>>(a, b, c, s);
	});
}

static const struct {
	const char *name;
	size_t (*run)(size_t size);
} programs[] = {
	{"vadd", vadd},
	{"saxpy", saxpy},
	{"reduce", reduce},
	{"transpose", transpose},
	{"gemm-naive", gemm_naive},
	{"gemm-tiled", gemm_tiled},
	{"gemm-mfma-f32", gemm_mfma<F32>},
	{"gemm-mfma-f16", gemm_mfma<F16>},
	{"gemm-mfma-bf16", gemm_mfma<BF16>},
	{"gemm-mfma-f64", gemm_mfma<F64>},
	{"gemm-mfma-i8", gemm_mfma<I8>},
};

static bool run(const std::string &name, const std::vector<size_t> &sizes)
{
	bool right = true, known = false;

	for (const auto &program : programs) {
		if (name != program.name && name != "all")
			continue;
		known = true;
		for (size_t n : sizes) {
			size_t wrong = program.run(n);

			std::printf("%s %zu: %zu wrong\n", program.name, n, wrong);
			std::fflush(stdout);
			right &= wrong == 0;
		}
	}
	if (!known) {
		std::fprintf(stderr, "no program '%s'\n", name.c_str());
		std::exit(2);
	}
	return right;
}

int main(int argc, char **argv)
{
	std::vector<std::string> names;
	std::vector<size_t> sizes;
	int repeat = 1;
	bool right = true;

	for (int i = 1; i < argc; i++) {
		if (!std::strcmp(argv[i], "-g") && i + 1 < argc)
			check(hipSetDevice(std::atoi(argv[++i])), "hipSetDevice");
		else if (!std::strcmp(argv[i], "-r") && i + 1 < argc)
			repeat = std::atoi(argv[++i]);
		else if (std::strspn(argv[i], "0123456789") == std::strlen(argv[i]) &&
			 std::atol(argv[i]) > 0)
			sizes.push_back(std::atol(argv[i]));
		else
			names.push_back(argv[i]);
	}
	if (names.empty())
		names = {"all"};
	if (sizes.empty())
		sizes = {1, 63, 64, 65, 1000, 1048577};
	for (int i = 0; i < repeat; i++)
		for (const std::string &name : names)
			right &= run(name, sizes);
	return !right;
}
