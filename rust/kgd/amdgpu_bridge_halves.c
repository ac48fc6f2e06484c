// SPDX-License-Identifier: GPL-2.0-only
/*
 * What amdgpu leaves of mappings and restores that it has done by half when they fail, mostly for
 * lack of VRAM for a page table. It goes by the lists of a buffer's mappings (bo_va->valids and
 * ->invalids) afterwards, which then are not as the page tables.
 */
#include <linux/dma-resv.h>
#include <linux/list.h>
#include <linux/sched/task_stack.h>

#include "amdgpu_bind.h"
#include "bridge.h"
#include "bridge_vm.h"

/* As many pages as an entry of a directory of this level leads to, as a power of 2. */
static unsigned int shift_of(const struct amdgpu_device *adev, unsigned int level)
{
	return 9 * (AMDGPU_VM_PDB0 - level) + adev->vm_manager.block_size;
}

/*
 * Tables whose place a larger entry takes are on a list whose head is on the stack until they are
 * freed (amdgpu_vm_pt_add_list). An update that fails leaves them there: the next one who moves or
 * frees them would write to the stack. They stay, and their directories' entries are to lead to
 * them again: amdgpu takes for granted that they do. node: the list's first.
 */
static void relink_all(struct amdgpu_vm *vm, struct list_head *node)
{
	struct list_head *next;

	do {
		next = node->next;
		list_entry(node, struct amdgpu_vm_bo_base, vm_status)->moved = true;
		INIT_LIST_HEAD(node);
		list_add_tail(node, &vm->kernel.needs_update);
		node = next;
	} while (!object_is_on_stack(next));
}

static void relink_below(struct amdgpu_vm *vm, struct amdgpu_vm_bo_base *directory,
			 unsigned int level, u64 count)
{
	struct amdgpu_device *adev = amdgpu_ttm_adev(directory->bo->tbo.bdev);
	struct amdgpu_vm_bo_base *entries = to_amdgpu_bo_vm(directory->bo)->entries;
	const unsigned int shift = shift_of(adev, level);
	u64 i;

	for (i = 0; i << shift < count; i++) {
		if (!entries[i].bo)
			continue;
		if (object_is_on_stack(entries[i].vm_status.prev))
			relink_all(vm, &entries[i].vm_status);
		if (level < AMDGPU_VM_PDB0)
			relink_below(vm, &entries[i], level + 1, BIT_ULL(shift));
	}
}

void bridge_halves_relink(struct amdgpu_vm *vm)
{
	struct amdgpu_device *adev = amdgpu_ttm_adev(vm->root.bo->tbo.bdev);

	relink_below(vm, &vm->root, adev->vm_manager.root_level, adev->vm_manager.max_pfn);
	/* Else it is done when they have come back. */
	if (amdgpu_call(amdgpu_vm_ready)(vm) &&
	    !dma_resv_reserve_fences(vm->root.bo->tbo.base.resv, 2))
		amdgpu_call(amdgpu_vm_update_pdes)(adev, vm, false);
}

static void relink(struct amdgpu_vm *vm)
{
	dma_resv_lock(vm->root.bo->tbo.base.resv, NULL);
	bridge_halves_relink(vm);
	dma_resv_unlock(vm->root.bo->tbo.base.resv);
}

/*
 * What has failed behind the mapping amdgpu does not take back: it is on its lists. From here on it
 * is noted, if it was written.
 */
static void take_back(struct amdgpu_vm *vm, struct kfd_mem_attachment *entry)
{
	struct dma_resv *resv = vm->root.bo->tbo.base.resv;

	dma_resv_lock(resv, NULL);
	amdgpu_call(amdgpu_vm_bo_unmap)(entry->adev, entry->bo_va, entry->va);
	dma_resv_unlock(resv);
}

static void unmap(struct bridge_vm *vm, struct kfd_mem_attachment *entry, u64 count, int error)
{
	const u64 end = vm->adev->vm_manager.max_pfn, first = entry->va >> PAGE_SHIFT;

	/* It was refused for that. */
	if (count > end || first > end - count)
		return;
	relink(vm->vm);
	/* Refused, as something is mapped there: by the render node it may be the buffer itself. */
	if (error != -EINVAL)
		take_back(vm->vm, entry);
	if (bridge_pages_lock(vm->adev, vm))
		return;
	/* Where tables could not be linked before. */
	amdgpu_call(amdgpu_vm_update_pdes)(vm->adev, vm->vm, false);
	/* If something else is mapped there, this failed for that, and wrote nothing. */
	if (!bridge_vm_maps(vm->vm, first, first + count - 1))
		bridge_tables_clear(vm->vm, first, first + count - 1);
	bridge_pages_unlock(vm);
}

void bridge_halves_unmap(struct bridge_vm *vm, struct kgd_mem *mem, int error)
{
	const u64 count = mem->bo->tbo.base.size >> PAGE_SHIFT;
	struct kfd_mem_attachment *entry;
	bool found = false;

	mutex_lock(&mem->lock);
	list_for_each_entry(entry, &mem->attachments, list) {
		if (entry->bo_va->base.vm != vm->vm || entry->is_mapped)
			continue;
		found = true;
		unmap(vm, entry, count, error);
	}
	mutex_unlock(&mem->lock);
	if (found)
		bridge_pages_sync(vm);
}

void bridge_halves_restored(struct amdkfd_process_info *info)
{
	struct amdgpu_vm *vm;

	mutex_lock(&info->lock);
	list_for_each_entry(vm, &info->vm_list_head, vm_list_node)
		relink(vm);
	mutex_unlock(&info->lock);
}

/* Under the reservation of the VM's root. */
void bridge_halves_recall_one(struct kfd_mem_attachment *entry)
{
	struct amdgpu_bo_va *bo_va = entry->bo_va;
	struct amdgpu_bo_va_mapping *mapping;

	/* It counts as moved until its entries are written. */
	if (!bo_va->base.moved)
		return;
	list_for_each_entry(mapping, &bo_va->invalids, list) {
		if (mapping->start != entry->va >> PAGE_SHIFT)
			continue;
		list_move(&mapping->list, &bo_va->valids);
		return;
	}
}

void bridge_halves_recall(struct bridge_vm *vm, struct kgd_mem *mem)
{
	struct dma_resv *resv = vm->vm->root.bo->tbo.base.resv;
	struct kfd_mem_attachment *entry;

	mutex_lock(&mem->lock);
	list_for_each_entry(entry, &mem->attachments, list) {
		if (entry->bo_va->base.vm != vm->vm || !entry->is_mapped ||
		    !READ_ONCE(entry->bo_va->base.moved))
			continue;
		dma_resv_lock(resv, NULL);
		bridge_halves_recall_one(entry);
		dma_resv_unlock(resv);
	}
	mutex_unlock(&mem->lock);
}
