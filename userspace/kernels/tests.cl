// SPDX-License-Identifier: GPL-2.0-only OR MIT
// The kernels of kfd-tests. OpenCL C without a library: ids come from the compiler's builtins.

#define GROUP 256
#define LANE __builtin_amdgcn_workitem_id_x()
#define ITEM (__builtin_amdgcn_workgroup_id_x() * GROUP + LANE)

static void barrier_of_group(void)
{
	__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
	__builtin_amdgcn_s_barrier();
	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// Works for long with registers, local memory and barriers: each item mixes its number with a
// neighbour's, `rounds` times.
__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void churn(global uint *out, uint seed, uint rounds)
{
	local uint shared[GROUP];
	uint lane = LANE, x = ITEM * 2654435761u + seed;

	for (uint round = 0; round < rounds; round++) {
		shared[lane] = x;
		barrier_of_group();
		x = x * 1664525u + 1013904223u + shared[(lane + round) % GROUP];
		barrier_of_group();
	}
	out[ITEM] = x;
}

// `n` calls of itself, each with a word on the stack that it mixes in on the way back.
__attribute__((noinline)) static uint nested(uint x, uint n)
{
	volatile uint own = x * (n + 3);

	return n ? (nested(x, n - 1) ^ own) * 1664525u + own : x;
}

// Takes more stack the larger n is.
__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void recurse(global uint *out, uint n)
{
	out[ITEM] = nested(ITEM, n);
}

// Waits until *flag is not 0, with something in its registers.
__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void hold(global uint *flag, global uint *out)
{
	uint x = ITEM * 3 + 1;

	while (!__scoped_atomic_load_n(flag, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM))
		__builtin_amdgcn_s_sleep(1);
	out[ITEM] = x;
}

// Counts in *ticks until *flag is not 0, with something in its registers.
__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void tick(global uint *flag, global uint *ticks, global uint *out)
{
	uint x = ITEM * 3 + 1;

	while (!__scoped_atomic_load_n(flag, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM)) {
		if (LANE == 0)
			__scoped_atomic_fetch_add(ticks, 1, __ATOMIC_RELAXED,
						  __MEMORY_SCOPE_SYSTEM);
		__builtin_amdgcn_s_sleep(1);
	}
	out[ITEM] = x;
}

// Looks at the first word of a page with each item, and counts those that are not what they should
// be.
__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void verify(global const uint *data, global uint *wrong, uint seed)
{
	uint page = ITEM;

	if (data[page * 1024ul] != (page * 2654435761u ^ seed))
		__scoped_atomic_fetch_add(wrong, 1, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
}

// Writes the first word of each page: `word`, mixed with the page's number times `factor`.
__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void scatter(global uint *data, uint pages, uint word, uint factor)
{
	uint page = ITEM;

	if (page < pages)
		data[page * 1024ul] = page * factor ^ word;
}

// Reads the first word of each page.
__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void gather(global const uint *data, global uint *out, uint pages)
{
	uint page = ITEM;

	if (page < pages)
		out[page] = data[page * 1024ul];
}

// Raises what `what` says, and waits until *flag is not 0 with something in its registers: s_trap 1
// to 6 with that number, 7 an instruction that no GPU has, 8 a store to `nowhere`, 9 a division by
// 0, as which the reciprocal of 0 counts, 10 s_trap with two exceptions (on_trap).
__attribute__((reqd_work_group_size(64, 1, 1)))
kernel void raise(global uint *flag, global uint *out, global uint *nowhere, uint what)
{
	uint x = LANE * 3 + 1;
	float none = 0;

	switch (what) {
	case 1: __asm__ volatile("s_trap 1"); break;
	case 2: __asm__ volatile("s_trap 2"); break;
	case 3: __asm__ volatile("s_trap 3"); break;
	case 4: __asm__ volatile("s_trap 4"); break;
	case 5: __asm__ volatile("s_trap 5"); break;
	case 6: __asm__ volatile("s_trap 6"); break;
	case 7: __asm__ volatile(".long 0xbfff0000"); break;
	case 8: *(volatile global uint *)nowhere = 1; break;
	case 9: __asm__ volatile("v_rcp_f32 %0, %0" : "+v"(none)); break;
	case 10: __asm__ volatile("s_trap 0x83"); break;
	}
	while (!__scoped_atomic_load_n(flag, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM))
		__builtin_amdgcn_s_sleep(1);
	out[LANE] = x;
}

int printf(constant const char *format, ...) __attribute__((format(printf, 1, 2)));

// Room for a record in a Printer's buffer (print.h), or nothing. As with AMD's device library, what
// finds no room takes none: it leaves no trace.
__attribute__((used)) global char *__printf_alloc(uint bytes)
{
	constant char *hidden = (constant char *)__builtin_amdgcn_implicitarg_ptr();
	global uint *buffer = *(global uint *constant *)(hidden + 72);
	uint size = buffer[1], begin = 2 * sizeof(*buffer);
	uint taken = __scoped_atomic_load_n(buffer, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);

	do {
		if (begin + taken + bytes > size)
			return 0;
	} while (!__scoped_atomic_compare_exchange_n(buffer, &taken, taken + bytes, 0,
						     __ATOMIC_RELAXED, __ATOMIC_RELAXED,
						     __MEMORY_SCOPE_SYSTEM));
	return (global char *)buffer + begin + taken;
}

// Prints a line of 20 bytes for each item.
__attribute__((reqd_work_group_size(64, 1, 1)))
kernel void tell(void)
{
	uint item = __builtin_amdgcn_workgroup_id_x() * 64 + LANE;

	printf("item %u of %s: %x\n", item, "several", item * 3);
}

// No kernel but a second-level trap handler. It tells the driver by a privileged message, of which
// bits 9:0 are the queue's doorbell and the ones from 10 on the exceptions (bit 0 is EC 1): those
// of s_trap N are EC N, or with bit 7 of N those of its bits 5:0, and the wave goes on; a wave that
// did what it may not stops there, and so does one that traps for its debugger (EC 2).
//
// The first level comes with the PC and the trap's number in TTMP0 and 1 and with STATUS in TTMP12,
// and leaves TTMP2 to 5 free.
kernel void on_trap(void)
{
	__asm__ volatile(
		"s_mov_b32 ttmp2, exec_lo\n"
		"s_mov_b32 ttmp3, exec_hi\n"
		"s_mov_b32 ttmp4, m0\n"
		"s_mov_b32 exec_lo, 0x80000000\n"
		"s_sendmsg sendmsg(MSG_GET_DOORBELL)\n"
		".Lon_trap_wait:\n"
		"s_nop 7\n"
		"s_bitcmp0_b32 exec_lo, 31\n"
		"s_cbranch_scc0 .Lon_trap_wait\n"
		"s_and_b32 m0, exec_lo, 0x3ff\n"
		"s_bfe_u32 ttmp5, ttmp1, 0x80010\n"
		"s_cbranch_scc0 .Lon_trap_exception\n"
		"s_bitcmp1_b32 ttmp5, 7\n"
		"s_cbranch_scc1 .Lon_trap_several\n"
		"s_sub_u32 ttmp5, ttmp5, 1\n"
		"s_lshl_b32 ttmp5, 0x400, ttmp5\n"
		"s_branch .Lon_trap_past\n"
		".Lon_trap_several:\n"
		"s_and_b32 ttmp5, ttmp5, 0x3f\n"
		"s_lshl_b32 ttmp5, ttmp5, 10\n"
		".Lon_trap_past:\n"
		"s_add_u32 ttmp0, ttmp0, 4\n"
		"s_addc_u32 ttmp1, ttmp1, 0\n"
		"s_branch .Lon_trap_tell\n"
		".Lon_trap_exception:\n"
		"s_bitset1_b32 ttmp12, 13\n"			// STATUS.HALT
		"s_getreg_b32 ttmp5, hwreg(HW_REG_TRAPSTS)\n"
		"s_bitcmp1_b32 ttmp5, 8\n"			// MEM_VIOL
		"s_cbranch_scc1 .Lon_trap_violation\n"
		"s_bitcmp1_b32 ttmp5, 11\n"			// ILLEGAL_INST
		"s_movk_i32 ttmp5, 0x2000\n"			// EC 4
		"s_cbranch_scc1 .Lon_trap_tell\n"
		"s_movk_i32 ttmp5, 0x800\n"			// EC 2
		"s_branch .Lon_trap_tell\n"
		".Lon_trap_violation:\n"
		"s_movk_i32 ttmp5, 0x4000\n"			// EC 5
		".Lon_trap_tell:\n"
		"s_or_b32 m0, m0, ttmp5\n"
		"s_nop 0\n"
		"s_sendmsg sendmsg(MSG_INTERRUPT)\n"
		"s_mov_b32 m0, ttmp4\n"
		"s_mov_b32 exec_lo, ttmp2\n"
		"s_mov_b32 exec_hi, ttmp3\n"
		"s_and_b32 ttmp1, ttmp1, 0xffff\n"
		"s_and_b64 exec, exec, exec\n"
		"s_and_b64 vcc, vcc, vcc\n"
		"s_setreg_b32 hwreg(HW_REG_STATUS), ttmp12\n"
		"s_rfe_b64 ttmp[0:1]\n");
}
