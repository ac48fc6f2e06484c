// SPDX-License-Identifier: GPL-2.0-only
/*
 * The fence by which amdgpu asks for the memory of a buffer of device pages.
 */
#include <linux/dma-fence.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "bridge.h"
#include "bridge_vram.h"

atomic_t vram_outliving = ATOMIC_INIT(0);

static const char *eviction_name(struct dma_fence *fence)
{
	return "amdkfd";
}

static bool eviction_wanted(struct dma_fence *fence)
{
	struct eviction *eviction = container_of(fence, struct eviction, base);

	if (eviction->cookie)
		amdkfd_vram_wanted(eviction->cookie);
	return true;
}

static void eviction_free(struct rcu_head *rcu)
{
	kfree(container_of(rcu, struct eviction, base.rcu));
	atomic_dec(&vram_outliving);
}

static void eviction_release(struct dma_fence *fence)
{
	/* Who found it under RCU may still look at it. */
	call_rcu(&fence->rcu, eviction_free);
}

static const struct dma_fence_ops eviction_ops = {
	.get_driver_name = eviction_name,
	.get_timeline_name = eviction_name,
	.enable_signaling = eviction_wanted,
	.release = eviction_release,
};

struct eviction *eviction_new(void *cookie)
{
	struct eviction *eviction = kzalloc(sizeof(*eviction), GFP_KERNEL);

	if (!eviction)
		return NULL;
	spin_lock_init(&eviction->lock);
	eviction->cookie = cookie;
	atomic_set(&eviction->users, 1);
	atomic_inc(&vram_outliving);
	dma_fence_init(&eviction->base, &eviction_ops, &eviction->lock, dma_fence_context_alloc(1),
		       1);
	return eviction;
}

void eviction_put_user(struct eviction *eviction)
{
	if (atomic_dec_and_test(&eviction->users))
		dma_fence_signal(&eviction->base);
}

void eviction_forget(struct eviction *eviction)
{
	unsigned long flags;

	spin_lock_irqsave(&eviction->lock, flags);
	eviction->cookie = NULL;
	spin_unlock_irqrestore(&eviction->lock, flags);
}
