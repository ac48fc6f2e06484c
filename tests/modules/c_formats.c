// SPDX-License-Identifier: GPL-2.0-only
/*
 * c_formats: what the C amdkfd inside amdgpu writes and reads for each generation that it knows,
 * as text in /sys/kernel/debug/c_formats.
 *
 *   insmod c_formats.ko seed=1 entries=5000
 *
 * No GPU is needed: C's own functions are called for devices that are not there, with values drawn
 * from the seed. Each line has the values and what C made of them; tests/oracle compares ours.
 * amdgpu.ko must be loaded. `entries` is how many interrupt entries each graphics core gets.
 */
#include <linux/debugfs.h>
#include <linux/kprobes.h>
#include <linux/linkage.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/static_call.h>
#include <linux/version.h>
#include <linux/vmalloc.h>
#include <asm/ibt.h>

#include "kfd_priv.h"
#include "kfd_device_queue_manager.h"
#include "kfd_mqd_manager.h"
#include "kfd_crat.h"
#include "kfd_topology.h"
#include "amdgpu_amdkfd.h"
#include "soc15_int.h"

static ulong seed = 1;
module_param(seed, ulong, 0444);
MODULE_PARM_DESC(seed, "where the drawn values begin");

static uint entries = 1000;
module_param(entries, uint, 0444);
MODULE_PARM_DESC(entries, "interrupt entries of each graphics core");

/* A graphics core, and the copy engines that come with it. */
static const struct core {
	u32 gc, sdma;
	/* Accelerator dies of one node, at most; shader engines; arrays of an engine. */
	u32 xccs, engines, arrays;
} cores[] = {
	{ IP_VERSION(9, 0, 1), IP_VERSION(4, 0, 0), 1, 4, 1 },
	{ IP_VERSION(9, 1, 0), IP_VERSION(4, 1, 0), 1, 1, 1 },
	{ IP_VERSION(9, 2, 1), IP_VERSION(4, 0, 1), 1, 4, 1 },
	{ IP_VERSION(9, 2, 2), IP_VERSION(4, 1, 1), 1, 1, 1 },
	{ IP_VERSION(9, 3, 0), IP_VERSION(4, 1, 2), 1, 1, 1 },
	{ IP_VERSION(9, 4, 0), IP_VERSION(4, 2, 0), 1, 4, 1 },
	{ IP_VERSION(9, 4, 1), IP_VERSION(4, 2, 2), 1, 8, 1 },
	{ IP_VERSION(9, 4, 2), IP_VERSION(4, 4, 0), 1, 8, 1 },
	{ IP_VERSION(9, 4, 3), IP_VERSION(4, 4, 2), 8, 4, 1 },
	{ IP_VERSION(9, 4, 4), IP_VERSION(4, 4, 5), 8, 4, 1 },
	{ IP_VERSION(9, 5, 0), IP_VERSION(4, 4, 4), 8, 4, 1 },
	{ IP_VERSION(10, 1, 1), IP_VERSION(5, 0, 2), 1, 1, 2 },
	{ IP_VERSION(10, 1, 2), IP_VERSION(5, 0, 5), 1, 2, 2 },
	{ IP_VERSION(10, 1, 3), IP_VERSION(5, 0, 1), 1, 2, 2 },
	{ IP_VERSION(10, 1, 4), IP_VERSION(5, 0, 1), 1, 2, 2 },
	{ IP_VERSION(10, 1, 10), IP_VERSION(5, 0, 0), 1, 2, 2 },
	{ IP_VERSION(10, 3, 0), IP_VERSION(5, 2, 0), 1, 4, 2 },
	{ IP_VERSION(10, 3, 1), IP_VERSION(5, 2, 1), 1, 1, 1 },
	{ IP_VERSION(10, 3, 2), IP_VERSION(5, 2, 2), 1, 2, 2 },
	{ IP_VERSION(10, 3, 3), IP_VERSION(5, 2, 3), 1, 1, 2 },
	{ IP_VERSION(10, 3, 4), IP_VERSION(5, 2, 4), 1, 2, 2 },
	{ IP_VERSION(10, 3, 5), IP_VERSION(5, 2, 5), 1, 1, 2 },
	{ IP_VERSION(10, 3, 6), IP_VERSION(5, 2, 6), 1, 1, 1 },
	{ IP_VERSION(10, 3, 7), IP_VERSION(5, 2, 7), 1, 1, 2 },
};

/*
 * C's functions that are called by name. They may begin without ENDBR, since nobody in amdgpu takes
 * their addresses: static calls are direct.
 */
#define CALLED(call)						\
	call(kgd2kfd_probe)					\
	call(pm_init)						\
	call(device_queue_manager_init_v9)			\
	call(device_queue_manager_init_v10)			\
	call(kfd_queue_ctx_save_restore_size)			\
	call(kfd_get_gpu_cache_info)

#define DEFINE(name) DEFINE_STATIC_CALL_NULL(c_##name, name);
CALLED(DEFINE)

