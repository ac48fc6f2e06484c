// SPDX-License-Identifier: GPL-2.0-only
/*
 * The stand-in: who answers at the device number of /dev/kfd while that number changes hands.
 *
 * A task that has looked /dev/kfd up goes on to open the number of the inode that it found. Between
 * the end of one driver's registration and the other's it would find nobody there (-ENXIO). So a
 * character device is laid under the range of the driver that is about to go, and says -EAGAIN
 * until the other one is registered. One at a time, under the lock of the hand-over.
 *
 * Its range is the wider one, and the narrower is found first. The other driver mostly gets the
 * same number; were the stand-in found before it, the inode of the new /dev/kfd would lead to the
 * stand-in, and from its end on to nobody, for as long as there is always somebody who opens it.
 *
 * It has no owner: while a module unloads, what the module owns cannot be opened at all, and that
 * would be -ENXIO again. standin_open() does not sleep, so the synchronize_rcu_tasks() of
 * standin_remove() and, after it, of hooks_remove() see every task leave it before this text goes.
 */
#include <linux/fs.h>
#include <linux/kdev_t.h>
#include <linux/rcupdate.h>

#include "../linux/chrdev.h"
#include "attach.h"

static int standin_open(struct inode *inode, struct file *file)
{
	return -EAGAIN;
}

static const struct file_operations standin_fops = {
	.open = standin_open,
};

static struct cdev *standin;

/* C has the 256 minors of register_chrdev(), and so have we (chrdev.rs). */
#define STANDIN_MINORS 257

int standin_place(unsigned int major)
{
	return amdkfd_cdev_add(MKDEV(major, 0), STANDIN_MINORS, &standin_fops, &standin);
}

void standin_remove(void)
{
	if (!standin)
		return;
	/* A task between looking the inode up and opening its number has done so afterwards. */
	synchronize_rcu_tasks();
	amdkfd_cdev_end(standin);
	standin = NULL;
}
