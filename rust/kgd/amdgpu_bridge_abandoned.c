// SPDX-License-Identifier: GPL-2.0-only
/*
 * Jobs that a device had when it was unplugged. amdgpu ends those that its engines have got once,
 * takes no interrupt from then on, and asks nobody about a job that has timed out: what an engine
 * was given at that moment, or afterwards, never ends, nor does what waits for it: a process that
 * has memory of that device, on any other GPU, too, and unbinding itself.
 */
#include <linux/dma-fence.h>
#include <linux/rcupdate.h>

#include "amdgpu_bind.h"
#include "amdgpu_ring.h"
#include "bridge_vm.h"

static void end_one(struct dma_fence *fence)
{
	unsigned long flags;

	dma_fence_lock_irqsave(fence, flags);
	if (!test_bit(DMA_FENCE_FLAG_SIGNALED_BIT, &fence->flags)) {
		dma_fence_set_error(fence, -ENODEV);
		dma_fence_signal_locked(fence);
	}
	dma_fence_unlock_irqrestore(fence, flags);
}

/*
 * amdgpu_job_timedout() of a device that was unplugged. What hardware has done counts as done; the
 * rest of what the ring has is cancelled, and so is, by its error, what its queue has behind it.
 * The fences stay in their places, where amdgpu finds them signalled. It says that nothing hangs:
 * what is emitted later is looked at when it times out.
 */
enum drm_gpu_sched_stat bridge_job_abandoned(struct drm_sched_job *job)
{
	struct amdgpu_ring *ring = to_amdgpu_ring(job->sched);
	struct amdgpu_fence_driver *driver = &ring->fence_drv;
	struct dma_fence *fence;
	u32 i;

	/* What such a one has done stands in VRAM, which may be gone. */
	if (ring->funcs->type != AMDGPU_RING_TYPE_UVD)
		amdgpu_call(amdgpu_fence_process)(ring);
	for (i = 0; i <= driver->num_fences_mask; i++) {
		rcu_read_lock();
		fence = dma_fence_get_rcu_safe(&driver->fences[i]);
		rcu_read_unlock();
		if (!fence)
			continue;
		end_one(fence);
		dma_fence_put(fence);
	}
	dev_info(ring->adev->dev, "amdkfd: the device is gone: ends the jobs of ring %s\n",
		 ring->name);
	return DRM_GPU_SCHED_STAT_NO_HANG;
}
