/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The flat C ABI between the Rust module and amdgpu: no amdgpu type is visible through it, so that
 * bindgen reads this file only and Rust never depends on an amdgpu structure's layout.
 *
 * amdgpu_bridge.c implements it with amdgpu's own headers. "int" results are 0 or a negative errno.
 * Unless a comment says otherwise a function may sleep.
 */
#ifndef AMDKFD_BRIDGE_H
#define AMDKFD_BRIDGE_H

#include <linux/types.h>

struct amdgpu_device;			/* amdgpu's device; opaque here */
struct amdgpu_bo;			/* a buffer object of amdgpu's; opaque here */
struct file;
struct mm_struct;
struct pci_dev;
struct kgd_mem;				/* a buffer of a compute process; opaque here */
struct kgd2kfd_shared_resources;	/* what amdgpu leaves to compute; opaque here */
struct bridge_process;		/* what a process's VMs share: process info, eviction fence */
struct bridge_vram;		/* a buffer in VRAM whose pages are device pages */
struct bridge_copy;		/* a copy between such a buffer and system memory */
struct bridge_vm;			/* one DRM file's VM, turned into a compute VM */

#define BRIDGE_MAX_XCC		8
#define BRIDGE_MAX_SE		4
#define BRIDGE_MAX_SH		4
#define BRIDGE_MAX_XCP		8
#define BRIDGE_MAX_SDMA		16
#define BRIDGE_MAX_TILE_MODES	32
#define BRIDGE_MAX_MACROTILE	16
#define BRIDGE_MAX_METADATA	256

/* A partition (amdgpu: XCP) of a device: what one KFD node is made of. */
struct bridge_partition {
	u32 xcc_mask;		/* logical accelerator core complexes (XCC) of the partition */
	s32 id;			/* -1: the device has no partition manager */
	s32 mem_id;		/* memory partition */
	u32 render_minor;
	bool no_render_node;	/* DRM had none left for it */
	u64 unique_id;		/* 0: use the device's */
	u64 memory_size;	/* bytes of VRAM that belong to it */
};

/* Everything a KFD reads once. Copied when amdgpu brings the device up. */
struct bridge_facts {
	/* who it is */
	u32 gc_version;		/* major << 24 | minor << 16 | revision << 8 (IP_VERSION) */
	u32 sdma_version;
	u32 ih_version;		/* OSSSYS */
	u32 asic_type;
	u8 asic_name[32];
	u32 pci_domain;
	u32 pci_bus;
	u32 pci_devfn;
	u32 vendor;
	u32 device;
	u32 subsystem_vendor;
	u32 subsystem_device;
	u32 revision;		/* adev->rev_id */
	u32 pci_revision;
	s32 numa_node;
	u64 unique_id;
	bool is_apu;
	bool is_app_apu;
	bool prefers_gtt;	/* an APU: what would be in VRAM elsewhere is in system memory */
	bool is_vf;
	bool connected_to_cpu;
	bool atomics;		/* PCIe AtomicOps may reach system memory */
	bool large_bar_debug;	/* amdgpu.debug_mask forces a large BAR */
	bool enable_mes;
	u32 ras_enabled;	/* AMDGPU_RAS_BLOCK__* bits */
	u32 aid_mask;		/* active interposer dies */
	bool ras_gfx;
	bool ras_umc;
	bool queue_reset;	/* amdgpu's parameters allow to reset single queues */
	bool package_is_apu;	/* CPU and GPU in one package */
	bool pcie_atomic_completer;	/* the device completes AtomicOps */
	u32 memory_partition_mode;	/* enum amdgpu_memory_partition; 0: not known */

	/* firmware */
	u32 mec_fw_version;
	u32 mec2_fw_version;
	u32 sdma_fw_version;

	/* graphics core */
	u32 xcc_mask;
	u32 num_xcc_per_xcp;
	u32 max_shader_engines;
	u32 max_sh_per_se;
	u32 max_cu_per_sh;
	u32 cu_count;
	u32 simd_per_cu;
	u32 max_waves_per_simd;
	u32 wave_front_size;
	u32 max_scratch_slots_per_cu;
	u32 lds_size;		/* KiB */
	u32 cu_bitmap[BRIDGE_MAX_XCC][BRIDGE_MAX_SE][BRIDGE_MAX_SH];
	u32 max_engine_clock;	/* MHz */
	u32 gws_size;
	u32 logical_to_physical_xcc[BRIDGE_MAX_XCC];

