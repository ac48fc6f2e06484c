// SPDX-License-Identifier: GPL-2.0
/*
 * faults: what a kernel with KCOV and fault injection has, for one without: the same files, for one task at a time.
 *
 *   /sys/kernel/debug/fail-nth   as /proc/thread-self/fail-nth: the Nth allocation or copy of user memory of the task
 *                                that wrote N fails. A line in the log says which kind it was.
 *   /sys/kernel/debug/kcov       as the kernel's own, to which modules built with coverage report
 *                                (tools/build-module --coverage): they need this one to be loaded first.
 */
#include <linux/debugfs.h>
#include <linux/kprobes.h>
#include <linux/linkage.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <asm/ibt.h>
#include <uapi/linux/kcov.h>

/* Where a probe leaves a function that fails: at its end, with the result in ax. */
asm(".pushsection .text\n"
    ".type faults_return, @function\n"
    "faults_return:\n"
    ASM_ENDBR
    ASM_RET
    ".size faults_return, . - faults_return\n"
    ".popsection\n");
extern asmlinkage void faults_return(void);

/* The number of the argument after one that only some configurations have. */
#define BUCKET IS_ENABLED(CONFIG_SLAB_BUCKETS)
#define NONE -1

/* A function that can fail. */
struct point {
	struct kprobe probe;
	/* Which arguments are the flags of an allocation, and a size of which 0 means to free. */
	int gfp, size;
	/* Which one is the number of bytes that a copy leaves uncopied. */
	int bytes;
};

#define ALLOCATION(name, gfp_at, size_at) \
	{ .probe.symbol_name = name, .gfp = gfp_at, .size = size_at, .bytes = NONE }
#define COPY(name) { .probe.symbol_name = name, .gfp = NONE, .size = NONE, .bytes = 2 }

static struct point points[] = {
	ALLOCATION("__kmalloc_noprof", 1, NONE),
	ALLOCATION("__kmalloc_cache_noprof", 1, NONE),
	ALLOCATION("__kmalloc_cache_node_noprof", 1, NONE),
	ALLOCATION("__kmalloc_node_noprof", 1 + BUCKET, NONE),
	ALLOCATION("__kmalloc_node_track_caller_noprof", 1 + BUCKET, NONE),
	ALLOCATION("__kmalloc_large_noprof", 1, NONE),
	ALLOCATION("__kmalloc_large_node_noprof", 1, NONE),
	ALLOCATION("__kvmalloc_node_noprof", 2 + BUCKET, NONE),
	ALLOCATION("kmem_cache_alloc_noprof", 1, NONE),
	ALLOCATION("kmem_cache_alloc_lru_noprof", 2, NONE),
	ALLOCATION("kmem_cache_alloc_node_noprof", 1, NONE),
	ALLOCATION("krealloc_node_align_noprof", 3, 1),
	ALLOCATION("kvrealloc_node_align_noprof", 3, 1),
	ALLOCATION("vrealloc_node_align_noprof", 3, 1),
	ALLOCATION("__vmalloc_node_range_noprof", 4, NONE),
	ALLOCATION("__alloc_frozen_pages_noprof", 0, NONE),
	COPY("_copy_from_user"),
	COPY("_copy_to_user"),
	/* Where the two are inlined. */
	COPY("rust_helper_copy_from_user"),
	COPY("rust_helper_copy_to_user"),
	COPY("rust_helper__copy_from_user"),
	COPY("rust_helper__copy_to_user"),
};

/* Whose faults are counted; never looked into, for it may have ended. */
static struct task_struct *armed;
static unsigned int left;
static const struct point *failed;

static bool can_fail(const struct point *point, struct pt_regs *regs)
{
	if (point->gfp != NONE && regs_get_kernel_argument(regs, point->gfp) & __GFP_NOFAIL)
		return false;
	/* To allocate nothing is to free, and a copy of nothing is done. */
	if (point->size != NONE)
		return regs_get_kernel_argument(regs, point->size);
	return point->bytes == NONE || regs_get_kernel_argument(regs, point->bytes);
}

/* Not in an interrupt on top of the task. A breakpoint counts as one itself: then this is in an NMI. */
static bool in_its_call(void)
{
	unsigned long own = in_nmi() ? HARDIRQ_OFFSET : 0;

	return hardirq_count() == own && !in_serving_softirq();
}
NOKPROBE_SYMBOL(in_its_call);

static int before(struct kprobe *probe, struct pt_regs *regs)
{
	const struct point *point = container_of(probe, struct point, probe);

	if (READ_ONCE(armed) != current || !in_its_call() || !left || !can_fail(point, regs))
		return 0;
	if (--left)
		return 0;
	failed = point;
	regs->ax = point->bytes == NONE ? 0 : regs_get_kernel_argument(regs, point->bytes);
	instruction_pointer_set(regs, (unsigned long)faults_return);
	return 1;
}
NOKPROBE_SYMBOL(before);

/* A probe that has such a handler is not made a jump, which could not leave the function. */
static void after(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}
NOKPROBE_SYMBOL(after);

