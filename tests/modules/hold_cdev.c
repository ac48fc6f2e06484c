// SPDX-License-Identifier: GPL-2.0-only
/*
 * hold_cdev: keeps the way from the inode of a device node to its character device, as openers do
 * that follow each other without a gap, until this module goes.
 *
 *   insmod hold_cdev.ko node=/dev/kfd
 *
 * ENXIO: nobody has opened the node yet.
 */
#include <linux/cdev.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/namei.h>

static char *node;
module_param(node, charp, 0444);
MODULE_PARM_DESC(node, "the device node");

static struct cdev *held;

static int __init hold_cdev_init(void)
{
	struct path path;
	int ret;

	if (!node)
		return -EINVAL;
	ret = kern_path(node, LOOKUP_FOLLOW, &path);
	if (ret)
		return ret;
	held = d_inode(path.dentry)->i_cdev;
	if (held)
		kobject_get(&held->kobj);
	path_put(&path);
	return held ? 0 : -ENXIO;
}
module_init(hold_cdev_init);

static void __exit hold_cdev_exit(void)
{
	kobject_put(&held->kobj);
}
module_exit(hold_cdev_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Keeps a character device that an inode leads to");
