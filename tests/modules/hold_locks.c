// SPDX-License-Identifier: GPL-2.0-only
/*
 * hold_locks: whoever maps a buffer for the first time waits for the root of its address space with
 * the buffer locked, as happens otherwise only where three meet. The file of debugfs takes the file
 * descriptors of a dma-buf and of a render node, and says how far it has come:
 *
 *   buffer   it has the buffer, so that the mapping gives up the root, which it has locked first
 *   root     it has the root alone: the mapping has the buffer, and waits until it is interrupted
 *   free, locked   it has let go of both; what the buffer is then
 */
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/dma-buf.h>
#include <linux/file.h>
#include <linux/module.h>

#include "amdgpu.h"

/* MUTEX_FLAG_WAITERS of kernel/locking/mutex.h. */
#define WAITERS 1

static const char *stage = "";

static bool has_waiters(struct dma_resv *resv)
{
	return atomic_long_read(&resv->lock.base.owner) & WAITERS;
}

/* Up to a minute. */
static int await_waiters(struct dma_resv *resv, bool wanted)
{
	int i;

	for (i = 0; i < 6000 && has_waiters(resv) != wanted; i++)
		msleep(10);
	return i < 6000 ? 0 : -ETIMEDOUT;
}

static int hold(struct dma_resv *buffer, struct dma_resv *root)
{
	struct ww_acquire_ctx ctx;
	int ret, i;

	ww_acquire_init(&ctx, &reservation_ww_class);
	ret = dma_resv_lock(buffer, &ctx);
	if (ret)
		goto fini;
	WRITE_ONCE(stage, "buffer");
	ret = await_waiters(buffer, true);
	if (!ret)
		/* Without the context: nobody gives way to it. */
		ret = dma_resv_lock(root, NULL);
	dma_resv_unlock(buffer);
	if (ret)
		goto fini;
	ret = await_waiters(root, true);
	WRITE_ONCE(stage, "root");
	if (!ret)
		ret = await_waiters(root, false);
	dma_resv_unlock(root);
	for (i = 0; i < 500 && dma_resv_is_locked(buffer); i++)
		msleep(10);
	WRITE_ONCE(stage, i < 500 ? "free" : "locked");
fini:
	ww_acquire_fini(&ctx);
	return ret;
}

static ssize_t hold_write(struct file *file, const char __user *from, size_t size, loff_t *at)
{
	struct dma_buf *dmabuf;
	struct amdgpu_fpriv *fpriv;
	struct file *node;
	int buffer, render, ret;
	char text[32];

	if (size >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, from, size))
		return -EFAULT;
	text[size] = 0;
	if (sscanf(text, "%d %d", &buffer, &render) != 2)
		return -EINVAL;
	dmabuf = dma_buf_get(buffer);
	if (IS_ERR(dmabuf))
		return PTR_ERR(dmabuf);
	node = fget(render);
	if (!node) {
		dma_buf_put(dmabuf);
		return -EBADF;
	}
	fpriv = ((struct drm_file *)node->private_data)->driver_priv;
	ret = hold(dmabuf->resv, fpriv->vm.root.bo->tbo.base.resv);
	fput(node);
	dma_buf_put(dmabuf);
	return ret ?: size;
}

static ssize_t hold_read(struct file *file, char __user *to, size_t size, loff_t *at)
{
	const char *said = READ_ONCE(stage);

	return simple_read_from_buffer(to, size, at, said, strlen(said));
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.write = hold_write,
	.read = hold_read,
};

static struct dentry *entry;

static int __init hold_locks_init(void)
{
	entry = debugfs_create_file("hold_locks", 0600, NULL, NULL, &operations);
	return PTR_ERR_OR_ZERO(entry);
}
module_init(hold_locks_init);

static void __exit hold_locks_exit(void)
{
	debugfs_remove(entry);
}
module_exit(hold_locks_exit);

MODULE_DESCRIPTION("Has a first mapping wait with its buffer locked, for tests");
MODULE_IMPORT_NS("DMA_BUF");
MODULE_LICENSE("GPL");
