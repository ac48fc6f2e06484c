// SPDX-License-Identifier: GPL-2.0-only
/*
 * Buffers that lose their memory and get no other. TTM evicts so what amdgpu has no other place for
 * (amdgpu_evict_flags): what its user has called discardable, imports, and what lies in one of the
 * small apertures, such as doorbells. It tells nobody, as it does of moves
 * (ttm_bo_pipeline_gutting): page tables and the CPU's would lead to memory that is given to
 * somebody else.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>

#include <drm/drm_gem.h>

#include "amdgpu_bind.h"
#include "bridge_vm.h"

/*
 * What amdgpu_bo_move_notify() does, and TTM around it, but for what amdgpu counts: it may be that
 * the buffer keeps its memory, where a signal ends TTM's wait for those who use it. Then what is
 * said here is of no harm: the same is written once more. Who compute uses it for is stopped by
 * that wait, and restored.
 */
void bridge_gutted(struct ttm_buffer_object *tbo)
{
	struct amdgpu_bo *bo;

	dma_resv_assert_held(tbo->base.resv);
	if (!amdgpu_call(amdgpu_bo_is_amdgpu_bo)(tbo))
		return;
	bo = ttm_to_amdgpu_bo(tbo);
	if (bridge_keeps_addresses(bo))
		return;
	/* Who touches it waits for the reservation. Device pages have other mappings. */
	if (!(bo->flags & AMDGPU_GEM_CREATE_NO_CPU_ACCESS))
		amdgpu_call(ttm_bo_unmap_virtual)(tbo);
	amdgpu_call(amdgpu_vm_bo_invalidate)(bo, true);
	amdgpu_call(amdgpu_bo_kunmap)(bo);
	if (tbo->base.dma_buf && !drm_gem_is_imported(&tbo->base))
		dma_buf_invalidate_mappings(tbo->base.dma_buf);
}
