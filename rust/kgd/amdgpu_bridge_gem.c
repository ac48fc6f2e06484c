// SPDX-License-Identifier: GPL-2.0-only
/*
 * Buffers in a VM that compute has acquired which are not the KFD's, but the render node's: made in
 * the VM's file or imported there (DRM_IOCTL_AMDGPU_GEM_CREATE, DRM_IOCTL_PRIME_FD_TO_HANDLE) and
 * mapped by DRM_IOCTL_AMDGPU_GEM_VA, as HIP's virtual memory management does. The process's queues
 * use them like its others, so they must not move before the queues are stopped either: they get
 * its eviction fence when they come into the VM, those that are there before when the VM is
 * acquired, and all of them the new one when the process is restored. amdgpu gives it to imports of
 * other devices only, and once.
 *
 * Not to the user's own pages (GEM_USERPTR): their notifier waits for the fence of the VM's root.
 * Nor to those that share the root's reservation, which has it.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/mm.h>
#include <linux/rcupdate.h>
#include <linux/spinlock.h>

#include <drm/drm_gem.h>

#include "amdgpu_bind.h"
#include "bridge_vm.h"

/* Under the buffer's reservation. */
static bool wants_fence(struct amdgpu_vm *vm, struct amdgpu_bo *bo)
{
	return bo->tbo.type != ttm_bo_type_kernel &&
	       bo->tbo.base.resv != vm->root.bo->tbo.base.resv &&
	       !amdgpu_call(amdgpu_ttm_tt_get_usermm)(bo->tbo.ttm);
}

/*
 * The eviction fence of the VM's process, under the reservation of the VM's root, where it stands
 * since the VM was acquired; a restore replaces it there first. NULL: there is none, or the process
 * is evicted. The VM's process info does not tell: amdgpu sets it before it can fail, and then
 * throws it away.
 */
static struct dma_fence *eviction_fence_of(struct amdgpu_vm *vm)
{
	struct dma_resv_iter cursor;
	struct dma_fence *fence;

	dma_resv_for_each_fence(&cursor, vm->root.bo->tbo.base.resv, DMA_RESV_USAGE_BOOKKEEP, fence)
		if (amdgpu_call(to_amdgpu_amdkfd_fence)(fence) && !dma_fence_is_signaled(fence))
			return fence;
	return NULL;
}

/*
 * Under the reservations of the buffer and of the VM's root. The caller has reserved a place for a
 * fence (amdgpu_gem_object_open). Without a fence now, the buffer gets one with the others of the
 * VM: when that has been acquired, or is restored.
 */
void bridge_gem_opened(struct amdgpu_vm *vm, struct amdgpu_bo *bo)
{
	struct dma_fence *fence = eviction_fence_of(vm);

	if (fence && wants_fence(vm, bo))
		dma_resv_add_fence(bo->tbo.base.resv, fence, DMA_RESV_USAGE_BOOKKEEP);
}

/*
 * Whether the KFD sees to the buffer itself: this process's, or what another GPU shows of one.
 * Under info->lock and the lock of the VM's list, while which the buffer is there.
 */
static bool is_kfds(struct amdkfd_process_info *info, struct amdgpu_bo *bo)
{
	struct kgd_mem *mem = bo->kfd_bo;

	if (bo->tbo.type == ttm_bo_type_kernel || bo->flags & AMDGPU_GEM_CREATE_PREEMPTIBLE)
		return true;
	return mem && mem->process_info == info && !list_empty(&mem->validate_list);
}