	/* caches, as the discovery table states them (0: not stated) */
	u32 gc_tcp_size_per_cu;
	u32 gc_tcp_l1_size;
	u32 gc_tcp_cache_line_size;
	u32 gc_num_tcp_per_wpg;
	u32 gc_num_cu_per_sqc;
	u32 gc_num_sqc_per_wgp;
	u32 gc_l1_instruction_cache_size_per_sqc;
	u32 gc_instruction_cache_line_size;
	u32 gc_l1_data_cache_size_per_sqc;
	u32 gc_scalar_data_cache_line_size;
	u32 gc_tcc_size;
	u32 gc_tcc_cache_line_size;
	u32 gc_gl1c_per_sa;
	u32 gc_gl1c_size_per_instance;
	u32 gc_gl2c_per_gpu;
	u64 mall_size;

	/* memory */
	u64 real_vram_size;
	u64 visible_vram_size;
	u64 shared_aperture_start;
	u64 shared_aperture_end;
	u64 private_aperture_start;
	u64 private_aperture_end;
	u64 max_pfn;
	u64 gpuvm_size;
	u64 xgmi_hive_id;
	u32 xgmi_physical_node_id;
	u32 xgmi_num_physical_nodes;
	bool xgmi_supported;
	bool noretry;
	u16 xnack_flags;
	u64 mmio_remap_address;	/* physical; 0: none */

	/* SDMA */
	u32 num_sdma_engines;

	/* what amdgpu leaves to compute (kgd2kfd_shared_resources) */
	u32 compute_vmid_bitmap;
	u32 num_pipe_per_mec;
	u32 num_queue_per_pipe;
	u64 set_resources_queue_mask;	/* queue_mask of the PM4 packet SET_RESOURCES */
	u64 compute_queue_bitmap;	/* first MEC: bit pipe * num_queue_per_pipe + queue */
	u32 sdma_doorbell_index[BRIDGE_MAX_SDMA];
	u32 non_cp_doorbells_start;
	u32 non_cp_doorbells_end;
	u64 doorbell_address;	/* physical address of the aperture */
	u64 doorbell_size;
	u64 doorbell_start_offset;
	u32 render_minor;

	/* partitions */
	u32 num_partitions;	/* at least 1 */
	s32 partition_mode;	/* enum amdgpu_gfx_partition; -1: no partition manager */
	struct bridge_partition partitions[BRIDGE_MAX_XCP];

	/* amdgpu's module parameters that steer a KFD */
	u32 queue_preemption_timeout_ms;
	s32 max_num_of_queues_per_device;
	s32 sched_policy;
	s32 hws_max_conc_proc;
	u32 sdma_phase_quantum;
	bool cwsr_enable;
	bool hws_gws_support;
	bool use_xgmi_p2p;
	bool send_sigterm;
	bool no_queue_eviction_on_vm_fault;
	bool debug_evictions;
	bool emulation;
};

/* Copies the facts; resources is what amdgpu handed to kgd2kfd_device_init, or NULL before it. */
int bridge_facts(struct amdgpu_device *adev, const struct kgd2kfd_shared_resources *resources,
		 struct bridge_facts *facts);

/*
 * Whether the bridge has amdgpu's hardware access for a graphics core. gc_version: major << 24 |
 * minor << 16 | revision << 8.
 */
bool bridge_has_hardware(u32 gc_version);

struct bridge_local_memory {
	u64 size_private;
	u64 size_public;
	u32 vram_width;
	u32 mem_clk_max;
};
void bridge_local_memory(struct amdgpu_device *adev, u32 partition,
			 struct bridge_local_memory *out);

u64 bridge_clock_counter(struct amdgpu_device *adev);

#define BRIDGE_MAX_QUEUES	128
struct bridge_queue_waves {
	u32 doorbell;		/* index on the BAR, in 32-bit units */
	u32 waves;
};
/*
 * The waves of an XCC's compute queues, each in its own place. Returns false if it cannot be told.
 */
bool bridge_occupancy(struct amdgpu_device *adev, u32 xcc, struct bridge_queue_waves *queues,
		      u32 *max_waves_per_cu);
/*
 * The peak tensor limiter, which some GPUs have. Lifts it, or takes that back; amdgpu counts who
 * wants it lifted. -EOPNOTSUPP: there is none.
 */
