// SPDX-License-Identifier: GPL-2.0-only
/*
 * bridge.h in terms of amdgpu: device facts, kernel buffers and the hardware. Processes and their
 * memory are in amdgpu_bridge_vm.c. Nothing here keeps state.
 */
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/pci.h>
#include <linux/pm_runtime.h>
#include <linux/sched/mm.h>
#include <drm/drm_drv.h>

#include "amdgpu_bind.h"
#include "bridge.h"

static_assert(BRIDGE_DOMAIN_GTT == AMDGPU_GEM_DOMAIN_GTT);
static_assert(BRIDGE_DOMAIN_VRAM == AMDGPU_GEM_DOMAIN_VRAM);
static_assert(BRIDGE_MAX_XCC >= AMDGPU_MAX_GC_INSTANCES);
static_assert(BRIDGE_MAX_XCP >= MAX_XCP);
static_assert(BRIDGE_MAX_SDMA >= AMDGPU_MAX_SDMA_INSTANCES);

/* The hardware access table of the device's generation; NULL for one that we do not drive. */
static const struct kfd2kgd_calls *hardware(struct amdgpu_device *adev)
{
	switch (amdgpu_ip_version(adev, GC_HWIP, 0)) {
	case IP_VERSION(9, 4, 3):
	case IP_VERSION(9, 4, 4):
		return &amdgpu_object(gc_9_4_3_kfd2kgd);
	default:
		return NULL;
	}
}

static bool completes_atomics(struct pci_dev *pdev)
{
	u32 capabilities;

	if (pcie_capability_read_dword(pdev, PCI_EXP_DEVCAP2, &capabilities))
		return false;
	return capabilities & (PCI_EXP_DEVCAP2_ATOMIC_COMP32 | PCI_EXP_DEVCAP2_ATOMIC_COMP64);
}

static void identity(struct amdgpu_device *adev, struct bridge_facts *facts)
{
	struct pci_dev *pdev = adev->pdev;

	facts->gc_version = amdgpu_ip_version(adev, GC_HWIP, 0);
	facts->sdma_version = amdgpu_ip_version(adev, SDMA0_HWIP, 0);
	facts->ih_version = amdgpu_ip_version(adev, OSSSYS_HWIP, 0);
	facts->asic_type = adev->asic_type;
	strscpy(facts->asic_name, amdgpu_object(amdgpu_asic_name)[adev->asic_type],
		sizeof(facts->asic_name));
	facts->pci_domain = pci_domain_nr(pdev->bus);
	facts->pci_bus = pdev->bus->number;
	facts->pci_devfn = pdev->devfn;
	facts->vendor = pdev->vendor;
	facts->device = pdev->device;
	facts->subsystem_vendor = pdev->subsystem_vendor;
	facts->subsystem_device = pdev->subsystem_device;
	facts->revision = adev->rev_id;
	facts->numa_node = dev_to_node(&pdev->dev);
	facts->unique_id = adev->unique_id;
	facts->aid_mask = adev->aid_mask;
	facts->is_apu = adev->flags & AMD_IS_APU;
	facts->is_app_apu = adev->gmc.is_app_apu;
	facts->prefers_gtt = adev->apu_prefer_gtt;
	facts->is_vf = amdgpu_sriov_vf(adev);
	facts->atomics = amdgpu_call(amdgpu_amdkfd_have_atomics_support)(adev);
	facts->large_bar_debug = adev->debug_largebar;
	facts->enable_mes = adev->enable_mes;
	facts->ras_enabled = adev->ras_enabled;
	facts->ras_gfx = adev->ras_enabled & BIT(AMDGPU_RAS_BLOCK__GFX);
	facts->ras_umc = adev->ras_enabled & BIT(AMDGPU_RAS_BLOCK__UMC);
	facts->queue_reset = amdgpu_object(amdgpu_gpu_recovery) &&
			     !adev->debug_disable_gpu_ring_reset;
	facts->package_is_apu = adev->smuio.funcs && adev->smuio.funcs->get_pkg_type &&
				adev->smuio.funcs->get_pkg_type(adev) == AMDGPU_PKG_TYPE_APU;
	facts->pcie_atomic_completer = completes_atomics(pdev);
	if (adev->gmc.gmc_funcs->query_mem_partition_mode)
		facts->memory_partition_mode = adev->gmc.gmc_funcs->query_mem_partition_mode(adev);
	facts->mec_fw_version = amdgpu_call(amdgpu_amdkfd_get_fw_version)(adev, KGD_ENGINE_MEC1);
	facts->mec2_fw_version = amdgpu_call(amdgpu_amdkfd_get_fw_version)(adev, KGD_ENGINE_MEC2);
	facts->sdma_fw_version = amdgpu_call(amdgpu_amdkfd_get_fw_version)(adev, KGD_ENGINE_SDMA1);
}

