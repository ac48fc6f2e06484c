// SPDX-License-Identifier: GPL-2.0-only
/*
 * Jobs that a device had when it was unplugged. amdgpu ends those that its engines have got once,
 * takes no interrupt from then on, and asks nobody about a job that has timed out: what an engine
 * was given at that moment, or afterwards, never ends, nor does what waits for it: a process that
 * has memory of that device, on any other GPU, too, and unbinding itself. And what others have of
 * its memory by dma-bufs, which amdgpu gives back under them.
 */
#include <linux/atomic.h>
#include <linux/delay.h>
#include <linux/dma-buf.h>
#include <linux/dma-fence.h>
#include <linux/dma-resv.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>

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
 * amdgpu_job_timedout() of a device that was unplugged. What hardware has done counts as done, as
 * long as there is the memory in which it says so. If that is the job that has timed out, others of
 * the ring may be at work still. Else they are behind what hangs: all that the ring has is
 * cancelled, be it in the way of the scheduler that emits the next one, and so is, by its error,
 * what is queued behind. It says that nothing hangs: else nobody asks any more.
 */
enum drm_gpu_sched_stat bridge_job_abandoned(struct drm_sched_job *job)
{
	struct amdgpu_ring *ring = to_amdgpu_ring(job->sched);
	struct amdgpu_fence_driver *driver = &ring->fence_drv;
	struct dma_fence *own = READ_ONCE(job->s_fence->parent);
	struct dma_fence *fence;
	bool ends = false;
	u32 i;

	/* A UVD says it in VRAM, which may be gone. */
	if (READ_ONCE(ring->adev->irq.installed) && ring->funcs->type != AMDGPU_RING_TYPE_UVD)
		amdgpu_call(amdgpu_fence_process)(ring);
	/* If it was cancelled here, something that it is in the way of may have come since. */
	if (!own || (test_bit(DMA_FENCE_FLAG_SIGNALED_BIT, &own->flags) &&
		     own->error != -ENODEV))
		return DRM_GPU_SCHED_STAT_NO_HANG;
	for (i = 0; i <= driver->num_fences_mask; i++) {
		rcu_read_lock();
		fence = dma_fence_get_rcu_safe(&driver->fences[i]);
		rcu_read_unlock();
		if (!fence)
			continue;
		ends |= end_one(fence);
		dma_fence_put(fence);
	}
	/* Its place may be another one's. */
	ends |= end_one(own);
	if (ends)
		dev_info(ring->adev->dev, "amdkfd: unplugged: cancels the jobs of ring %s\n",
			 ring->name);
	return DRM_GPU_SCHED_STAT_NO_HANG;
}

/* Moves and clears of the device give jobs to one of these, under its lock from the first on. */
static struct amdgpu_ttm_buffer_entity *queue_of(struct amdgpu_mman *mman, u32 i)
{
	if (i < mman->num_move_entities)
		return &mman->move_entities[i];
	i -= mman->num_move_entities;
	if (i < mman->num_clear_entities)
		return &mman->clear_entities[i];
	return i == mman->num_clear_entities ? &mman->default_entity : NULL;
}

static bool is_locked(struct mutex *lock)
{
#ifdef CONFIG_PREEMPT_RT
	return mutex_is_locked(lock);
#else
	/* Also while it is handed on. */
	return atomic_long_read(&lock->owner);
#endif
}

/* What somebody does with these queues at one time. */
struct look {
	bool filled;	/* one is locked */
	bool still;	/* one stands still, and was not ended yet */
};

/*
 * end: ends those that stand still, be it behind a reset that has failed: amdgpu waits for what
 * lies in them, and so does who waits for room in the pool that it has a piece of. He goes on with
 * what is ended then, which nobody else takes, either.
 */
static struct look look_at(struct amdgpu_mman *mman, bool end)
{
	struct amdgpu_ttm_buffer_entity *queue;
	struct look look = { };
	bool still, ended;
	u32 i;

	for (i = 0; (queue = queue_of(mman, i)); i++) {
		look.filled |= is_locked(&queue->lock);
		ended = READ_ONCE(queue->base.stopped);
		still = !ended && bridge_stands_still(&queue->base);
		if (ended || (still && end))
			amdgpu_call(drm_sched_entity_kill)(&queue->base);
		else
			look.still |= still;
	}
	return look;
}