bool bridge_has_tensor_limit(struct amdgpu_device *adev);
int bridge_tensor_limit(struct amdgpu_device *adev, bool lift);
/* How often the GPU has slowed down for heat. */
u64 bridge_throttle_count(struct amdgpu_device *adev);

struct bridge_tile_config {
	u32 tile[BRIDGE_MAX_TILE_MODES];
	u32 macrotile[BRIDGE_MAX_MACROTILE];
	u32 num_tile;
	u32 num_macrotile;
	u32 gb_addr_config;
	u32 num_banks;
	u32 num_ranks;
};
int bridge_tile_config(struct amdgpu_device *adev, struct bridge_tile_config *out);

/* xGMI between two devices. Both fail with -EINVAL when they are not linked. */
int bridge_xgmi_hops(struct amdgpu_device *adev, struct amdgpu_device *peer, u32 *hops);
/* Of one link of the device's, such as the one to a processor. -ENODATA: it has none. */
int bridge_xgmi_link_bandwidth(struct amdgpu_device *adev, u32 *min_mbs, u32 *max_mbs);
int bridge_xgmi_bandwidth(struct amdgpu_device *adev, struct amdgpu_device *peer, u32 *min_mbs,
			  u32 *max_mbs);
bool bridge_xgmi_sharing(struct amdgpu_device *adev, struct amdgpu_device *peer);
int bridge_pcie_bandwidth(struct amdgpu_device *adev, u32 *min_mbs, u32 *max_mbs);

/* Kernel buffers: pinned, mapped for the GPU (VMID 0) and for the CPU. */
#define BRIDGE_DOMAIN_GTT	2	/* AMDGPU_GEM_DOMAIN_GTT */
#define BRIDGE_DOMAIN_VRAM	4	/* AMDGPU_GEM_DOMAIN_VRAM */

struct bridge_kernel_bo {
	struct amdgpu_bo *bo;
	u64 gpu_addr;
	void *cpu;
};
/* mqd: its pages after the first are mapped as a gfx9 control stack wants them. */
int bridge_kernel_bo_alloc(struct amdgpu_device *adev, u64 size, u32 domain, bool mqd,
			   struct bridge_kernel_bo *out);
void bridge_kernel_bo_free(struct amdgpu_device *adev, struct amdgpu_bo *bo);

/* Counters of global wave sync (GWS), which nobody else gets until they are given back. */
int bridge_wave_sync_alloc(struct amdgpu_device *adev, u32 count, struct amdgpu_bo **out);
void bridge_wave_sync_free(struct amdgpu_bo *bo);

/* Doorbells: pages of the doorbell aperture. */
struct bridge_doorbells {
	struct amdgpu_bo *bo;
	u32 index;		/* of the first doorbell on the BAR, in 32-bit units */
	void *cpu;		/* NULL unless asked for */
};
int bridge_doorbells_alloc(struct amdgpu_device *adev, u64 size, bool map_for_cpu,
			   struct bridge_doorbells *out);
void bridge_doorbells_free(struct amdgpu_device *adev, struct bridge_doorbells *doorbells);
/* Never sleeps. offset: bytes from the first doorbell. */
void bridge_doorbell_ring(const struct bridge_doorbells *doorbells, u32 offset, u64 value);

/* A process, as amdgpu's compute memory manager sees one. Made by the process itself (current). */
int bridge_process_create(u16 context_id, struct bridge_process **out);
/* After its VMs are released. */
void bridge_process_destroy(struct bridge_process *process);
/*
 * Signals the eviction fence: its buffers may move, or go. Returns true if it was signaled before.
 */
bool bridge_process_signal_eviction_fence(struct bridge_process *process);
/*
 * Brings evicted buffers back and arms a new eviction fence. -EBUSY: a call of the process's is at
 * its buffers. -EAGAIN: one that somebody else had pinned has moved since.
 */
int bridge_process_restore(struct bridge_process *process);

/*
 * VMs. acquire: drm_fd is an open render node of this device, which no process has acquired since
 * it was opened (-EINVAL).
 */
int bridge_vm_acquire(struct amdgpu_device *adev, struct bridge_process *process, int drm_fd,
		      struct bridge_vm **out);
