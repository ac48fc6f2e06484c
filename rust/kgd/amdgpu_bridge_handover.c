// SPDX-License-Identifier: GPL-2.0-only
/*
 * A VM of the render node's becomes one of compute's, whose page tables the CPU writes. What copy
 * engines were to write before is ordered with that by nothing: a clear that runs late wipes out
 * what the CPU has written since, and an entry comes back that it has taken out. amdgpu means to
 * wait for them (amdgpu_vm_make_compute()), but Linux 7.2 looks at no fence of usage BOOKKEEP, and
 * these are, and 7.3 at none of entries of a buffer with a reservation of its own.
 */
#include <linux/dma-resv.h>

#include "amdgpu_bind.h"
#include "amdgpu_job.h"
#include "bridge_vm.h"

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

static int update(struct amdgpu_vm_update_params *params, struct amdgpu_bo_vm *table, u64 at,
		  u64 address, unsigned int count, u32 step, u64 flags)
{
	return amdgpu_object(amdgpu_vm_sdma_funcs).update(params, table, at, address, count, step,
							  flags);
}

/* Under the root's reservation: who has it next finds nothing under way. */
static int commit(struct amdgpu_vm_update_params *params, struct dma_fence **fence)
{
	struct dma_fence *last = NULL;
	int ret = amdgpu_object(amdgpu_vm_sdma_funcs).commit(params, &last);

	if (last)
		dma_fence_wait(last, false);
	if (last && fence)
		swap(*fence, last);
	dma_fence_put(last);
	return ret;
}

static const struct amdgpu_vm_update_funcs waited_for = {
	.map_table = map_table,
	.prepare = prepare,
	.update = update,
	.commit = commit,
};

static void set_funcs(struct amdgpu_vm *vm, const struct amdgpu_vm_update_funcs *from,
		      const struct amdgpu_vm_update_funcs *to)
{
	struct dma_resv *resv = vm->root.bo->tbo.base.resv;

	dma_resv_lock(resv, NULL);
	if (vm->update_funcs == from)
		vm->update_funcs = to;
	dma_resv_unlock(resv);
}

/* amdgpu gives a job of its copy engines 2 s, and then resets them. */
#define CLEAR_TIMEOUT (10 * HZ)

int bridge_handover_begin(struct amdgpu_vm *vm)
{
	struct dma_resv *resv = vm->root.bo->tbo.base.resv;
	long left;

	if (vm->is_compute_context)
		return 0;
	set_funcs(vm, &amdgpu_object(amdgpu_vm_sdma_funcs), &waited_for);
	/* It has no eviction fence yet, which would never signal. */
	left = dma_resv_wait_timeout(resv, DMA_RESV_USAGE_BOOKKEEP, true, CLEAR_TIMEOUT);
	if (left <= 0)
		bridge_handover_end(vm);
	return left > 0 ? 0 : left ?: -ETIME;
}

void bridge_handover_end(struct amdgpu_vm *vm)
{
	set_funcs(vm, &waited_for, &amdgpu_object(amdgpu_vm_sdma_funcs));
}