/* More than amdgpu gives a job, if nobody has asked for a minute. */
#define FILLED_TIMEOUT_MS 60000
#define FILLED_POLL_MS 20
/* A move may take one lock after the other. */
#define FREE_LOOKS 3

/*
 * amdgpu ends these queues, and does not ask whether somebody fills one: a move of many MiB is as
 * many jobs, with waits for room in their pool in between. What he adds afterwards nobody takes, so
 * that there is no room any more, and he uses what was freed with the queue (entity->stats). No
 * move begins any more (amdgpu_bo_move), and what an engine has got is cancelled when it times out,
 * so he ends.
 */
void bridge_moves_end(struct amdgpu_device *adev)
{
	unsigned int waited = 0, still = 0, free = 0, patience = 0;
	struct look look;

	if (!adev->mman.buffer_funcs_enabled)
		return;
	/* Who has asked just before the device was unplugged has the lock by then. */
	while (free < FREE_LOOKS && waited < FILLED_TIMEOUT_MS) {
		msleep(FILLED_POLL_MS);
		waited += FILLED_POLL_MS;
		look = look_at(&adev->mman, still && still >= patience);
		free = look.filled || look.still ? 0 : free + 1;
		still = look.still ? still + FILLED_POLL_MS : 0;
		/* Behind a reset that succeeds they go on. */
		patience = amdgpu_call(amdgpu_in_reset)(adev) ? BRIDGE_STILL_IN_RESET_MS :
								BRIDGE_STILL_MS;
	}
	if (free < FREE_LOOKS)
		dev_warn(adev->dev, "amdkfd: unplugged: a move of memory does not end\n");
}

/* A process's queues leave all GPUs in that time, or a GPU is reset. For all together. */
#define EXPORTS_TIMEOUT_MS 10000
/* Then, likewise: what amdgpu gives a job. */
#define QUEUED_TIMEOUT_MS 2000

/* The next export of the device, with a reference; of the one before it is given back. */
static struct dma_buf *next_export(struct amdgpu_device *adev, struct dma_buf *dmabuf)
{
	do
		dmabuf = dmabuf ? amdgpu_call(dma_buf_iter_next)(dmabuf) :
				  amdgpu_call(dma_buf_iter_begin)();
	while (dmabuf && (dmabuf->ops != &amdgpu_object(amdgpu_dmabuf_ops) ||
			  amdgpu_ttm_adev(gem_to_amdgpu_bo(dmabuf->priv)->tbo.bdev) != adev));
	return dmabuf;
}

/* Whether processes use it, whose queues are asked to leave. */
static bool is_used(struct dma_buf *dmabuf)
{
	struct dma_resv_iter cursor;
	struct dma_fence *fence;
	bool used = false;

	dma_resv_iter_begin(&cursor, dmabuf->resv, DMA_RESV_USAGE_BOOKKEEP);
	dma_resv_for_each_fence_unlocked(&cursor, fence)
		if (amdgpu_call(to_amdgpu_amdkfd_fence)(fence) && !dma_fence_is_signaled(fence)) {
			/* Asks for it, and waits no time. */
			dma_fence_wait_timeout(fence, false, 0);
			used = true;
		}
	dma_resv_iter_end(&cursor);
	return used;
}

/* Another GPU's buffer that shows it and is pinned, for a display, say. amdgpu imports so alone. */
static bool is_pinned(struct dma_buf_attachment *attachment, struct amdgpu_device *adev)
{
	return attachment->dev->driver == adev->dev->driver &&
	       gem_to_amdgpu_bo(attachment->importer_priv)->tbo.pin_count;
}

/* Under the reservation: whoever can follow is told that it has moved. Whether all are. */
static bool tell(struct dma_buf *dmabuf, struct amdgpu_device *adev)
{
	struct dma_buf_attachment *attachment;
	bool all = true;

	list_for_each_entry(attachment, &dmabuf->attachments, node)
		if (attachment->importer_ops && attachment->importer_ops->invalidate_mappings &&
		    !is_pinned(attachment, adev))
			attachment->importer_ops->invalidate_mappings(attachment);
		else
			all = false;
	return all;
}