void bridge_vm_release(struct bridge_vm *vm);
/* Keeps the file of one that is released, and so the VM, for ever: a buffer could not be freed. */
void bridge_vm_keep_file(struct bridge_vm *vm);
bool bridge_vm_is_file(const struct bridge_vm *vm, int drm_fd);
u32 bridge_vm_pasid(const struct bridge_vm *vm);
/* The task that acquired it. name: 16 bytes. */
s32 bridge_vm_task(const struct bridge_vm *vm, u8 *name);
u64 bridge_vm_page_directory(const struct bridge_vm *vm);

/* The memory of its process as the CPU sees it, with a reference; NULL: it has ended. */
struct mm_struct *bridge_vm_get_mm(const struct bridge_vm *vm);

#define BRIDGE_TLB_LEGACY	0
#define BRIDGE_TLB_LIGHTWEIGHT	1
#define BRIDGE_TLB_HEAVYWEIGHT	2
/*
 * An error (-ETIME: the GPU does not answer; -EAGAIN: it is being reset, or about to be): it may
 * use what it had translated before.
 */
int bridge_vm_flush_tlb(struct amdgpu_device *adev, struct bridge_vm *vm, u32 type, u32 xcc_mask);

/*
 * Pages of the process's own memory in a VM, by number, without a buffer behind them. lock: of the
 * page tables, for make_tables and map; -EBUSY: they are out of VRAM.
 */
#define BRIDGE_MEMORY_UC	0	/* memory types (MTYPE): uncached */
#define BRIDGE_MEMORY_NC	1	/* not coherent */
#define BRIDGE_MEMORY_CC	2	/* coherently cached */
#define BRIDGE_MEMORY_RW	3	/* cached for reads and writes */

struct bridge_pages {
	u64 first;
	u32 count;
	u32 memory_type;
	bool system;		/* or VRAM */
	bool snooped;
	bool writable;
	bool executable;
	bool replaces;		/* some may be mapped already: the next flush of the TLB counts */
};
int bridge_pages_lock(struct amdgpu_device *adev, struct bridge_vm *vm);
void bridge_pages_unlock(struct bridge_vm *vm);
/* Makes page tables for so many pages, which are not mapped afterwards. */
int bridge_pages_make_tables(struct amdgpu_device *adev, struct bridge_vm *vm, u64 first,
			     u64 count);
/* addresses: of the pages, for the device. */
int bridge_pages_map(struct amdgpu_device *adev, struct bridge_vm *vm,
		     const struct bridge_pages *pages, u64 *addresses);
/* Waits until the page tables are as they shall be. */
int bridge_pages_sync(struct bridge_vm *vm);
/*
 * Without the lock, and may run under reclaim; waits. The TLB is the caller's to flush. -EBUSY: the
 * page tables are out of VRAM, and still have the pages when they come back.
 */
int bridge_pages_unmap(struct amdgpu_device *adev, struct bridge_vm *vm, u64 first, u64 count);
/*
 * Those that are mapped still are in one part more (@owes) or less of its memory: while there is
 * one, or until they are noted, jobs of the render node in the VM are -EBUSY. Any context.
 */
void bridge_pages_set_owes(struct bridge_vm *vm, bool owes);
/*
 * The process ends, and some of these may be mapped still: when it has ended they are taken out
 * before whoever else has the VM's file gets a new job into it. -ENOMEM: they are not.
 */
int bridge_pages_note(struct bridge_vm *vm, u64 first, u64 count);
/* pfns: HMM's. undo: they have to be unmapped some day. -EFAULT: one is in a device's memory. */
int bridge_pages_dma_map(struct amdgpu_device *adev, const unsigned long *pfns, u32 count,
			 u64 *addresses, bool *undo);
/* addresses: 0 is none. */
void bridge_pages_dma_unmap(struct amdgpu_device *adev, const u64 *addresses, u32 count);
/* Whether a buffer is mapped anywhere there: 1 or 0. */
int bridge_pages_have_buffer(struct bridge_vm *vm, u64 first, u64 count);
/* Whether a buffer that is mapped shows (USERPTR) any of so many of the process's pages: 1 or 0. */
int bridge_pages_have_userptr(struct bridge_vm *vm, u64 first, u64 count);
/* Takes so many bytes from what the processes of all devices may have. */
int bridge_pages_reserve(u64 bytes);
void bridge_pages_unreserve(u64 bytes);

