// SPDX-License-Identifier: GPL-2.0-only
/*
 * bridge.h in terms of amdgpu: compute processes, their VMs and their buffers.
 */
#include <linux/dma-resv.h>
#include <linux/file.h>
#include <linux/mutex.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "amdgpu_bind.h"
#include "bridge.h"
#include "bridge_vm.h"

int bridge_process_create(u16 context_id, struct bridge_process **out)
{
	struct bridge_process *process = kzalloc(sizeof(*process), GFP_KERNEL);

	if (!process)
		return -ENOMEM;
	mutex_init(&process->lock);
	mutex_init(&process->sharing);
	process->mm = current->mm;
	mmgrab(process->mm);
	memcpy(process->image + IMAGE_CONTEXT, &context_id, sizeof(context_id));
	*out = process;
	return 0;
}

void bridge_process_destroy(struct bridge_process *process)
{
	WARN_ON(process->info);
	mutex_destroy(&process->sharing);
	mutex_destroy(&process->lock);
	mmdrop(process->mm);
	kfree(process);
}

static struct dma_fence *get_eviction_fence(struct bridge_process *process)
{
	struct dma_fence *fence;

	rcu_read_lock();
	fence = dma_fence_get_rcu_safe(&process->eviction_fence);
	rcu_read_unlock();
	return fence;
}

bool bridge_process_signal_eviction_fence(struct bridge_process *process)
{
	struct dma_fence *fence = get_eviction_fence(process);
	bool before;

	if (!fence)
		return true;
	before = dma_fence_check_and_signal(fence);
	dma_fence_put(fence);
	return before;
}

/*
 * Whether nobody has the lock at one of some looks within 20 ms. Its holder may be waiting for a
 * program, and who waits for that keeps a worker; calls that come one after the other let it go
 * now and then.
 */
static bool is_free_soon(struct mutex *lock)
{
	int looks = 20;

	while (mutex_is_locked(lock)) {
		if (!--looks)
			return false;
		usleep_range(500, 1000);
	}
	return true;
}

static int restore(struct bridge_process *process, struct amdkfd_process_info *info)
{
	int ret;

	if (!is_free_soon(&info->lock))
		return -EBUSY;
	ret = bridge_tables_take_out(info);
	if (ret)
		return ret;
	if (!is_free_soon(&info->lock))
		return -EBUSY;
	ret = amdgpu_call(amdgpu_amdkfd_gpuvm_restore_process_bos)(info, &process->eviction_fence);
	if (ret) {
		bridge_halves_restored(info);
		return ret;
	}
	if (!is_free_soon(&info->lock))
		return -EBUSY;
	bridge_gem_bring_back(info);
	return bridge_import_fence(info);
}

int bridge_process_restore(struct bridge_process *process)
{
	int ret = 0;

	mutex_lock(&process->lock);
	if (process->info)
		ret = restore(process, process->info);
	mutex_unlock(&process->lock);
	return ret;
}

/* The VM of a file of amdgpu's, if it is this device's and one that compute can use. */
static struct amdgpu_vm *vm_of_file(struct amdgpu_device *adev, struct file *file)
{
	struct amdgpu_fpriv *fpriv;
	struct amdgpu_vm *vm;
	int ret;

	ret = amdgpu_call(amdgpu_file_to_fpriv)(file, &fpriv);
	if (ret)
		return ERR_PTR(ret);
	vm = &fpriv->vm;
	if (!vm->pasid || !vm->root.bo || amdgpu_ttm_adev(vm->root.bo->tbo.bdev) != adev)
		return ERR_PTR(-EINVAL);
	return vm;
}

static int make_compute(struct bridge_vm *vm)
{
	struct bridge_process *process = vm->process;
	struct dma_fence *fence = NULL;
	int ret;

	mutex_lock(&process->lock);
	ret = amdgpu_call(amdgpu_amdkfd_gpuvm_acquire_process_vm)(vm->adev, vm->vm, &process->info,
								  process->info ? NULL : &fence);
	if (!ret && fence) {
		bridge_user_pages_begin(process->info);
		rcu_assign_pointer(process->eviction_fence, fence);
	}
	if (!ret)
		process->vms++;
	mutex_unlock(&process->lock);
	return ret;
}

static LIST_HEAD(acquiring);
static DEFINE_SPINLOCK(acquiring_lock);

/*
 * Whether nobody else is about to acquire the same amdgpu_vm. amdgpu refuses who comes second, but
 * may do so late, and then has set back what bridge_tables_begin() has set for the first.
 */
