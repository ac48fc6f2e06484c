// SPDX-License-Identifier: GPL-2.0-only
/*
 * bridge.h in terms of amdgpu: kernel buffers and the hardware. The device's facts are in
 * amdgpu_bridge_facts.c, processes and their memory in amdgpu_bridge_vm.c. It keeps no state but a
 * lock.
 */
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/pm_runtime.h>
#include <linux/sched/mm.h>
#include <drm/drm_drv.h>

#include "amdgpu_bind.h"
#include "bridge.h"
#include "bridge_engines.h"

static_assert(BRIDGE_DOMAIN_GTT == AMDGPU_GEM_DOMAIN_GTT);
static_assert(BRIDGE_DOMAIN_VRAM == AMDGPU_GEM_DOMAIN_VRAM);

/* Where amdgpu's hardware access table of a graphics core is; NULL for one that is not known. */
static const struct kfd2kgd_calls **hardware_table(u32 gc_version)
{
	switch (gc_version) {
	case IP_VERSION(9, 0, 1):
	case IP_VERSION(9, 1, 0):
	case IP_VERSION(9, 2, 1):
	case IP_VERSION(9, 2, 2):
	case IP_VERSION(9, 3, 0):
	case IP_VERSION(9, 4, 0):
		return &bound_gfx_v9_kfd2kgd;
	case IP_VERSION(9, 4, 1):
		return &bound_arcturus_kfd2kgd;
	case IP_VERSION(9, 4, 2):
		return &bound_aldebaran_kfd2kgd;
	case IP_VERSION(9, 4, 3):
	case IP_VERSION(9, 4, 4):
	case IP_VERSION(9, 5, 0):
		return &bound_gc_9_4_3_kfd2kgd;
	case IP_VERSION(10, 1, 1) ... IP_VERSION(10, 1, 4):
	case IP_VERSION(10, 1, 10):
		return &bound_gfx_v10_kfd2kgd;
	case IP_VERSION(10, 3, 0) ... IP_VERSION(10, 3, 7):
		return &bound_gfx_v10_3_kfd2kgd;
	default:
		return NULL;
	}
}

static const struct kfd2kgd_calls *hardware(struct amdgpu_device *adev)
{
	const struct kfd2kgd_calls **table = hardware_table(amdgpu_ip_version(adev, GC_HWIP, 0));

	return table ? *table : NULL;
}

bool bridge_has_hardware(u32 gc_version)
{
	return hardware_table(gc_version);
}

static struct amdgpu_xcp *partition_of(struct amdgpu_device *adev, u32 index)
{
	struct amdgpu_xcp *xcp;
	int id;

	for_each_xcp(adev->xcp_mgr, xcp, id)
		if (!index--)
			return xcp;
	return NULL;
}

void bridge_local_memory(struct amdgpu_device *adev, u32 partition, struct bridge_local_memory *out)
{
	struct kfd_local_mem_info info = {};

	amdgpu_call(amdgpu_amdkfd_get_local_mem_info)(adev, &info, partition_of(adev, partition));
	out->size_private = info.local_mem_size_private;
	out->size_public = info.local_mem_size_public;
	out->vram_width = info.vram_width;
	out->mem_clk_max = info.mem_clk_max;
}

u64 bridge_clock_counter(struct amdgpu_device *adev)
{
	return amdgpu_call(amdgpu_amdkfd_get_gpu_clock_counter)(adev);
}

static_assert(BRIDGE_MAX_QUEUES == AMDGPU_MAX_QUEUES);
static_assert(sizeof(struct bridge_queue_waves) == sizeof(struct kfd_cu_occupancy));

