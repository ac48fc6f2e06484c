// SPDX-License-Identifier: GPL-2.0-only
/*
 * What is known of a device, as bridge.h has it: read once, when amdgpu brings it up; and how much
 * memory there is, whenever it is asked for.
 */
#include <linux/pci.h>
#include <linux/seq_file.h>
#include <drm/drm_drv.h>

#include "amdgpu_bind.h"
#include "bridge.h"

static_assert(BRIDGE_MAX_XCC >= AMDGPU_MAX_GC_INSTANCES);
static_assert(BRIDGE_MAX_XCP >= MAX_XCP);
static_assert(BRIDGE_MAX_SDMA >= AMDGPU_MAX_SDMA_INSTANCES);

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
	facts->pci_revision = adev->pdev->revision;
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
	/* amdgpu warns of each question that the chip has no answer to (9.4.2). */
	if (adev->nbio.funcs && adev->nbio.funcs->get_memory_partition_mode &&
	    adev->gmc.gmc_funcs->query_mem_partition_mode)
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

bool bridge_has_vram_pages(struct amdgpu_device *adev)
{
	return adev->kfd.pgmap.type != 0;
}

int bridge_vram_pages(struct amdgpu_device *adev, struct bridge_vram_pages *out)
{
	const struct dev_pagemap *pgmap = &adev->kfd.pgmap;

	if (pgmap->type != MEMORY_DEVICE_PRIVATE)
		return -EOPNOTSUPP;
	out->first = pgmap->range.start >> PAGE_SHIFT;
	out->count = range_len(&pgmap->range) >> PAGE_SHIFT;
	out->owner = pgmap->owner;
	return 0;
}

u64 bridge_memory_available(struct amdgpu_device *adev, u32 partition)
{
	u64 available = amdgpu_call(amdgpu_amdkfd_get_available_memory)(adev, partition);

	/* What a buffer takes: not every kernel's amdgpu rounds here. */
	return ALIGN_DOWN(available, adev->apu_prefer_gtt ? PAGE_SIZE : VRAM_AVAILABILITY_ALIGN);
}

size_t bridge_memory_limits(char *text, size_t size)
{
	struct seq_file file = { .buf = text, .size = size };

	amdgpu_call(kfd_debugfs_kfd_mem_limits)(&file, NULL);
	return min(file.count, size);
}
