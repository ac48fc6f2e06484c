// SPDX-License-Identifier: GPL-2.0-only
/*
 * bridge.h in terms of amdgpu: what checkpoints of a process, and who restores one, need of its
 * buffers.
 */
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
	/* It is VRAM's or GTT's if they are asked for, too, and has no pages of the user's. */
	if (!(mem->alloc_flags & KFD_IOC_ALLOC_MEM_FLAGS_USERPTR) ||
	    mem->alloc_flags & (KFD_IOC_ALLOC_MEM_FLAGS_VRAM | KFD_IOC_ALLOC_MEM_FLAGS_GTT))
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

void bridge_process_distrust_pages(struct bridge_process *process)
{
	mutex_lock(&process->lock);
	process->distrusts = true;
	mutex_unlock(&process->lock);
}

/*
 * amdgpu's own way (block_mmu_notifications, amdgpu_amdkfd_criu_resume) is not to be told of pages
 * that go before RESUME. Of an invalidation that is under way then nobody would know: its begin was
 * not counted, so that amdgpu finds the pages where they are about to go, and takes them for good.
 * Here each counts, and stops the queues once more.
 *
 * The worker looks at each userptr that is not valid, as RESTORE's are from the begin, and those
 * whose pages were not there so far. It has the queues restored once. Returns whether that is for
 * the caller: not if amdgpu has stopped them as well.
 *
 * Without the info's lock, whose holder may be waiting for a program: a worker that has begun finds
 * another number at its end, under the notifiers' lock, and begins anew.
 */
static bool trust_pages(struct amdkfd_process_info *info)
{
	bool evicted;

	mutex_lock(&info->notifier_lock);
	evicted = info->evicted_bos++ != 0;
	mutex_unlock(&info->notifier_lock);
	queue_delayed_work(system_freezable_wq, &info->restore_userptr_work, 0);
	return !evicted;
}

int bridge_process_trust_pages(struct bridge_process *process, bool *restores)
{
	int ret = -EINVAL;

	mutex_lock(&process->lock);
	if (process->info && process->distrusts) {
		process->distrusts = false;
		*restores = trust_pages(process->info);
		ret = 0;
	}
	mutex_unlock(&process->lock);
	return ret;
}