bool bridge_occupancy(struct amdgpu_device *adev, u32 xcc, struct bridge_queue_waves *queues,
		      u32 *max_waves_per_cu)
{
	const struct kfd2kgd_calls *hw = hardware(adev);
	struct kfd_cu_occupancy *found;
	int max_waves = 0;
	unsigned int i;

	if (!hw || !hw->get_cu_occupancy)
		return false;
	found = kcalloc(BRIDGE_MAX_QUEUES, sizeof(*found), GFP_KERNEL);
	if (!found)
		return false;
	/* It selects each shader engine in turn, by registers that a reset needs for itself. */
	if (!bridge_reset_trylock(adev)) {
		kfree(found);
		return false;
	}
	hw->get_cu_occupancy(adev, found, &max_waves, xcc);
	bridge_reset_unlock(adev);
	for (i = 0; i < BRIDGE_MAX_QUEUES; i++) {
		queues[i].doorbell = found[i].doorbell_off;
		queues[i].waves = found[i].wave_cnt;
	}
	kfree(found);
	*max_waves_per_cu = max_waves;
	return true;
}

bool bridge_has_tensor_limit(struct amdgpu_device *adev)
{
	return compat_ptl_supported(&adev->psp.ptl);
}

static int set_tensor_limit(struct amdgpu_device *adev, bool limit)
{
	const struct kfd2kgd_calls *hw = hardware(adev);
	struct amdgpu_ptl *ptl = &adev->psp.ptl;
	enum amdgpu_ptl_fmt first = ptl->fmt1, second = ptl->fmt2;
	u32 state = limit;

	if (!compat_ptl_supported(ptl) || !hw || !hw->ptl_ctrl)
		return -EOPNOTSUPP;
	return hw->ptl_ctrl(adev, PSP_PTL_PERF_MON_SET, &state, &first, &second);
}

/* The first who wants it lifted changes something. */
static int lift_tensor_limit(struct amdgpu_device *adev)
{
	struct amdgpu_ptl *ptl = &adev->psp.ptl;
	int ret = atomic_read(&ptl->disable_ref) ? 0 : set_tensor_limit(adev, false);

	if (ret)
		return ret;
	atomic_inc(&ptl->disable_ref);
	set_bit(AMDGPU_PTL_DISABLE_PROFILER, ptl->disable_bitmap);
	return 0;
}

/*
 * And so does the last. Its bit goes first: while there is one, amdgpu leaves the limiter lifted,
 * and calls that a success.
 */
static int restore_tensor_limit(struct amdgpu_device *adev)
{
	struct amdgpu_ptl *ptl = &adev->psp.ptl;
	int ret = 0;

	if (atomic_read(&ptl->disable_ref) == 1) {
		clear_bit(AMDGPU_PTL_DISABLE_PROFILER, ptl->disable_bitmap);
		ret = set_tensor_limit(adev, true);
		if (ret)
			set_bit(AMDGPU_PTL_DISABLE_PROFILER, ptl->disable_bitmap);
	}
	if (!ret)
		atomic_dec(&ptl->disable_ref);
	return ret;
}

int bridge_tensor_limit(struct amdgpu_device *adev, bool lift)
{
	guard(mutex)(&adev->psp.ptl.mutex);
	return lift ? lift_tensor_limit(adev) : restore_tensor_limit(adev);
}

u64 bridge_throttle_count(struct amdgpu_device *adev)
{
	return amdgpu_call(amdgpu_dpm_get_thermal_throttling_counter)(adev);
}

int bridge_tile_config(struct amdgpu_device *adev, struct bridge_tile_config *out)
{
	struct tile_config config = {};
	int ret;

	ret = amdgpu_call(amdgpu_amdkfd_get_tile_config)(adev, &config);
	if (ret)
		return ret;
	memset(out, 0, sizeof(*out));
	out->num_tile = min(config.num_tile_configs, BRIDGE_MAX_TILE_MODES);
	out->num_macrotile = min(config.num_macro_tile_configs, BRIDGE_MAX_MACROTILE);
	memcpy(out->tile, config.tile_config_ptr, out->num_tile * sizeof(u32));
	memcpy(out->macrotile, config.macro_tile_config_ptr, out->num_macrotile * sizeof(u32));
	out->gb_addr_config = config.gb_addr_config;
	out->num_banks = config.num_banks;
	out->num_ranks = config.num_ranks;
	return 0;
}