static const struct {
	const char *name;
	struct static_call_key *key;
	void *trampoline;
} calls[] = {
#define CALL(symbol)							\
	{ .name = "amdgpu:" #symbol, .key = &STATIC_CALL_KEY(c_##symbol),	\
	  .trampoline = STATIC_CALL_TRAMP_ADDR(c_##symbol) },
	CALLED(CALL)
};

/* A parameter of amdgpu, which KFD_UNMAP_LATENCY_MS is computed from. */
static int *preemption_timeout_ms;
#define queue_preemption_timeout_ms (*preemption_timeout_ms)

/* The dump. */
#define TEXT_BYTES (96UL << 20)
static struct debugfs_blob_wrapper text;

static __printf(1, 2) void say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	text.size += vscnprintf((char *)text.data + text.size, TEXT_BYTES - text.size, format,
				args);
	va_end(args);
}

/* Words that are not 0: index and value. */
static void say_words(const u32 *words, size_t count)
{
	size_t i;

	say(" :");
	for (i = 0; i < count; i++)
		if (words[i])
			say(" %zx=%x", i, words[i]);
	say("\n");
}

/* xorshift64*, so that a seed gives the same values everywhere. */
static u64 state;

static u64 draw(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1dULL;
}

static u32 below(u32 limit)
{
	return (draw() >> 32) % limit;
}

static bool flip(void)
{
	return draw() >> 63;
}

/* An address that a user's page may have. */
static u64 draw_page(void)
{
	return draw() & GENMASK_ULL(46, 12);
}

/* The device that is not there. */
static struct device *device;
static struct amdgpu_device *adev;
static struct kfd_dev *kfd;
static struct kfd_node *node;
static struct device_queue_manager *dqm;
static struct kfd_process *process;
static struct kfd_process_device *pdd;
static struct packet_manager pm;
static const struct core *core;
/* What the descriptors of a queue are in. */
#define MEMORY_BYTES (1UL << 20)
static void *memory;
/* Segments of the register space: where MI300's are. */
static u32 segments[] = { 0x2000, 0xa000, 0x2402c00, 0, 0, 0 };

static bool has_many_xccs(void)
{
	return core->xccs > 1;
}

static void say_core(const char *what)
{
	say("%s gc=%u.%u.%u", what, IP_VERSION_MAJ(core->gc), IP_VERSION_MIN(core->gc),
	    IP_VERSION_REV(core->gc));
}

/* What C does for an interrupt: calls of these, which end before they begin. */
asm(".pushsection .text\n"
    ".type c_formats_return, @function\n"
    "c_formats_return:\n"
    ASM_ENDBR
    ASM_RET
    ".size c_formats_return, . - c_formats_return\n"
    ".popsection\n");
extern asmlinkage void c_formats_return(void);

static int leave(struct pt_regs *regs)
{
	regs_set_return_value(regs, 0);
	instruction_pointer_set(regs, (unsigned long)c_formats_return);
	return 1;
}

static unsigned long argument(struct pt_regs *regs, unsigned int n)
{
	return regs_get_kernel_argument(regs, n);
}

static int on_signal(struct kprobe *probe, struct pt_regs *regs)
{
	say(" signal,%x,%x,%x", (u32)argument(regs, 0), (u32)argument(regs, 1),
	    (u32)argument(regs, 2));
	return leave(regs);
}

static int on_debug(struct kprobe *probe, struct pt_regs *regs)
{
	const struct kfd_hsa_memory_exception_data *data = (void *)argument(regs, 4);

	say(" debug,%x,%x,%lx", (u32)argument(regs, 1), (u32)argument(regs, 2), argument(regs, 3));
	if (data)
		say(",%llx,%x,%x", data->va, data->failure.NotPresent, data->failure.ReadOnly);
	return leave(regs);
}

static int on_fault(struct kprobe *probe, struct pt_regs *regs)
{
	say(" fault,%x", (u32)argument(regs, 1));
	return leave(regs);
}

static int on_drain(struct kprobe *probe, struct pt_regs *regs)
{
	say(" drain,%x", (u32)argument(regs, 0));
	return leave(regs);
}

static int on_lookup(struct kprobe *probe, struct pt_regs *regs)
{
	say(" poison,%x", (u32)argument(regs, 0));
	return leave(regs);
}

static int on_kernel_queue(struct kprobe *probe, struct pt_regs *regs)
{
	return leave(regs);
}

static struct kprobe probes[] = {
	{ .symbol_name = "amdgpu:kfd_signal_event_interrupt", .pre_handler = on_signal },
	{ .symbol_name = "amdgpu:kfd_set_dbg_ev_from_interrupt", .pre_handler = on_debug },
	{ .symbol_name = "amdgpu:kfd_smi_event_update_vmfault", .pre_handler = on_fault },
	{ .symbol_name = "amdgpu:kfd_process_close_interrupt_drain", .pre_handler = on_drain },
	/* Of what handles an interrupt, only the handling of poison does this itself. */
	{ .symbol_name = "amdgpu:kfd_lookup_process_by_pasid", .pre_handler = on_lookup },
	/* pm_init() chooses the packets, and then wants a queue of the kernel's. */
	{ .symbol_name = "amdgpu:kernel_queue_init", .pre_handler = on_kernel_queue },
};

static struct kprobe *probe_pointers[ARRAY_SIZE(probes)];

/* The device's numbers. */
static void dump_chip(void)
{
	const struct kfd_device_info *info = &kfd->device_info;

	say_core("chip");
	say(" target=%x sdma_queues=%x doorbell=%x atomics=%x without=%x watches=%x"
	    " process_words=%zx queue_words=%zx\n",
	    info->gfx_target_version, info->num_sdma_queues_per_engine, info->doorbell_size,
	    info->needs_pci_atomics, info->no_atomic_fw_version, info->num_of_watch_points,
	    pm.pmf->map_process_size / sizeof(u32), pm.pmf->map_queues_size / sizeof(u32));
}

/* Sizes of the areas that waves are saved in. */
static void dump_save_areas(void)
{
	struct kfd_topology_device *topology = kvzalloc(sizeof(*topology), GFP_KERNEL);
	struct kfd_node_properties *props = &topology->node_props;
	u32 engines, cus;

	if (!topology)
		return;
	node->xcc_mask = 1;
	for (engines = 1; engines <= 8; engines *= 2) {
		for (cus = engines; cus <= 16 * engines; cus += 1 + below(3)) {
			memset(props, 0, sizeof(*props));
			topology->gpu = node;
			props->gfx_target_version = kfd->device_info.gfx_target_version;
			props->simd_per_cu = 4;
			props->simd_count = cus * 4;
			props->array_count = engines;
			props->simd_arrays_per_engine = 1;
			props->lds_size_in_kb = core->gc == IP_VERSION(9, 5, 0) ? 160 : 64;
			static_call(c_kfd_queue_ctx_save_restore_size)(topology);
			say_core("save_area");
			say(" engines=%x cus=%x lds=%x stack=%x area=%x debug=%x eop=%x\n", engines,
			    cus, props->lds_size_in_kb, props->ctl_stack_size, props->cwsr_size,
			    props->debug_memory_size, props->eop_buffer_size);
		}
	}
	kvfree(topology);
}

/* What is listed of the caches, of discovery tables that state anything. */
static void dump_caches(void)
{
	struct amdgpu_gfx_config *config = &adev->gfx.config;
	struct kfd_gpu_cache_info filled[6] = {}, *caches = filled;
	u32 words[5 * ARRAY_SIZE(filled)];
	int count, i;

	config->gc_tcp_size_per_cu = below(64);
	config->gc_l1_instruction_cache_size_per_sqc = below(3) * 32;
	config->gc_l1_data_cache_size_per_sqc = below(64);
	config->gc_num_cu_per_sqc = below(4);
	config->gc_tcc_size = below(3) * 4096;
	config->max_cu_per_sh = 1 + below(16);
	adev->gmc.mall_size = below(3) * (128ULL << 20);
	count = static_call(c_kfd_get_gpu_cache_info)(node, &caches);
	for (i = 0; i < count; i++) {
		words[5 * i] = caches[i].cache_level;
		words[5 * i + 1] = caches[i].cache_size;
		words[5 * i + 2] = caches[i].cache_line_size;
		words[5 * i + 3] = !!(caches[i].flags & CRAT_CACHE_FLAGS_INST_CACHE);
		words[5 * i + 4] = caches[i].num_cu_shared;
	}
	say_core("caches");
	say(" tcp=%x instruction=%x scalar=%x per_sqc=%x tcc=%x cus=%x mall=%llx words=%x",
	    config->gc_tcp_size_per_cu, config->gc_l1_instruction_cache_size_per_sqc,
	    config->gc_l1_data_cache_size_per_sqc, config->gc_num_cu_per_sqc, config->gc_tcc_size,
	    config->max_cu_per_sh, adev->gmc.mall_size / 1024, 5 * count);
	say_words(words, 5 * count);
}

/* A node of `xccs` accelerator dies from `first` on, some of whose compute units are broken. */
static void set_units(u32 first, u32 xccs)
{
	struct amdgpu_cu_info *info = &adev->gfx.cu_info;
	u32 xcc, engine, array;

	memset(info->bitmap, 0, sizeof(info->bitmap));
	info->number = 0;
	for (xcc = first; xcc < first + xccs; xcc++)
		for (engine = 0; engine < core->engines; engine++)
			for (array = 0; array < core->arrays; array++) {
				u32 units = (draw() & 0xffff) | 0x300;

				/* Units are broken two at a time where work-groups use pairs. */
				if (core->gc >= IP_VERSION(10, 0, 0))
					units = (units & 0x5555) | (units & 0x5555) << 1;
				info->bitmap[xcc][engine % 4][array + engine / 4] = units;
				info->number += hweight32(units);
			}
}

static void draw_queue(struct queue_properties *q, enum kfd_queue_format format, u32 priority)
{
	q->type = KFD_QUEUE_TYPE_COMPUTE;
	q->format = format;
	q->priority = priority;
	q->queue_percent = 100;
	q->queue_size = 1024U << below(20);
	q->queue_address = draw_page();
	q->read_ptr = (void __user *)(draw_page() | below(512) * 8);
	q->write_ptr = (void __user *)(draw_page() | below(512) * 8);
	q->doorbell_off = below(1 << 26);
	q->eop_ring_buffer_size = flip() ? 4096 : flip() ? 0 : 4096U << below(6);
	q->eop_ring_buffer_address = q->eop_ring_buffer_size ? draw_page() : 0;
}

static void say_queue(const struct queue_properties *q)
{
	say(" aql=%d priority=%x bytes=%llx ring=%llx rptr=%lx wptr=%lx doorbell=%x eop=%llx"
	    " eop_bytes=%x save=%llx save_bytes=%x stack=%x trap=%d target=%x",
	    q->format == KFD_QUEUE_FORMAT_AQL, q->priority, q->queue_size, q->queue_address,
	    (unsigned long)q->read_ptr, (unsigned long)q->write_ptr, q->doorbell_off,
	    q->eop_ring_buffer_address, q->eop_ring_buffer_size, q->ctx_save_restore_area_address,
	    q->ctx_save_restore_area_size, q->ctl_stack_size, !!q->tba_addr, q->pm4_target_xcc);
}

/* Each die's descriptor of a compute queue. */
static void say_descriptors(const char *what, const struct queue_properties *q, u64 address,
			    u64 stride, const char *more)
{
	u32 xcc, xccs = hweight32(node->xcc_mask);

	for (xcc = 0; xcc < xccs; xcc++) {
		say_core(what);
		say_queue(q);
		say(" xcc=%x xccs=%x mqd=%llx stride=%llx start=%x%s", xcc, xccs,
		    address + xcc * stride, stride, dqm->current_logical_xcc_start - 1, more);
		say_words(memory + xcc * stride, dqm->mqd_mgrs[KFD_MQD_TYPE_CP]->mqd_size / 4);
	}
}

static void say_units(char *out, size_t bytes, const u32 *mask, u32 bits)
{
	u32 xcc, i, used;

	used = scnprintf(out, bytes, " engines=%x arrays=%x cus=%x mask=", core->engines,
			 core->arrays, adev->gfx.cu_info.number);
	for (i = 0; i < bits / 32; i++)
		used += scnprintf(out + used, bytes - used, "%s%x", i ? "," : "", mask[i]);
	used += scnprintf(out + used, bytes - used, " units=");
	for (xcc = __ffs(node->xcc_mask); xcc <= __fls(node->xcc_mask); xcc++)
		for (i = 0; i < 16; i++)
			used += scnprintf(out + used, bytes - used, "%x,",
					  adev->gfx.cu_info.bitmap[xcc][i / 4][i % 4]);
}

/* A queue is made, used by the hardware, and changed. */
static void dump_compute(enum kfd_queue_format format, u32 priority, u32 first, u32 xccs)
{
	static const enum mqd_update_flag flags[] = {
		0, UPDATE_FLAG_IS_GWS, UPDATE_FLAG_PERFCOUNT_ENABLE, UPDATE_FLAG_PERFCOUNT_DISABLE,
	};
	struct mqd_manager *mm = dqm->mqd_mgrs[KFD_MQD_TYPE_CP];
	struct kfd_mem_obj where = { .cpu_ptr = memory, .gpu_addr = draw_page() };
	struct mqd_update_info update = {};
	struct queue_properties q = {};
	u32 mask[8], bits = 32 * (1 + below(8));
	static char more[4096];
	u64 stride, gart;
	u32 xcc, i, used;
	void *mqd;

	node->xcc_mask = GENMASK(first + xccs - 1, first);
	set_units(first, xccs);
	draw_queue(&q, format, priority);
	if (format == KFD_QUEUE_FORMAT_PM4)
		q.pm4_target_xcc = below(xccs);
	q.ctl_stack_size = 4096 * (1 + below(7));
	if (below(8) || core->gc >= IP_VERSION(10, 0, 0)) {
		q.ctx_save_restore_area_address = draw_page();
		q.ctx_save_restore_area_size = q.ctl_stack_size + 4096 * below(10000);
	}
	if (below(8))
		q.tba_addr = draw_page();
	stride = mm->mqd_stride(mm, &q);
	if (stride * xccs > MEMORY_BYTES)
		return;
	memset(memory, 0, stride * xccs);
	mm->init_mqd(mm, &mqd, &where, &gart, &q);
	say_descriptors("compute", &q, where.gpu_addr, stride, "");

	/* What the hardware keeps there: read and write pointers, counters, control stack. */
	for (xcc = 0; xcc < xccs; xcc++) {
		u32 *words = memory + xcc * stride;

		words[138] = draw();
		words[145] |= draw() & 0xc0;
		words[173] = draw();
		words[174] = below(q.ctl_stack_size);
		words[182] = draw();
		words[192] = draw();
	}
	say_descriptors("used", &q, where.gpu_addr, stride, "");

	draw_queue(&q, format, below(16));
	if (flip()) {
		mm->update_mqd(mm, mqd, &q, NULL);
		say_descriptors("changed", &q, where.gpu_addr, stride, "");
		return;
	}
	update.update_flag = flags[below(ARRAY_SIZE(flags))];
	used = scnprintf(more, sizeof(more), " flag=%x", update.update_flag);
	if (flip()) {
		for (i = 0; i < ARRAY_SIZE(mask); i++) {
			mask[i] = draw();
			if (core->gc >= IP_VERSION(10, 0, 0))
				mask[i] = (mask[i] & 0x55555555) | (mask[i] & 0x55555555) << 1;
		}
		update.cu_mask.ptr = mask;
		update.cu_mask.count = bits;
		say_units(more + used, sizeof(more) - used, mask, bits);
	}
	mm->update_mqd(mm, mqd, &q, &update);
	say_descriptors("changed", &q, where.gpu_addr, stride, more);
}

/* The scheduler's own queue. */
static void dump_hiq(u32 first, u32 xccs)
{
	struct mqd_manager *mm = dqm->mqd_mgrs[KFD_MQD_TYPE_HIQ];
	struct kfd_mem_obj where = { .cpu_ptr = memory, .gpu_addr = draw_page() };
	struct queue_properties q = {};
	u64 gart;
	void *mqd;
	u32 xcc;

	node->xcc_mask = GENMASK(first + xccs - 1, first);
	draw_queue(&q, KFD_QUEUE_FORMAT_PM4, 1);
	q.type = KFD_QUEUE_TYPE_HIQ;
	q.eop_ring_buffer_size = 4096;
	q.eop_ring_buffer_address = draw_page();
	dqm->hiq_sdma_mqd = where;
	memset(memory, 0, mm->mqd_size * xccs);
	mm->init_mqd(mm, &mqd, &where, &gart, &q);
	for (xcc = 0; xcc < xccs; xcc++) {
		say_core("hiq");
		say_queue(&q);
		say(" xcc=%x xccs=%x mqd=%llx stride=%x", xcc, xccs,
		    where.gpu_addr + xcc * mm->mqd_size, mm->mqd_size);
		say_words(memory + xcc * mm->mqd_size, mm->mqd_size / 4);
	}
}

static void dump_sdma(void)
{
	struct mqd_manager *mm = dqm->mqd_mgrs[KFD_MQD_TYPE_SDMA];
	struct kfd_mem_obj where = { .cpu_ptr = memory, .gpu_addr = draw_page() };
	struct queue_properties q = {};
	u64 gart;
	void *mqd;

	node->xcc_mask = 1;
	memset(memory, 0, mm->mqd_size);
	draw_queue(&q, KFD_QUEUE_FORMAT_PM4, below(16));
	q.type = KFD_QUEUE_TYPE_SDMA;
	q.sdma_engine_id = below(16);
	q.sdma_queue_id = below(8);
	q.vmid = flip() ? 0 : below(16);
	mm->init_mqd(mm, &mqd, &where, &gart, &q);
	say_core("sdma");
	say_queue(&q);
	say(" engine=%x queue=%x vmid=%x", q.sdma_engine_id, q.sdma_queue_id, q.vmid);
	say_words(memory, mm->mqd_size / 4);
}

/* What a debugger sets on cores that have it in MAP_PROCESS. */
/* What sets a watch point also writes its address into registers, which are not there. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 3, 0)
static void write_nothing(struct amdgpu_device *adev, u32 reg, u32 value, u32 flags, u32 hwip,
			  u32 xcc)
{
}

static const struct amdgpu_rlc_reg_funcs no_registers = { .wreg32 = write_nothing };
#endif

static void draw_watch(u32 number)
{
	u32 mode = below(4), mask = draw();

	pdd->watch_points[number] = kfd->kfd2kgd->set_address_watch(adev, draw_page(), mask, number,
								    mode, 8, 0);
	say(" watch%x_mode=%x watch%x_mask=%x", number, mode, number, mask);
}

static void draw_debugger(void)
{
	const struct kfd2kgd_calls *hardware = kfd->kfd2kgd;
	u32 override = flip(), supported = U32_MAX, bits = draw(), launch = below(3), previous;
	static const u8 modes[] = { 0, 1, 3 };
	bool ttmp = flip();
	u32 number;

	memset(pdd->watch_points, 0, sizeof(pdd->watch_points));
	say(" ttmp=%x", ttmp);
	pdd->spi_dbg_override = hardware->disable_debug_trap(adev, ttmp, 0);
	pdd->spi_dbg_launch_mode = 0;
	process->debug_trap_enabled = flip();
	if (!process->debug_trap_enabled)
		return;
	pdd->spi_dbg_override = hardware->enable_debug_trap(adev, false, 0);
	hardware->validate_trap_override_request(adev, override, &supported);
	bits &= supported;
	pdd->spi_dbg_override = hardware->set_wave_launch_trap_override(adev, 0, override, bits,
		supported, &previous, pdd->spi_dbg_override);
	pdd->spi_dbg_launch_mode = hardware->set_wave_launch_mode(adev, modes[launch], 0);
	process->dbg_flags = flip() ? KFD_DBG_TRAP_FLAG_SINGLE_MEM_OP : 0;
	say(" override=%x traps=%x traps_supported=%x launch=%x single=%x", override, bits,
	    supported, modes[launch], process->dbg_flags);
	for (number = 0; number < kfd->device_info.num_of_watch_points; number++)
		if (flip())
			draw_watch(number);
}

static void dump_map_process(void)
{
	struct qcm_process_device *qpd = &pdd->qpd;
	u32 packet[32] = {};

	adev->enforce_isolation[0] = flip() ? AMDGPU_ENFORCE_ISOLATION_ENABLE :
					      AMDGPU_ENFORCE_ISOLATION_DISABLE;
	process->debug_trap_enabled = false;
	process->dbg_flags = 0;
	pdd->pasid = 1 + below(0xffff);
	qpd->page_table_base = draw() & GENMASK_ULL(47, 0);
	qpd->sh_mem_config = draw();
	qpd->sh_mem_bases = draw();
	qpd->tba_addr = below(4) ? draw_page() : 0;
	qpd->tma_addr = qpd->tba_addr ? draw_page() : 0;
	qpd->queue_count = below(256);
	qpd->mapped_gws_queue = flip();
	qpd->num_gws = below(65);

	say_core("map_process");
	say(" cleans=%d pasid=%x tables=%llx config=%x bases=%x tba=%llx tma=%llx queues=%x gws=%x",
	    adev->enforce_isolation[0] == AMDGPU_ENFORCE_ISOLATION_ENABLE, pdd->pasid,
	    qpd->page_table_base, qpd->sh_mem_config, qpd->sh_mem_bases, qpd->tba_addr,
	    qpd->tma_addr, qpd->queue_count, qpd->mapped_gws_queue ? qpd->num_gws : 0);
	if (pm.pmf->map_process_size > 16 * sizeof(u32))
		draw_debugger();
	pm.pmf->map_process(&pm, packet, qpd);
	say_words(packet, pm.pmf->map_process_size / 4);
}

static void dump_map_queues(void)
{
	struct queue q = { .device = node };
	u32 packet[16] = {};

	draw_queue(&q.properties, KFD_QUEUE_FORMAT_AQL, 0);
	if (flip())
		q.properties.type = flip() ? KFD_QUEUE_TYPE_SDMA : KFD_QUEUE_TYPE_SDMA_XGMI;
	else
		q.properties.is_gws = flip();
	q.properties.sdma_engine_id = below(16);
	q.gart_mqd_addr = draw_page();
	pm.pmf->map_queues(&pm, packet, &q, false);
	say_core("map_queues");
	say(" sdma=%d engine=%x gws=%d doorbell=%x mqd=%llx wptr=%lx",
	    q.properties.type != KFD_QUEUE_TYPE_COMPUTE, q.properties.sdma_engine_id,
	    q.properties.is_gws, q.properties.doorbell_off, q.gart_mqd_addr,
	    (unsigned long)q.properties.write_ptr);
	say_words(packet, pm.pmf->map_queues_size / 4);
}

static void dump_run_list(void)
{
	u64 address = draw_page();
	u32 dwords = below(1 << 20), packet[16] = {};
	bool chain = flip();

	adev->enforce_isolation[0] = below(4) ? AMDGPU_ENFORCE_ISOLATION_DISABLE :
						AMDGPU_ENFORCE_ISOLATION_ENABLE;
	dqm->processes_count = 1 + below(15);
	node->max_proc_per_quantum = 1 + below(15);
	pm.pmf->runlist(&pm, packet, address, dwords, chain);
	say_core("run_list");
	say(" address=%llx dwords=%x chain=%d concurrent=%x", address, dwords, chain,
	    adev->enforce_isolation[0] == AMDGPU_ENFORCE_ISOLATION_ENABLE ?
	    1 : min(dqm->processes_count, node->max_proc_per_quantum));
	say_words(packet, pm.pmf->runlist_size / 4);
}

static void dump_set_resources(void)
{
	struct scheduling_resources resources = {
		.vmid_mask = below(1 << 16), .queue_mask = draw(), .gws_mask = ~0ULL,
	};
	u32 packet[16] = {};

	adev->gmc.xnack_flags = flip() ? AMDGPU_GMC_XNACK_FLAG_CHAIN : 0;
	pm.pmf->set_resources(&pm, packet, &resources);
	say_core("set_resources");
	say(" vmids=%x queues=%llx chain=%d latency=%x", resources.vmid_mask, resources.queue_mask,
	    adev->gmc.xnack_flags == AMDGPU_GMC_XNACK_FLAG_CHAIN, KFD_UNMAP_LATENCY_MS / 100);
	say_words(packet, pm.pmf->set_resources_size / 4);
}

static void dump_unmap_queues(void)
{
	u64 fence = draw_page() | below(512) * 8, value = draw();
	u32 packet[32] = {}, words = pm.pmf->unmap_queues_size / 4;

	pm.pmf->unmap_queues(&pm, packet, KFD_UNMAP_QUEUES_FILTER_DYNAMIC_QUEUES, 0, false);
	pm.pmf->query_status(&pm, packet + words, fence, value);
	say_core("unmap");
	say(" fence=%llx value=%llx", fence, value);
	say_words(packet, words + pm.pmf->query_status_size / 4);
}

static void dump_wait_counts(void)
{
	u32 packet[16] = {}, grace = 1 + below(0xff), reg = 0, value = 0;

	if (!kfd->kfd2kgd->build_dequeue_wait_counts_packet_info)
		return;
	dqm->wait_times = draw();
	kfd->kfd2kgd->build_dequeue_wait_counts_packet_info(adev, dqm->wait_times, grace, 0, &reg,
							    &value);
	pm.pmf->config_dequeue_wait_counts(&pm, packet, KFD_DEQUEUE_WAIT_SET_SCH_WAVE, grace);
	say_core("write_register");
	say(" register=%x value=%x", reg, value);
	say_words(packet, pm.pmf->config_dequeue_wait_counts_size / 4);
}

/* A process's view of memory. */
static void dump_sh_mem(void)
{
	struct qcm_process_device *qpd = &pdd->qpd;
	u32 flags = flip() ? KFD_PROC_FLAG_MFMA_HIGH_PRECISION : 0;

	kfd->noretry = flip();
	process->xnack_enabled = flip();
	pdd->lds_base = (u64)(1 + below(8)) << 48;
	pdd->scratch_base = (u64)(1 + below(8)) << 48;
	qpd->sh_mem_config = 0;
	dqm->asic_ops.set_cache_memory_policy(dqm, qpd, 0, 0, NULL, 0, flags);
	dqm->asic_ops.update_qpd(dqm, qpd);
	say_core("sh_mem");
	say(" noretry=%d per_process=%d xnack=%d precise=%d lds=%llx scratch=%llx config=%x"
	    " bases=%x\n", kfd->noretry, KFD_SUPPORT_XNACK_PER_PROCESS(node),
	    process->xnack_enabled, !!flags, pdd->lds_base, pdd->scratch_base,
	    qpd->sh_mem_config, qpd->sh_mem_bases);
}

/* Most entries are from somebody who sends some, about something that there is. */
static u32 draw_of(const u8 *known, size_t count)
{
	return below(8) ? known[below(count)] : below(256);
}

static void dump_interrupt(void)
{
	static const u8 clients[] = {
		SOC15_IH_CLIENTID_GRBM_CP, SOC15_IH_CLIENTID_GRBM_CP, SOC15_IH_CLIENTID_GRBM_CP,
		SOC15_IH_CLIENTID_SE0SH, SOC15_IH_CLIENTID_SE1SH, SOC15_IH_CLIENTID_SE2SH,
		SOC15_IH_CLIENTID_SE3SH, SOC15_IH_CLIENTID_SDMA0, SOC15_IH_CLIENTID_SDMA1,
		SOC15_IH_CLIENTID_SDMA2, SOC15_IH_CLIENTID_SDMA3, SOC15_IH_CLIENTID_SDMA4,
		SOC15_IH_CLIENTID_SDMA5, SOC15_IH_CLIENTID_SDMA6, SOC15_IH_CLIENTID_SDMA7,
		SOC15_IH_CLIENTID_SDMA3_Sienna_Cichlid, SOC15_IH_CLIENTID_VMC,
		SOC15_IH_CLIENTID_VMC1, SOC15_IH_CLIENTID_UTCL2, KFD_IRQ_FENCE_CLIENTID,
	};
	static const u8 sources[] = {
		0, SOC15_INTSRC_VMC_UTCL2_POISON, SOC15_INTSRC_CP_END_OF_PIPE,
		SOC15_INTSRC_CP_END_OF_PIPE, SOC15_INTSRC_CP_BAD_OPCODE,
		SOC15_INTSRC_SQ_INTERRUPT_MSG, SOC15_INTSRC_SQ_INTERRUPT_MSG,
		SOC15_INTSRC_SQ_INTERRUPT_MSG, SOC15_INTSRC_SDMA_TRAP, SOC15_INTSRC_SDMA_TRAP,
		SOC15_INTSRC_SDMA_ECC, KFD_IRQ_FENCE_SOURCEID,
	};
	const struct kfd_event_interrupt_class *class = kfd->device_info.event_interrupt_class;
	u32 client = draw_of(clients, ARRAY_SIZE(clients));
	u32 source = draw_of(sources, ARRAY_SIZE(sources));
	u32 entry[8], patched[8];
	bool is_patched = false;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(entry); i++)
		entry[i] = draw();
	entry[0] = (entry[0] & 0xffff0000) | source << 8 | client;
	if (!below(16))
		entry[4] = 0;
	/* Codes of bad packets are small. */
	if (source == SOC15_INTSRC_CP_BAD_OPCODE)
		entry[4] = below(64) << 10 | below(1 << 10);
	/* C shifts by the number of the sender's node. */
	entry[3] &= ~GENMASK(23, 21);
	/* C warns about an entry without a process, which is nobody's. */
	if (!(entry[3] & 0xffff))
		entry[3] |= 1;
	say_core("interrupt");
	say(" nodes=%x vmids=%x entry=%x,%x,%x,%x,%x,%x,%x,%x :", node->interrupt_bitmap,
	    node->compute_vmid_bitmap, entry[0], entry[1], entry[2], entry[3], entry[4], entry[5],
	    entry[6], entry[7]);
	if (class->interrupt_isr(node, entry, patched, &is_patched))
		class->interrupt_wq(node, is_patched ? patched : entry);
	say("\n");
}

