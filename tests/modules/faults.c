// SPDX-License-Identifier: GPL-2.0-only
/*
 * faults: what the stock kernel has no faults and no KCOV for.
 *
 *   /sys/kernel/debug/fail-nth   as /proc/thread-self/fail-nth, for one task at a time: the Nth
 *                                allocation or copy of user memory of the task that wrote N fails.
 *                                A line in the log says which kind it was.
 *   /sys/kernel/debug/fail-nth-work   the same for the works that any worker does for amdkfd.ko:
 *                                those of its own functions, and amdgpu's for retry faults. This
 *                                module has to be there before amdkfd.ko.
 *   /sys/kernel/debug/fail-large     while it says 1, nobody gets 2 MiB or more in one piece.
 *   /sys/kernel/debug/fail-pages     while it says 1, no device gets pages for its memory.
 *   /sys/kernel/debug/places     the edges of amdkfd.ko's code that any context has reached since
 *                                this module was loaded. KCOV records a task's own calls only, not
 *                                interrupts and workers. It is for an amdkfd.ko built with coverage
 *                                (tools/build-module --coverage), which needs this one first. Who
 *                                writes to it begins anew: what comes after is since then.
 */
#include <linux/debugfs.h>
#include <linux/kprobes.h>
#include <linux/linkage.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>
#include <asm/ibt.h>

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
/* Or it is the works' that are done for amdkfd.ko. */
static bool works_armed;
static atomic_t left;
static const struct point *failed;

/* The recorded module: the address of its code while it is loaded, and the size in bytes. */
#define RECORDED "amdkfd"
static unsigned long code, code_bytes;
/* amdgpu's function for retry faults. */
#define RETRY_FAULTS "amdgpu:amdgpu_irq_handle_ih_soft"
static unsigned long retry_faults;

/* Whether the task does a work for amdkfd.ko. The work may have freed itself. */
static bool in_its_work(void)
{
	struct work_struct *work = current->flags & PF_WQ_WORKER ? current_work() : NULL;
	work_func_t func;

	if (!work || get_kernel_nofault(func, &work->func))
		return false;
	return (unsigned long)func - READ_ONCE(code) < READ_ONCE(code_bytes) ||
	       (retry_faults && (unsigned long)func == retry_faults);
}
NOKPROBE_SYMBOL(in_its_work);

static bool is_armed(void)
{
	return READ_ONCE(armed) == current || (READ_ONCE(works_armed) && in_its_work());
}
NOKPROBE_SYMBOL(is_armed);

static bool can_fail(const struct point *point, struct pt_regs *regs)
{
	if (point->gfp != NONE && regs_get_kernel_argument(regs, point->gfp) & __GFP_NOFAIL)
		return false;
	/* To allocate nothing is to free, and a copy of nothing is done. */
	if (point->size != NONE)
		return regs_get_kernel_argument(regs, point->size);
	return point->bytes == NONE || regs_get_kernel_argument(regs, point->bytes);
}

/*
 * Not in an interrupt on top of the task. A breakpoint counts as one itself: then this is in an
 * NMI.
 */
static bool in_its_call(void)
{
	unsigned long own = in_nmi() ? HARDIRQ_OFFSET : 0;

	return hardirq_count() == own && !in_serving_softirq();
}
NOKPROBE_SYMBOL(in_its_call);

static int before(struct kprobe *probe, struct pt_regs *regs)
{
	const struct point *point = container_of(probe, struct point, probe);

	if (!is_armed() || !in_its_call() || !atomic_read(&left) || !can_fail(point, regs))
		return 0;
	if (!atomic_dec_and_test(&left))
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

/* The probes come with the first who wants faults: all others' allocations are slower for them. */
static DEFINE_MUTEX(probing);
static bool probed;

static void unprobe(int count)
{
	while (count--)
		if (points[count].probe.pre_handler)
			unregister_kprobe(&points[count].probe);
}

static int probe(void)
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
	return 0;
}