static bool same_hive(struct amdgpu_device *adev, struct amdgpu_device *peer)
{
	return adev != peer && adev->gmc.xgmi.hive_id &&
	       adev->gmc.xgmi.hive_id == peer->gmc.xgmi.hive_id;
}

int bridge_xgmi_hops(struct amdgpu_device *adev, struct amdgpu_device *peer, u32 *hops)
{
	int ret;

	if (!same_hive(adev, peer))
		return -EINVAL;
	ret = amdgpu_call(amdgpu_xgmi_get_hops_count)(adev, peer);
	if (ret < 0)
		return ret;
	*hops = ret;
	return 0;
}

int bridge_xgmi_bandwidth(struct amdgpu_device *adev, struct amdgpu_device *peer, u32 *min_mbs,
			  u32 *max_mbs)
{
	if (!same_hive(adev, peer))
		return -EINVAL;
	return amdgpu_call(amdgpu_xgmi_get_bandwidth)(adev, peer, AMDGPU_XGMI_BW_MODE_PER_PEER,
						      AMDGPU_XGMI_BW_UNIT_MBYTES, min_mbs, max_mbs);
}

int bridge_xgmi_link_bandwidth(struct amdgpu_device *adev, u32 *min_mbs, u32 *max_mbs)
{
	return amdgpu_call(amdgpu_xgmi_get_bandwidth)(adev, NULL, AMDGPU_XGMI_BW_MODE_PER_LINK,
						      AMDGPU_XGMI_BW_UNIT_MBYTES, min_mbs, max_mbs);
}

bool bridge_xgmi_sharing(struct amdgpu_device *adev, struct amdgpu_device *peer)
{
	return same_hive(adev, peer) && amdgpu_call(amdgpu_xgmi_get_is_sharing_enabled)(adev, peer);
}

int bridge_pcie_bandwidth(struct amdgpu_device *adev, u32 *min_mbs, u32 *max_mbs)
{
	*min_mbs = amdgpu_call(amdgpu_amdkfd_get_pcie_bandwidth_mbytes)(adev, true);
	*max_mbs = amdgpu_call(amdgpu_amdkfd_get_pcie_bandwidth_mbytes)(adev, false);
	return 0;
}

int bridge_kernel_bo_alloc(struct amdgpu_device *adev, u64 size, u32 domain, bool mqd,
			   struct bridge_kernel_bo *out)
{
	return amdgpu_call(amdgpu_amdkfd_alloc_kernel_mem)(adev, size, domain, (void **)&out->bo,
							   &out->gpu_addr, &out->cpu, mqd);
}

void bridge_kernel_bo_free(struct amdgpu_device *adev, struct amdgpu_bo *bo)
{
	amdgpu_call(amdgpu_amdkfd_free_kernel_mem)(adev, (void **)&bo);
}

int bridge_wave_sync_alloc(struct amdgpu_device *adev, u32 count, struct amdgpu_bo **out)
{
	*out = NULL;
	return amdgpu_call(amdgpu_bo_create_kernel)(adev, count, 1, AMDGPU_GEM_DOMAIN_GWS, out,
						    NULL, NULL);
}

void bridge_wave_sync_free(struct amdgpu_bo *bo)
{
	amdgpu_call(amdgpu_bo_free_kernel)(&bo, NULL, NULL);
}

int bridge_init_interrupts(struct amdgpu_device *adev, u32 pipe, u32 xcc)
{
	const struct kfd2kgd_calls *hw = hardware(adev);

	return hw ? hw->init_interrupts(adev, pipe, xcc) : -ENODEV;
}

int bridge_hiq_load(struct amdgpu_device *adev, void *mqd, u32 pipe, u32 queue, u32 doorbell,
		    u32 xcc)
{
	const struct kfd2kgd_calls *hw = hardware(adev);

	if (!hw)
		return -ENODEV;
	/*
	 * Its descriptor's entry in the GART, which the processor has written to VRAM: amdgpu
	 * flushes that but while the device is being reset (amdgpu_gart_invalidate_tlb()), where a
	 * device may come up with us. It would load the HIQ from where an older entry leads.
	 */
	bridge_flush_hdp(adev);
	return hw->hiq_mqd_load(adev, mqd, pipe, queue, doorbell, xcc);
}