static void dump_interrupts(void)
{
	u32 i;

	node->vm_info.first_vmid_kfd = 8;
	node->vm_info.last_vmid_kfd = 15;
	node->compute_vmid_bitmap = 0xff00;
	for (i = 0; i < entries; i++) {
		node->interrupt_bitmap = has_many_xccs() ? draw() & 0xffff : 0xffff;
		dump_interrupt();
		if (i % 256 == 0)
			cond_resched();
	}
}

static void dump_descriptors(void)
{
	static const enum kfd_queue_format formats[] = {
		KFD_QUEUE_FORMAT_PM4, KFD_QUEUE_FORMAT_AQL,
	};
	u32 format, priority, xccs, first;

	for (xccs = 1; xccs <= core->xccs; xccs *= 2) {
		for (format = 0; format < ARRAY_SIZE(formats); format++)
			for (priority = 0; priority < 16 * (has_many_xccs() ? 1 : 4); priority++) {
				first = has_many_xccs() ? below(9 - xccs) : 0;
				dump_compute(formats[format], priority % 16, first, xccs);
			}
		for (first = 0; first <= (has_many_xccs() ? 8 - xccs : 8); first++)
			dump_hiq(has_many_xccs() ? first : 0, xccs);
		cond_resched();
	}
}

static void dump_packets(void)
{
	u32 i;

	for (i = 0; i < 64; i++) {
		dump_sdma();
		dump_map_process();
		dump_map_queues();
		dump_run_list();
		dump_set_resources();
		dump_unmap_queues();
		dump_wait_counts();
		dump_sh_mem();
		dump_caches();
	}
}

