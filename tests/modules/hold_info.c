// SPDX-License-Identifier: GPL-2.0-only
/*
 * hold_info: holds amdgpu's lock of a process's buffers (process_info->lock), as a call of the
 * process's that makes a userptr of a file's pages does while the file's server does not answer.
 * Whoever writes the descriptor of a render node with one of the process's VMs to the file of
 * debugfs holds the lock until somebody writes -1, for a minute at most. With root=1 it is the
 * reservation of that VM's page tables instead, whoever has the VM. The file says how far it has
 * come: "held", or "waited for", if somebody wants it meanwhile.
 */
#include <linux/completion.h>
#include <linux/debugfs.h>
#include <linux/file.h>
#include <linux/module.h>

#include "amdgpu.h"

/* MUTEX_FLAG_WAITERS of kernel/locking/mutex.h. */
#define WAITERS 1

static bool root;
module_param(root, bool, 0444);
MODULE_PARM_DESC(root, "hold the page tables' reservation instead of the lock");

static DECLARE_COMPLETION(let_go);
static DEFINE_MUTEX(held_lock);
static struct mutex *held;		/* under held_lock */

static void set_held(struct mutex *lock)
{
	mutex_lock(&held_lock);
	held = lock;
	mutex_unlock(&held_lock);
}

static int wait_until_let_go(struct mutex *lock)
{
	int ret;

	set_held(lock);
	ret = wait_for_completion_timeout(&let_go, 60 * HZ) ? 0 : -ETIMEDOUT;
	set_held(NULL);
	return ret;
}

static int hold_of(struct amdgpu_vm *vm)
{
	struct amdkfd_process_info *info = vm->process_info;
	struct dma_resv *resv = vm->root.bo->tbo.base.resv;
	int ret;

	if (!info && !root)
		return -EINVAL;
	if (root) {
		dma_resv_lock(resv, NULL);
		ret = wait_until_let_go(&resv->lock.base);
		dma_resv_unlock(resv);
	} else {
		mutex_lock(&info->lock);
		ret = wait_until_let_go(&info->lock);
		mutex_unlock(&info->lock);
	}
	return ret;
}

static int hold(int render)
{
	struct file *node = fget(render);
	int ret;

	if (!node)
		return -EBADF;
	ret = hold_of(&((struct amdgpu_fpriv *)
			((struct drm_file *)node->private_data)->driver_priv)->vm);
	fput(node);
	return ret;
}

static ssize_t hold_read(struct file *file, char __user *to, size_t size, loff_t *at)
{
	const char *said = "";

	mutex_lock(&held_lock);
	if (held)
		said = atomic_long_read(&held->owner) & WAITERS ? "waited for" : "held";
	mutex_unlock(&held_lock);
	return simple_read_from_buffer(to, size, at, said, strlen(said));
}

static ssize_t hold_write(struct file *file, const char __user *from, size_t size, loff_t *at)
{
	int render, ret;

	ret = kstrtoint_from_user(from, size, 10, &render);
	if (ret)
		return ret;
	if (render < 0)
		complete(&let_go);
	else
		ret = hold(render);
	return ret ?: size;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.read = hold_read,
	.write = hold_write,
};

static struct dentry *entry;

static int __init hold_info_init(void)
{
	entry = debugfs_create_file("hold_info", 0600, NULL, NULL, &operations);
	return PTR_ERR_OR_ZERO(entry);
}
module_init(hold_info_init);

static void __exit hold_info_exit(void)
{
	debugfs_remove(entry);
}
module_exit(hold_info_exit);

MODULE_DESCRIPTION("Holds the lock of a process's buffers, for tests");
MODULE_LICENSE("GPL");