int bridge_hiq_unmap(struct amdgpu_device *adev, u32 doorbell, u32 xcc)
{
	unsigned int flags;
	int ret;

	/* The caller holds a lock that reclaim may take, and amdgpu allocates. */
	flags = memalloc_noreclaim_save();
	ret = amdgpu_call(amdgpu_amdkfd_unmap_hiq)(adev, doorbell, xcc);
	memalloc_noreclaim_restore(flags);
	return ret;
}

static_assert(BRIDGE_PREEMPT_DRAIN == KFD_PREEMPT_TYPE_WAVEFRONT_DRAIN);
static_assert(BRIDGE_PREEMPT_RESET == KFD_PREEMPT_TYPE_WAVEFRONT_RESET);
static_assert(BRIDGE_PREEMPT_SAVE == KFD_PREEMPT_TYPE_WAVEFRONT_SAVE);

#define for_each_xcc(xcc, mask) for_each_set_bit(xcc, &(unsigned long){ mask }, BRIDGE_MAX_XCC)

/*
 * As amdgpu_gmc_flush_gpu_tlb(), but that flushes nothing, and does not say so, if it cannot have
 * the lock of resets, which nobody gets any more as soon as somebody waits to write: be it that the
 * caller has it himself, as he has here, or he is in a reset, at its end.
 */
static void flush_hub(struct amdgpu_device *adev, u32 vmid, u32 hub)
{
	const struct amdgpu_gmc *gmc = &adev->gmc;

	if (gmc->flush_tlb_needs_extra_type_2)
		gmc->gmc_funcs->flush_gpu_tlb(adev, vmid, hub, 2);
	if (gmc->flush_tlb_needs_extra_type_0)
		gmc->gmc_funcs->flush_gpu_tlb(adev, vmid, hub, 0);
	gmc->gmc_funcs->flush_gpu_tlb(adev, vmid, hub, BRIDGE_TLB_HEAVYWEIGHT);
}

static void flush_vmid(struct amdgpu_device *adev, u32 vmid, u32 xcc_mask)
{
	unsigned int xcc;

	for_each_xcc(xcc, xcc_mask)
		flush_hub(adev, vmid, AMDGPU_GFXHUB(xcc));
	for_each_set_bit(xcc, adev->vmhubs_mask, AMDGPU_MAX_VMHUBS)
		if (xcc >= AMDGPU_MMHUB0(0))
			flush_hub(adev, vmid, xcc);
}

/* amdgpu writes the table of a die through an index register that all nodes of a device share. */
static DEFINE_MUTEX(pasids_lock);

static int set_pasid(struct amdgpu_device *adev, u32 pasid, u32 vmid, u32 xcc)
{
	guard(mutex)(&pasids_lock);
	return hardware(adev)->set_pasid_vmid_mapping(adev, pasid, vmid, xcc);
}

int bridge_vmid_bind(struct amdgpu_device *adev, const struct bridge_vmid *binding, u32 xcc_mask)
{
	const struct kfd2kgd_calls *hw = hardware(adev);
	u32 vmid = binding->vmid;
	unsigned int xcc;
	int ret;

	if (!hw)
		return -ENODEV;
	for_each_xcc(xcc, xcc_mask) {
		ret = set_pasid(adev, binding->pasid, vmid, xcc);
		if (ret)
			return ret;
		hw->program_sh_mem_settings(adev, vmid, binding->sh_mem_config, 0, 0,
					    binding->sh_mem_bases, xcc);
		if (binding->has_trap_handler)
			hw->program_trap_handler_settings(adev, vmid, binding->tba, binding->tma,
							  xcc);
	}
	bridge_vmid_page_directory(adev, vmid, binding->page_directory, xcc_mask);
	return 0;
}

void bridge_vmid_unbind(struct amdgpu_device *adev, u32 vmid, u32 xcc_mask)
{
	unsigned int xcc;

	if (!hardware(adev))
		return;
	flush_vmid(adev, vmid, xcc_mask);
	for_each_xcc(xcc, xcc_mask)
		set_pasid(adev, 0, vmid, xcc);
}

