// SPDX-License-Identifier: GPL-2.0-only
/*
 * Buffers that are mapped into VMs, and unmapped.
 */
#include <linux/completion.h>
#include <linux/cred.h>
#include <linux/dma-resv.h>
#include <linux/kthread.h>
#include <linux/sched/task_stack.h>

#include "amdgpu_bind.h"
#include "bridge.h"
#include "bridge_vm.h"

/* drm_exec's references to a buffer that it has got first, after it had to give way. */
#ifdef HAVE_DRM_EXEC_DROPS_PRELOCKED
#define PRELOCKED_REFERENCES 1
#else
#define PRELOCKED_REFERENCES 2
#endif

/*
 * A lock is the current task's if the context that it was taken with lay on this stack, where
 * nobody reads it any more.
 */
static void unlock_forgotten(struct amdgpu_bo *bo, int references)
{
	struct dma_resv *resv = bo->tbo.base.resv;
	struct ww_acquire_ctx *ctx = READ_ONCE(resv->lock.ctx);

	if (!ctx || !object_is_on_stack(ctx))
		return;
	/* Unlocking would write to it. */
	WRITE_ONCE(resv->lock.ctx, NULL);
	dma_resv_unlock(resv);
	while (references--) {
		struct amdgpu_bo *same = bo;

		amdgpu_call(amdgpu_bo_unref)(&same);
	}
}

struct first_mapping {
	struct amdgpu_device *adev;
	struct bridge_vm *vm;
	struct kgd_mem *mem;
	struct mm_struct *mm;
	const struct cred *cred;
	struct completion done;
	int ret;
};

/*
 * Whether something is mapped at the buffer's place, by the render node it may be the buffer
 * itself: that is not taken back with a mapping that fails.
 */
static bool is_taken(struct bridge_vm *vm, struct kgd_mem *mem)
{
	struct dma_resv *resv = vm->vm->root.bo->tbo.base.resv;
	u64 count = mem->bo->tbo.base.size >> PAGE_SHIFT << mem->aql_queue;
	u64 first = mem->va >> PAGE_SHIFT;
	bool taken;

	dma_resv_lock(resv, NULL);
	taken = bridge_vm_maps(vm->vm, first, first + count - 1);
	dma_resv_unlock(resv);
	return taken;
}

static int map_whole(struct amdgpu_device *adev, struct bridge_vm *vm, struct kgd_mem *mem)
{
	bool taken = is_taken(vm, mem);
	int ret = amdgpu_call(amdgpu_amdkfd_gpuvm_map_memory_to_gpu)(adev, mem, vm->drm_priv);

	if (ret)
		bridge_halves_unmap(vm, mem, taken ? -EINVAL : ret);
	return ret;
}

/* As the caller: TTM evicts nobody for his own sake, and dma-bufs belong to who makes them. */
static int map_on_thread(void *data)
{
	struct first_mapping *map = data;
	const struct cred *own = override_creds(map->cred);

	kthread_use_mm(map->mm);
	map->ret = map_whole(map->adev, map->vm, map->mem);
	kthread_unuse_mm(map->mm);
	revert_creds(own);
	kthread_complete_and_exit(&map->done, 0);
}

/* The scheduler knows a task that used it by its address, which another one may have next. */
static void forget_thread(struct drm_sched_entity *entity, struct task_struct *thread)
{
	cmpxchg(&entity->last_user, thread, current->group_leader);
}

static int map_first_on_thread(struct amdgpu_device *adev, struct bridge_vm *vm,
			       struct kgd_mem *mem)
{
	struct first_mapping map = {
		.adev = adev,
		.vm = vm,
		.mem = mem,
		.mm = current->mm,
		.cred = current_cred(),
		.done = COMPLETION_INITIALIZER_ONSTACK(map.done),
	};
	struct task_struct *thread = kthread_run(map_on_thread, &map, "amdkfd_map");

	/* -EAGAIN would have the user come again at once. */
	if (IS_ERR(thread))
		return thread == ERR_PTR(-EAGAIN) ? -ENOMEM : PTR_ERR(thread);
	wait_for_completion(&map.done);
	forget_thread(&vm->vm->immediate, thread);
	forget_thread(&vm->vm->delayed, thread);
	return map.ret;
}

