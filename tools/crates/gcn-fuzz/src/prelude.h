// SPDX-License-Identifier: GPL-2.0-only OR MIT
// What the kernels of a batch share: types, and operations whose result C defines for all operands.
typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned u32;
typedef long i64;
typedef unsigned long u64;
typedef _Float16 f16;
typedef float f32;
typedef double f64;
#define VECTOR(type, n) typedef type type##x##n __attribute__((ext_vector_type(n)))
VECTOR(i8, 4);
VECTOR(u8, 4);
VECTOR(i16, 2);
VECTOR(u16, 2);
VECTOR(u16, 4);
VECTOR(i16, 4);
VECTOR(i32, 2);
VECTOR(u32, 2);
VECTOR(i32, 4);
VECTOR(u32, 4);
VECTOR(u32, 3);
VECTOR(i64, 2);
VECTOR(u64, 2);
VECTOR(f16, 2);
VECTOR(f16, 4);
VECTOR(f32, 2);
VECTOR(f32, 4);
VECTOR(f64, 2);

#define ITEMS 100
#define INPUTS 1024
#define CELLS 32
// Where the next work-item's row of inputs begins: rows overlap, so that lanes share values.
#define ROW 9
#define BARRIER \
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); \
    __builtin_amdgcn_s_barrier(); \
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");

#ifdef __AMDGCN__
#define GLOBAL __attribute__((address_space(1)))
#define LOCAL __attribute__((address_space(3), loader_uninitialized))
#define LOCAL_POINTER __attribute__((address_space(3)))
#define CALLED static __attribute__((noinline))
#else
#define GLOBAL
#define LOCAL static
#define LOCAL_POINTER
#define CALLED static
#endif
// The host's compiler is quickest when it has nothing to inline.
#ifdef __AMDGCN__
#define INLINE static inline __attribute__((always_inline, unused))
#else
#define INLINE static __attribute__((unused))
#endif

// Bits of floats, with all NaNs alike.
INLINE u32 bits32(f32 x) { return x != x ? 0x7fc00000u : __builtin_bit_cast(u32, x); }
INLINE u64 bits64(f64 x) { return x != x ? 0x7ff8000000000000ul : __builtin_bit_cast(u64, x); }
INLINE u16 bits16(f16 x) { return x != x ? (u16)0x7e00 : __builtin_bit_cast(u16, x); }
INLINE f32 from32(u32 x) { return __builtin_bit_cast(f32, x); }
INLINE f64 from64(u64 x) { return __builtin_bit_cast(f64, x); }
INLINE f16 from16(u16 x) { return __builtin_bit_cast(f16, x); }

// Hides what the compiler knows of a value: clang 19 for gfx942 divides 0xfffffffffffffff6 by an
// unsigned dword in 32 bits, because it has many equal upper bits.
#ifdef __AMDGCN__
#define HIDE(x) __asm__("" : "+v"(x))
#else
#define HIDE(x) (void)(x)
#endif
// Division, where C would trap or not say.
#define KEEP(x)
#define DIVIDE(type, hide) \
    INLINE type div_##type(type a, type b) \
    { \
        hide(a); \
        return b == 0 || b == (type)-1 ? a : (type)(a / b); \
    } \
    INLINE type mod_##type(type a, type b) \
    { \
        hide(a); \
        return b == 0 || b == (type)-1 ? a : (type)(a % b); \
    }
DIVIDE(i8, KEEP) DIVIDE(u8, KEEP) DIVIDE(i16, KEEP) DIVIDE(u16, KEEP)
DIVIDE(i32, KEEP) DIVIDE(u32, HIDE) DIVIDE(i64, KEEP) DIVIDE(u64, HIDE)

