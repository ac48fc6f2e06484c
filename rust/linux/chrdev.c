// SPDX-License-Identifier: GPL-2.0-only
/*
 * Device numbers that lead into this module, and whose end does not.
 *
 * cdev_del() ends look-ups by number only. An inode that was opened keeps the way to the character
 * device until nobody has a reference on that, and each opener takes one on this way, without
 * asking the number: openers by the thousand, through a descriptor of an inode whose name is gone,
 * can keep it for as long as they like, also after the module has left memory. So what is left of a
 * character device when it ends has no operations any more, for which the answer is -ENXIO.
 */
#include <linux/cdev.h>
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/kref.h>

#include "chrdev.h"

int amdkfd_cdev_add(dev_t first, unsigned int minors, const struct file_operations *ops,
		    struct cdev **cdev)
{
	/* Allocated, not static: its kobject may outlive this module. */
	struct cdev *new = cdev_alloc();
	int ret;

	if (!new)
		return -ENOMEM;
	new->ops = ops;
	ret = cdev_add(new, first, minors);
	if (ret) {
		kobject_put(&new->kobj);
		return ret;
	}
	*cdev = new;
	return 0;
}

void amdkfd_cdev_end(struct cdev *cdev)
{
	unsigned int tries;

	kobject_get(&cdev->kobj);
	cdev_del(cdev);
	/* As long as nobody insists, who opens it just now gets what @ops says. */
	for (tries = 0; tries < 100 && kref_read(&cdev->kobj.kref) > 1; tries++)
		usleep_range(1000, 2000);
	/* Pairs with the one read of chrdev_open(). */
	WRITE_ONCE(cdev->ops, NULL);
	kobject_put(&cdev->kobj);
}
