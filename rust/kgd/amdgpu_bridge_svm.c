// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages of a process's own memory in a compute VM: what shared virtual memory (SVM) needs of
 * amdgpu. There is no buffer behind these mappings: the page tables alone know them.
 */
#include <linux/cleanup.h>
#include <linux/dma-fence.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/highmem.h>
#include <linux/hmm.h>
#include <linux/interval_tree_generic.h>
#include <linux/memremap.h>
#include <linux/nodemask.h>
#include <linux/pci.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "amdgpu_bind.h"
#include "bridge.h"
#include "bridge_vm.h"
#include "bridge_vram.h"

static struct dma_resv *tables_of(const struct bridge_vm *vm)
{
	return vm->vm->root.bo->tbo.base.resv;
}

/*
 * amdgpu gives a job of its copy engines 2 s, and then resets them. Where one did not end in time
 * the next ones are not waited for, until one does.
 */
#define UPDATE_TIMEOUT (10 * HZ)

static unsigned long patience(const struct bridge_vm *vm)
{
	return READ_ONCE(vm->hangs) ? 1 : UPDATE_TIMEOUT;
}

static int waited(struct bridge_vm *vm, long left)
{
	if (left < 0)
		return left;
	WRITE_ONCE(vm->hangs, !left);
	return left ? 0 : -ETIME;
}

/*
 * With page tables that the CPU writes it waits, whenever they are written, for whoever moves or
 * clears tables of the VM (bridge_tables_begin()), however long that takes. So it is waited for
 * here, for some time, before the state of a granule is locked: as long as the tables are locked
 * nobody adds another.
 */
static int wait_for_tables(struct bridge_vm *vm)
{
	long left;

	if (!vm->vm->use_cpu_for_update)
		return 0;
	left = dma_resv_wait_timeout(tables_of(vm), DMA_RESV_USAGE_KERNEL, false, patience(vm));
	return waited(vm, left) ? -EBUSY : 0;
}

/*
 * Where copy engines write page tables, each update is a job, which has a piece of a pool until an
 * engine takes it: all VMs of the device have 1024 of these together, and who finds none waits for
 * one without end, be it in a notifier. So behind what does not end nothing more is queued.
 */
static int check_jobs(struct bridge_vm *vm, unsigned long patience)
{
	struct dma_fence *last;
	bool ended = true;

	if (vm->vm->use_cpu_for_update || !READ_ONCE(vm->hangs))
		return 0;
	spin_lock(&vm->last_lock);
	last = dma_fence_get(vm->last);
	spin_unlock(&vm->last_lock);
	if (last)
		ended = dma_fence_wait_timeout(last, false, patience);
	dma_fence_put(last);
	/* The next one is waited for again. */
	if (ended)
		WRITE_ONCE(vm->hangs, false);
	return ended ? 0 : -ETIME;
}

int bridge_pages_lock(struct amdgpu_device *adev, struct bridge_vm *vm)
{
	int ret;

	/* Who comes again at once is not to be at it without a pause. */
	if (check_jobs(vm, 1))
		return -EBUSY;
	dma_resv_lock(tables_of(vm), NULL);
	ret = bridge_tables_bring_back(adev, vm->vm);
	if (!ret)
		ret = wait_for_tables(vm);
	if (ret)
		dma_resv_unlock(tables_of(vm));
	return ret;
}

void bridge_pages_unlock(struct bridge_vm *vm)
{
	dma_resv_unlock(tables_of(vm));
}

static int wait_for(struct bridge_vm *vm, struct dma_fence *fence)
{
	long left;

	if (!fence)
		return 0;
	left = dma_fence_wait_timeout(fence, false, patience(vm));
	dma_fence_put(fence);
	return waited(vm, left);
}

static int update(struct amdgpu_device *adev, struct bridge_vm *vm, bool unlocked, bool flush,
		  u64 first, u64 count, u64 flags, dma_addr_t *pages, struct dma_fence **fence)
{
	const u64 end = adev->vm_manager.max_pfn;

	static_assert(AMDGPU_GPU_PAGES_IN_CPU_PAGE == 1);
	/* amdgpu does not ask whether there are tables for them, but follows what lies behind. */
	if (count > end || first > end - count)
		return -EINVAL;
	/* With pages: as amdgpu finds best on an APU of several NUMA nodes (allow_override). */
	return amdgpu_call(amdgpu_vm_update_range)(adev, vm->vm, false, unlocked, flush, !!pages,
						   NULL, first, first + count - 1, flags, 0, 0,
						   NULL, pages, fence);
}