static bool begin_acquire(struct bridge_vm *vm)
{
	struct bridge_vm *other;
	bool alone = true;

	spin_lock(&acquiring_lock);
	list_for_each_entry(other, &acquiring, acquiring)
		alone &= other->vm != vm->vm;
	if (alone)
		list_add(&vm->acquiring, &acquiring);
	spin_unlock(&acquiring_lock);
	return alone;
}

static void end_acquire(struct bridge_vm *vm)
{
	spin_lock(&acquiring_lock);
	list_del(&vm->acquiring);
	spin_unlock(&acquiring_lock);
}

int bridge_vm_acquire(struct amdgpu_device *adev, struct bridge_process *process, int drm_fd,
		      struct bridge_vm **out)
{
	struct bridge_vm *vm;
	int ret;

	vm = kzalloc(sizeof(*vm), GFP_KERNEL);
	if (!vm)
		return -ENOMEM;
	vm->file = fget(drm_fd);
	if (!vm->file) {
		ret = -EINVAL;
		goto free;
	}
	vm->vm = vm_of_file(adev, vm->file);
	if (IS_ERR(vm->vm)) {
		ret = PTR_ERR(vm->vm);
		goto put;
	}
	ret = bridge_client_keep(adev);
	if (ret)
		goto put;
	vm->adev = adev;
	vm->process = process;
	mutex_init(&vm->flushing);
	INIT_LIST_HEAD(&vm->noted);
	INIT_LIST_HEAD(&vm->copies);
	spin_lock_init(&vm->last_lock);
	vm->drm_priv = vm->file->private_data;
	if (!begin_acquire(vm)) {
		ret = -EINVAL;
		goto let_go;
	}
	ret = bridge_handover_begin(vm);
	if (!ret) {
		ret = make_compute(vm);
		if (!ret)
			bridge_tables_begin(vm);
		else
			bridge_handover_end(vm);
	}
	end_acquire(vm);
	if (ret)
		goto let_go;
	/* Of what was to be taken out of its page tables some may be in them for good. */
	if (vm->handed_half) {
		bridge_vm_release(vm);
		return -EIO;
	}
	bridge_gem_begin(vm->vm);
	*out = vm;
	return 0;
let_go:
	bridge_client_let_go(adev);
put:
	fput(vm->file);
free:
	kfree(vm);
	return ret;
}

/* Under the lock. The fence that nobody is left to stop for, if this was the last VM, or NULL. */
static struct dma_fence *drop_vm(struct bridge_process *process)
{
	if (--process->vms)
		return NULL;
	process->info = NULL;
	return rcu_replace_pointer(process->eviction_fence, NULL, lockdep_is_held(&process->lock));
}

/*
 * From here on the file may go, and amdgpu ends part of its VM before it takes it off the info's
 * list (amdgpu_driver_postclose_kms): a restore of the process's other VMs must not find it there.
 * Whoever takes it off later finds a node of its own.
 */
static void leave_process(struct amdgpu_vm *vm)
{
	struct amdkfd_process_info *info = vm->process_info;

	mutex_lock(&info->lock);
	list_del_init(&vm->vm_list_node);
	mutex_unlock(&info->lock);
}

/*
 * The VM stays one for compute, and keeps its process info, until the last reference of its file
 * goes: whoever else has the file open may be about to use the info, which amdgpu reads without a
 * lock (amdgpu_gem_object_open). The process forgets it here, while the file still keeps it.
 */
void bridge_vm_release(struct bridge_vm *vm)
{
	struct bridge_process *process = vm->process;
	struct amdkfd_process_info *info;
	struct dma_fence *fence;

	bridge_tables_end(vm);
	if (!vm->stopped)
		bridge_tables_stop(vm);
	bridge_tables_forget_notes(vm);
	leave_process(vm->vm);
	mutex_lock(&process->lock);
	info = process->info;
	fence = drop_vm(process);
	mutex_unlock(&process->lock);
	if (fence) {
		/* It has no buffers any more. */
		bridge_user_pages_end(info);
		dma_fence_signal(fence);
		dma_fence_put(fence);
	}
	bridge_client_let_go(vm->adev);
	fput(vm->file);
	kfree(vm);
}

void bridge_vm_keep_file(struct bridge_vm *vm)
{
	get_file(vm->file);
}

bool bridge_vm_is_file(const struct bridge_vm *vm, int drm_fd)
{
	struct file *file = fget(drm_fd);

	if (file)
		fput(file);
	return file == vm->file;
}

u32 bridge_vm_pasid(const struct bridge_vm *vm)
{
	return vm->vm->pasid;
}