/* Whether what somebody does with it by then has ended. */
static bool is_idle(struct dma_resv *resv, enum dma_resv_usage usage, unsigned long until)
{
	long left = until - jiffies;

	return dma_resv_test_signaled(resv, usage) ||
	       (left > 0 && dma_resv_wait_timeout(resv, usage, false, left) > 0);
}

/* More are looked at one after the other. */
#define MOST_HELD 16

/* VMs whose root is reserved: nobody has new jobs in them. */
struct held {
	struct amdgpu_vm *vms[MOST_HELD];
	u32 count;
};

static bool is_held(const struct held *held, const struct amdgpu_vm *vm)
{
	u32 i;

	for (i = 0; i < held->count; i++)
		if (held->vms[i] == vm)
			return true;
	return false;
}

/* Whether its jobs have ended by then. It is held, unless there are many. */
static bool hold_idle(struct held *held, struct amdgpu_vm *vm, unsigned long until)
{
	struct dma_resv *resv = vm->root.bo->tbo.base.resv;
	bool idle;

	if (!dma_resv_trylock(resv))
		return false;
	idle = is_idle(resv, DMA_RESV_USAGE_READ, until);
	if (idle && held->count < ARRAY_SIZE(held->vms))
		held->vms[held->count++] = vm;
	else
		dma_resv_unlock(resv);
	return idle;
}

static bool hold_all_idle(struct held *held, struct dma_buf *dmabuf, struct amdgpu_device *adev,
			  unsigned long until)
{
	struct dma_buf_attachment *attachment;
	struct amdgpu_vm_bo_base *base;
	struct amdgpu_bo *bo;

	list_for_each_entry(attachment, &dmabuf->attachments, node) {
		if (attachment->dev->driver != adev->dev->driver)
			continue;
		bo = gem_to_amdgpu_bo(attachment->importer_priv);
		for (base = bo->vm_bo; base; base = base->next)
			if (base->vm->use_cpu_for_update && !is_held(held, base->vm) &&
			    !hold_idle(held, base->vm, until))
				return false;
	}
	return true;
}

/*
 * Where the CPU writes page tables who is told waits for what jobs his VM has, without end: and
 * they may wait for some of this device, which end later. Under the reservation. Whether there are
 * some still. One that is given right afterwards is waited for by who is told.
 */
static bool has_jobs(struct dma_buf *dmabuf, struct amdgpu_device *adev, unsigned long until)
{
	struct held held = { };
	bool idle = hold_all_idle(&held, dmabuf, adev, until);

	while (held.count)
		dma_resv_unlock(held.vms[--held.count]->root.bo->tbo.base.resv);
	return !idle;
}

/* An export of a device, with a reference. */
struct export {
	struct dma_buf *dmabuf;
	unsigned int patience;	/* milliseconds that its users' jobs were waited for, last time */
	bool stays;		/* somebody uses it on */
};

/*
 * Who has mapped it lets go of it. Who wants page tables changed for that waits for its users: so
 * there are none by then. Returns whether they are told.
 */
static bool try_to_tell(struct export *export, struct amdgpu_device *adev, unsigned long until)
{
	struct dma_buf *dmabuf = export->dmabuf;
	bool told;

	if (is_used(dmabuf) || !dma_resv_trylock(dmabuf->resv))
		return false;
	/* A process may have been restored meanwhile. */
	told = !is_used(dmabuf) && !has_jobs(dmabuf, adev, until);
	if (told)
		export->stays = !tell(dmabuf, adev);
	dma_resv_unlock(dmabuf->resv);
	return told;
}

/* The exports of a device: first those that are told. */
struct exports {
	struct export *all;
	u32 count, told;
	u32 missing;	/* for which there is no memory: it is as with the C driver */
};

static bool add_export(struct exports *exports, struct dma_buf *dmabuf)
{
	struct export *all;

	if (!(exports->count & (exports->count - 1))) {
		all = kvrealloc(exports->all, size_mul(max(2 * exports->count, 1U), sizeof(*all)),
				GFP_KERNEL | __GFP_NOWARN);
		if (!all)
			return false;
		exports->all = all;
	}
	get_dma_buf(dmabuf);
	exports->all[exports->count++] = (struct export){ .dmabuf = dmabuf };
	return true;
}

static void collect_exports(struct amdgpu_device *adev, struct exports *exports)
{
	struct dma_buf *dmabuf = NULL;

	while ((dmabuf = next_export(adev, dmabuf)))
		if (exports->missing || !add_export(exports, dmabuf))
			exports->missing++;
}

