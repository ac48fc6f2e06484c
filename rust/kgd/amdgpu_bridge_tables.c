// SPDX-License-Identifier: GPL-2.0-only
/*
 * How the page tables of a VM that compute has acquired are written: what amdgpu takes out of them
 * must be gone when it says so, for others get the memory.
 */
#include <linux/dma-resv.h>
#include <linux/rcupdate.h>
#include <linux/spinlock.h>

#include "amdgpu_bind.h"
#include "bridge_vm.h"

/*
 * Where the CPU writes page tables amdgpu waits before it does, and where a signal, a stop or a
 * freezer ends the wait it writes nothing: amdgpu_vm_clear_freed() forgets the mapping even so, and
 * amdgpu_vm_pte_update_flags() the error. So it is waited for here what nothing ends: moves and
 * clears of the tables, and jobs in the VM, which amdgpu ends itself when they take too long.
 */
static int prepare(struct amdgpu_vm_update_params *params, struct amdgpu_sync *sync, u64 job)
{
	int ret = sync ? amdgpu_call(amdgpu_sync_wait)(sync, false) : 0;

	return ret ? ret : amdgpu_object(amdgpu_vm_cpu_funcs).prepare(params, sync, job);
}

static int update(struct amdgpu_vm_update_params *params, struct amdgpu_bo_vm *table, u64 at,
		  u64 address, unsigned int count, u32 step, u64 flags)
{
	dma_resv_wait_timeout(table->bo.tbo.base.resv, DMA_RESV_USAGE_KERNEL, false,
			      MAX_SCHEDULE_TIMEOUT);
	return amdgpu_object(amdgpu_vm_cpu_funcs).update(params, table, at, address, count, step,
							 flags);
}

static int map_table(struct amdgpu_bo_vm *table)
{
	return amdgpu_object(amdgpu_vm_cpu_funcs).map_table(table);
}

static int commit(struct amdgpu_vm_update_params *params, struct dma_fence **fence)
{
	return amdgpu_object(amdgpu_vm_cpu_funcs).commit(params, fence);
}

static const struct amdgpu_vm_update_funcs uninterrupted = {
	.map_table = map_table,
	.prepare = prepare,
	.update = update,
	.commit = commit,
};

/*
 * Whoever gave a VM's entities their last job has them stopped for good when he closes the file
 * and is being killed (amdgpu_flush): mostly who opened it, for whom it was cleared. From then on
 * amdgpu leaves entries in place that it is asked to take out (amdgpu_vm_ready), and says 0: this
 * process's queues would go on with memory that is another's. With page tables that the CPU writes
 * nobody gives the VM a job from here on, so nobody is left to have them stopped. Where somebody
 * has closed the file already he may be about to: nothing that he does until then sleeps.
 */
static void forget_opener(struct drm_sched_entity *const entities[2])
{
	bool closed = false;
	u32 i;

	for (i = 0; i < 2; i++)
		closed |= !xchg(&entities[i]->last_user, NULL);
	if (closed)
		synchronize_rcu_tasks();
}

void bridge_tables_begin(struct amdgpu_vm *vm)
{
	struct drm_sched_entity *const entities[2] = { &vm->immediate, &vm->delayed };
	struct dma_resv *resv = vm->root.bo->tbo.base.resv;
	u32 i;

	if (!vm->use_cpu_for_update)
		return;
	forget_opener(entities);
	dma_resv_lock(resv, NULL);
	/* It takes no jobs any more, and need not. */
	for (i = 0; i < 2; i++) {
		spin_lock(&entities[i]->lock);
		entities[i]->stopped = false;
		spin_unlock(&entities[i]->lock);
	}
	if (vm->update_funcs == &amdgpu_object(amdgpu_vm_cpu_funcs))
		vm->update_funcs = &uninterrupted;
	dma_resv_unlock(resv);
}

void bridge_tables_end(struct amdgpu_vm *vm)
{
	struct dma_resv *resv = vm->root.bo->tbo.base.resv;

	dma_resv_lock(resv, NULL);
	if (vm->update_funcs == &uninterrupted)
		vm->update_funcs = &amdgpu_object(amdgpu_vm_cpu_funcs);
	dma_resv_unlock(resv);
}

int bridge_tables_take_out_of(struct amdgpu_vm *vm)
{
	struct amdgpu_device *adev = amdgpu_ttm_adev(vm->root.bo->tbo.bdev);
	struct dma_resv *resv = vm->root.bo->tbo.base.resv;
	struct dma_fence *fence;
	int ret;

	/* Whoever notes something later finds them there, or has it taken out the next time. */
	if (list_empty_careful(&vm->freed))
		return 0;
	dma_resv_lock(resv, NULL);
	ret = bridge_tables_bring_back(adev, vm);
	/* With copy engines it is as in C: bridge_tables_begin() does nothing. */
	if (ret == -EBUSY && (vm->immediate.stopped || vm->delayed.stopped))
		ret = 0;
	fence = dma_fence_get(vm->last_update);
	dma_resv_unlock(resv);
	dma_fence_wait(fence, false);
	dma_fence_put(fence);
	return ret;
}

int bridge_tables_take_out(struct amdkfd_process_info *info)
{
	struct amdgpu_vm *vm;
	int ret = 0;

	mutex_lock(&info->lock);
	list_for_each_entry(vm, &info->vm_list_head, vm_list_node)
		ret = bridge_tables_take_out_of(vm) ?: ret;
	mutex_unlock(&info->lock);
	return ret;
}
