// SPDX-License-Identifier: GPL-2.0-only
/*
 * A VM of the render node's becomes one of compute's, whose page tables the CPU writes. What copy
 * engines were to write before is ordered with that by nothing: a clear that runs late wipes out
 * what the CPU has written since, and an entry comes back that it has taken out. amdgpu means to
 * wait for them (amdgpu_vm_make_compute()), but Linux 7.2 looks at no fence of usage BOOKKEEP, and
 * these are, and 7.3 at none of entries of a buffer with a reservation of its own.
 */
#include <linux/dma-fence.h>
#include <linux/dma-resv.h>
#include <linux/jiffies.h>

#include "amdgpu_bind.h"
#include "amdgpu_job.h"
#include "bridge_vm.h"

#define POLL_MS 20

static int map_table(struct amdgpu_bo_vm *table)
{
	return amdgpu_object(amdgpu_vm_sdma_funcs).map_table(table);
}

/* All go by one queue, one behind the other. */
static int prepare(struct amdgpu_vm_update_params *params, struct amdgpu_sync *sync, u64 job)
{
	params->immediate = false;
	return amdgpu_object(amdgpu_vm_sdma_funcs).prepare(params, sync, job);
}

/* amdgpu gives a job of its copy engines 2 s, and then resets them. */
#define CLEAR_TIMEOUT (10 * HZ)

/* A full job is committed in between: if the next one fails it is under way. */
static int update(struct amdgpu_vm_update_params *params, struct amdgpu_bo_vm *table, u64 at,
		  u64 address, unsigned int count, u32 step, u64 flags)
{
	int ret = amdgpu_object(amdgpu_vm_sdma_funcs).update(params, table, at, address, count,
							     step, flags);

	if (ret)
		dma_resv_wait_timeout(params->vm->root.bo->tbo.base.resv, DMA_RESV_USAGE_BOOKKEEP,
				      false, CLEAR_TIMEOUT);
	return ret;
}

/* Of a job that is waited for: for how many looks in a row that may be in vain. */
struct doubt {
	unsigned int stopped, still;
};

/*
 * Its queue was stopped before an engine got it, which it may just be getting. Behind a reset that
 * has failed nobody tells whether one succeeds.
 */
static bool is_in_vain(struct amdgpu_vm *vm, struct dma_fence *finished, struct doubt *doubt)
{
	struct drm_sched_fence *job = container_of(finished, struct drm_sched_fence, finished);
	bool stopped = READ_ONCE(vm->delayed.stopped) && !dma_fence_is_signaled(&job->scheduled);

	doubt->stopped = stopped ? doubt->stopped + 1 : 0;
	doubt->still = bridge_stands_still(&vm->delayed) ? doubt->still + 1 : 0;
	return doubt->stopped > 2 || doubt->still * POLL_MS >= BRIDGE_STILL_IN_RESET_MS ||
	       bridge_is_unplugged(amdgpu_ttm_adev(vm->root.bo->tbo.bdev));
}

/* Whether it is done: nobody comes late. Who unplugs the device may wait for the caller. */
static bool is_done(struct amdgpu_vm *vm, struct dma_fence *job)
{
	struct doubt doubt = { };

	while (!dma_fence_wait_timeout(job, false, msecs_to_jiffies(POLL_MS)))
		if (is_in_vain(vm, job, &doubt))
			return false;
	return dma_fence_get_status(job) > 0;
}

/* Under the root's reservation: who has it next finds nothing under way. */
static int commit(struct amdgpu_vm_update_params *params, struct dma_fence **fence)
{
	struct bridge_vm *vm = container_of(params->vm->update_funcs, struct bridge_vm, by_jobs);
	struct dma_fence *last = NULL;
	int ret = amdgpu_object(amdgpu_vm_sdma_funcs).commit(params, &last);

	if (last && !is_done(params->vm, last))
		WRITE_ONCE(vm->handed_half, true);
	/* For one that never ends amdgpu would wait as it hands over. */
	if (last && fence && !(vm->handed_half && fence == &params->vm->last_update))
		swap(*fence, last);
	dma_fence_put(last);
	return ret;
}

static void set_funcs(struct amdgpu_vm *vm, const struct amdgpu_vm_update_funcs *from,
		      const struct amdgpu_vm_update_funcs *to)
{
	struct dma_resv *resv = vm->root.bo->tbo.base.resv;

	dma_resv_lock(resv, NULL);
	if (vm->update_funcs == from)
		vm->update_funcs = to;
	dma_resv_unlock(resv);
}

/*
 * It may never end, and amdgpu would wait for it. The VM is acquired, so that nobody does that who
 * knows nothing of it later, and given back.
 */
static void forget_last_update(struct amdgpu_vm *vm)
{
	struct dma_resv *resv = vm->root.bo->tbo.base.resv;
	struct dma_fence *last = dma_fence_get_stub();

	dma_resv_lock(resv, NULL);
	swap(vm->last_update, last);
	dma_resv_unlock(resv);
	dma_fence_put(last);
}

int bridge_handover_begin(struct bridge_vm *vm)
{
	struct dma_resv *resv = vm->vm->root.bo->tbo.base.resv;
	long left;
	int ret;

	if (vm->vm->is_compute_context)
		return 0;
	vm->by_jobs = (struct amdgpu_vm_update_funcs){
		.map_table = map_table,
		.prepare = prepare,
		.update = update,
		.commit = commit,
	};
	set_funcs(vm->vm, &amdgpu_object(amdgpu_vm_sdma_funcs), &vm->by_jobs);
	/* It has no eviction fence yet, which would never signal. */
	left = dma_resv_wait_timeout(resv, DMA_RESV_USAGE_BOOKKEEP, true, CLEAR_TIMEOUT);
	ret = left > 0 ? 0 : left ?: -ETIME;
	if (ret)
		bridge_handover_end(vm);
	else if (READ_ONCE(vm->handed_half))
		forget_last_update(vm->vm);
	return ret;
}

void bridge_handover_end(struct bridge_vm *vm)
{
	set_funcs(vm->vm, &vm->by_jobs, &amdgpu_object(amdgpu_vm_sdma_funcs));
}
