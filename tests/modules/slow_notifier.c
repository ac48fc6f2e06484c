// SPDX-License-Identifier: GPL-2.0-only
/*
 * slow_notifier: whoever next collects pages of a process to migrate them, or changes what may be
 * done with its memory, waits for a notifier of its first, as one that must wait for a device does.
 * The process writes to the file of debugfs how many milliseconds; that holds until it closes it.
 * It reads how often pages of its have been collected since.
 */
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/mmu_notifier.h>
#include <linux/module.h>
#include <linux/slab.h>

struct slow {
	struct mmu_notifier notifier;
	atomic_t milliseconds, collections;
};

static int slow_begin(struct mmu_notifier *notifier, const struct mmu_notifier_range *range)
{
	struct slow *slow = container_of(notifier, struct slow, notifier);

	if (range->event == MMU_NOTIFY_MIGRATE)
		atomic_inc(&slow->collections);
	if ((range->event == MMU_NOTIFY_MIGRATE || range->event == MMU_NOTIFY_PROTECTION_VMA) &&
	    mmu_notifier_range_blockable(range))
		msleep(atomic_xchg(&slow->milliseconds, 0));
	return 0;
}

static const struct mmu_notifier_ops notifier_ops = {
	.invalidate_range_start = slow_begin,
};

static ssize_t slow_write(struct file *file, const char __user *from, size_t size, loff_t *at)
{
	struct slow *slow;
	u32 milliseconds;
	int ret;

	ret = kstrtou32_from_user(from, size, 10, &milliseconds);
	if (ret)
		return ret;
	if (file->private_data)
		return -EBUSY;
	slow = kzalloc(sizeof(*slow), GFP_KERNEL);
	if (!slow)
		return -ENOMEM;
	slow->notifier.ops = &notifier_ops;
	atomic_set(&slow->milliseconds, milliseconds);
	ret = mmu_notifier_register(&slow->notifier, current->mm);
	if (ret) {
		kfree(slow);
		return ret;
	}
	file->private_data = slow;
	return size;
}

static ssize_t slow_read(struct file *file, char __user *to, size_t size, loff_t *at)
{
	struct slow *slow = file->private_data;
	char text[16];

	if (!slow)
		return -EINVAL;
	scnprintf(text, sizeof(text), "%d\n", atomic_read(&slow->collections));
	return simple_read_from_buffer(to, size, at, text, strlen(text));
}

static int slow_release(struct inode *inode, struct file *file)
{
	struct slow *slow = file->private_data;

	if (slow) {
		mmu_notifier_unregister(&slow->notifier, slow->notifier.mm);
		kfree(slow);
	}
	return 0;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.read = slow_read,
	.write = slow_write,
	.release = slow_release,
};

static struct dentry *entry;

static int __init slow_notifier_init(void)
{
	entry = debugfs_create_file("slow_notifier", 0600, NULL, NULL, &operations);
	return PTR_ERR_OR_ZERO(entry);
}
module_init(slow_notifier_init);

static void __exit slow_notifier_exit(void)
{
	debugfs_remove(entry);
}
module_exit(slow_notifier_exit);

MODULE_DESCRIPTION("Slow notifiers of a process's memory, for tests");
MODULE_LICENSE("GPL");