/* The time stamp of the youngest retry fault that is not handled yet; 0: there is none. */
u64 bridge_fault_checkpoint(struct amdgpu_device *adev);
bool bridge_fault_is_before(u64 timestamp, u64 checkpoint);
/* The next fault of that page is told of again. */
void bridge_fault_forget(struct amdgpu_device *adev, u64 page, u32 pasid);
/*
 * The memory partition that has a byte of VRAM, @offset bytes from its begin: a partition's mem_id.
 * -1: there is one for all.
 */
s32 bridge_memory_partition(const struct amdgpu_device *adev, u64 offset);
/* Where VRAM begins in page table entries. */
u64 bridge_device_memory_base(const struct amdgpu_device *adev);
/* The memory type of a device's own memory (amdgpu.mtype_local). */
u32 bridge_local_memory_type(void);
/* Whether the machine has, or may have, more than one NUMA node. */
bool bridge_has_numa(void);
/* amdgpu.svm_default_granularity: the power of two of pages. */
u32 bridge_default_granularity(void);

/* User memory that a queue needs to stay where it is: mapped exactly there, then kept. */
struct bridge_queue_buffer {
	u64 address;
	u64 size;		/* 0: any */
	struct amdgpu_bo *bo;	/* out; NULL: none is mapped there (PRT) */
};
int bridge_vm_get_queue_buffers(struct bridge_vm *vm, struct bridge_queue_buffer *buffers,
				u32 count);
void bridge_vm_put_queue_buffers(struct bridge_vm *vm, struct amdgpu_bo **bos, u32 count);

/*
 * Buffers of a compute process. flags: KFD_IOC_ALLOC_MEM_FLAGS_*. offset: in, what a userptr,
 * doorbell or MMIO buffer shows; out, where mmap on the DRM file finds the buffer. restored: of a
 * checkpoint; the pages that a userptr shows need not be there yet.
 */
int bridge_memory_alloc(struct amdgpu_device *adev, struct bridge_vm *vm, u64 address, u64 size,
			u32 flags, bool restored, u64 *offset, struct kgd_mem **out);
/*
 * -EBUSY while it is mapped to a GPU. another: the process may have its memory by another handle,
 * too. freed: bytes of VRAM that came back.
 */
int bridge_memory_free(struct amdgpu_device *adev, struct bridge_vm *vm, struct kgd_mem *mem,
		       bool another, u64 *freed);
int bridge_memory_map(struct amdgpu_device *adev, struct bridge_vm *vm, struct kgd_mem *mem);
int bridge_memory_unmap(struct amdgpu_device *adev, struct bridge_vm *vm, struct kgd_mem *mem);
/*
 * The same when the process has no queue, mapped or not: there are page tables for it or not. Its
 * translations need not be invalidated. -EBUSY: a queue still uses it. @ended: the process has, and
 * does not wait for jobs that never end.
 */
int bridge_memory_unmap_at_end(struct amdgpu_device *adev, struct bridge_vm *vm,
			       struct kgd_mem *mem, bool ended);
int bridge_memory_dma_unmap(struct bridge_vm *vm, struct kgd_mem *mem);
/* Waits for page table updates. -ERESTARTSYS: a signal came, or SIGKILL if not @interruptible. */
int bridge_memory_sync(struct amdgpu_device *adev, struct kgd_mem *mem, bool interruptible);
/* Maps a GTT buffer for the CPU, for as long as it lives or until it is unmapped. */
int bridge_memory_map_kernel(struct kgd_mem *mem, void **cpu, u64 *size);
void bridge_memory_unmap_kernel(struct kgd_mem *mem);
int bridge_memory_import(struct amdgpu_device *adev, struct bridge_vm *vm, int fd, u64 address,
			 u64 *size, u64 *mmap_offset, struct kgd_mem **out);
/* Returns a file descriptor. */
int bridge_memory_export(struct kgd_mem *mem, u32 flags);
/* Whether it is mapped into that VM. */
bool bridge_memory_is_mapped(struct bridge_vm *vm, struct kgd_mem *mem);
u64 bridge_memory_available(struct amdgpu_device *adev, u32 partition);
/* What amdgpu says of the memory that all processes may have, as text. Returns how much of it. */
size_t bridge_memory_limits(char *text, size_t size);