s32 bridge_vm_task(const struct bridge_vm *vm, u8 *name)
{
	const struct amdgpu_task_info *info = vm->vm->task_info;

	static_assert(TASK_COMM_LEN == 16);
	/* amdgpu does without one if there was no memory for it. */
	if (!info) {
		memset(name, 0, TASK_COMM_LEN);
		return 0;
	}
	memcpy(name, info->task.comm, TASK_COMM_LEN);
	return info->task.pid;
}

u64 bridge_vm_page_directory(const struct bridge_vm *vm)
{
	return amdgpu_call(amdgpu_amdkfd_gpuvm_get_process_page_dir)(vm->drm_priv);
}

struct mm_struct *bridge_vm_get_mm(const struct bridge_vm *vm)
{
	struct mm_struct *mm = vm->process->mm;

	return mmget_not_zero(mm) ? mm : NULL;
}

/* Whether a reset of the device is waited for, or goes on. */
static bool is_being_reset(struct amdgpu_device *adev)
{
	bool pending;

	if (!down_read_trylock(&adev->reset_domain->sem))
		return true;
	pending = amdgpu_reset_pending(adev->reset_domain);
	up_read(&adev->reset_domain->sem);
	return pending;
}

int bridge_vm_flush_tlb(struct amdgpu_device *adev, struct bridge_vm *vm, u32 type, u32 xcc_mask)
{
	int ret;

	/* One that was pulled out translates nothing any more; each flush would wait in vain. */
	if (pci_dev_is_disconnected(adev->pdev))
		return 0;
	/*
	 * amdgpu forgets that a flush is due before it begins with it: without the lock a second
	 * caller would return while the first one's flush is still on its way.
	 */
	mutex_lock(&vm->flushing);
	/*
	 * amdgpu flushes nothing while somebody has the lock of resets, or waits for it, and says
	 * 0: what the GPU does has not been stopped yet. While it is had here nobody comes and goes
	 * who is not seen afterwards.
	 */
	ret = -EAGAIN;
	if (bridge_reset_trylock(adev)) {
		ret = amdgpu_call(amdgpu_vm_flush_compute_tlb)(adev, vm->vm, type, xcc_mask);
		if (!ret && is_being_reset(adev))
			ret = -EAGAIN;
		bridge_reset_unlock(adev);
	}
	/* So the next one, who may wait already, is not left out either. */
	if (ret)
		atomic64_set(&vm->vm->kfd_last_flushed_seq, -1);
	mutex_unlock(&vm->flushing);
	return ret;
}

/* Under the reservation of the VM's root: takes a reference, and pins the mapping. */
static int get_queue_buffer(struct amdgpu_vm *vm, struct bridge_queue_buffer *buffer)
{
	u64 first = buffer->address >> AMDGPU_GPU_PAGE_SHIFT;
	u64 pages = buffer->size >> AMDGPU_GPU_PAGE_SHIFT;
	struct amdgpu_bo_va_mapping *mapping;
	struct amdgpu_bo *bo;

	buffer->bo = NULL;
	mapping = amdgpu_call(amdgpu_vm_bo_lookup_mapping)(vm, first);
	if (!mapping || mapping->start != first)
		return -EINVAL;
	if (pages && mapping->last != first + pages - 1)
		return -EINVAL;
	bo = mapping->bo_va->base.bo;
	/* Where the user has mapped nothing on purpose (PRT) there is no buffer to keep. */
	if (!bo)
		return 0;
	buffer->bo = amdgpu_call(amdgpu_bo_ref)(bo);
	mapping->bo_va->queue_refcount++;
	return 0;
}

/*
 * Takes the reservations of the VM's root and of the buffer. The latter protects the list of the
 * VMs that have the buffer, those of other files and processes among them, which
 * amdgpu_vm_bo_find() goes along; the former the count.
 */
static void put_queue_buffer(struct amdgpu_vm *vm, struct amdgpu_bo *bo)
{
	struct dma_resv *held = vm->root.bo->tbo.base.resv, *wanted;
	struct amdgpu_bo_va *bo_va;
	struct ww_acquire_ctx ctx;
	int ret;

	if (!bo)
		return;
	wanted = bo->tbo.base.resv;
	ww_acquire_init(&ctx, &reservation_ww_class);
	dma_resv_lock(held, &ctx);
	while ((ret = dma_resv_lock(wanted, &ctx)) == -EDEADLK) {
		dma_resv_unlock(held);
		dma_resv_lock_slow(wanted, &ctx);
		swap(held, wanted);
	}
	bo_va = amdgpu_call(amdgpu_vm_bo_find)(vm, bo);
	if (bo_va && bo_va->queue_refcount)
		bo_va->queue_refcount--;
	/* -EALREADY: amdgpu's own buffers of a VM have the root's. */
	if (!ret)
		dma_resv_unlock(wanted);
	dma_resv_unlock(held);
	ww_acquire_fini(&ctx);
}