int bridge_pages_make_tables(struct amdgpu_device *adev, struct bridge_vm *vm, u64 first, u64 count)
{
	int ret;

	ret = update(adev, vm, false, false, first, count, adev->gmc.init_pte_flags, NULL,
		     &vm->vm->last_update);
	return ret ? ret : wait_for_tables(vm);
}

static u32 memory_type(u32 type)
{
	switch (type) {
	case BRIDGE_MEMORY_RW:
		return AMDGPU_VM_MTYPE_RW;
	case BRIDGE_MEMORY_CC:
		return AMDGPU_VM_MTYPE_CC;
	case BRIDGE_MEMORY_NC:
		return AMDGPU_VM_MTYPE_NC;
	default:
		return AMDGPU_VM_MTYPE_UC;
	}
}

static u64 entry_flags(struct amdgpu_device *adev, struct bridge_vm *vm,
		       const struct bridge_pages *pages)
{
	u32 mapping = memory_type(pages->memory_type);
	u64 flags = AMDGPU_PTE_VALID;

	if (pages->system)
		flags |= AMDGPU_PTE_SYSTEM;
	if (pages->snooped)
		flags |= AMDGPU_PTE_SNOOPED;
	if (pages->executable)
		mapping |= AMDGPU_VM_PAGE_EXECUTABLE;
	amdgpu_gmc_get_vm_pte(adev, vm->vm, NULL, mapping, &flags);
	flags |= AMDGPU_PTE_READABLE;
	if (pages->writable)
		flags |= AMDGPU_PTE_WRITEABLE;
	return flags;
}

int bridge_pages_map(struct amdgpu_device *adev, struct bridge_vm *vm,
		     const struct bridge_pages *pages, u64 *addresses)
{
	u64 flags = entry_flags(adev, vm, pages);
	int ret;

	static_assert(sizeof(dma_addr_t) == sizeof(u64));
	/* Without a word of it amdgpu leaves out a flush that follows (kfd_last_flushed_seq). */
	ret = update(adev, vm, false, pages->replaces, pages->first, pages->count, flags,
		     addresses, &vm->vm->last_update);
	if (!ret)
		ret = amdgpu_call(amdgpu_vm_update_pdes)(adev, vm->vm, false);
	return ret;
}

int bridge_pages_sync(struct bridge_vm *vm)
{
	struct dma_fence *fence;

	dma_resv_lock(tables_of(vm), NULL);
	fence = dma_fence_get(vm->vm->last_update);
	dma_resv_unlock(tables_of(vm));
	return wait_for(vm, fence);
}

int bridge_pages_unmap(struct amdgpu_device *adev, struct bridge_vm *vm, u64 first, u64 count)
{
	struct dma_fence *fence = NULL;
	int ret;

	/*
	 * amdgpu refuses it (-EBUSY) from the time when it evicts a table for another buffer until
	 * all are back. But when the machine goes to sleep it evicts all that there is, and does
	 * not note it: then it would write to tables that the CPU has mapped no more, as long as
	 * they have not come back. Nobody else evicts meanwhile.
	 */
	if (!list_empty(&vm->vm->kernel.evicted))
		return -EBUSY;
	/* There may be many that come one after the other. */
	ret = check_jobs(vm, 0);
	if (!ret)
		ret = wait_for_tables(vm);
	if (!ret)
		ret = update(adev, vm, true, true, first, count, adev->gmc.init_pte_flags, NULL,
			     &fence);
	if (ret)
		return ret;
	ret = wait_for(vm, fence);
	/*
	 * amdgpu's own wait, behind ours, may have found a fence that has just been added, and then
	 * nothing was written: the lock that keeps them away cannot be taken here.
	 */
	if (!ret && vm->vm->use_cpu_for_update && signal_pending(current))
		ret = -EINTR;
	return ret;
}

