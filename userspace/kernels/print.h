/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * printf for kernels without a device library. The compiler makes of each call a record in a
 * buffer, whose address is hidden_printf_buffer, a hidden argument of code object version 5, and
 * has a line of metadata say how it is to be read; kfd-aql's Printer does that. Formats and the
 * arguments of %s are literals, as OpenCL C wants it.
 */
#define HIDDEN_PRINTF_BUFFER 72

int printf(constant const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Room for a record, or nothing: buffer[0] bytes are taken, and with the two words, buffer[1] is
 * the size of it all. What is full is left alone, so that the number does not wrap.
 */
__attribute__((used)) global char *__printf_alloc(uint bytes)
{
	constant char *hidden = (constant char *)__builtin_amdgcn_implicitarg_ptr();
	global uint *buffer = *(global uint *constant *)(hidden + HIDDEN_PRINTF_BUFFER);
	uint size = buffer[1], at;

	if (__scoped_atomic_load_n(buffer, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM) >= size)
		return 0;
	at = __scoped_atomic_fetch_add(buffer, bytes, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
	at += 2 * sizeof(*buffer);
	return at + bytes <= size ? (global char *)buffer + at : 0;
}