void bridge_vmid_page_directory(struct amdgpu_device *adev, u32 vmid, u64 page_directory,
				u32 xcc_mask)
{
	const struct kfd2kgd_calls *hw = hardware(adev);

	if (!hw)
		return;
	hw->set_vm_context_page_table_base(adev, vmid, page_directory);
	flush_vmid(adev, vmid, xcc_mask);
}

/*
 * SQ_CMD (gc_9_4_3_sh_mask.h): CMD 2:0, 3 kills; MODE 6:4, 1 is all waves; CHECK_VMID 7; VM_ID
 * 31:28.
 */
#define SQ_CMD_KILL(vmid)	(3 | 1 << 4 | 1 << 7 | (vmid) << 28)
/* GRBM_GFX_INDEX: SH_, INSTANCE_ and SE_BROADCAST_WRITES. */
#define GRBM_GFX_INDEX_ALL	(7U << 29)

void bridge_vmid_kill_waves(struct amdgpu_device *adev, u32 vmid, u32 xcc_mask)
{
	const struct kfd2kgd_calls *hw = hardware(adev);
	unsigned int xcc;

	for_each_xcc(xcc, hw ? xcc_mask : 0)
		hw->wave_control_execute(adev, GRBM_GFX_INDEX_ALL, SQ_CMD_KILL(vmid), xcc);
}

int bridge_queue_load(struct amdgpu_device *adev, void *mqd, u32 pipe, u32 queue, u64 write_pointer,
		      u32 xcc)
{
	const struct kfd2kgd_calls *hw = hardware(adev);

	/*
	 * The command processor reads the write pointer itself: shift, mask and mm are for older
	 * ones.
	 */
	return hw ? hw->hqd_load(adev, mqd, pipe, queue, (u32 __user *)write_pointer, 0, 0, NULL,
				 xcc) :
		    -ENODEV;
}

int bridge_queue_unload(struct amdgpu_device *adev, void *mqd, u32 preempt, u32 timeout_ms,
			u32 pipe, u32 queue, u32 xcc)
{
	const struct kfd2kgd_calls *hw = hardware(adev);

	return hw ? hw->hqd_destroy(adev, mqd, preempt, timeout_ms, pipe, queue, xcc) : -ENODEV;
}

u64 bridge_queue_address(struct amdgpu_device *adev, u32 pipe, u32 queue, u32 xcc)
{
	const struct kfd2kgd_calls *hw = hardware(adev);

	return hw ? hw->hqd_get_pq_addr(adev, pipe, queue, xcc) : 0;
}

u64 bridge_queue_reset(struct amdgpu_device *adev, u32 timeout_ms, u32 pipe, u32 queue, u32 xcc)
{
	const struct kfd2kgd_calls *hw = hardware(adev);

	return hw ? hw->hqd_reset(adev, pipe, queue, xcc, timeout_ms) : 0;
}

u32 bridge_sdma_doorbell(struct amdgpu_device *adev, u32 engine, u32 queue)
{
	const struct kfd2kgd_calls *hw = hardware(adev);

	return hw ? hw->hqd_sdma_get_doorbell(adev, engine, queue) : 0;
}

bool bridge_can_reset_sdma_engines(struct amdgpu_device *adev)
{
	return adev->sdma.supported_reset & AMDGPU_RESET_TYPE_PER_QUEUE;
}

int bridge_sdma_reset_engine(struct amdgpu_device *adev, u32 engine)
{
	unsigned int flags;
	int ret;

	if (!bridge_can_reset_sdma_engines(adev) || engine >= adev->sdma.num_instances)
		return -EOPNOTSUPP;
	/* The caller holds a lock that reclaim may take, and amdgpu allocates. */
	flags = memalloc_noreclaim_save();
	ret = amdgpu_call(amdgpu_sdma_reset_engine)(adev, engine, false);
	memalloc_noreclaim_restore(flags);
	/* It has cancelled what amdgpu had on that engine. */
	bridge_engines_heal_soon_of(adev);
	return ret;
}

