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
 * frees them would write to the stack. Directory entries may lead to them still, so they stay.
 * Under the reservation of the VM's root; by who has called amdgpu, before he ends.
 */
static void relink_below(struct amdgpu_vm *vm, struct amdgpu_vm_bo_base *directory,
			 unsigned int level, u64 first, u64 last)
{
	struct amdgpu_device *adev = amdgpu_ttm_adev(directory->bo->tbo.bdev);
	struct amdgpu_vm_bo_base *entries = to_amdgpu_bo_vm(directory->bo)->entries;
	const unsigned int shift = shift_of(adev, level);
	const u64 mask = BIT_ULL(shift) - 1;
	u64 i;

	for (i = first >> shift; i <= last >> shift; i++) {
		struct list_head *node = &entries[i].vm_status;

		if (!entries[i].bo)
			continue;
		if (object_is_on_stack(node->next) || object_is_on_stack(node->prev)) {
			INIT_LIST_HEAD(node);
			list_add_tail(node, &vm->kernel.idle);
		}
		if (level < AMDGPU_VM_PDB0)
			relink_below(vm, &entries[i], level + 1,
				     i == first >> shift ? first & mask : 0,
				     i == last >> shift ? last & mask : mask);
	}
}

static void relink(struct amdgpu_vm *vm, u64 first, u64 last)
{
	struct amdgpu_device *adev = amdgpu_ttm_adev(vm->root.bo->tbo.bdev);

	dma_resv_lock(vm->root.bo->tbo.base.resv, NULL);
	relink_below(vm, &vm->root, adev->vm_manager.root_level, first, last);
	dma_resv_unlock(vm->root.bo->tbo.base.resv);
}

/*
 * Under the reservation of the VM's root. Block by block, for which no table is needed: a whole one
 * is cleared where the directory has it, and a part of one in its table, if there is one.
 */
static void clear(struct bridge_vm *vm, u64 first, u64 last)
{
	const u64 block = BIT_ULL(vm->adev->vm_manager.block_size);
	u64 at, end;

	for (at = first; at <= last; at = end + 1) {
		bool whole;

		end = min(last, ALIGN_DOWN(at, block) + block - 1);
		whole = end - at == block - 1;
		amdgpu_call(amdgpu_vm_update_range)(vm->adev, vm->vm, false, !whole, true, false,
						    NULL, at, end, vm->adev->gmc.init_pte_flags, 0,
						    0, NULL, NULL, &vm->vm->last_update);
	}
}

static void unmap(struct bridge_vm *vm, u64 first, u64 last)
{
	relink(vm->vm, first, last);
	if (bridge_pages_lock(vm->adev, vm))
		return;
	/* If something else is mapped there, it is that for which this failed, and wrote nothing. */
	if (!bridge_vm_maps(vm->vm, first, last))
		clear(vm, first, last);
	bridge_pages_unlock(vm);
}

void bridge_halves_unmap(struct bridge_vm *vm, struct kgd_mem *mem)
{
	const u64 count = mem->bo->tbo.base.size >> PAGE_SHIFT;
	struct kfd_mem_attachment *entry;
	bool found = false;

	mutex_lock(&mem->lock);
	list_for_each_entry(entry, &mem->attachments, list) {
		u64 first = entry->va >> PAGE_SHIFT;

		if (entry->bo_va->base.vm != vm->vm || entry->is_mapped)
			continue;
		found = true;
		unmap(vm, first, first + count - 1);
	}
	mutex_unlock(&mem->lock);
	if (found)
		bridge_pages_sync(vm);
}

void bridge_halves_restored(struct amdkfd_process_info *info)
{
	struct amdgpu_vm *vm;

	mutex_lock(&info->lock);
	list_for_each_entry(vm, &info->vm_list_head, vm_list_node) {
		struct amdgpu_device *adev = amdgpu_ttm_adev(vm->root.bo->tbo.bdev);

		relink(vm, 0, adev->vm_manager.max_pfn - 1);
	}
	mutex_unlock(&info->lock);
}

/* Under the reservation of the VM's root. */
static void recall(struct amdgpu_bo_va *bo_va, u64 first)
{
	struct amdgpu_bo_va_mapping *mapping;

	list_for_each_entry(mapping, &bo_va->invalids, list) {
		if (mapping->start != first)
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
		/* It counts as moved until its entries are written. */
		if (entry->bo_va->base.vm != vm->vm || !entry->is_mapped ||
		    !READ_ONCE(entry->bo_va->base.moved))
			continue;
		dma_resv_lock(resv, NULL);
		recall(entry->bo_va, entry->va >> PAGE_SHIFT);
		dma_resv_unlock(resv);
	}
	mutex_unlock(&mem->lock);
}