static int set_up_device(void)
{
	static const enum KFD_MQD_TYPE types[] = {
		KFD_MQD_TYPE_CP, KFD_MQD_TYPE_HIQ, KFD_MQD_TYPE_SDMA,
	};
	u32 i;

	memset(adev, 0, sizeof(*adev));
	adev->dev = device;
	adev->asic_type = CHIP_IP_DISCOVERY;
	adev->ip_versions[GC_HWIP][0] = core->gc;
	adev->ip_versions[SDMA0_HWIP][0] = core->sdma;
	for (i = 0; i < ARRAY_SIZE(adev->reg_offset[GC_HWIP]); i++)
		adev->reg_offset[GC_HWIP][i] = segments;
	adev->gfx.config.max_shader_engines = core->engines;
	adev->gfx.config.max_sh_per_se = core->arrays;
	adev->no_hw_access = true;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 3, 0)
	adev->gfx.rlc.reg_funcs = &no_registers;
#endif
	/* Nobody writes the caches of a bus back that is not there. */
	adev->gmc.xgmi.connected_to_cpu = true;

	kfd = static_call(c_kgd2kfd_probe)(adev, false);
	if (!kfd)
		return -ENODEV;
	adev->kfd.dev = kfd;
	kfd->num_nodes = 1;
	kfd->cwsr_enabled = true;
	/* Of the newest firmware: it sends no end of pipe without a context. */
	kfd->mec_fw_version = U16_MAX;
	mutex_init(&kfd->profiler_lock);

	memset(node, 0, sizeof(*node));
	node->adev = adev;
	node->kfd = kfd;
	node->kfd2kgd = kfd->kfd2kgd;
	node->xcc_mask = 1;
	/* No node of the topology has it. */
	node->id = U32_MAX;
	INIT_LIST_HEAD(&node->smi_clients);
	node->dqm = dqm;
	memset(dqm, 0, sizeof(*dqm));
	dqm->dev = node;
	dqm->sched_policy = KFD_SCHED_POLICY_HWS;
	/* As device_queue_manager_init(). */
	if (core->gc >= IP_VERSION(10, 1, 1))
		static_call(c_device_queue_manager_init_v10)(&dqm->asic_ops);
	else
		static_call(c_device_queue_manager_init_v9)(&dqm->asic_ops);
	for (i = 0; i < ARRAY_SIZE(types); i++) {
		dqm->mqd_mgrs[types[i]] = dqm->asic_ops.mqd_manager_init(types[i], node);
		if (!dqm->mqd_mgrs[types[i]])
			return -ENOMEM;
	}
	memset(process, 0, sizeof(*process));
	memset(pdd, 0, sizeof(*pdd));
	pdd->process = process;
	pdd->dev = node;
	memset(&pm, 0, sizeof(pm));
	/* It has chosen when it does not get its queue. */
	if (static_call(c_pm_init)(&pm, dqm) != -ENOMEM || !pm.pmf)
		return -EINVAL;
	return 0;
}