/* Hands on the count pairs of a dump, which amdgpu allocated. */
static int registers(u32 (*dump)[2], u32 count, struct bridge_register *out)
{
	u32 i;

	count = min_t(u32, count, BRIDGE_MAX_REGISTERS);
	for (i = 0; i < count; i++) {
		out[i].offset = dump[i][0];
		out[i].value = dump[i][1];
	}
	kfree(dump);
	return count;
}

int bridge_queue_registers(struct amdgpu_device *adev, u32 pipe, u32 queue, u32 xcc,
			   struct bridge_register *out)
{
	const struct kfd2kgd_calls *hw = hardware(adev);
	u32 (*dump)[2], count;
	unsigned int flags;
	int ret;

	/* The caller keeps resets from beginning, reclaim may wait for one, amdgpu allocates. */
	flags = memalloc_noreclaim_save();
	ret = hw ? hw->hqd_dump(adev, pipe, queue, &dump, &count, xcc) : -ENODEV;
	memalloc_noreclaim_restore(flags);
	return ret ? ret : registers(dump, count, out);
}

/* The registers of a slot begin with CP_MQD_BASE_ADDR, its upper half, and CP_HQD_ACTIVE. */
#define HQD_ACTIVE 2

bool bridge_queue_is_active(struct amdgpu_device *adev, u32 pipe, u32 queue, u32 xcc)
{
	const struct kfd2kgd_calls *hw = hardware(adev);
	u32 (*dump)[2], count;
	unsigned int flags;
	bool active;
	int ret;

	/* The caller holds a lock that reclaim may take, and amdgpu allocates. */
	flags = memalloc_noreclaim_save();
	ret = hw ? hw->hqd_dump(adev, pipe, queue, &dump, &count, xcc) : -ENODEV;
	memalloc_noreclaim_restore(flags);
	if (ret)
		return true;
	active = count <= HQD_ACTIVE || dump[HQD_ACTIVE][1] & 1;
	kfree(dump);
	return active;
}

int bridge_sdma_registers(struct amdgpu_device *adev, u32 engine, u32 queue,
			  struct bridge_register *out)
{
	const struct kfd2kgd_calls *hw = hardware(adev);
	u32 (*dump)[2], count;
	unsigned int flags;
	int ret;

	/* As in bridge_queue_registers. */
	flags = memalloc_noreclaim_save();
	ret = hw ? hw->hqd_sdma_dump(adev, engine, queue, &dump, &count) : -ENODEV;
	memalloc_noreclaim_restore(flags);
	return ret ? ret : registers(dump, count, out);
}

int bridge_sdma_load(struct amdgpu_device *adev, struct bridge_vm *vm, void *mqd, u64 write_pointer)
{
	const struct kfd2kgd_calls *hw = hardware(adev);
	struct mm_struct *mm = bridge_vm_get_mm(vm);
	int ret;

	/*
	 * amdgpu has a kernel thread or one of the process's read up to where the ring is written.
	 * Loaded by another, the queue would pass over what is in there.
	 */
	if (mm && mm != current->mm && !(current->flags & PF_KTHREAD))
		ret = -EAGAIN;
	else
		ret = hw ? hw->hqd_sdma_load(adev, mqd, (u32 __user *)write_pointer, mm) : -ENODEV;
	/* Its end must not begin here, under the locks of queues. */
	if (mm)
		mmput_async(mm);
	return ret;
}

int bridge_sdma_unload(struct amdgpu_device *adev, void *mqd, u32 timeout_ms)
{
	const struct kfd2kgd_calls *hw = hardware(adev);

	return hw ? hw->hqd_sdma_destroy(adev, mqd, timeout_ms) : -ENODEV;
}

u32 bridge_iq_wait_times(struct amdgpu_device *adev, u32 xcc)
{
	const struct kfd2kgd_calls *hw = hardware(adev);
	u32 wait_times = 0;

	if (hw)
		hw->get_iq_wait_times(adev, &wait_times, xcc);
	return wait_times;
}

