// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages of the doorbells' aperture that are the kernel's.
 */
#include <linux/dma-resv.h>
#include <linux/io-64-nonatomic-lo-hi.h>

#include "amdgpu_bind.h"
#include "bridge.h"

/*
 * amdgpu_bo_create_kernel() waits for jobs of each user of the render node whose buffer is in the
 * way, 15 s for one. The caller may have all devices locked, or be the worker that resets this one.
 */
int bridge_doorbells_alloc(struct amdgpu_device *adev, u64 size, bool map_for_cpu,
			   struct bridge_doorbells *out)
{
	struct amdgpu_bo_param param = {
		.size = size,
		.byte_align = PAGE_SIZE,
		.domain = AMDGPU_GEM_DOMAIN_DOORBELL,
		.flags = AMDGPU_GEM_CREATE_VRAM_CONTIGUOUS |
			 (map_for_cpu ? AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED :
					AMDGPU_GEM_CREATE_NO_CPU_ACCESS),
		.type = ttm_bo_type_kernel,
		.bo_ptr_size = sizeof(struct amdgpu_bo),
		.no_wait_gpu = true,
	};
	int ret;

	memset(out, 0, sizeof(*out));
	ret = amdgpu_call(amdgpu_bo_create)(adev, &param, &out->bo);
	if (ret)
		return ret == -ENOSPC || ret == -EBUSY ? -ENOMEM : ret;
	dma_resv_lock(out->bo->tbo.base.resv, NULL);
	ret = amdgpu_call(amdgpu_bo_pin)(out->bo, AMDGPU_GEM_DOMAIN_DOORBELL);
	if (!ret && map_for_cpu) {
		ret = amdgpu_call(amdgpu_bo_kmap)(out->bo, &out->cpu);
		if (ret)
			amdgpu_call(amdgpu_bo_unpin)(out->bo);
	}
	dma_resv_unlock(out->bo->tbo.base.resv);
	if (ret) {
		amdgpu_call(amdgpu_bo_unref)(&out->bo);
		return ret;
	}
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
