// SPDX-License-Identifier: GPL-2.0-only
/*
 * bridge.h in terms of amdgpu: what checkpoints of a process, and who restores one, need of its
 * buffers.
 */
#include <linux/delay.h>
#include <linux/dma-buf.h>
#include <linux/mutex.h>
#include <linux/workqueue.h>

#include "amdgpu_bind.h"
#include "bridge.h"
#include "bridge_vm.h"

int bridge_memory_describe(struct kgd_mem *mem, struct bridge_memory_facts *out)
{
	*out = (struct bridge_memory_facts) {
		.address = mem->va,
		.size = amdgpu_bo_size(mem->bo),
		.mmap_offset = amdgpu_bo_mmap_offset(mem->bo),
		.flags = mem->alloc_flags,
	};
	if (!(mem->alloc_flags & KFD_IOC_ALLOC_MEM_FLAGS_USERPTR))
		return 0;
	return amdgpu_call(amdgpu_ttm_tt_get_userptr)(&mem->bo->tbo, &out->user_address);
}

int bridge_memory_export_file(struct kgd_mem *mem, struct file **out)
{
	struct dma_buf *dmabuf;
	int ret;

	if (bridge_is_unplugged(bridge_home(mem)))
		return -ENODEV;
	ret = amdgpu_call(amdgpu_amdkfd_gpuvm_export_dmabuf)(mem, &dmabuf);
	if (!ret)
		*out = dmabuf->file;
	return ret;
}

int bridge_memory_restore(struct amdgpu_device *adev, struct bridge_vm *vm, u64 address, u64 size,
			  u32 flags, u64 *offset, struct kgd_mem **out)
{
	if (bridge_is_unplugged(adev))
		return -ENODEV;
	return amdgpu_call(amdgpu_amdkfd_gpuvm_alloc_memory_of_gpu)(adev, address, size,
								    vm->drm_priv, out, offset,
								    flags, true);
}

void bridge_process_distrust_pages(struct bridge_process *process)
{
	struct amdkfd_process_info *info;

	mutex_lock(&process->lock);
	info = process->info;
	if (info)
		WRITE_ONCE(info->block_mmu_notifications, true);
	mutex_unlock(&process->lock);
}

/* Under the notifiers' lock: what these show is looked at again. */
static void look_again(const struct list_head *userptrs)
{
	struct kgd_mem *mem;

	list_for_each_entry(mem, userptrs, validate_list)
		mem->invalid++;
}

/*
 * Under the info's lock, so that no userptr comes meanwhile. amdgpu's own function
 * (amdgpu_amdkfd_criu_resume) takes those for good that were made and lost pages while nobody was
 * told, be it between two tries of its worker, and leaves a process that was not restored with an
 * eviction that nobody ends.
 *
 * The worker has the queues restored once. Returns whether that is for the caller: not if amdgpu
 * has stopped them as well, before it was told to tell nobody.
 */
static bool trust_pages(struct amdkfd_process_info *info)
{
	bool evicted;

	mutex_lock(&info->notifier_lock);
	look_again(&info->userptr_valid_list);
	look_again(&info->userptr_inval_list);
	/* A worker that has begun finds another number, and begins anew. */
	evicted = info->evicted_bos++ != 0;
	WRITE_ONCE(info->block_mmu_notifications, false);
	mutex_unlock(&info->notifier_lock);
	queue_delayed_work(system_freezable_wq, &info->restore_userptr_work, 0);
	return !evicted;
}

/*
 * Takes the lock, or gives up after some 20 ms: its holder may be waiting for a program, and others
 * wait for our caller.
 */
static bool lock_soon(struct mutex *lock)
{
	int tries = 20;

	while (!mutex_trylock(lock)) {
		if (!--tries)
			return false;
		usleep_range(500, 1000);
	}
	return true;
}

int bridge_process_trust_pages(struct bridge_process *process, bool *restores)
{
	struct amdkfd_process_info *info;
	int ret = -EINVAL;

	mutex_lock(&process->lock);
	info = process->info;
	/* It changes under process->lock only. */
	if (info && READ_ONCE(info->block_mmu_notifications)) {
		ret = -EBUSY;
		if (lock_soon(&info->lock)) {
			*restores = trust_pages(info);
			mutex_unlock(&info->lock);
			ret = 0;
		}
	}
	mutex_unlock(&process->lock);
	return ret;
}