int bridge_pages_note(struct bridge_vm *vm, u64 first, u64 count)
{
	struct amdgpu_bo_va_mapping *note = kzalloc(sizeof(*note), GFP_KERNEL_ACCOUNT);
	struct amdgpu_bo_va_mapping *copy = kzalloc(sizeof(*copy), GFP_KERNEL_ACCOUNT);

	if (!note || !copy) {
		kfree(note);
		kfree(copy);
		return -ENOMEM;
	}
	note->start = first;
	note->last = first + count - 1;
	*copy = *note;
	spin_lock(&vm->last_lock);
	list_add_tail(&note->list, &vm->noted);
	list_add_tail(&copy->list, &vm->copies);
	spin_unlock(&vm->last_lock);
	return 0;
}

static LIST_HEAD(owing);
static DEFINE_SPINLOCK(owing_lock);

void bridge_pages_set_owes(struct bridge_vm *vm, bool owes)
{
	guard(spinlock)(&owing_lock);
	if (owes && !vm->owes++)
		list_add(&vm->owing, &owing);
	/* It owes nothing any more once that is noted. */
	else if (!owes && vm->owes && !--vm->owes)
		list_del(&vm->owing);
}

/* What it owes is noted by now. */
static void forget_owed(struct bridge_vm *vm)
{
	guard(spinlock)(&owing_lock);
	if (vm->owes)
		list_del(&vm->owing);
	vm->owes = 0;
}

struct mm_struct *bridge_pages_owed_by(const struct amdgpu_vm *vm)
{
	struct bridge_vm *other;

	guard(spinlock)(&owing_lock);
	list_for_each_entry(other, &owing, owing)
		if (other->vm == vm)
			return other->process->mm;
	return NULL;
}

void bridge_tables_take_notes(struct bridge_vm *vm)
{
	struct dma_resv *resv = vm->vm->root.bo->tbo.base.resv;

	dma_resv_lock(resv, NULL);
	spin_lock(&vm->last_lock);
	list_splice_tail_init(&vm->noted, &vm->vm->freed);
	spin_unlock(&vm->last_lock);
	forget_owed(vm);
	dma_resv_unlock(resv);
}

void bridge_tables_forget_notes(struct bridge_vm *vm)
{
	struct amdgpu_bo_va_mapping *copy, *next;
	LIST_HEAD(all);

	spin_lock(&vm->last_lock);
	list_splice_init(&vm->copies, &all);
	spin_unlock(&vm->last_lock);
	list_for_each_entry_safe(copy, next, &all, list)
		kfree(copy);
}

/* Whoever was about to take them out is cancelled. */
void bridge_tables_note_again(struct bridge_vm *vm)
{
	spin_lock(&vm->last_lock);
	list_splice_tail_init(&vm->copies, &vm->vm->freed);
	spin_unlock(&vm->last_lock);
}

/*
 * How many pages from the one at @first on lie next to each other. @step: whether upwards (1), as
 * the kernel hands out new pages, or downwards (-1), as those that were used before.
 */
static u32 run_at(const unsigned long *pfns, u32 first, u32 count, int *step)
{
	unsigned long next = pfns[first] & ~HMM_PFN_FLAGS;
	u32 i = first + 1;

	*step = i < count && (pfns[i] & ~HMM_PFN_FLAGS) + 1 == next ? -1 : 1;
	while (i < count && (pfns[i] & ~HMM_PFN_FLAGS) == next + *step) {
		next += *step;
		i++;
	}
	return i - first;
}

static void unmap_runs(struct amdgpu_device *adev, const unsigned long *pfns,
		       const u64 *addresses, u32 count)
{
	u32 i, run;
	int step;

	for (i = 0; i < count; i += run) {
		run = run_at(pfns, i, count, &step);
		dma_unmap_page(adev->dev, addresses[step > 0 ? i : i + run - 1],
			       (size_t)run << PAGE_SHIFT, DMA_BIDIRECTIONAL);
	}
}

/*
 * Where nothing has to be undone, run by run. False: something would have, page by page, or it was
 * too much at once; nothing is mapped.
 */