static void tear_down_device(void)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(dqm->mqd_mgrs); i++) {
		kfree(dqm->mqd_mgrs[i]);
		dqm->mqd_mgrs[i] = NULL;
	}
	kfree(kfd);
	kfd = NULL;
}

static int dump(void)
{
	int ret = 0;

	for (core = cores; !ret && core < cores + ARRAY_SIZE(cores); core++) {
		state = (seed ^ core->gc) * 0x9e3779b97f4a7c15ULL | 1;
		ret = set_up_device();
		if (!ret) {
			dump_chip();
			dump_save_areas();
			dump_descriptors();
			dump_packets();
			dump_interrupts();
		}
		tear_down_device();
	}
	if (!ret)
		say("end seed=%lx\n", seed);
	return text.size + 1 < TEXT_BYTES ? ret : -ENOSPC;
}

/* kallsyms_lookup_name() itself is not exported; a probe finds it. */
static int bind_calls(void)
{
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name" };
	unsigned long (*lookup)(const char *name);
	unsigned long address;
	int ret = register_kprobe(&probe);
	u32 i;

	if (ret)
		return ret;
	lookup = (void *)probe.addr;
	unregister_kprobe(&probe);
	preemption_timeout_ms = (int *)lookup("amdgpu:queue_preemption_timeout_ms");
	if (!preemption_timeout_ms)
		return -ENOENT;
	for (i = 0; i < ARRAY_SIZE(calls); i++) {
		address = lookup(calls[i].name);
		if (!address) {
			pr_err("c_formats: no %s\n", calls[i].name);
			return -ENOENT;
		}
		__static_call_update(calls[i].key, calls[i].trampoline, (void *)address);
	}
	return 0;
}