static bool is_attached(struct bridge_vm *vm, struct kgd_mem *mem)
{
	struct kfd_mem_attachment *entry;
	bool found = false;

	mutex_lock(&mem->lock);
	list_for_each_entry(entry, &mem->attachments, list)
		found |= entry->bo_va->base.vm == vm->vm;
	mutex_unlock(&mem->lock);
	return found;
}

/* Whether the GPU sees the buffer itself, and not a BO of its own that kfd_mem_attach() makes. */
static bool is_seen_itself(struct amdgpu_device *adev, struct kgd_mem *mem)
{
	struct amdgpu_device *home = bridge_home(mem);

	if (mem->alloc_flags & KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP)
		return false;
	if (adev == home)
		return true;
	if (mem->domain == AMDGPU_GEM_DOMAIN_VRAM)
		return !adev->apu_prefer_gtt &&
		       amdgpu_call(amdgpu_xgmi_same_hive)(adev, home);
	return mem->domain == AMDGPU_GEM_DOMAIN_GTT &&
	       ((adev->ram_is_direct_mapped && home->ram_is_direct_mapped) ||
		adev->dev->iommu_group == home->dev->iommu_group);
}

/*
 * Whether another device has imported it. What an import shows has the addresses of its own device.
 * Where both see the system's memory alike, kfd_mem_attach() puts it into the VM as it is, and when
 * the exporter moves, amdgpu_dma_buf_move_notify() updates that VM as the importer's: it makes page
 * tables in the wrong VRAM, and copy engines get jobs of another device. Where an IOMMU translates
 * for each, kfd_mem_attach() takes it for doorbells or registers, which are SG BOs as well, and
 * kfd_mem_dmamap_sg_bo() follows their list, which an import has not.
 */
static bool is_import_elsewhere(struct amdgpu_device *adev, struct kgd_mem *mem)
{
	return adev != bridge_home(mem) && mem->bo->tbo.type == ttm_bo_type_sg &&
	       !mem->bo->tbo.sg;
}

/*
 * In the first mapping to a VM, kfd_mem_attach() locks the root and the buffer. If its wait for
 * either is interrupted, it forgets the one that it has, and always the list of both, a page.
 * Signals are blocked, but stops, freezers, io_uring and SIGKILL interrupt, too. The lock is found
 * again afterwards, the page is not, so once it has happened kernel threads map, which nothing
 * interrupts. They do for an AQL ring, which kfd_mem_attach() locks once more itself, and where the
 * buffer gets a second BO, of which nobody knows afterwards. Not always: a thread costs five times
 * what the rest of a mapping does.
 */
static int map_memory(struct amdgpu_device *adev, struct bridge_vm *vm, struct kgd_mem *mem)
{
	static bool was_interrupted;
	bool on_thread = READ_ONCE(was_interrupted) || mem->aql_queue || !is_seen_itself(adev, mem);
	sigset_t before;
	int ret;

	/* To map it on another device it is exported at home. */
	if (bridge_is_unplugged(bridge_home(mem)))
		return -ENODEV;
	if (is_import_elsewhere(adev, mem))
		return -EINVAL;
	/* What keeps this from being done keeps amdgpu from mapping, which says so. */
	bridge_tables_take_out_of(vm->vm);
	/* Nobody detaches it meanwhile: the caller's table of buffers is locked. */
	if (on_thread && !is_attached(vm, mem))
		return map_first_on_thread(adev, vm, mem);
	bridge_block_signals(&before);
	ret = map_whole(adev, vm, mem);
	if (ret && !is_attached(vm, mem)) {
		unlock_forgotten(vm->vm->root.bo, 1);
		unlock_forgotten(mem->bo, PRELOCKED_REFERENCES);
		if (ret == -EINTR)
			WRITE_ONCE(was_interrupted, true);
	}
	bridge_restore_signals(&before);
	return ret;
}

int bridge_memory_map(struct amdgpu_device *adev, struct bridge_vm *vm, struct kgd_mem *mem)
{
	int ret = bridge_user_pages_prepare(vm, mem);

	if (!ret)
		ret = map_memory(adev, vm, mem);
	if (!ret)
		bridge_user_pages_mapped(vm, mem);
	return ret;
}

