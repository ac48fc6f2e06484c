// SPDX-License-Identifier: GPL-2.0-only
/*
 * bridge.h in terms of amdgpu: buffers that go from one process to another as dma-bufs.
 *
 * The buffers of all processes have their handles in one file (bridge_vm.h), and a struct kgd_mem
 * knows its own by number. amdgpu's own import (amdgpu_amdkfd_gpuvm_import_dmabuf_fd) takes the
 * number that the file has for the dma-buf already, be it the exporter's or another importer's, and
 * counts nothing: the first of them that is freed deletes the handle, the next buffer of any
 * process gets the number, and what the others do with it they do with that one. So an import has
 * a handle of its own here, which nobody but it deletes: like that of a buffer that was allocated,
 * which no look-up by dma-buf finds any more.
 */
#include <linux/dma-buf.h>
#include <linux/dma-resv.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#include <drm/drm_gem.h>

#include "amdgpu_bind.h"
#include "bridge.h"
#include "bridge_vm.h"

/* Under the lock of the device's names. */
static void know_dmabuf(struct drm_gem_object *object, struct dma_buf *dmabuf)
{
	if (!object->dma_buf) {
		get_dma_buf(dmabuf);
		object->dma_buf = dmabuf;
	}
}

/*
 * A buffer tells who is attached to its dma-buf when it moves, as long as it knows the dma-buf:
 * from the export until its last handle goes. It is the exporter's to give its handle back, while
 * others use the dma-buf; so the importer, who has a handle now, says it again.
 */
static void keep_dmabuf(struct drm_gem_object *object, struct dma_buf *dmabuf)
{
	mutex_lock(&object->dev->object_name_lock);
	know_dmabuf(object, dmabuf);
	mutex_unlock(&object->dev->object_name_lock);
}

/* NULL: it is no buffer of amdgpu's. */
static struct amdgpu_bo *exported(struct amdgpu_device *adev, struct dma_buf *dmabuf)
{
	struct drm_gem_object *object = dmabuf->priv;

	if (dmabuf->ops != &amdgpu_object(amdgpu_dmabuf_ops) ||
	    object->dev->driver != adev_to_drm(adev)->driver)
		return NULL;
	return gem_to_amdgpu_bo(object);
}

/*
 * Whether the importer's buffer is its device's own, and shows what another device of DRM's has,
 * amdgpu's or not: drm_gem_dmabuf_mmap() takes the dma-buf for that of an object of DRM's.
 */
static bool shows_another(struct amdgpu_bo *bo, struct dma_buf *dmabuf)
{
	return drm_gem_is_imported(&bo->tbo.base) &&
	       dmabuf->ops->mmap == amdgpu_object(amdgpu_dmabuf_ops).mmap;
}

/*
 * There the importer's handle is of its own buffer, and it is the exporter's that moves. So the
 * import counts as a handle of that, in nobody's file: neither who exported it nor the exporter's
 * device has to be there still when it goes. The dma-buf keeps both objects.
 */
static void share_exporters(struct dma_buf *dmabuf)
{
	struct drm_gem_object *object = dmabuf->priv;

	mutex_lock(&object->dev->object_name_lock);
	/* All handles of an object have one reference. */
	if (!object->handle_count++)
		drm_gem_object_get(object);
	know_dmabuf(object, dmabuf);
	mutex_unlock(&object->dev->object_name_lock);
}

/* The dma-buf of an import that counts as a handle elsewhere, with a reference; else NULL. */
struct dma_buf *bridge_import_shared(struct kgd_mem *mem)
{
	if (!mem->is_imported || !shows_another(mem->bo, mem->dmabuf))
		return NULL;
	get_dma_buf(mem->dmabuf);
	return mem->dmabuf;
}

/* Gives that reference back, and that handle as well if the import has @ended. */
void bridge_import_put_shared(struct dma_buf *dmabuf, bool ended)
{
	if (!dmabuf)
		return;
	if (ended)
		amdgpu_call(drm_gem_object_handle_put_unlocked)(dmabuf->priv);
	dma_buf_put(dmabuf);
}

/* From here on it stays where it is as long as the process's eviction fence wants it. */
static int join_process(struct kgd_mem *mem)
{
	struct amdkfd_process_info *info = mem->process_info;
	struct amdgpu_amdkfd_fence *fence;
	int ret = 0;

	mutex_lock(&info->lock);
	fence = info->eviction_fence;
	if (fence && !dma_fence_is_signaled(&fence->base))
		ret = amdgpu_call(amdgpu_amdkfd_bo_validate_and_fence)(mem->bo, mem->domain,
								       &fence->base);
	/* If not, whoever restores the process sees to it. */
	if (!ret)
		list_add_tail(&mem->validate_list, &info->kfd_bo_list);
	mutex_unlock(&info->lock);
	return ret;
}