static int before_large(struct kprobe *probe, struct pt_regs *regs)
{
	if (regs_get_kernel_argument(regs, 1) < PMD_SHIFT - PAGE_SHIFT ||
	    regs_get_kernel_argument(regs, 0) & __GFP_NOFAIL)
		return 0;
	regs->ax = 0;
	instruction_pointer_set(regs, (unsigned long)faults_return);
	return 1;
}
NOKPROBE_SYMBOL(before_large);

static int before_pages(struct kprobe *probe, struct pt_regs *regs)
{
	regs->ax = -ENOMEM;
	instruction_pointer_set(regs, (unsigned long)faults_return);
	return 1;
}
NOKPROBE_SYMBOL(before_pages);

/* A function that fails while a file of debugfs is 1. */
struct failing {
	const char *symbol;
	kprobe_pre_handler_t before;
	/* Registered while is_on. */
	struct kprobe probe;
	bool is_on;
};

static struct failing large = {
	.symbol = "__alloc_frozen_pages_noprof",
	.before = before_large,
};

static struct failing pages = {
	.symbol = "devm_memremap_pages",
	.before = before_pages,
};

static int failing_get(void *data, u64 *value)
{
	struct failing *failing = data;

	*value = failing->is_on;
	return 0;
}

static void end_failing(struct failing *failing)
{
	if (failing->is_on)
		unregister_kprobe(&failing->probe);
	failing->is_on = false;
}

static int failing_set(void *data, u64 value)
{
	struct failing *failing = data;
	int ret = 0;

	mutex_lock(&probing);
	end_failing(failing);
	if (value) {
		failing->probe = (struct kprobe){
			.symbol_name = failing->symbol,
			.pre_handler = failing->before,
			.post_handler = after,
		};
		ret = register_kprobe(&failing->probe);
		failing->is_on = !ret;
	}
	mutex_unlock(&probing);
	return ret;
}
DEFINE_DEBUGFS_ATTRIBUTE(failing_operations, failing_get, failing_set, "%llu\n");

/* kallsyms_lookup_name() itself is not exported; a probe finds it. */
static unsigned long address_of(const char *name)
{
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name" };
	unsigned long (*lookup)(const char *name);

	if (register_kprobe(&probe))
		return 0;
	lookup = (void *)probe.addr;
	unregister_kprobe(&probe);
	return lookup(name);
}

static int nth_open(struct inode *inode, struct file *file)
{
	int ret = 0;

	mutex_lock(&probing);
	if (!probed)
		ret = probe();
	probed = !ret;
	mutex_unlock(&probing);
	return ret;
}

/* Of the file for works its inode has a mark. */
static bool is_for_works(const struct file *file)
{
	return file_inode(file)->i_private;
}

static ssize_t nth_read(struct file *file, char __user *to, size_t count, loff_t *at)
{
	bool own = is_for_works(file) ? works_armed : armed == current;
	char text[16];
	int length = scnprintf(text, sizeof(text), "%d\n", own ? atomic_read(&left) : 0);

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
	WRITE_ONCE(works_armed, false);
	if (failed)
		pr_notice("forcing a failure.\nname %s, in %s\n",
			  failed->bytes == NONE ? "failslab" : "fail_usercopy",
			  failed->probe.symbol_name);
	failed = NULL;
	atomic_set(&left, nth);
	if (nth && is_for_works(file)) {
		retry_faults = address_of(RETRY_FAULTS);
		WRITE_ONCE(works_armed, true);
	} else if (nth) {
		WRITE_ONCE(armed, current);
	}
	return count;
}

static const struct file_operations nth_operations = {
	.owner = THIS_MODULE,
	.open = nth_open,
	.read = nth_read,
	.write = nth_write,
};

/*
 * Which bytes of it are a place that was reached: without a fault, and in a call in which something
 * fails. A loaded module has another address the next time, with the same bytes; one of another
 * size begins anew.
 */
static unsigned long *places[2];