static void graphics_core(struct amdgpu_device *adev, struct bridge_facts *facts)
{
	const struct amdgpu_gfx_config *config = &adev->gfx.config;
	const struct amdgpu_cu_info *cu = &adev->gfx.cu_info;
	unsigned int xcc;

	facts->xcc_mask = adev->gfx.xcc_mask;
	facts->num_xcc_per_xcp = adev->gfx.num_xcc_per_xcp;
	facts->max_shader_engines = config->max_shader_engines;
	facts->max_sh_per_se = config->max_sh_per_se;
	facts->max_cu_per_sh = config->max_cu_per_sh;
	facts->cu_count = cu->number;
	facts->simd_per_cu = cu->simd_per_cu;
	facts->max_waves_per_simd = cu->max_waves_per_simd;
	facts->wave_front_size = cu->wave_front_size;
	facts->max_scratch_slots_per_cu = cu->max_scratch_slots_per_cu;
	facts->lds_size = cu->lds_size;
	static_assert(sizeof(facts->cu_bitmap) >= sizeof(cu->bitmap));
	memcpy(facts->cu_bitmap, cu->bitmap, sizeof(cu->bitmap));
	facts->max_engine_clock = amdgpu_call(amdgpu_amdkfd_get_max_engine_clock_in_mhz)(adev);
	/* Only the firmware's scheduler gives it to a queue. */
	facts->gws_size = amdgpu_object(sched_policy) == KFD_SCHED_POLICY_NO_HWS ?
			  0 : adev->gds.gws_size;
	for (xcc = 0; xcc < BRIDGE_MAX_XCC; xcc++)
		facts->logical_to_physical_xcc[xcc] = adev->ip_map.logical_to_dev_inst ?
			adev->ip_map.logical_to_dev_inst(adev, GC_HWIP, xcc) : xcc;
}

static void caches(struct amdgpu_device *adev, struct bridge_facts *facts)
{
	const struct amdgpu_gfx_config *config = &adev->gfx.config;

	facts->gc_tcp_size_per_cu = config->gc_tcp_size_per_cu;
	facts->gc_tcp_l1_size = config->gc_tcp_l1_size;
	facts->gc_tcp_cache_line_size = config->gc_tcp_cache_line_size;
	facts->gc_num_tcp_per_wpg = config->gc_num_tcp_per_wpg;
	facts->gc_num_cu_per_sqc = config->gc_num_cu_per_sqc;
	facts->gc_num_sqc_per_wgp = config->gc_num_sqc_per_wgp;
	facts->gc_l1_instruction_cache_size_per_sqc = config->gc_l1_instruction_cache_size_per_sqc;
	facts->gc_instruction_cache_line_size = config->gc_instruction_cache_line_size;
	facts->gc_l1_data_cache_size_per_sqc = config->gc_l1_data_cache_size_per_sqc;
	facts->gc_scalar_data_cache_line_size = config->gc_scalar_data_cache_line_size;
	facts->gc_tcc_size = config->gc_tcc_size;
	facts->gc_tcc_cache_line_size = config->gc_tcc_cache_line_size;
	facts->gc_gl1c_per_sa = config->gc_gl1c_per_sa;
	facts->gc_gl1c_size_per_instance = config->gc_gl1c_size_per_instance;
	facts->gc_gl2c_per_gpu = config->gc_gl2c_per_gpu;
	facts->mall_size = adev->gmc.mall_size;
}

