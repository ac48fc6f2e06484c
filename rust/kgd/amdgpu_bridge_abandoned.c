// SPDX-License-Identifier: GPL-2.0-only
/*
 * Jobs that a device had when it was unplugged. amdgpu ends those that its engines have got once,
 * takes no interrupt from then on, and asks nobody about a job that has timed out: what an engine
 * was given at that moment, or afterwards, never ends, nor does what waits for it: a process that
 * has memory of that device, on any other GPU, too, and unbinding itself.
 */
#include <linux/dma-fence.h>

#include "amdgpu_bind.h"
#include "amdgpu_ring.h"
#include "bridge_vm.h"

/* Whether it is this that ends it. */
static bool end_one(struct dma_fence *fence)
{
	unsigned long flags;
	bool ends;

	dma_fence_lock_irqsave(fence, flags);
	ends = !test_bit(DMA_FENCE_FLAG_SIGNALED_BIT, &fence->flags);
	if (ends) {
		dma_fence_set_error(fence, -ENODEV);
		dma_fence_signal_locked(fence);
	}
	dma_fence_unlock_irqrestore(fence, flags);
	return ends;
}

/*
 * amdgpu_job_timedout() of a device that was unplugged: the job is cancelled, and so is, by its
 * error, what its queue has behind it. The engine may be done with it: of that nobody tells, and
 * where it would say so is memory that amdgpu gives back at some time. What the engine has got
 * beside it may go on, and times out as well if it does not end. It says that nothing hangs: else
 * nobody asks any more.
 */
enum drm_gpu_sched_stat bridge_job_abandoned(struct drm_sched_job *job)
{
	struct amdgpu_ring *ring = to_amdgpu_ring(job->sched);
	struct dma_fence *engines = READ_ONCE(job->s_fence->parent);

	if (engines && end_one(engines))
		dev_info(ring->adev->dev, "amdkfd: unplugged: cancels a job of ring %s\n",
			 ring->name);
	return DRM_GPU_SCHED_STAT_NO_HANG;
}
