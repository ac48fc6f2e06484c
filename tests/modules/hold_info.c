// SPDX-License-Identifier: GPL-2.0-only
/*
 * hold_info: holds amdgpu's lock of a process's buffers (process_info->lock), as a call of the
 * process's that makes a userptr of a file's pages does while the file's server does not answer.
 * Whoever writes the descriptor of a render node with one of the process's VMs to the file of
 * debugfs holds the lock until somebody writes -1, for a minute at most.
 */
#include <linux/completion.h>
#include <linux/debugfs.h>
#include <linux/file.h>
#include <linux/module.h>

#include "amdgpu.h"

static DECLARE_COMPLETION(let_go);

static int hold(int render)
{
	struct amdkfd_process_info *info;
	struct amdgpu_fpriv *fpriv;
	struct file *node;
	int ret = -EINVAL;

	node = fget(render);
	if (!node)
		return -EBADF;
	fpriv = ((struct drm_file *)node->private_data)->driver_priv;
	info = fpriv->vm.process_info;
	if (info) {
		mutex_lock(&info->lock);
		ret = wait_for_completion_timeout(&let_go, 60 * HZ) ? 0 : -ETIMEDOUT;
		mutex_unlock(&info->lock);
	}
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
		complete(&let_go);
	else
		ret = hold(render);
	return ret ?: size;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.write = hold_write,
};

static struct dentry *entry;

static int __init hold_info_init(void)
{
	entry = debugfs_create_file("hold_info", 0200, NULL, NULL, &operations);
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