/* Up to @room buffers that the KFD does not see to, with references. Returns how many there are. */
static u32 collect(struct amdgpu_vm *vm, struct amdgpu_bo **bos, u32 room)
{
	struct list_head *const lists[] = {
		&vm->individual.evicted,
		&vm->individual.needs_update,
		&vm->individual.idle,
	};
	struct amdgpu_vm_bo_base *base;
	u32 i, count = 0;

	spin_lock(&vm->individual_lock);
	for (i = 0; i < ARRAY_SIZE(lists); i++)
		list_for_each_entry(base, lists[i], vm_status) {
			if (!base->bo || is_kfds(vm->process_info, base->bo))
				continue;
			if (count < room)
				bos[count] = amdgpu_call(amdgpu_bo_ref)(base->bo);
			count++;
		}
	spin_unlock(&vm->individual_lock);
	return count;
}

static bool vm_has(struct amdgpu_vm *vm, const struct dma_resv *resv)
{
	struct list_head *const lists[] = {
		&vm->individual.evicted,
		&vm->individual.needs_update,
		&vm->individual.idle,
	};
	struct amdgpu_vm_bo_base *base;
	u32 i;

	guard(spinlock)(&vm->individual_lock);
	for (i = 0; i < ARRAY_SIZE(lists); i++)
		list_for_each_entry(base, lists[i], vm_status)
			if (base->bo && base->bo->tbo.base.resv == resv)
				return true;
	return false;
}

bool bridge_gem_has(struct amdkfd_process_info *info, const struct dma_resv *resv)
{
	struct amdgpu_vm *vm;

	lockdep_assert_held(&info->lock);
	list_for_each_entry(vm, &info->vm_list_head, vm_list_node)
		if (vm_has(vm, resv))
			return true;
	return false;
}

static bool is_mapped(const struct amdgpu_bo_va *bo_va)
{
	return !list_empty(&bo_va->valids) || !list_empty(&bo_va->invalids);
}

/*
 * What an import of amdgpu's shows, if that lies in system memory, or else NULL. amdgpu brings VRAM
 * to where other devices see it before it lets one have it (amdgpu_dma_buf_map): not what may not
 * move.
 */
static struct ttm_buffer_object *get_shown(struct amdgpu_bo_va *bo_va)
{
	struct dma_buf_attachment *attachment = bo_va->base.bo->tbo.base.import_attach;
	struct ttm_buffer_object *shown;

	/* amdgpu_dma_buf_map() refuses what xGMI reaches, with a warning; it is shown in place. */
	if (attachment->dmabuf->ops != &amdgpu_object(amdgpu_dmabuf_ops) || bo_va->is_xgmi)
		return NULL;
	shown = &gem_to_amdgpu_bo(attachment->dmabuf->priv)->tbo;
	return shown->resource && shown->resource->mem_type == TTM_PL_TT ? shown : NULL;
}

/*
 * Brings what was swapped out back to system memory, and an import of what has moved, if there is
 * room: at nobody's expense, for that may be one of the process's own, which has its eviction fence
 * already. If there is none, page tables show nothing there. Under both reservations; that of an
 * import is of what it shows as well, which stays where it is, though amdgpu would rather have it
 * elsewhere (amdgpu_dma_buf_map): who else shows it would move it back.
 */
static int bring_back(struct amdgpu_vm *vm, struct amdgpu_bo *bo)
{
	struct amdgpu_bo_va *bo_va = amdgpu_call(amdgpu_vm_bo_find)(vm, bo);
	struct ttm_operation_ctx ctx = { .no_wait_gpu = true };
	struct ttm_buffer_object *shown = NULL;
	u32 i;

	if (!bo_va || !is_mapped(bo_va) || !wants_fence(vm, bo) || bo->tbo.pin_count ||
	    !(bo->allowed_domains & AMDGPU_GEM_DOMAIN_GTT) ||
	    (bo->tbo.resource && bo->tbo.resource->mem_type != TTM_PL_SYSTEM))
		return 0;
	if (drm_gem_is_imported(&bo->tbo.base)) {
		shown = get_shown(bo_va);
		if (!shown)
			return 0;
		amdgpu_call(ttm_bo_pin)(shown);
	}
	amdgpu_call(amdgpu_bo_placement_from_domain)(bo, AMDGPU_GEM_DOMAIN_GTT);
	/* TTM evicts nothing for such a place. */
	for (i = 0; i < bo->placement.num_placement; i++)
		bo->placements[i].flags |= TTM_PL_FLAG_DESIRED;
	amdgpu_call(ttm_bo_validate)(&bo->tbo, &bo->placement, &ctx);
	if (shown)
		amdgpu_call(ttm_bo_unpin)(shown);
	return 0;
}