void bridge_dequeue_wait_counts(struct amdgpu_device *adev, u32 wait_times, u32 sch_wave,
				u32 que_sleep, u32 *reg_offset, u32 *reg_data)
{
	const struct kfd2kgd_calls *hw = hardware(adev);

	if (hw)
		hw->build_dequeue_wait_counts_packet_info(adev, wait_times, sch_wave, que_sleep,
							  reg_offset, reg_data);
}

int bridge_set_watch_address(struct amdgpu_device *adev, u32 point, u64 address, u32 xcc)
{
	const struct kfd2kgd_calls *hw = hardware(adev);

	if (point >= BRIDGE_WATCH_POINTS)
		return -EINVAL;
	if (!hw || !hw->set_address_watch)
		return -ENODEV;
	/* What it returns is made of mask and mode, which we encode ourselves. */
	hw->set_address_watch(adev, address, 0, point, 0, 0, xcc);
	return 0;
}

void bridge_flush_hdp(struct amdgpu_device *adev)
{
	amdgpu_call(amdgpu_device_flush_hdp)(adev, NULL);
}

void bridge_set_compute_idle(struct amdgpu_device *adev, bool idle)
{
	amdgpu_call(amdgpu_amdkfd_set_compute_idle)(adev, idle);
}

int bridge_drain_interrupts(struct amdgpu_device *adev, const u32 *payload)
{
	u32 copy[8];

	memcpy(copy, payload, sizeof(copy));
	return amdgpu_call(amdgpu_amdkfd_send_close_event_drain_irq)(adev, copy);
}

bool bridge_in_reset(struct amdgpu_device *adev)
{
	return amdgpu_call(amdgpu_in_reset)(adev);
}

bool bridge_has_fatal_error(struct amdgpu_device *adev)
{
	return amdgpu_call(amdgpu_amdkfd_is_fed)(adev);
}

bool bridge_reset_trylock(struct amdgpu_device *adev)
{
	return !pci_dev_is_disconnected(adev->pdev) && down_read_trylock(&adev->reset_domain->sem);
}

void bridge_reset_unlock(struct amdgpu_device *adev)
{
	up_read(&adev->reset_domain->sem);
}

void bridge_request_reset(struct amdgpu_device *adev)
{
	/*
	 * Who waited for a device while it was pulled out finds that it hangs; there is nothing to
	 * reset.
	 */
	if (!pci_dev_is_disconnected(adev->pdev))
		amdgpu_call(amdgpu_amdkfd_gpu_reset)(adev);
}

bool bridge_is_suspending(struct amdgpu_device *adev)
{
	return READ_ONCE(adev->in_suspend);
}

bool bridge_resets_copy_engine(struct amdgpu_device *adev)
{
	const struct work_struct *work = current_work();
	int i;

	for (i = 0; work && i < adev->sdma.num_instances; i++) {
		struct amdgpu_sdma_instance *engine = &adev->sdma.instance[i];

		if (work == &engine->ring.sched.work_tdr.work ||
		    work == &engine->page.sched.work_tdr.work)
			return true;
	}
	return false;
}

bool bridge_halts_on_hang(void)
{
	return READ_ONCE(amdgpu_object(halt_if_hws_hang));
}

bool bridge_isolates(struct amdgpu_device *adev, u32 partition)
{
	return partition < ARRAY_SIZE(adev->enforce_isolation) &&
	       READ_ONCE(adev->enforce_isolation[partition]) == AMDGPU_ENFORCE_ISOLATION_ENABLE;
}

int bridge_power_get(struct amdgpu_device *adev)
{
	return pm_runtime_resume_and_get(adev_to_drm(adev)->dev);
}

void bridge_power_put(struct amdgpu_device *adev)
{
	pm_runtime_put_autosuspend(adev_to_drm(adev)->dev);
}

int bridge_cgroup_permission(struct amdgpu_device *adev, u32 render_minor)
{
	return devcgroup_check_permission(DEVCG_DEV_CHAR, DRM_MAJOR, render_minor,
					  DEVCG_ACC_WRITE | DEVCG_ACC_READ);
}