static bool map_runs(struct amdgpu_device *adev, const unsigned long *pfns, u32 count,
		     u64 *addresses)
{
	u32 i, j, run;
	int step;

	if (dma_need_unmap(adev->dev))
		return false;
	for (i = 0; i < count; i += run) {
		u32 lowest = i;
		dma_addr_t address;

		run = run_at(pfns, i, count, &step);
		if (step < 0)
			lowest += run - 1;
		address = dma_map_page(adev->dev, hmm_pfn_to_page(pfns[lowest]), 0,
				       (size_t)run << PAGE_SHIFT, DMA_BIDIRECTIONAL);
		if (dma_mapping_error(adev->dev, address)) {
			unmap_runs(adev, pfns, addresses, i);
			return false;
		}
		for (j = 0; j < run; j++)
			addresses[lowest + step * (int)j] = address + ((u64)j << PAGE_SHIFT);
	}
	/* Not before: a bounce buffer among them changes the answer. */
	if (!dma_need_unmap(adev->dev))
		return true;
	unmap_runs(adev, pfns, addresses, count);
	return false;
}

/*
 * Whether any is in the memory of a device that others do not reach like the system's. Those of a
 * file in persistent memory (DAX) have a struct page of the same kind, but they are memory.
 */
static bool has_device_page(const unsigned long *pfns, u32 count)
{
	const struct page *page;
	u32 i;

	for (i = 0; i < count; i++) {
		page = hmm_pfn_to_page(pfns[i]);
		if (is_device_private_page(page) || is_device_coherent_page(page) ||
		    is_pci_p2pdma_page(page))
			return true;
	}
	return false;
}

int bridge_pages_dma_map(struct amdgpu_device *adev, const unsigned long *pfns, u32 count,
			 u64 *addresses, bool *undo)
{
	u32 i;

	/* As where it is known before: a device's memory is not shared. */
	if (has_device_page(pfns, count))
		return -EFAULT;
	*undo = false;
	if (map_runs(adev, pfns, count, addresses))
		return 0;

	for (i = 0; i < count; i++) {
		addresses[i] = dma_map_page(adev->dev, hmm_pfn_to_page(pfns[i]), 0, PAGE_SIZE,
					    DMA_BIDIRECTIONAL);
		if (!dma_mapping_error(adev->dev, addresses[i]))
			continue;
		bridge_pages_dma_unmap(adev, addresses, i);
		return -ENOMEM;
	}
	/* Not before: a bounce buffer among them changes the answer. */
	*undo = dma_need_unmap(adev->dev);
	return 0;
}

void bridge_pages_dma_unmap(struct amdgpu_device *adev, const u64 *addresses, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++)
		if (addresses[i])
			dma_unmap_page(adev->dev, addresses[i], PAGE_SIZE, DMA_BIDIRECTIONAL);
}

bool bridge_vm_maps(struct amdgpu_vm *vm, u64 first, u64 last)
{
	return interval_tree_iter_first((struct rb_root_cached *)&vm->va, first, last);
}

int bridge_pages_have_buffer(struct bridge_vm *vm, u64 first, u64 count)
{
	int ret;

	ret = dma_resv_lock_interruptible(tables_of(vm), NULL);
	if (ret)
		return ret == -EINTR ? -ERESTARTSYS : ret;
	ret = bridge_vm_maps(vm->vm, first, first + count - 1);
	dma_resv_unlock(tables_of(vm));
	return ret;
}

/*
 * Whether a buffer shows the user's own memory there. amdgpu watches that memory for each such
 * buffer (amdgpu_hmm_register), before anybody can map it; what it watches is part of the buffer.
 * Its page list (tbo.ttm) says so too, but whoever moves or purges another buffer frees that one's
 * under a reservation that is not ours.
 */
static bool shows_user_memory(const struct amdgpu_bo *bo, u64 start, u64 last)
{
	const struct mmu_interval_notifier *watched = &bo->notifier;

	return READ_ONCE(watched->mm) && watched->interval_tree.start <= last &&
	       watched->interval_tree.last >= start;
}

int bridge_pages_have_userptr(struct bridge_vm *vm, u64 first, u64 count)
{
	struct rb_root_cached *mappings = (struct rb_root_cached *)&vm->vm->va;
	u64 start = first << PAGE_SHIFT, last = ((first + count) << PAGE_SHIFT) - 1;
	struct amdgpu_bo_va_mapping *mapping;
	struct interval_tree_node *node;
	struct amdgpu_bo *bo;
	int ret;

	ret = dma_resv_lock_interruptible(tables_of(vm), NULL);
	if (ret)
		return ret == -EINTR ? -ERESTARTSYS : ret;
	for (node = interval_tree_iter_first(mappings, 0, ~0UL); node;
	     node = interval_tree_iter_next(node, 0, ~0UL)) {
		mapping = container_of((struct rb_node *)node, struct amdgpu_bo_va_mapping, rb);
		bo = mapping->bo_va->base.bo;
		ret = bo && shows_user_memory(bo, start, last);
		if (ret)
			break;
	}
	dma_resv_unlock(tables_of(vm));
	return ret;
}

