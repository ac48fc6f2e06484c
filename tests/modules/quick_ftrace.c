// SPDX-License-Identifier: GPL-2.0-only
/*
 * quick_ftrace: as long as it is loaded, ftrace takes each function of a module that comes for one
 * that is there. Otherwise it looks each one up among the module's symbols, one after the other:
 * amdgpu's 25,000 functions among its 80,000 symbols are most of a minute on a translated
 * processor, to find weak functions that another one replaced. amdgpu has none.
 */
#include <linux/kprobes.h>
#include <linux/module.h>

/* Returns true in the place of the function that is just called. */
static int say_valid(struct kprobe *probe, struct pt_regs *regs)
{
	regs->ax = 1;
	regs->ip = *(unsigned long *)regs->sp;
	regs->sp += sizeof(unsigned long);
	return 1;
}

/* Keeps the probe a breakpoint: a jump would go on behind it. */
static void after(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe probe = {
	.symbol_name = "test_for_valid_rec",
	.pre_handler = say_valid,
	.post_handler = after,
};

static int __init quick_ftrace_init(void)
{
	return register_kprobe(&probe);
}
module_init(quick_ftrace_init);

static void __exit quick_ftrace_exit(void)
{
	unregister_kprobe(&probe);
}
module_exit(quick_ftrace_exit);

MODULE_DESCRIPTION("Has ftrace not look up each function of a module, for tests");
MODULE_LICENSE("GPL");