static void describe(struct kgd_mem *mem, struct amdgpu_device *adev, struct amdgpu_bo *bo)
{
	bool vram = bo->preferred_domains & AMDGPU_GEM_DOMAIN_VRAM;

	mem->alloc_flags = KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE | KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE |
		(vram ? KFD_IOC_ALLOC_MEM_FLAGS_VRAM : KFD_IOC_ALLOC_MEM_FLAGS_GTT);
	mem->domain = vram && !adev->apu_prefer_gtt ? AMDGPU_GEM_DOMAIN_VRAM :
						      AMDGPU_GEM_DOMAIN_GTT;
	mem->bo = bo;
	mem->is_imported = true;
}

/* Takes over both references if it succeeds. */
static int import_object(struct amdgpu_device *adev, struct bridge_vm *vm, u64 address,
			 struct dma_buf *dmabuf, struct amdgpu_bo *bo, struct kgd_mem **out)
{
	struct drm_file *file = adev->kfd.client.file;
	struct drm_gem_object *object = &bo->tbo.base;
	struct kgd_mem *mem;
	int ret;

	if (!(bo->preferred_domains & (AMDGPU_GEM_DOMAIN_VRAM | AMDGPU_GEM_DOMAIN_GTT)))
		return -EINVAL;
	mem = kzalloc(sizeof(*mem), GFP_KERNEL);
	if (!mem)
		return -ENOMEM;
	mutex_init(&mem->lock);
	INIT_LIST_HEAD(&mem->attachments);
	amdgpu_call(amdgpu_sync_create)(&mem->sync);
	describe(mem, adev, bo);
	mem->va = address;
	mem->dmabuf = dmabuf;
	mem->process_info = vm->vm->process_info;

	ret = amdgpu_call(drm_vma_node_allow)(&object->vma_node, vm->drm_priv);
	if (ret)
		goto free;
	ret = amdgpu_call(drm_gem_handle_create)(file, object, &mem->gem_handle);
	if (ret)
		goto revoke;
	keep_dmabuf(object, dmabuf);
	/* Not while another buffer of that memory goes, which was the last. */
	mutex_lock(&vm->process->sharing);
	ret = join_process(mem);
	mutex_unlock(&vm->process->sharing);
	if (ret)
		goto delete;
	*out = mem;
	return 0;
delete:
	amdgpu_call(drm_gem_handle_delete)(file, mem->gem_handle);
revoke:
	amdgpu_call(drm_vma_node_revoke)(&object->vma_node, vm->drm_priv);
free:
	mutex_destroy(&mem->lock);
	kfree(mem);
	return ret;
}

/* TTM would evict everything of everybody's from there before it says so. */
static bool is_too_large(struct amdgpu_device *adev, struct dma_buf *dmabuf)
{
	struct amdgpu_bo *bo = exported(adev, dmabuf);

	if (bo && amdgpu_ttm_adev(bo->tbo.bdev) == adev)
		return false;
	return dmabuf->size > adev->mman.gtt_mgr.manager.size;
}

static int import(struct amdgpu_device *adev, struct bridge_vm *vm, u64 address,
		  struct dma_buf *dmabuf, struct kgd_mem **out)
{
	struct drm_gem_object *object;
	struct amdgpu_bo *bo;
	bool shared;
	int ret;

	if (is_too_large(adev, dmabuf))
		return -ENOMEM;
	object = amdgpu_call(amdgpu_gem_prime_import)(adev_to_drm(adev), dmabuf);
	if (IS_ERR(object))
		return PTR_ERR(object);
	bo = gem_to_amdgpu_bo(object);
	shared = shows_another(bo, dmabuf);
	/* amdgpu_dma_buf_map() refuses what xGMI reaches, with a warning, and so each restore. */
	if (drm_gem_is_imported(object) &&
	    amdgpu_call(amdgpu_dmabuf_is_xgmi_accessible)(adev, bo)) {
		ret = -EINVAL;
		goto unref;
	}
	/* Before it is validated: until then it has no addresses that could be out of date. */
	if (shared)
		share_exporters(dmabuf);
	ret = import_object(adev, vm, address, dmabuf, bo, out);
	if (!ret)
		return 0;
	if (shared)
		amdgpu_call(drm_gem_object_handle_put_unlocked)(dmabuf->priv);
unref:
	amdgpu_call(amdgpu_bo_unref)(&bo);
	return ret;
}