/*
 * Has page tables show what they don't, or where it was before. What fails half way counts as
 * written afterwards, so that it is taken out when it is unmapped, and as moved, so that it is
 * written the next time.
 */
static int show(struct amdgpu_vm *vm, struct amdgpu_bo_va *bo_va)
{
	struct amdgpu_device *adev = amdgpu_ttm_adev(vm->root.bo->tbo.bdev);
	int ret;

	/* Evicted again, and not for somebody's want, of which amdgpu would know (vm->evicting). */
	if (bridge_tables_are_away(vm))
		return -EBUSY;
	/* Of the update, and of its flush; twice. */
	ret = dma_resv_reserve_fences(vm->root.bo->tbo.base.resv, 4);
	if (ret)
		return ret;
	ret = amdgpu_call(amdgpu_vm_bo_update)(adev, bo_va, false);
	if (ret) {
		list_splice_init(&bo_va->invalids, &bo_va->valids);
		bridge_halves_relink(vm);
		return ret;
	}
	return amdgpu_call(amdgpu_vm_update_pdes)(adev, vm, false);
}

/* Whether nothing is written any more: with copy engines alone (amdgpu_bridge_tables.c). */
static bool is_stopped(struct amdgpu_vm *vm)
{
	return vm->immediate.stopped || vm->delayed.stopped;
}

/* Under both reservations. */
static int settle(struct amdgpu_vm *vm, struct amdgpu_bo *bo)
{
	struct dma_resv *resv = bo->tbo.base.resv;
	struct amdgpu_bo_va *bo_va = amdgpu_call(amdgpu_vm_bo_find)(vm, bo);
	int ret;

	if (!bo_va || !wants_fence(vm, bo))
		return 0;
	ret = dma_resv_reserve_fences(resv, 1);
	if (ret)
		return ret;
	dma_resv_add_fence(resv, &vm->process_info->eviction_fence->base, DMA_RESV_USAGE_BOOKKEEP);
	if (is_stopped(vm))
		return 0;
	/* It may have been thrown away when nobody told of that yet (amdgpu_bridge_gutted.c). */
	if (!bo->tbo.resource && !bridge_keeps_addresses(bo))
		amdgpu_call(amdgpu_vm_bo_invalidate)(bo, false);
	/* Cleared: somebody had the buffer's reservation when amdgpu wanted to show it. */
	if (bo_va->base.moved || bo_va->cleared)
		ret = show(vm, bo_va);
	if (ret)
		return ret;
	/* Or what amdgpu has written, which does not wait for it. */
	dma_fence_wait(bo_va->last_pt_update, false);
	dma_fence_wait(vm->last_update, false);
	return 0;
}

/* Calls @what under the reservations of the VM's root and of the buffer, if these are two. */
static int with_both(struct amdgpu_vm *vm, struct amdgpu_bo *bo,
		     int (*what)(struct amdgpu_vm *vm, struct amdgpu_bo *bo))
{
	struct dma_resv *held = vm->root.bo->tbo.base.resv, *wanted = bo->tbo.base.resv;
	struct ww_acquire_ctx ctx;
	int ret;

	/* No such buffer is on the lists that it is called for, nor an import. */
	if (WARN_ON(wanted == held))
		return 0;
	ww_acquire_init(&ctx, &reservation_ww_class);
	dma_resv_lock(held, &ctx);
	while (dma_resv_lock(wanted, &ctx) == -EDEADLK) {
		dma_resv_unlock(held);
		dma_resv_lock_slow(wanted, &ctx);
		swap(held, wanted);
	}
	ret = what(vm, bo);
	dma_resv_unlock(wanted);
	dma_resv_unlock(held);
	ww_acquire_fini(&ctx);
	return ret;
}