/* Checkpoints (CRIU_OP). What a buffer is: */
struct bridge_memory_facts {
	u64 address;
	u64 size;		/* of its memory: a ring of AQL packets is mapped twice in a row */
	u64 mmap_offset;	/* on the DRM file */
	u64 user_address;	/* what a userptr shows */
	u32 flags;		/* KFD_IOC_ALLOC_MEM_FLAGS_* */
};
int bridge_memory_describe(struct kgd_mem *mem, struct bridge_memory_facts *out);
/* A dma-buf of it, which nobody has a descriptor of yet. */
int bridge_memory_export_file(struct kgd_mem *mem, struct file **out);
/*
 * What userptrs show may not be there yet: the process's queues have to be off until it is trusted.
 * trust: a worker of amdgpu's looks at all pages that it does not know, and then has the queues
 * restored once: if @restores for the caller, else for an eviction of its own from before, and the
 * caller ends what it has begun itself; -EINVAL if they were trusted, or there is no VM.
 */
void bridge_process_distrust_pages(struct bridge_process *process);
int bridge_process_trust_pages(struct bridge_process *process, bool *restores);

struct bridge_dmabuf_info {
	struct amdgpu_device *adev;
	u64 size;
	u32 flags;
	s32 partition;		/* -1: the device's first */
	u32 metadata_size;
	u8 metadata[BRIDGE_MAX_METADATA];
};
int bridge_dmabuf_info(struct amdgpu_device *adev, int fd, struct bridge_dmabuf_info *out);

/*
 * Device pages: the VRAM of a device as pages that the processor cannot reach. Pages are meant by
 * their page frame number.
 */
struct bridge_vram_pages {
	unsigned long first;	/* the page at the begin of VRAM */
	unsigned long count;
	void *owner;		/* of these, and of the pages of its hive */
};
/* -EOPNOTSUPP: there are none that the processor cannot reach. */
int bridge_vram_pages(struct amdgpu_device *adev, struct bridge_vram_pages *out);
/*
 * There are device pages, or, where xGMI connects the processor, pages of VRAM that it reaches
 * (MEMORY_DEVICE_COHERENT).
 */
bool bridge_has_vram_pages(struct amdgpu_device *adev);
/*
 * A buffer of so many pages in a partition's VRAM, at most BRIDGE_MAX_COPY. It stays where it
 * is until amdkfd_vram_wanted was called and then bridge_vram_is_empty, or until it is freed. There
 * is in it what somebody left there: each page is copied to before it is shown. It may evict other
 * such buffers: nothing that their owners need to empty them may be held. May return -ERESTARTSYS.
 * While there is one this module stays loaded.
 */
#define BRIDGE_MAX_COPY 512
int bridge_vram_alloc(struct amdgpu_device *adev, s32 partition, u32 pages, void *cookie,
		      struct bridge_vram **out);
/*
 * How many of its pages, from that one on, lie one after the other, and the number of the first. At
 * least one; 0: it has no such page.
 */
u32 bridge_vram_run(const struct bridge_vram *vram, u32 index, unsigned long *first);
/*
 * None of its pages is in use, and none will be: amdgpu may have the memory, once the last copy has
 * ended. Never sleeps.
 */
void bridge_vram_is_empty(struct bridge_vram *vram);
void bridge_vram_free(struct bridge_vram *vram);
/*
 * Implemented in Rust. amdgpu wants the memory of the buffer with that cookie: fence lock held,
 * IRQs off. At most once, and never after bridge_vram_is_empty or bridge_vram_free have returned.
 */
void amdkfd_vram_wanted(void *cookie);

struct bridge_copy_page {
	unsigned long system;
	unsigned long device;	/* of that buffer */
};
/*
 * Copies pages, at most BRIDGE_MAX_COPY, by the device's copy engines. System pages that are read
 * must not change until it ends. All are kept until it does, and so is the memory of the buffer.
 * Where amdgpu takes no jobs for now since one has failed, the processor copies from VRAM.
 * @wait: if many go on already, for one of them to be let go of; who has some that have not been
 * must not wait.
 * -ENODEV: the device sleeps, is gone, or takes no copies to VRAM any more; -EAGAIN: it is being
 * reset; -EBUSY: amdgpu has the memory, or (!@wait) many go on;
 * -EIO: one that did not end in its time has not ended yet, or too many go on for 10 s.
 */
int bridge_copy_begin(struct bridge_vram *vram, bool to_vram, bool wait,
		      const struct bridge_copy_page *pages, u32 count, struct bridge_copy **out);