int bridge_memory_import(struct amdgpu_device *adev, struct bridge_vm *vm, int fd, u64 address,
			 u64 *size, u64 *mmap_offset, struct kgd_mem **out)
{
	struct dma_buf *dmabuf;
	int ret;

	if (bridge_is_unplugged(adev))
		return -ENODEV;
	dmabuf = dma_buf_get(fd);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	ret = import(adev, vm, address, dmabuf, out);
	if (ret)
		goto put;
	*size = amdgpu_bo_size((*out)->bo);
	*mmap_offset = amdgpu_bo_mmap_offset((*out)->bo);
	return 0;
put:
	dma_buf_put(dmabuf);
	return ret;
}

/*
 * Whether it has a dma-buf, by which the process may have it in its VM as the render node's as well
 * (amdgpu_bridge_gem.c). Until its last handle goes.
 */
bool bridge_import_is_known(struct kgd_mem *mem)
{
	return READ_ONCE(mem->bo->tbo.base.dma_buf);
}

/* From here on nobody validates it, which amdgpu sees to next. */
static void leave_list(struct amdkfd_process_info *info, struct kgd_mem *mem)
{
	mutex_lock(&info->lock);
	list_del_init(&mem->validate_list);
	mutex_unlock(&info->lock);
}

/* Under info->lock: whether the process has that memory by a handle of the KFD's. */
static bool has_handle(struct amdkfd_process_info *info, const struct dma_resv *resv)
{
	struct kgd_mem *mem;

	list_for_each_entry(mem, &info->kfd_bo_list, validate_list)
		if (mem->bo->tbo.base.resv == resv)
			return true;
	return false;
}

/*
 * Takes the process's eviction fence off a buffer that it has no more. Who imports it by the render
 * node gives it the fence under its reservation, by the KFD under process->sharing.
 */
static void take_off_fence(struct amdkfd_process_info *info, struct amdgpu_bo *bo)
{
	struct dma_resv *resv = bo->tbo.base.resv;
	struct dma_fence *nothing;

	guard(mutex)(&info->lock);
	if (!info->eviction_fence)
		return;
	dma_resv_lock(resv, NULL);
	if (!has_handle(info, resv) && !bridge_gem_has(info, resv)) {
		nothing = dma_fence_get_stub();
		dma_resv_replace_fences(resv, info->eviction_fence->base.context, nothing,
					DMA_RESV_USAGE_BOOKKEEP);
		dma_fence_put(nothing);
	}
	dma_resv_unlock(resv);
}

/*
 * The process's eviction fence stands once in a reservation, and amdgpu takes it from there with
 * each buffer that is freed. A process that has imported its own dma-buf, or one twice, or has it
 * by the render node, too, has several of one reservation, and the others must not move under its
 * queues either: so amdgpu finds a process without a fence, and it is taken off when there is none
 * any more. One that stayed for nothing would stop queues when the memory of somebody else moves,
 * or is freed. With the process it goes by itself.
 */
int bridge_import_free(struct amdgpu_device *adev, struct bridge_vm *vm, struct kgd_mem *mem,
		       u64 *freed)
{
	static struct amdkfd_process_info without_fence = {
		.lock = __MUTEX_INITIALIZER(without_fence.lock),
	};
	struct amdkfd_process_info *info = mem->process_info;
	struct amdgpu_bo *bo = amdgpu_call(amdgpu_bo_ref)(mem->bo);
	int ret;

	mutex_lock(&vm->process->sharing);
	leave_list(info, mem);
	mem->process_info = &without_fence;
	ret = amdgpu_call(amdgpu_amdkfd_gpuvm_free_memory_of_gpu)(adev, mem, vm->drm_priv, freed);
	if (ret)
		mem->process_info = info;
	else if (!vm->ends)
		take_off_fence(info, bo);
	mutex_unlock(&vm->process->sharing);
	amdgpu_call(amdgpu_bo_unref)(&bo);
	return ret;
}

/* Under its reservation: whether a GPU that has it mapped sees it where it was before. */
static bool has_moved(struct kgd_mem *mem)
{
	struct kfd_mem_attachment *entry;

	list_for_each_entry(entry, &mem->attachments, list)
		if (entry->is_mapped && entry->bo_va->base.moved)
			return true;
	return false;
}

