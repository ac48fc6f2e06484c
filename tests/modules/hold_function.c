// SPDX-License-Identifier: GPL-2.0-only
/*
 * hold_function: holds one kernel function's ftrace redirection (IPMODIFY), as a live patch would,
 * and redirects nothing. Nobody else can redirect that function as long as this module is loaded.
 *
 *   insmod hold_function.ko function=kgd2kfd_resume
 */
#include <linux/ftrace.h>
#include <linux/kprobes.h>
#include <linux/module.h>

static char *function;
module_param(function, charp, 0444);
MODULE_PARM_DESC(function, "the function to hold");

static void notrace pass(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *ops,
			 struct ftrace_regs *fregs)
{
}

static struct ftrace_ops ops = {
	.func = pass,
	.flags = FTRACE_OPS_FL_IPMODIFY,
};

/* By way of a probe: ftrace's own search by name looks at each function of the kernel. */
static unsigned long address_of(const char *name)
{
	struct kprobe probe = { .symbol_name = name };
	unsigned long address;

	if (register_kprobe(&probe))
		return 0;
	address = (unsigned long)probe.addr;
	unregister_kprobe(&probe);
	return address;
}

static int __init hold_function_init(void)
{
	unsigned long address = function ? address_of(function) : 0;
	int ret;

	if (!address)
		return -EINVAL;
	ret = ftrace_set_filter_ip(&ops, address, 0, 1);
	if (!ret)
		ret = register_ftrace_function(&ops);
	if (ret)
		ftrace_free_filter(&ops);
	return ret;
}
module_init(hold_function_init);

static void __exit hold_function_exit(void)
{
	unregister_ftrace_function(&ops);
	ftrace_free_filter(&ops);
}
module_exit(hold_function_exit);

MODULE_DESCRIPTION("Holds one function's ftrace redirection, for tests");
MODULE_LICENSE("GPL");