/* -ETIME: it has not ended yet. Another error: it has ended, and what was copied is not good. */
int bridge_copy_wait(struct bridge_copy *copy, u32 timeout_ms);
/* If it has not ended, what it uses is kept until it has; and so is this module. */
void bridge_copy_end(struct bridge_copy *copy);
/*
 * amdgpu has left a device: waits until copies that were given up are gone, for at most 5 s. They
 * have the DRM device, and amdgpu does not bear it if that ends while the next one begins.
 */
void bridge_vram_unbound(const struct pci_dev *pdev);
/* Before this module goes, and after all buffers and copies have: waits until nothing is left. */
void bridge_vram_drain(void);

/* Hardware queues and the hardware around them (amdgpu: kfd2kgd). */
int bridge_init_interrupts(struct amdgpu_device *adev, u32 pipe, u32 xcc);
int bridge_hiq_load(struct amdgpu_device *adev, void *mqd, u32 pipe, u32 queue, u32 doorbell,
		    u32 xcc);
int bridge_hiq_unmap(struct amdgpu_device *adev, u32 doorbell, u32 xcc);
/*
 * Queues that the driver puts onto the hardware itself. All xcc are logical, all pipes those of the
 * first MEC, and what waits does so for at most timeout_ms. None may be called while a reset runs.
 */
struct bridge_vmid {
	u32 vmid;
	u32 pasid;
	u32 sh_mem_config;
	u32 sh_mem_bases;
	u64 page_directory;
	bool has_trap_handler;
	u64 tba;
	u64 tma;
};
/*
 * Gives a VMID to a process, on each XCC of xcc_mask, and forgets the translations of who had it
 * before.
 */
int bridge_vmid_bind(struct amdgpu_device *adev, const struct bridge_vmid *binding, u32 xcc_mask);
/* Takes it back. */
void bridge_vmid_unbind(struct amdgpu_device *adev, u32 vmid, u32 xcc_mask);
/* Its process has its page directory elsewhere. */
void bridge_vmid_page_directory(struct amdgpu_device *adev, u32 vmid, u64 page_directory,
				u32 xcc_mask);
/* Kills the waves of a VMID. */
void bridge_vmid_kill_waves(struct amdgpu_device *adev, u32 vmid, u32 xcc_mask);

#define BRIDGE_PREEMPT_DRAIN	0	/* waves end by themselves */
#define BRIDGE_PREEMPT_RESET	1	/* waves are killed */
#define BRIDGE_PREEMPT_SAVE	2	/* waves are saved */
/* mqd: of the device's generation, with its VMID. write_pointer: where the user has it. */
int bridge_queue_load(struct amdgpu_device *adev, void *mqd, u32 pipe, u32 queue, u64 write_pointer,
		      u32 xcc);
/* -ETIME: it does not stop. */
int bridge_queue_unload(struct amdgpu_device *adev, void *mqd, u32 preempt, u32 timeout_ms,
			u32 pipe, u32 queue, u32 xcc);
/*
 * The address of the ring of the user's queue that is in a slot; 0: there is none, or its ring is
 * below 1 TiB: amdgpu takes such a queue for the kernel's, and does not reset it either.
 */
u64 bridge_queue_address(struct amdgpu_device *adev, u32 pipe, u32 queue, u32 xcc);
/* Whether a queue is at work in a slot, whosever it is. True if that cannot be found out. */
bool bridge_queue_is_active(struct amdgpu_device *adev, u32 pipe, u32 queue, u32 xcc);
/*
 * Resets the slot, and if need be its pipe. The address of the ring that was there; 0: it did not
 * leave.
 */
u64 bridge_queue_reset(struct amdgpu_device *adev, u32 timeout_ms, u32 pipe, u32 queue, u32 xcc);
/*
 * The doorbell (its index on the BAR, in 32-bit units) of the user's queue in a slot of a copy
 * engine, if that engine has selected it; 0 if not. engine: of the device.
 */
u32 bridge_sdma_doorbell(struct amdgpu_device *adev, u32 engine, u32 queue);
/* Whether a copy engine can be reset alone: known after the device's late init only. */
bool bridge_can_reset_sdma_engines(struct amdgpu_device *adev);
/* Does that: -EOPNOTSUPP if it cannot be done. Never enters reclaim. */
int bridge_sdma_reset_engine(struct amdgpu_device *adev, u32 engine);
/* A register: where it is, in bytes, and what it reads. */
struct bridge_register {
	u32 offset;
	u32 value;
};
#define BRIDGE_MAX_REGISTERS 64
/*
 * The registers of a compute queue's slot, or of a copy queue's: how many, at most
 * BRIDGE_MAX_REGISTERS.
 */