#define ROOM 64

/* Calls @what so for each buffer that the KFD does not see to. */
static int for_each(struct amdgpu_vm *vm, int (*what)(struct amdgpu_vm *vm, struct amdgpu_bo *bo))
{
	u32 i, count, room = collect(vm, NULL, 0);
	struct amdgpu_bo **bos;
	int ret = 0;

	if (!room)
		return 0;
	/* Some come meanwhile. */
	room += ROOM;
	bos = kvmalloc_array(room, sizeof(*bos), GFP_KERNEL);
	if (!bos)
		return -ENOMEM;
	count = collect(vm, bos, room);
	if (count > room)
		ret = -EAGAIN;
	for (i = 0; i < min(count, room); i++) {
		ret = with_both(vm, bos[i], what) ?: ret;
		amdgpu_call(amdgpu_bo_unref)(&bos[i]);
	}
	kvfree(bos);
	return ret;
}

void bridge_gem_bring_back(struct amdkfd_process_info *info)
{
	struct amdgpu_vm *vm;

	mutex_lock(&info->lock);
	list_for_each_entry(vm, &info->vm_list_head, vm_list_node)
		for_each(vm, bring_back);
	mutex_unlock(&info->lock);
}

int bridge_gem_fence(struct amdkfd_process_info *info)
{
	struct amdgpu_vm *vm;
	int ret = 0;

	lockdep_assert_held(&info->lock);
	list_for_each_entry(vm, &info->vm_list_head, vm_list_node)
		ret = for_each(vm, settle) ?: ret;
	return ret;
}

/* Whether page tables show where it was before something on a list of such. */
static bool is_any_shown_wrong(struct list_head *list)
{
	struct amdgpu_vm_bo_base *base;

	list_for_each_entry(base, list, vm_status)
		if (base->moved && is_mapped(container_of(base, struct amdgpu_bo_va, base)))
			return true;
	return false;
}

/* The same of what shares the root's reservation, with what was thrown away before it was told. */
static bool has_always_valid_moved(struct amdgpu_vm *vm)
{
	struct dma_resv *resv = vm->root.bo->tbo.base.resv;
	struct amdgpu_vm_bo_base *base, *next;
	bool moved;

	dma_resv_lock(resv, NULL);
	list_for_each_entry_safe(base, next, &vm->always_valid.idle, vm_status)
		if (!base->bo->tbo.resource)
			amdgpu_call(amdgpu_vm_bo_invalidate)(base->bo, true);
	moved = !is_stopped(vm) && (is_any_shown_wrong(&vm->always_valid.evicted) ||
				    is_any_shown_wrong(&vm->always_valid.needs_update));
	dma_resv_unlock(resv);
	return moved;
}

void bridge_gem_begin(struct amdgpu_vm *vm)
{
	struct amdkfd_process_info *info = vm->process_info;

	mutex_lock(&info->lock);
	for_each(vm, bring_back);
	/* Whoever restores the process does what is left to be done; this asks for it. */
	if (for_each(vm, settle) || has_always_valid_moved(vm))
		dma_fence_wait_timeout(&info->eviction_fence->base, false, 0);
	mutex_unlock(&info->lock);
}

/*
 * Waits for what moves or clears the memory that an import shows, under its reservation. -EIO: that
 * was cancelled since then, by a reset, say, and there is what the memory had before.
 */
static int await_moves(struct dma_resv *resv, ktime_t since)
{
	struct dma_resv_iter cursor;
	struct dma_fence *fence;
	long ret;

	dma_resv_for_each_fence(&cursor, resv, DMA_RESV_USAGE_KERNEL, fence) {
		do
			ret = dma_fence_wait(fence, true);
		while (bridge_waits_on(ret));
		if (ret)
			return ret;
		if (fence->error && ktime_compare(dma_fence_timestamp(fence), since) >= 0)
			return -EIO;
	}
	return 0;
}