static void free_all(void)
{
	vfree(text.data);
	vfree(memory);
	kvfree(pdd);
	kvfree(process);
	kvfree(dqm);
	kvfree(node);
	kvfree(adev);
	if (!IS_ERR_OR_NULL(device))
		root_device_unregister(device);
}

static struct dentry *file;

static int __init c_formats_init(void)
{
	int ret = -ENOMEM;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(probes); i++)
		probe_pointers[i] = &probes[i];
	device = root_device_register("c_formats");
	adev = kvzalloc(sizeof(*adev), GFP_KERNEL);
	node = kvzalloc(sizeof(*node), GFP_KERNEL);
	dqm = kvzalloc(sizeof(*dqm), GFP_KERNEL);
	process = kvzalloc(sizeof(*process), GFP_KERNEL);
	pdd = kvzalloc(sizeof(*pdd), GFP_KERNEL);
	memory = vzalloc(MEMORY_BYTES);
	text.data = vmalloc(TEXT_BYTES);
	if (IS_ERR(device) || !adev || !node || !dqm || !process || !pdd || !memory || !text.data)
		goto out;
	ret = bind_calls();
	if (ret)
		goto out;
	ret = register_kprobes(probe_pointers, ARRAY_SIZE(probes));
	if (ret)
		goto out;
	ret = dump();
	unregister_kprobes(probe_pointers, ARRAY_SIZE(probes));
	if (ret)
		goto out;
	file = debugfs_create_blob("c_formats", 0400, NULL, &text);
	return 0;
out:
	free_all();
	return ret;
}
module_init(c_formats_init);

static void __exit c_formats_exit(void)
{
	debugfs_remove(file);
	free_all();
}
module_exit(c_formats_exit);

MODULE_DESCRIPTION("What the C amdkfd writes and reads for each generation, for tests");
MODULE_LICENSE("GPL");