static void memory(struct amdgpu_device *adev, struct bridge_facts *facts)
{
	const struct amdgpu_gmc *gmc = &adev->gmc;

	facts->real_vram_size = gmc->real_vram_size;
	facts->visible_vram_size = gmc->visible_vram_size;
	facts->shared_aperture_start = gmc->shared_aperture_start;
	facts->shared_aperture_end = gmc->shared_aperture_end;
	facts->private_aperture_start = gmc->private_aperture_start;
	facts->private_aperture_end = gmc->private_aperture_end;
	facts->max_pfn = adev->vm_manager.max_pfn;
	facts->xgmi_hive_id = gmc->xgmi.hive_id;
	facts->xgmi_physical_node_id = gmc->xgmi.physical_node_id;
	facts->xgmi_num_physical_nodes = gmc->xgmi.num_physical_nodes;
	facts->xgmi_supported = gmc->xgmi.supported;
	facts->connected_to_cpu = gmc->xgmi.connected_to_cpu;
	facts->noretry = gmc->noretry;
	facts->xnack_flags = gmc->xnack_flags;
	facts->mmio_remap_address = adev->rmmio_remap.bus_addr;
	facts->num_sdma_engines = adev->sdma.num_instances;
}

/* The bits of the packet SET_RESOURCES for the queues of the first MEC that compute may use. */
static u64 queue_mask(struct amdgpu_device *adev, const struct kgd2kfd_shared_resources *resources)
{
	unsigned int queues = resources->num_pipe_per_mec * resources->num_queue_per_pipe;
	unsigned int queue;
	u64 mask = 0;
	int bit;

	for_each_set_bit(queue, resources->cp_queue_bitmap, min_t(unsigned int, queues, 64)) {
		bit = amdgpu_call(amdgpu_queue_mask_bit_to_set_resource_bit)(adev, queue);
		if (bit >= 0 && bit < 64)
			mask |= BIT_ULL(bit);
	}
	return mask;
}

static void resources(struct amdgpu_device *adev, const struct kgd2kfd_shared_resources *given,
		      struct bridge_facts *facts)
{
	unsigned int engine, queues;

	facts->compute_vmid_bitmap = given->compute_vmid_bitmap;
	facts->num_pipe_per_mec = given->num_pipe_per_mec;
	facts->num_queue_per_pipe = given->num_queue_per_pipe;
	facts->set_resources_queue_mask = queue_mask(adev, given);
	facts->compute_queue_bitmap = given->cp_queue_bitmap[0];
	queues = given->num_pipe_per_mec * given->num_queue_per_pipe;
	if (queues < 64)
		facts->compute_queue_bitmap &= BIT_ULL(queues) - 1;
	for (engine = 0; engine < min(facts->num_sdma_engines, BRIDGE_MAX_SDMA); engine++)
		facts->sdma_doorbell_index[engine] = given->sdma_doorbell_idx[engine];
	facts->non_cp_doorbells_start = given->non_cp_doorbells_start;
	facts->non_cp_doorbells_end = given->non_cp_doorbells_end;
	facts->doorbell_address = given->doorbell_physical_address;
	facts->doorbell_size = given->doorbell_aperture_size;
	facts->doorbell_start_offset = given->doorbell_start_offset;
	facts->gpuvm_size = given->gpuvm_size;
	facts->render_minor = given->drm_render_minor;
}