void bridge_vm_put_queue_buffers(struct bridge_vm *vm, struct amdgpu_bo **bos, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++) {
		put_queue_buffer(vm->vm, bos[i]);
		amdgpu_call(amdgpu_bo_unref)(&bos[i]);
	}
}

int bridge_vm_get_queue_buffers(struct bridge_vm *vm, struct bridge_queue_buffer *buffers,
				u32 count)
{
	struct dma_resv *resv = vm->vm->root.bo->tbo.base.resv;
	u32 got;
	int ret;

	ret = dma_resv_lock_interruptible(resv, NULL);
	if (ret)
		return ret == -EINTR ? -ERESTARTSYS : ret;
	for (got = 0; got < count && !ret; got++)
		ret = get_queue_buffer(vm->vm, &buffers[got]);
	dma_resv_unlock(resv);
	if (!ret)
		return 0;
	for (got--; got > 0; got--)
		bridge_vm_put_queue_buffers(vm, &buffers[got - 1].bo, 1);
	return ret;
}

int bridge_memory_free(struct amdgpu_device *adev, struct bridge_vm *vm, struct kgd_mem *mem,
		       bool another, u64 *freed)
{
	struct user_pages *pages = bridge_user_pages_of(mem);
	struct dma_buf *shared = bridge_import_shared(mem);
	sigset_t before;
	int ret;

	/* Nobody maps or exports it meanwhile: the caller's table of buffers is locked. */
	if (!mem->mapped_to_gpu_memory)
		bridge_user_pages_forget(mem);
	bridge_block_signals(&before);
	another |= bridge_import_is_known(mem);
	if (another && !mem->mapped_to_gpu_memory)
		ret = bridge_import_free(adev, vm, mem, freed);
	else
		ret = amdgpu_call(amdgpu_amdkfd_gpuvm_free_memory_of_gpu)(adev, mem, vm->drm_priv,
									  freed);
	bridge_restore_signals(&before);
	/* Where it has failed, the buffer is there still, and may be mapped. */
	bridge_import_put_shared(shared, !ret);
	if (!ret)
		bridge_user_pages_freed(pages);
	/* What it has unpinned before it failed it must not unpin once more the next time. */
	if (ret && ret != -EBUSY)
		mem->alloc_flags &= ~(KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL |
				      KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP);
	return ret;
}

bool bridge_memory_is_mapped(struct bridge_vm *vm, struct kgd_mem *mem)
{
	struct kfd_mem_attachment *entry;
	bool mapped = false;

	mutex_lock(&mem->lock);
	list_for_each_entry(entry, &mem->attachments, list)
		mapped |= entry->is_mapped && entry->bo_va->base.vm == vm->vm;
	mutex_unlock(&mem->lock);
	return mapped;
}

int bridge_memory_dma_unmap(struct bridge_vm *vm, struct kgd_mem *mem)
{
	/*
	 * Whoever says that it was unmapped there is a user. Nobody maps it meanwhile: the caller's
	 * table of buffers is locked.
	 */
	if (bridge_memory_is_mapped(vm, mem))
		return 0;
	return amdgpu_call(amdgpu_amdkfd_gpuvm_dmaunmap_mem)(mem, vm->drm_priv);
}

int bridge_memory_sync(struct amdgpu_device *adev, struct kgd_mem *mem, bool interruptible)
{
	int ret;

	do
		ret = amdgpu_call(amdgpu_amdkfd_gpuvm_sync_memory)(adev, mem, true);
	while (!interruptible && bridge_waits_on(ret));
	return ret;
}

/* amdgpu takes the eviction fence from it, and from what shows the same memory on another GPU. */
int bridge_memory_map_kernel(struct kgd_mem *mem, void **cpu, u64 *size)
{
	struct amdkfd_process_info *info = mem->process_info;
	int ret = compat_map_gtt_bo_to_kernel(mem, cpu, size);

	/* If that has moved already the process is evicted, and restored. */
	if (!ret && READ_ONCE(mem->bo->tbo.base.dma_buf) && bridge_import_fence(info)) {
		mutex_lock(&info->lock);
		/* Asks for it, and waits no time. */
		dma_fence_wait_timeout(&info->eviction_fence->base, false, 0);
		mutex_unlock(&info->lock);
	}
	return ret;
}

void bridge_memory_unmap_kernel(struct kgd_mem *mem)
{
	compat_unmap_gtt_bo_from_kernel(mem);
}