/* What code that was built with coverage calls, again and again: on any CPU, in any context. */
void __sanitizer_cov_trace_pc(void);
notrace void __sanitizer_cov_trace_pc(void)
{
	unsigned long place = _RET_IP_ - READ_ONCE(code);
	unsigned long *map;

	if (place >= READ_ONCE(code_bytes))
		return;
	map = places[READ_ONCE(armed) == current];
	/* Mostly it is set: reading leaves the line of the cache with the other CPUs. */
	if (!test_bit(place, map))
		set_bit(place, map);
}
EXPORT_SYMBOL(__sanitizer_cov_trace_pc);
NOKPROBE_SYMBOL(__sanitizer_cov_trace_pc);

static void forget_places(void)
{
	int which;

	WRITE_ONCE(code_bytes, 0);
	for (which = 0; which < ARRAY_SIZE(places); which++) {
		vfree(places[which]);
		places[which] = NULL;
	}
}

/* The module comes. It is not called yet, and one that went is no longer. */
static int take_module(const struct module *module)
{
	const struct module_memory *text = &module->mem[MOD_TEXT];
	int which;

	if (code_bytes != text->size)
		forget_places();
	for (which = 0; which < ARRAY_SIZE(places); which++) {
		if (!places[which])
			places[which] = vzalloc(BITS_TO_LONGS(text->size) * sizeof(long));
		if (!places[which])
			return -ENOMEM;
	}
	code = (unsigned long)text->base;
	code_bytes = text->size;
	return 0;
}

static int module_changes(struct notifier_block *block, unsigned long state, void *data)
{
	const struct module *module = data;

	if (state != MODULE_STATE_COMING || strcmp(module->name, RECORDED))
		return NOTIFY_OK;
	return notifier_from_errno(take_module(module));
}

static struct notifier_block changes = { .notifier_call = module_changes };

/* A line "plain OFFSET" or "fault OFFSET" for each place, counted from the start of the code. */
static int places_show(struct seq_file *file, void *unused)
{
	unsigned long place;
	int which;

	for (which = 0; which < ARRAY_SIZE(places); which++)
		if (places[which])
			for_each_set_bit(place, places[which], code_bytes)
				seq_printf(file, "%s %lx\n", which ? "fault" : "plain", place);
	return 0;
}

static int places_open(struct inode *inode, struct file *file)
{
	return single_open(file, places_show, NULL);
}

/* Places that are reached meanwhile count, or do not. */
static ssize_t places_write(struct file *file, const char __user *from, size_t count, loff_t *at)
{
	int which;

	for (which = 0; which < ARRAY_SIZE(places); which++)
		if (places[which])
			bitmap_zero(places[which], code_bytes);
	return count;
}

static const struct file_operations places_operations = {
	.owner = THIS_MODULE,
	.open = places_open,
	.read = seq_read,
	.write = places_write,
	.llseek = seq_lseek,
	.release = single_release,
};

static struct dentry *nth_file, *works_file, *large_file, *pages_file, *places_file;

static int __init faults_init(void)
{
	int ret;

	ret = register_module_notifier(&changes);
	if (ret)
		return ret;
	nth_file = debugfs_create_file("fail-nth", 0600, NULL, NULL, &nth_operations);
	works_file = debugfs_create_file("fail-nth-work", 0600, NULL, &works_armed,
					 &nth_operations);
	large_file = debugfs_create_file_unsafe("fail-large", 0600, NULL, &large,
						&failing_operations);
	pages_file = debugfs_create_file_unsafe("fail-pages", 0600, NULL, &pages,
						&failing_operations);
	places_file = debugfs_create_file("places", 0600, NULL, NULL, &places_operations);
	return 0;
}
module_init(faults_init);

static void __exit faults_exit(void)
{
	debugfs_remove(nth_file);
	debugfs_remove(works_file);
	debugfs_remove(large_file);
	debugfs_remove(pages_file);
	debugfs_remove(places_file);
	mutex_lock(&probing);
	end_failing(&large);
	end_failing(&pages);
	mutex_unlock(&probing);
	if (probed)
		unprobe(ARRAY_SIZE(points));
	unregister_module_notifier(&changes);
	/* The module that was recorded needs this one: it went before. */
	forget_places();
}
module_exit(faults_exit);

MODULE_DESCRIPTION("Makes allocations fail and records coverage, for tests");
MODULE_LICENSE("GPL");