// Floats to integers, where the value fits.
#define FITS(x, low, high) ((x) > (low) && (x) < (high))
INLINE i32 i32_of(f64 x) { return FITS(x, -2147483649.0, 2147483648.0) ? (i32)x : 7; }
INLINE u32 u32_of(f64 x) { return FITS(x, -1.0, 4294967296.0) ? (u32)x : 7; }
INLINE i32 i32_of32(f32 x) { return FITS(x, -2147483648.0f, 2147483648.0f) ? (i32)x : 7; }
INLINE u32 u32_of32(f32 x) { return FITS(x, -1.0f, 4294967296.0f) ? (u32)x : 7; }
INLINE i64 i64_of(f64 x) { return FITS(x, -9.2e18, 9.2e18) ? (i64)x : 7; }
INLINE u64 u64_of(f64 x) { return FITS(x, -1.0, 1.8e19) ? (u64)x : 7; }
INLINE i64 i64_of32(f32 x) { return FITS(x, -9.2e18f, 9.2e18f) ? (i64)x : 7; }
INLINE u64 u64_of32(f32 x) { return FITS(x, -1.0f, 1.8e19f) ? (u64)x : 7; }
INLINE i32 i32_of16(f16 x) { return FITS(x, (f16)-65504.0f, (f16)65504.0f) ? (i32)x : 7; }

// A single, narrowed for itself.
INLINE f16 half_of(f32 x) { HIDE(x); return (f16)x; }

// Counts, with zero defined.
INLINE u32 lead32(u32 x) { return x ? (u32)__builtin_clz(x) : 32; }
INLINE u32 trail32(u32 x) { return x ? (u32)__builtin_ctz(x) : 32; }
INLINE u32 lead64(u64 x) { return x ? (u32)__builtin_clzl(x) : 64; }
INLINE u32 trail64(u64 x) { return x ? (u32)__builtin_ctzl(x) : 64; }

// What names an operand more than once: expressions that are written out would grow with each
// level.
#define ORDER(type, plain) \
    INLINE type low_##type(type a, type b) \
    { \
        a = plain(a), b = plain(b); \
        return a < b ? a : b; \
    } \
    INLINE type high_##type(type a, type b) \
    { \
        a = plain(a), b = plain(b); \
        return a > b ? a : b; \
    }
#define SAME(x) (x)
#define INTEGER(type, hide) \
    ORDER(type, SAME) \
    INLINE type middle_##type(type a, type b, type c) \
    { \
        type low = low_##type(a, b), high = high_##type(a, b); \
        return c < low ? low : c > high ? high : c; \
    } \
    INLINE type choose_##type(type a, type b, type c) \
    { \
        hide(c); \
        return (type)((a & c) | (b & ~c)); \
    } \
    INLINE type not_##type(type a) { hide(a); return (type)~a; }
// Clang makes v_min and v_max of these comparisons, which give a signalling NaN, quieted, where the
// comparison gives the other operand: LLVM promises nothing of signalling NaNs.
INLINE f16 quiet_f16(f16 x)
{
    u16 bits = __builtin_bit_cast(u16, x);
    return __builtin_bit_cast(f16, (u16)((bits & 0x7fff) > 0x7c00 ? bits | 0x200 : bits));
}
INLINE f32 quiet_f32(f32 x)
{
    u32 bits = __builtin_bit_cast(u32, x);
    return __builtin_bit_cast(f32, (bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : bits);
}
INLINE f64 quiet_f64(f64 x)
{
    u64 bits = __builtin_bit_cast(u64, x), wide = 1ul << 51;
    return __builtin_bit_cast(f64, (bits & ~(1ul << 63)) > 0x7fful << 52 ? bits | wide : bits);
}
#define FLOATING(type) \
    ORDER(type, quiet_##type) \
    INLINE type signed_##type(type x) { return x != x ? (type)1 : x; }
// Clang 19 for gfx942 loses the upper dword of ~c where c is a dword that was extended.
INTEGER(i8, KEEP) INTEGER(u8, KEEP) INTEGER(i16, KEEP) INTEGER(u16, KEEP)
INTEGER(i32, KEEP) INTEGER(u32, KEEP) INTEGER(i64, HIDE) INTEGER(u64, HIDE)
FLOATING(f16) FLOATING(f32) FLOATING(f64)
