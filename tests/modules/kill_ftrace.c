// SPDX-License-Identifier: GPL-2.0-only
/*
 * kill_ftrace: makes ftrace stop for good, as an error of its own does. Nothing undoes it.
 */
#include <linux/kprobes.h>
#include <linux/module.h>

static int __init kill_ftrace_init(void)
{
	struct kprobe probe = { .symbol_name = "ftrace_kill" };
	void (*kill)(void);

	if (register_kprobe(&probe))
		return -EINVAL;
	kill = (void *)probe.addr;
	unregister_kprobe(&probe);
	kill();
	return 0;
}
module_init(kill_ftrace_init);

static void __exit kill_ftrace_exit(void)
{
}
module_exit(kill_ftrace_exit);

MODULE_DESCRIPTION("Stops ftrace for good, for tests");
MODULE_LICENSE("GPL");