static ssize_t nth_read(struct file *file, char __user *to, size_t count, loff_t *at)
{
	char text[16];
	int length = scnprintf(text, sizeof(text), "%u\n", armed == current ? left : 0);

	return simple_read_from_buffer(to, count, at, text, length);
}

static ssize_t nth_write(struct file *file, const char __user *from, size_t count, loff_t *at)
{
	unsigned int nth;
	int ret;

	ret = kstrtouint_from_user(from, count, 0, &nth);
	if (ret)
		return ret;
	WRITE_ONCE(armed, NULL);
	if (failed)
		pr_notice("forcing a failure.\nname %s, in %s\n",
			  failed->bytes == NONE ? "failslab" : "fail_usercopy",
			  failed->probe.symbol_name);
	failed = NULL;
	left = nth;
	if (nth)
		WRITE_ONCE(armed, current);
	return count;
}

static const struct file_operations nth_operations = {
	.owner = THIS_MODULE,
	.read = nth_read,
	.write = nth_write,
};

/* A record: how many addresses follow, and those. */
struct record {
	unsigned long *words;
	unsigned long size;
};

static struct task_struct *recorded;
static struct record *record_of;

/* What code that was built with coverage calls, again and again. */
void __sanitizer_cov_trace_pc(void);
notrace void __sanitizer_cov_trace_pc(void)
{
	struct record *record;
	unsigned long place;

	if (READ_ONCE(recorded) != current || !in_task())
		return;
	record = READ_ONCE(record_of);
	place = READ_ONCE(record->words[0]) + 1;
	if (place < record->size) {
		WRITE_ONCE(record->words[0], place);
		barrier();
		record->words[place] = _RET_IP_;
	}
}
EXPORT_SYMBOL(__sanitizer_cov_trace_pc);
NOKPROBE_SYMBOL(__sanitizer_cov_trace_pc);

static int kcov_open(struct inode *inode, struct file *file)
{
	file->private_data = kzalloc(sizeof(struct record), GFP_KERNEL);
	return file->private_data ? 0 : -ENOMEM;
}

static void stop(struct record *record)
{
	if (record_of == record)
		WRITE_ONCE(recorded, NULL);
}

static long kcov_ioctl(struct file *file, unsigned int request, unsigned long argument)
{
	struct record *record = file->private_data;

	switch (request) {
	case KCOV_INIT_TRACE:
		if (record->words)
			return -EBUSY;
		if (argument < 2 || argument > INT_MAX / sizeof(long))
			return -EINVAL;
		record->words = vmalloc_user(argument * sizeof(long));
		record->size = argument;
		return record->words ? 0 : -ENOMEM;
	case KCOV_ENABLE:
		if (!record->words || argument != KCOV_TRACE_PC)
			return -EINVAL;
		/* Who was recorded before has ended: its file would be closed else. */
		if (READ_ONCE(recorded))
			return -EBUSY;
		record_of = record;
		WRITE_ONCE(recorded, current);
		return 0;
	case KCOV_DISABLE:
		stop(record);
		return 0;
	}
	return -ENOTTY;
}

static int kcov_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct record *record = file->private_data;

	return record->words ? remap_vmalloc_range(vma, record->words, 0) : -EINVAL;
}

static int kcov_release(struct inode *inode, struct file *file)
{
	struct record *record = file->private_data;

	stop(record);
	/* Its own task has left its last call, or it would still hold the file. */
	vfree(record->words);
	kfree(record);
	return 0;
}

static const struct file_operations kcov_operations = {
	.owner = THIS_MODULE,
	.open = kcov_open,
	.unlocked_ioctl = kcov_ioctl,
	.mmap = kcov_mmap,
	.release = kcov_release,
};

static struct dentry *nth_file, *kcov_file;

static void unprobe(int count)
{
	while (count--)
		if (points[count].probe.pre_handler)
			unregister_kprobe(&points[count].probe);
}

static int __init faults_init(void)
{
	int index, ret;

	for (index = 0; index < ARRAY_SIZE(points); index++) {
		points[index].probe.pre_handler = before;
		points[index].probe.post_handler = after;
		ret = register_kprobe(&points[index].probe);
		if (ret == -ENOENT) {
			pr_info("there is no %s\n", points[index].probe.symbol_name);
			points[index].probe.pre_handler = NULL;
		} else if (ret) {
			pr_err("%s cannot fail: %d\n", points[index].probe.symbol_name, ret);
			unprobe(index);
			return ret;
		}
	}
	nth_file = debugfs_create_file("fail-nth", 0600, NULL, NULL, &nth_operations);
	kcov_file = debugfs_create_file_unsafe("kcov", 0600, NULL, NULL, &kcov_operations);
	return 0;
}
module_init(faults_init);

static void __exit faults_exit(void)
{
	debugfs_remove(nth_file);
	debugfs_remove(kcov_file);
	unprobe(ARRAY_SIZE(points));
}
module_exit(faults_exit);

MODULE_DESCRIPTION("Makes allocations fail and records coverage, for tests");
MODULE_LICENSE("GPL");