/* Without a partition manager the whole device is the one partition. */
static void whole_device(struct amdgpu_device *adev, struct bridge_facts *facts)
{
	struct bridge_partition *partition = &facts->partitions[0];

	facts->partition_mode = -1;
	facts->num_partitions = 1;
	partition->id = -1;
	partition->mem_id = -1;
	partition->xcc_mask = GENMASK(NUM_XCC(adev->gfx.xcc_mask) - 1, 0);
	partition->render_minor = facts->render_minor;
	partition->memory_size = adev->gmc.real_vram_size;
}

/* amdgpu holds xcp_lock whenever it brings compute up on a device with a partition manager. */
static void partitions(struct amdgpu_device *adev, struct bridge_facts *facts)
{
	struct bridge_partition *partition;
	struct amdgpu_xcp *xcp;
	int id;

	if (!adev->xcp_mgr || !NUM_XCC(adev->gfx.xcc_mask)) {
		whole_device(adev, facts);
		return;
	}
	facts->partition_mode = amdgpu_call(amdgpu_xcp_query_partition_mode)(adev->xcp_mgr,
									    AMDGPU_XCP_FL_LOCKED);
	for_each_xcp(adev->xcp_mgr, xcp, id) {
		if (facts->num_partitions == BRIDGE_MAX_XCP)
			break;
		partition = &facts->partitions[facts->num_partitions++];
		partition->id = xcp->id;
		partition->mem_id = xcp->mem_id;
		if (facts->partition_mode != AMDGPU_SPX_PARTITION_MODE)
			partition->unique_id = xcp->unique_id;
		partition->no_render_node = !xcp->ddev;
		if (xcp->ddev)
			partition->render_minor = xcp->ddev->render->index;
		partition->memory_size = amdgpu_call(amdgpu_amdkfd_xcp_memory_size)(adev, xcp->id);
		amdgpu_call(amdgpu_xcp_get_inst_details)(xcp, AMDGPU_XCP_GFX, &partition->xcc_mask);
	}
}

static void parameters(struct bridge_facts *facts)
{
	facts->queue_preemption_timeout_ms = amdgpu_object(queue_preemption_timeout_ms);
	facts->max_num_of_queues_per_device = amdgpu_object(max_num_of_queues_per_device);
	facts->sched_policy = amdgpu_object(sched_policy);
	facts->hws_max_conc_proc = amdgpu_object(hws_max_conc_proc);
	facts->sdma_phase_quantum = amdgpu_object(amdgpu_sdma_phase_quantum);
	facts->cwsr_enable = amdgpu_object(cwsr_enable);
	facts->hws_gws_support = amdgpu_object(hws_gws_support);
	facts->use_xgmi_p2p = amdgpu_object(amdgpu_use_xgmi_p2p);
	facts->send_sigterm = amdgpu_object(send_sigterm);
	facts->no_queue_eviction_on_vm_fault = amdgpu_object(amdgpu_no_queue_eviction_on_vm_fault);
	facts->debug_evictions = amdgpu_object(debug_evictions);
	facts->emulation = amdgpu_object(amdgpu_emu_mode) == 1;
}

int bridge_facts(struct amdgpu_device *adev, const struct kgd2kfd_shared_resources *given,
		 struct bridge_facts *facts)
{
	memset(facts, 0, sizeof(*facts));
	identity(adev, facts);
	graphics_core(adev, facts);
	caches(adev, facts);
	memory(adev, facts);
	if (given)
		resources(adev, given, facts);
	partitions(adev, facts);
	parameters(facts);
	return facts->num_partitions ? 0 : -ENODEV;
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
	hw->get_cu_occupancy(adev, found, &max_waves, xcc);
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

int bridge_doorbells_alloc(struct amdgpu_device *adev, u64 size, bool map_for_cpu,
			   struct bridge_doorbells *out)
{
	int ret;