/* For all, without a wait: processes that were asked leave meanwhile, and come back later. */
static void tell_some(struct exports *exports, struct amdgpu_device *adev)
{
	struct export *all = exports->all;
	u32 i;

	for (i = exports->told; i < exports->count; i++)
		if (try_to_tell(&all[i], adev, jiffies)) {
			swap(all[i], all[exports->told]);
			exports->told++;
		}
}

/* Jobs of others are waited for so long, with a reservation, at first and at last. */
#define FIRST_PATIENCE_MS 100
#define LAST_PATIENCE_MS 2000

/*
 * Whose VM has jobs all the time: one export is waited for, another one next time. None that
 * processes use.
 */
static void tell_one(struct exports *exports, struct amdgpu_device *adev, u32 *turn,
		     unsigned long until)
{
	u32 left = exports->count - exports->told, i;
	struct export *export;
	unsigned long soon;

	for (i = 0; i < left; i++) {
		export = &exports->all[exports->told + (*turn)++ % left];
		if (!is_used(export->dmabuf))
			break;
	}
	if (i == left)
		return;
	export->patience = min(max(2 * export->patience, FIRST_PATIENCE_MS), LAST_PATIENCE_MS);
	soon = jiffies + msecs_to_jiffies(export->patience);
	if (try_to_tell(export, adev, time_before(soon, until) ? soon : until)) {
		swap(*export, exports->all[exports->told]);
		exports->told++;
	}
}

/* So many rounds come before one is waited for: a process leaves by then. */
#define QUICK_ROUNDS 10

/* All together have that time, and a try each. */
static void tell_all(struct exports *exports, struct amdgpu_device *adev)
{
	unsigned long until = jiffies + msecs_to_jiffies(EXPORTS_TIMEOUT_MS);
	u32 rounds, turn = 0;

	for (rounds = 1;; rounds++) {
		tell_some(exports, adev);
		if (exports->told == exports->count || time_after(jiffies, until))
			return;
		if (rounds % QUICK_ROUNDS == 0)
			tell_one(exports, adev, &turn, until);
		msleep(FILLED_POLL_MS);
	}
}

/* Some end only when they are asked to. */
static void ask_all(struct dma_resv *resv)
{
	struct dma_resv_iter cursor;
	struct dma_fence *fence;

	dma_resv_iter_begin(&cursor, resv, DMA_RESV_USAGE_BOOKKEEP);
	dma_resv_for_each_fence_unlocked(&cursor, fence)
		dma_fence_wait_timeout(fence, false, 0);
	dma_resv_iter_end(&cursor);
}

/* What is queued goes on with what it saw. */
static void wait_for_queued(struct exports *exports)
{
	unsigned long until = jiffies + msecs_to_jiffies(QUEUED_TIMEOUT_MS);
	u32 i;

	for (i = 0; i < exports->told; i++)
		ask_all(exports->all[i].dmabuf->resv);
	for (i = 0; i < exports->told; i++)
		if (!is_idle(exports->all[i].dmabuf->resv, DMA_RESV_USAGE_BOOKKEEP, until))
			exports->all[i].stays = true;
}

/*
 * amdgpu gives back the pages of all buffers next, whoever has them by a dma-buf, and tells nobody.
 * Nobody gets their addresses any more (bridge_dmabuf_map()), so who lets go of them now stays
 * without. Not who had them pinned, and cannot follow. In rounds: nobody waits for who is slower.
 * Behind bridge_moves_end(): who fills a queue has reservations. And not where the GPU was pulled
 * out: who has queues on it as well is ended only later.
 */
void bridge_exports_end(struct amdgpu_device *adev)
{
	struct exports exports = { };
	u32 i, stay;

	if (pci_dev_is_disconnected(adev->pdev))
		return;
	collect_exports(adev, &exports);
	tell_all(&exports, adev);
	wait_for_queued(&exports);
	stay = exports.missing + exports.count - exports.told;
	for (i = 0; i < exports.count; i++) {
		stay += exports.all[i].stays;
		dma_buf_put(exports.all[i].dmabuf);
	}
	kvfree(exports.all);
	if (stay)
		dev_warn(adev->dev, "amdkfd: unplugged: %u exports are used on\n", stay);
}
