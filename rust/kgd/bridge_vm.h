/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the C files of the bridge share of a process and its VMs.
 */
#ifndef AMDKFD_BRIDGE_VM_H
#define AMDKFD_BRIDGE_VM_H

#include <linux/mutex.h>

#include <drm/drm_drv.h>

#include "amdgpu_bind.h"

/*
 * amdgpu is handed a place for its process info, and takes it for the field kgd_process_info of the
 * C driver's struct kfd_process: it reads the field context_id at the same distance
 * (amdgpu_amdkfd_gpuvm.c, init_kfd_vm). So the place lies in a block with the same spacing.
 */
#define IMAGE_START offsetof(struct kfd_process, kgd_process_info)
#define IMAGE_CONTEXT (offsetof(struct kfd_process, context_id) - IMAGE_START)

static_assert(offsetof(struct kfd_process, context_id) > IMAGE_START);
static_assert(IMAGE_START % sizeof(void *) == 0);

struct bridge_process {
	struct mutex lock;			/* of the acquire and release of VMs */
	unsigned int vms;			/* that are acquired; they keep info */
	struct mm_struct *mm;			/* kept as a name: it may have ended */
	struct dma_fence __rcu *eviction_fence;	/* NULL while it has no VM */
	union {
		void *info;
		u8 image[IMAGE_CONTEXT + sizeof(u16)];
	};
};

struct bridge_vm {
	struct bridge_process *process;
	struct amdgpu_device *adev;
	struct file *file;
	void *drm_priv;
	struct amdgpu_vm *vm;
	struct mutex flushing;			/* amdgpu skips a flush that another has begun */
	bool hangs;				/* an update of page tables did not end in time */
};

/*
 * Every buffer has a handle in the file of a DRM client of amdgpu's (adev->kfd.client). When the
 * device is unplugged that file is freed, the pointer to it stays, and processes may still have
 * buffers. So what looks at the file does it while the device is kept from being unplugged, with
 * these two.
 */
static inline int bridge_enter(struct amdgpu_device *adev, int *idx)
{
	return amdgpu_call(drm_dev_enter)(adev_to_drm(adev), idx) ? 0 : -ENODEV;
}

static inline void bridge_leave(int idx)
{
	amdgpu_call(drm_dev_exit)(idx);
}

/* The device that a buffer was made on. */
static inline struct amdgpu_device *bridge_home(struct kgd_mem *mem)
{
	return amdgpu_ttm_adev(mem->bo->tbo.bdev);
}

#endif