	memset(out, 0, sizeof(*out));
	ret = amdgpu_call(amdgpu_bo_create_kernel)(adev, size, PAGE_SIZE,
						   AMDGPU_GEM_DOMAIN_DOORBELL, &out->bo, NULL,
						   map_for_cpu ? &out->cpu : NULL);
	if (ret)
		return ret;
	out->index = amdgpu_call(amdgpu_doorbell_index_on_bar)(adev, out->bo, 0, sizeof(u64));
	return 0;
}

void bridge_doorbells_free(struct amdgpu_device *adev, struct bridge_doorbells *doorbells)
{
	amdgpu_call(amdgpu_bo_free_kernel)(&doorbells->bo, NULL,
					   doorbells->cpu ? &doorbells->cpu : NULL);
}

void bridge_doorbell_ring(const struct bridge_doorbells *doorbells, u32 offset, u64 value)
{
	writeq(value, (void __iomem *)doorbells->cpu + offset);
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

	return hw ? hw->hiq_mqd_load(adev, mqd, pipe, queue, doorbell, xcc) : -ENODEV;
}

int bridge_hiq_unmap(struct amdgpu_device *adev, u32 doorbell, u32 xcc)
{
	return amdgpu_call(amdgpu_amdkfd_unmap_hiq)(adev, doorbell, xcc);
}

static_assert(BRIDGE_PREEMPT_DRAIN == KFD_PREEMPT_TYPE_WAVEFRONT_DRAIN);
static_assert(BRIDGE_PREEMPT_RESET == KFD_PREEMPT_TYPE_WAVEFRONT_RESET);
static_assert(BRIDGE_PREEMPT_SAVE == KFD_PREEMPT_TYPE_WAVEFRONT_SAVE);

#define for_each_xcc(xcc, mask) for_each_set_bit(xcc, &(unsigned long){ mask }, BRIDGE_MAX_XCC)

static void flush_vmid(struct amdgpu_device *adev, u32 vmid, u32 xcc_mask)
{
	unsigned int xcc;

	for_each_xcc(xcc, xcc_mask)
		amdgpu_call(amdgpu_gmc_flush_gpu_tlb)(adev, vmid, AMDGPU_GFXHUB(xcc),
						      BRIDGE_TLB_HEAVYWEIGHT);
	for_each_set_bit(xcc, adev->vmhubs_mask, AMDGPU_MAX_VMHUBS) {
		if (xcc >= AMDGPU_MMHUB0(0))
			amdgpu_call(amdgpu_gmc_flush_gpu_tlb)(adev, vmid, xcc,
							      BRIDGE_TLB_HEAVYWEIGHT);
	}
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
		ret = hw->set_pasid_vmid_mapping(adev, binding->pasid, vmid, xcc);
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
	const struct kfd2kgd_calls *hw = hardware(adev);
	unsigned int xcc;

	if (!hw)
		return;
	flush_vmid(adev, vmid, xcc_mask);
	for_each_xcc(xcc, xcc_mask)
		hw->set_pasid_vmid_mapping(adev, 0, vmid, xcc);
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
	int ret = hw ? hw->hqd_dump(adev, pipe, queue, &dump, &count, xcc) : -ENODEV;

	return ret ? ret : registers(dump, count, out);
}

int bridge_sdma_registers(struct amdgpu_device *adev, u32 engine, u32 queue,
			  struct bridge_register *out)
{
	const struct kfd2kgd_calls *hw = hardware(adev);
	u32 (*dump)[2], count;
	int ret = hw ? hw->hqd_sdma_dump(adev, engine, queue, &dump, &count) : -ENODEV;

	return ret ? ret : registers(dump, count, out);
}

int bridge_sdma_load(struct amdgpu_device *adev, struct bridge_vm *vm, void *mqd, u64 write_pointer)
{
	const struct kfd2kgd_calls *hw = hardware(adev);
	struct mm_struct *mm = bridge_vm_get_mm(vm);
	int ret;

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
