/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef AMDKFD_LINUX_CHRDEV_H
#define AMDKFD_LINUX_CHRDEV_H

#include <linux/types.h>

struct cdev;
struct file_operations;

/*
 * @minors device numbers from @first on lead to @ops, which never sleeps before it has a reference
 * on the module. It is owned by nobody: while a module unloads, what it owns cannot be opened at
 * all (-ENXIO). May sleep. In *@cdev what amdkfd_cdev_end() takes.
 */
int amdkfd_cdev_add(dev_t first, unsigned int minors, const struct file_operations *ops,
		    struct cdev **cdev);
/*
 * They lead nowhere any more, nor does an inode that led to them; but a task may be in @ops until
 * the next synchronize_rcu_tasks(). Waits up to 0.1 s for those who are.
 */
void amdkfd_cdev_end(struct cdev *cdev);

#endif
