// SPDX-License-Identifier: GPL-2.0-only
/*
 * bridge.h in terms of amdgpu: buffers of VRAM, which is to be cleared when a process gets it
 * (amdgpu_bridge_engines.c says when amdgpu's clears are not to be trusted).
 */
#include <linux/atomic.h>
#include <linux/dma-fence.h>
#include <linux/dma-resv.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>

#include "amdgpu_bind.h"
#include "amdgpu_job.h"
#include "bridge.h"
#include "bridge_engines.h"
#include "bridge_vm.h"

/*
 * Would amdgpu add such a size to its sums of used memory, and make them less by that? Those of
 * system memory are signed, and in 7.2 it compares VRAM after an addition that goes round; an APU's
 * VRAM may count as system memory. It first looks for the kind of memory, and for a userptr's
 * address.
 */
static bool is_less_than_nothing(u64 size, u32 flags, u64 user)
{
	const u32 own = KFD_IOC_ALLOC_MEM_FLAGS_VRAM | KFD_IOC_ALLOC_MEM_FLAGS_GTT;
	bool counted = flags & own ||
		       (flags & KFD_IOC_ALLOC_MEM_FLAGS_USERPTR && user);

	return counted && PAGE_ALIGN(size) > S64_MAX;
}

static struct amdgpu_ttm_buffer_entity *clear_entity(struct amdgpu_mman *mman)
{
	struct amdgpu_ttm_buffer_entity *entity;
	u32 i, turn;

	for (i = 0; i < mman->num_clear_entities; i++) {
		turn = (u32)atomic_inc_return(&mman->next_clear_entity) % mman->num_clear_entities;
		entity = &mman->clear_entities[turn];
		if (!bridge_entity_has_failed(&entity->base))
			return entity;
	}
	return NULL;
}

/* The jobs that clear it; the last one's fence. It waits for nothing itself. */
static int begin_clear(struct amdgpu_bo *bo, struct dma_fence **fence)
{
	struct amdgpu_device *adev = amdgpu_ttm_adev(bo->tbo.bdev);
	struct amdgpu_ttm_buffer_entity *entity;
	int idx, ret = -EIO;

	if (!amdgpu_call(drm_dev_enter)(adev_to_drm(adev), &idx))
		return -ENODEV;
	entity = clear_entity(&adev->mman);
	if (entity)
		ret = amdgpu_call(amdgpu_ttm_clear_buffer)
			(entity, bo, NULL, fence, false, AMDGPU_KERNEL_JOB_ID_TTM_CLEAR_BUFFER);
	amdgpu_call(drm_dev_exit)(idx);
	return ret;
}

/*
 * amdgpu ends what takes too long, but not where a reset of the GPU has failed: then its schedulers
 * stand still until one succeeds. So long nobody waits, nor who is being killed.
 */
static int await_clears(struct dma_resv *resv)
{
	u32 i;

	for (i = 0; i < 100 && !fatal_signal_pending(current); i++)
		if (dma_resv_wait_timeout(resv, DMA_RESV_USAGE_KERNEL, false, HZ / 10) > 0)
			return 0;
	return -ETIME;
}

/*
 * Under the buffer's reservation, so that it stays in VRAM; it may have left that already. It is
 * waited for as amdgpu waits in this call: that ends a job which takes too long.
 */
static int clear_reserved(struct amdgpu_bo *bo)
{
	struct dma_resv *resv = bo->tbo.base.resv;
	struct ttm_operation_ctx ctx = {};
	struct dma_fence *fence = NULL;
	int ret, cleared;

	amdgpu_call(amdgpu_bo_placement_from_domain)(bo, AMDGPU_GEM_DOMAIN_VRAM);
	ret = amdgpu_call(ttm_bo_validate)(&bo->tbo, &bo->placement, &ctx);
	if (ret)
		return ret;
	ret = await_clears(resv);
	if (ret)
		return ret;
	ret = dma_resv_reserve_fences(resv, 1);
	if (ret)
		return ret;
	ret = begin_clear(bo, &fence);
	if (!fence)
		return ret;
	/* The memory is nobody else's before it has ended, whoever waits. */
	dma_resv_add_fence(resv, fence, DMA_RESV_USAGE_KERNEL);
	cleared = await_clears(resv);
	if (!cleared)
		cleared = min(dma_fence_get_status(fence), 0);
	dma_fence_put(fence);
	return ret ? ret : cleared;
}

/*
 * Whether what amdgpu has just cleared, or has called cleared already, need not be. It has waited
 * for that itself, but for buffers of processes that are evicted.
 */
static bool is_cleared(struct bridge_engines *engines, struct amdgpu_bo *bo)
{
	if (await_clears(bo->tbo.base.resv))
		return false;
	bridge_engines_heal(engines, true);
	return !bridge_engines_distrusted(engines);
}

static int clear(struct kgd_mem *mem)
{
	struct dma_resv *resv = mem->bo->tbo.base.resv;
	int ret;

	dma_resv_lock(resv, NULL);
	ret = clear_reserved(mem->bo);
	dma_resv_unlock(resv);
	return ret;
}

/*
 * Nobody has heard of it, nor sees to it when the process ends. Who is being killed does not get
 * the buffer's reservation while somebody evicts it, who has it as long as that takes.
 */
static void free_unheard_of(struct amdgpu_device *adev, struct bridge_vm *vm, struct kgd_mem *mem,
			    u64 size)
{
	struct dma_resv *resv = mem->bo->tbo.base.resv;
	int ret;

	while (true) {
		ret = bridge_memory_free(adev, vm, mem, false, &size);
		if (ret != -EINTR && ret != -ERESTARTSYS)
			break;
		dma_resv_lock(resv, NULL);
		dma_resv_unlock(resv);
	}
	if (!ret)
		return;
	dev_warn(adev->dev, "amdkfd: a buffer of %llu bytes is leaked: %d\n", size, ret);
	/* What it has not been cleared of must not be another file's to map. */
	bridge_vm_keep_file(vm);
}

int bridge_memory_alloc(struct amdgpu_device *adev, struct bridge_vm *vm, u64 address, u64 size,
			u32 flags, bool restored, u64 *offset, struct kgd_mem **out)
{
	struct bridge_engines *engines = bridge_engines_of(adev);
	int ret;

	if (bridge_is_unplugged(adev))
		return -ENODEV;
	if (is_less_than_nothing(size, flags, *offset))
		return -ENOMEM;
	if (engines)
		bridge_engines_heal(engines, true);
	ret = amdgpu_call(amdgpu_amdkfd_gpuvm_alloc_memory_of_gpu)(adev, address, size,
								   vm->drm_priv, out, offset,
								   flags, restored);
	if (ret || !engines || (*out)->domain != AMDGPU_GEM_DOMAIN_VRAM ||
	    is_cleared(engines, (*out)->bo))
		return ret;
	ret = clear(*out);
	if (!ret)
		return 0;
	dev_info_ratelimited(adev->dev, "amdkfd: VRAM cannot be cleared: %d\n", ret);
	free_unheard_of(adev, vm, *out, size);
	return -ENOMEM;
}
