// SPDX-License-Identifier: GPL-2.0-only
/*
 * hold_fence: has a VM's page tables look as if somebody were moving them. Whoever writes the
 * descriptor of a render node to the file of debugfs adds a fence of usage KERNEL to the
 * reservation of that file's VM; -1 signals it, as does the module's end.
 */
#include <linux/debugfs.h>
#include <linux/dma-fence.h>
#include <linux/dma-resv.h>
#include <linux/file.h>
#include <linux/module.h>

#include "amdgpu.h"

static DEFINE_SPINLOCK(lock);
static struct dma_fence *held;

static const char *name(struct dma_fence *fence)
{
	return "hold_fence";
}

static const struct dma_fence_ops fence_ops = {
	.get_driver_name = name,
	.get_timeline_name = name,
};

static void let_go(void)
{
	struct dma_fence *fence = xchg(&held, NULL);

	if (!fence)
		return;
	dma_fence_signal(fence);
	dma_fence_put(fence);
}

static int add_to(struct dma_resv *resv)
{
	struct dma_fence *fence;
	int ret;

	fence = kzalloc(sizeof(*fence), GFP_KERNEL);
	if (!fence)
		return -ENOMEM;
	dma_fence_init(fence, &fence_ops, &lock, dma_fence_context_alloc(1), 1);
	dma_resv_lock(resv, NULL);
	ret = dma_resv_reserve_fences(resv, 1);
	if (!ret)
		dma_resv_add_fence(resv, fence, DMA_RESV_USAGE_KERNEL);
	dma_resv_unlock(resv);
	if (!ret && !cmpxchg(&held, NULL, fence))
		return 0;
	dma_fence_signal(fence);
	dma_fence_put(fence);
	return ret ?: -EBUSY;
}

static int hold(int render)
{
	struct amdgpu_fpriv *fpriv;
	struct file *node;
	int ret;

	node = fget(render);
	if (!node)
		return -EBADF;
	fpriv = ((struct drm_file *)node->private_data)->driver_priv;
	ret = add_to(fpriv->vm.root.bo->tbo.base.resv);
	fput(node);
	return ret;
}

static ssize_t hold_write(struct file *file, const char __user *from, size_t size, loff_t *at)
{
	int render, ret;

	ret = kstrtoint_from_user(from, size, 10, &render);
	if (ret)
		return ret;
	if (render < 0)
		let_go();
	else
		ret = hold(render);
	return ret ?: size;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.write = hold_write,
};

static struct dentry *entry;

static int __init hold_fence_init(void)
{
	entry = debugfs_create_file("hold_fence", 0200, NULL, NULL, &operations);
	return PTR_ERR_OR_ZERO(entry);
}
module_init(hold_fence_init);

static void __exit hold_fence_exit(void)
{
	debugfs_remove(entry);
	let_go();
}
module_exit(hold_fence_exit);

MODULE_DESCRIPTION("Has a VM's page tables look as if they were being moved, for tests");
MODULE_LICENSE("GPL");
