/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the C files of the bridge share of device pages.
 */
#ifndef AMDKFD_BRIDGE_VRAM_H
#define AMDKFD_BRIDGE_VRAM_H

#include <linux/atomic.h>
#include <linux/dma-fence.h>
#include <linux/spinlock_types.h>
#include <linux/types.h>

struct amdgpu_device;
struct bridge_copy_page;

/* What may outlive who made it: fences, and copies that do not end. */
extern atomic_t vram_outliving;

/*
 * "amdgpu wants this memory": a fence of a buffer that signals when the buffer is empty. Whoever
 * waits for it, as amdgpu does before it evicts a buffer, asks for that (enable_signaling). It is
 * none of amdgpu's eviction fences, which amdgpu knows by their operations, and casts.
 */
struct eviction {
	struct dma_fence base;
	atomic_t users;		/* of the memory: the buffer's owner, and copies; 0: signalled */
	spinlock_t lock;
	void *cookie;		/* under the lock; NULL: nobody is left to tell */
};

/* With one user. NULL: no memory. */
struct eviction *eviction_new(void *cookie);
/* One user less. With the last one the memory is free to be taken. */
void eviction_put_user(struct eviction *eviction);
/* When this returns nobody is told any more. */
void eviction_forget(struct eviction *eviction);

/*
 * Pages of VRAM, read by the processor: slow, and for what no job can copy. The device must not be
 * unplugged meanwhile. -EAGAIN: it is being reset; -ENODEV: it is not there.
 */
int bridge_read_vram(struct amdgpu_device *adev, const struct bridge_copy_page *pages, u32 count);

#endif