int bridge_memory_unmap(struct amdgpu_device *adev, struct bridge_vm *vm, struct kgd_mem *mem)
{
	sigset_t before;
	int ret;

	bridge_halves_recall(vm, mem);
	bridge_block_signals(&before);
	ret = amdgpu_call(amdgpu_amdkfd_gpuvm_unmap_memory_from_gpu)(adev, mem, vm->drm_priv);
	bridge_restore_signals(&before);
	/*
	 * Where amdgpu had no memory for what to wait for, it has it noted still, and says 0. With
	 * tables that have gone since whoever brings them back takes it out.
	 */
	if (!ret) {
		ret = bridge_tables_take_out_of(vm->vm);
		if (bridge_tables_are_away(vm->vm))
			ret = 0;
	}
	bridge_tables_keep(vm, mem);
	if (!ret)
		bridge_user_pages_unmapped(vm, mem);
	return ret;
}

/* Under the reservation of the VM's root: takes a mapping off amdgpu's lists, and notes it. */
static int note(struct kgd_mem *mem, struct kfd_mem_attachment *entry)
{
	if (entry->bo_va->queue_refcount)
		return -EBUSY;
	amdgpu_call(amdgpu_vm_bo_unmap)(entry->adev, entry->bo_va, entry->va);
	entry->is_mapped = false;
	mem->mapped_to_gpu_memory--;
	return 0;
}

/*
 * Where the tables are there after all, jobs of others in the VM may use them: what is noted is
 * taken out behind these. If that fails, too, the buffer counts as mapped, and is not freed.
 */
static int note_all(struct bridge_vm *vm, struct kgd_mem *mem)
{
	struct dma_resv *resv = vm->vm->root.bo->tbo.base.resv;
	unsigned int mapped = mem->mapped_to_gpu_memory;
	struct kfd_mem_attachment *entry;
	int ret = 0;

	mutex_lock(&mem->lock);
	dma_resv_lock(resv, NULL);
	list_for_each_entry(entry, &mem->attachments, list) {
		if (!entry->is_mapped || entry->bo_va->base.vm != vm->vm)
			continue;
		bridge_halves_recall_one(entry);
		ret = note(mem, entry) ?: ret;
	}
	/* Where its entities are stopped nobody has jobs, before amdgpu has taken that out. */
	if (!ret && mapped != mem->mapped_to_gpu_memory && !vm->vm->delayed.stopped &&
	    !bridge_tables_are_away(vm->vm)) {
		ret = bridge_tables_bring_back(vm->adev, vm->vm);
		if (ret)
			mem->mapped_to_gpu_memory = mapped;
	}
	dma_resv_unlock(resv);
	mutex_unlock(&mem->lock);
	bridge_tables_keep(vm, mem);
	return ret;
}

/*
 * amdgpu brings the page tables back before it unmaps, and fails where there is no room for them;
 * nobody would try again, and the buffer would stay and have pointers into a VM that is freed. But
 * the process does not use those tables any more. What is noted goes with the VM, or, where
 * somebody else has its file, when he brings them back (bridge_tables_validate()).
 *
 * Each unmapping by copy engines is a job, which takes a piece of a pool that all VMs of the device
 * share, and waits for one: where schedulers stand still there would be none left.
 */
static int unmap_at_end(struct amdgpu_device *adev, struct bridge_vm *vm, struct kgd_mem *mem,
			bool ended)
{
	int ret;

	if (ended && !vm->ends) {
		vm->ends = true;
		/* It may wait for long, and others have jobs meanwhile. */
		bridge_tables_take_notes(vm);
		vm->stopped = bridge_tables_stop(vm);
	}
	if (!vm->stopped && !bridge_memory_unmap(adev, vm, mem))
		return 0;
	ret = note_all(vm, mem);
	/* The buffer stays, and has pointers into the VM: so does that. */
	if (ret)
		bridge_vm_keep_file(vm);
	return ret;
}

int bridge_memory_unmap_at_end(struct amdgpu_device *adev, struct bridge_vm *vm,
			       struct kgd_mem *mem, bool ended)
{
	int ret = unmap_at_end(adev, vm, mem, ended);

	/* Also where the buffer stays: the VM may not. */
	bridge_user_pages_leave(vm, mem);
	return ret;
}