int bridge_pages_reserve(u64 bytes)
{
	return amdgpu_call(amdgpu_amdkfd_reserve_mem_limit)(NULL, bytes,
							    KFD_IOC_ALLOC_MEM_FLAGS_USERPTR, 0);
}

void bridge_pages_unreserve(u64 bytes)
{
	amdgpu_call(amdgpu_amdkfd_unreserve_mem_limit)(NULL, bytes,
						       KFD_IOC_ALLOC_MEM_FLAGS_USERPTR, 0);
}

/* The ring from which retry faults are handled: amdgpu's own copy where it is told of each once. */
static struct amdgpu_ih_ring *fault_ring(struct amdgpu_device *adev)
{
	struct amdgpu_ih_ring *first = &adev->irq.ih1;

	if (!adev->irq.retry_cam_enabled && first->ring_size &&
	    first->rptr != amdgpu_ih_get_wptr(adev, first))
		return first;
	return &adev->irq.ih_soft;
}

u64 bridge_fault_checkpoint(struct amdgpu_device *adev)
{
	struct amdgpu_ih_ring *ring = fault_ring(adev);
	u32 written = amdgpu_ih_get_wptr(adev, ring);

	if (ring->rptr == written)
		return 0;
	return amdgpu_ih_decode_iv_ts(adev, ring, written, -1);
}

bool bridge_fault_is_before(u64 timestamp, u64 checkpoint)
{
	return amdgpu_ih_ts_after_or_equal(timestamp, checkpoint);
}

void bridge_fault_forget(struct amdgpu_device *adev, u64 page, u32 pasid)
{
	amdgpu_call(amdgpu_gmc_filter_faults_remove)(adev, page, pasid);
}

s32 bridge_memory_partition(const struct amdgpu_device *adev, u64 offset)
{
	const struct amdgpu_mem_partition_info *partitions = adev->gmc.mem_partitions;
	u64 page = offset >> PAGE_SHIFT;
	s32 i;

	for (i = 0; partitions && adev->gmc.num_mem_partitions > 1 &&
		    i < adev->gmc.num_mem_partitions; i++)
		if (partitions[i].range.fpfn <= page && page <= partitions[i].range.lpfn)
			return i;
	return -1;
}

u64 bridge_device_memory_base(const struct amdgpu_device *adev)
{
	return adev->vm_manager.vram_base_offset;
}

u32 bridge_local_memory_type(void)
{
	switch (amdgpu_object(amdgpu_mtype_local)) {
	case 1:
		return BRIDGE_MEMORY_NC;
	case 2:
		return BRIDGE_MEMORY_CC;
	default:
		return BRIDGE_MEMORY_RW;
	}
}

bool bridge_has_numa(void)
{
	return num_possible_nodes() > 1;
}

u32 bridge_default_granularity(void)
{
	/* Pages that four levels of page tables can have, at most. */
	return min_t(u32, amdgpu_object(amdgpu_svm_default_granularity), 0x1b);
}

static void read_page(struct amdgpu_device *adev, const struct bridge_copy_page *page)
{
	u64 place = ((u64)page->device << PAGE_SHIFT) - adev->kfd.pgmap.range.start;
	void *memory = kmap_local_page(pfn_to_page(page->system));

	amdgpu_call(amdgpu_device_vram_access)(adev, place, memory, PAGE_SIZE, false);
	kunmap_local(memory);
}

int bridge_read_vram(struct amdgpu_device *adev, const struct bridge_copy_page *pages, u32 count)
{
	u32 i;

	/* A reset takes the memory away from the bus for a while. */
	if (!down_read_trylock(&adev->reset_domain->sem))
		return -EAGAIN;
	for (i = 0; i < count && !adev->no_hw_access; i++) {
		read_page(adev, &pages[i]);
		cond_resched();
	}
	up_read(&adev->reset_domain->sem);
	/* What has gone from the bus reads as ones; what is unplugged amdgpu does not read. */
	if (i < count || !pci_device_is_present(adev->pdev) || bridge_is_unplugged(adev))
		return -ENODEV;
	return 0;
}