int bridge_queue_registers(struct amdgpu_device *adev, u32 pipe, u32 queue, u32 xcc,
			   struct bridge_register *out);
int bridge_sdma_registers(struct amdgpu_device *adev, u32 engine, u32 queue,
			  struct bridge_register *out);
/*
 * The write pointer is read from the memory of vm's process, if that is still there, which only one
 * of its own tasks or a kernel thread can (-EAGAIN).
 */
int bridge_sdma_load(struct amdgpu_device *adev, struct bridge_vm *vm, void *mqd,
		     u64 write_pointer);
int bridge_sdma_unload(struct amdgpu_device *adev, void *mqd, u32 timeout_ms);

u32 bridge_iq_wait_times(struct amdgpu_device *adev, u32 xcc);
void bridge_dequeue_wait_counts(struct amdgpu_device *adev, u32 wait_times, u32 sch_wave,
				u32 que_sleep, u32 *reg_offset, u32 *reg_data);
/*
 * Writes the address of watch point @point (below BRIDGE_WATCH_POINTS) into an XCC's registers. The
 * value for TCP_WATCHn_CNTL is the scheduler's to write.
 */
#define BRIDGE_WATCH_POINTS	4	/* MAX_WATCH_ADDRESSES of kfd_debug.c */
int bridge_set_watch_address(struct amdgpu_device *adev, u32 point, u64 address, u32 xcc);
void bridge_flush_hdp(struct amdgpu_device *adev);
void bridge_set_compute_idle(struct amdgpu_device *adev, bool idle);
int bridge_drain_interrupts(struct amdgpu_device *adev, const u32 *payload);

/*
 * Reset. in_reset: it runs, or waits for who has the lock. trylock: hardware may be touched until
 * unlock; false while a reset runs, and once the device was pulled out.
 */
bool bridge_in_reset(struct amdgpu_device *adev);
/* A fatal error was detected: until the reset that has to follow nothing answers. */
bool bridge_has_fatal_error(struct amdgpu_device *adev);
bool bridge_reset_trylock(struct amdgpu_device *adev);
void bridge_reset_unlock(struct amdgpu_device *adev);
void bridge_request_reset(struct amdgpu_device *adev);
/* Whether it is being suspended or resumed, or is suspended: its VRAM may be lost meanwhile. */
bool bridge_is_suspending(struct amdgpu_device *adev);
/*
 * Whether the calling task is the one in which amdgpu resets a copy engine that does not go on with
 * amdgpu's own work: the timeout of a job.
 */
bool bridge_resets_copy_engine(struct amdgpu_device *adev);

/*
 * amdgpu's queues for clearing and moving memory, of a device that is served: a job that fails, as
 * in a reset, fails all that come after it, and nobody is told. heal: they take jobs again, but for
 * who is busy, which is seen to later. @wait: sleeps some ms for each that has failed; else it may
 * be called under reclaim. mark: what an engine has got until now is of no process whose eviction
 * fence has not been signalled yet. It may be called under reclaim. Whoever gets a smaller number
 * from it than from a heal later may have lost memory in a move since. end: nobody uses the device
 * any more. VRAM that is allocated after a job has failed is cleared once more.
 */
struct bridge_engines;
int bridge_engines_begin(struct amdgpu_device *adev, struct bridge_engines **out);
void bridge_engines_end(struct bridge_engines *engines);
u64 bridge_engines_heal(struct bridge_engines *engines, bool wait);
u64 bridge_engines_mark(struct bridge_engines *engines);
/* The same, later and for as long as needed, at most 60 s. */
void bridge_engines_heal_soon(struct bridge_engines *engines);

/* amdgpu.halt_if_hws_hang as it is now. */
bool bridge_halts_on_hang(void);
/* Whether processes are kept apart on partition @partition (enforce_isolation) as of now. */
bool bridge_isolates(struct amdgpu_device *adev, u32 partition);

/* Runtime power management of the PCI device. */
int bridge_power_get(struct amdgpu_device *adev);
void bridge_power_put(struct amdgpu_device *adev);

/* 0 if the calling task's device cgroup may use this render node, else -EPERM. */
int bridge_cgroup_permission(struct amdgpu_device *adev, u32 render_minor);

#endif