/* What an import shows of a device that was unplugged amdgpu frees, wherever it has moved to. */
static bool is_of_unplugged(const struct amdgpu_bo *bo)
{
	const struct dma_buf_attachment *attachment = bo->tbo.base.import_attach;
	const struct amdgpu_bo *shown;

	if (!attachment || attachment->dmabuf->ops != &amdgpu_object(amdgpu_dmabuf_ops))
		return false;
	shown = gem_to_amdgpu_bo((struct drm_gem_object *)attachment->dmabuf->priv);
	return bridge_is_unplugged(amdgpu_ttm_adev(shown->tbo.bdev));
}

static int validate(struct amdgpu_bo *bo, u32 domain)
{
	struct ttm_operation_ctx ctx = { };
	ktime_t begin = ktime_get();
	int ret;

	if (bo->tbo.pin_count)
		return 0;
	/* amdgpu_dma_buf_map() refuses it as well, with a warning. */
	if (amdgpu_call(amdgpu_dmabuf_is_xgmi_accessible)(amdgpu_ttm_adev(bo->tbo.bdev), bo))
		return -EINVAL;
	amdgpu_call(amdgpu_bo_placement_from_domain)(bo, domain);
	ret = amdgpu_call(ttm_bo_validate)(&bo->tbo, &bo->placement, &ctx);
	ret = ret ?: await_moves(bo->tbo.base.resv, begin);
	return !ret && is_of_unplugged(bo) ? -ENODEV : ret;
}

/* The one VM of the fence's process that has the buffer; NULL if none has, or several have. */
static struct amdgpu_vm *vm_of(struct amdgpu_bo *bo, struct dma_fence *fence)
{
	struct amdgpu_vm_bo_base *base;
	struct amdgpu_vm *vm = NULL;

	dma_resv_assert_held(bo->tbo.base.resv);
	for (base = bo->vm_bo; base; base = base->next) {
		struct amdkfd_process_info *info = READ_ONCE(base->vm->process_info);

		if (!info || &info->eviction_fence->base != fence)
			continue;
		if (vm)
			return NULL;
		vm = base->vm;
	}
	return vm;
}

/* Under both reservations: takes back what amdgpu_gem_object_open() has just added. */
static int leave_vm(struct amdgpu_vm *vm, struct amdgpu_bo *bo)
{
	struct amdgpu_bo_va *bo_va = amdgpu_call(amdgpu_vm_bo_find)(vm, bo);

	if (bo_va && !--bo_va->ref_count)
		amdgpu_call(amdgpu_vm_bo_del)(amdgpu_ttm_adev(vm->root.bo->tbo.bdev), bo_va);
	return 0;
}

/*
 * amdgpu_amdkfd_bo_validate_and_fence() for an import of another device's. amdgpu calls it when
 * that is in the VM already, forgets it there if that fails, and frees it; and it takes the
 * reservation interruptibly. With the lock of the fence's process, so the fence stays the same; and
 * whoever imports has the VM's file.
 */
int bridge_gem_validate(struct amdgpu_bo *bo, u32 domain, struct dma_fence *fence)
{
	struct dma_resv *resv = bo->tbo.base.resv;
	struct amdgpu_vm *vm;
	int ret;

	dma_resv_lock(resv, NULL);
	ret = validate(bo, domain);
	if (!ret)
		ret = dma_resv_reserve_fences(resv, 1);
	if (!ret)
		dma_resv_add_fence(resv, fence, DMA_RESV_USAGE_BOOKKEEP);
	vm = ret ? vm_of(bo, fence) : NULL;
	dma_resv_unlock(resv);
	if (vm)
		with_both(vm, bo, leave_vm);
	return ret;
}