static int fence_one(struct kgd_mem *mem, struct dma_fence *fence)
{
	struct dma_resv *resv = mem->bo->tbo.base.resv;
	int ret;

	dma_resv_lock(resv, NULL);
	ret = dma_resv_reserve_fences(resv, 1);
	if (!ret) {
		/* In the place of the same one, if that is there. */
		dma_resv_add_fence(resv, fence, DMA_RESV_USAGE_BOOKKEEP);
		if (has_moved(mem))
			ret = -EAGAIN;
	}
	dma_resv_unlock(resv);
	return ret;
}

/*
 * Gives the eviction fence to all of a process's buffers that have a dma-buf, or are the render
 * node's. Who cannot follow moves pins them by that, and amdgpu leaves what is pinned without a
 * fence: when it is let go, it would move, or its pages would go, and nobody stops the queues.
 * While it is pinned nobody waits for the fence. -EAGAIN: a buffer has moved before it had the
 * fence. Takes info->lock.
 */
int bridge_import_fence(struct amdkfd_process_info *info)
{
	struct kgd_mem *mem;
	int ret = 0;

	mutex_lock(&info->lock);
	list_for_each_entry(mem, &info->kfd_bo_list, validate_list)
		if (READ_ONCE(mem->bo->tbo.base.dma_buf))
			ret = fence_one(mem, &info->eviction_fence->base) ?: ret;
	ret = bridge_gem_fence(info) ?: ret;
	mutex_unlock(&info->lock);
	return ret;
}

/*
 * The memory of a device that has left amdgpu is whoever's has the device now, be it amdgpu anew or
 * a virtual machine, and the pages that its buffers had of the system's are given back
 * (ttm_device_clear_dma_mappings()), though the buffers name them still: nobody gets any address.
 */
struct sg_table *bridge_dmabuf_map(struct dma_buf_attachment *attachment,
				   enum dma_data_direction direction)
{
	const struct amdgpu_bo *bo = gem_to_amdgpu_bo(attachment->dmabuf->priv);

	if (bridge_is_unplugged(amdgpu_ttm_adev(bo->tbo.bdev)))
		return ERR_PTR(-ENODEV);
	return amdgpu_call(amdgpu_dma_buf_map)(attachment, direction);
}

int bridge_memory_export(struct kgd_mem *mem, u32 flags)
{
	struct dma_buf *dmabuf;
	int ret;

	if (bridge_is_unplugged(bridge_home(mem)))
		return -ENODEV;
	ret = amdgpu_call(amdgpu_amdkfd_gpuvm_export_dmabuf)(mem, &dmabuf);
	if (ret)
		return ret;
	/* The file descriptor takes the reference over. */
	ret = dma_buf_fd(dmabuf, flags);
	if (ret < 0)
		dma_buf_put(dmabuf);
	return ret;
}

/* Under the reservation, as whoever sets a buffer's metadata: until then they come and go. */
static int tell(struct amdgpu_bo *bo, struct bridge_dmabuf_info *out)
{
	u64 flags;

	if (!(bo->preferred_domains & (AMDGPU_GEM_DOMAIN_VRAM | AMDGPU_GEM_DOMAIN_GTT)))
		return -EINVAL;
	out->adev = amdgpu_ttm_adev(bo->tbo.bdev);
	out->size = amdgpu_bo_size(bo);
	out->partition = bo->xcp_id;
	out->flags = bo->preferred_domains & AMDGPU_GEM_DOMAIN_VRAM ?
		KFD_IOC_ALLOC_MEM_FLAGS_VRAM : KFD_IOC_ALLOC_MEM_FLAGS_GTT;
	if (bo->flags & AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED)
		out->flags |= KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC;
	return amdgpu_call(amdgpu_bo_get_metadata)(bo, out->metadata, sizeof(out->metadata),
						   &out->metadata_size, &flags);
}

/* amdgpu_amdkfd_get_dmabuf_info reads the metadata without the reservation. */
int bridge_dmabuf_info(struct amdgpu_device *adev, int fd, struct bridge_dmabuf_info *out)
{
	struct dma_buf *dmabuf = dma_buf_get(fd);
	struct amdgpu_bo *bo;
	int ret = -EINVAL;

	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	memset(out, 0, sizeof(*out));
	bo = exported(adev, dmabuf);
	if (!bo)
		goto put;
	ret = dma_resv_lock_interruptible(bo->tbo.base.resv, NULL);
	if (ret) {
		ret = ret == -EINTR ? -ERESTARTSYS : ret;
		goto put;
	}
	ret = tell(bo, out);
	dma_resv_unlock(bo->tbo.base.resv);
put:
	dma_buf_put(dmabuf);
	return ret;
}

MODULE_IMPORT_NS("DMA_BUF");
