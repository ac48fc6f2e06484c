// SPDX-License-Identifier: GPL-2.0-only
/*
 * set_symbol: sets an int of another module, such as one behind a parameter that cannot be written,
 * as if that module had been loaded with it; rmmod puts the old value back.
 *
 *   insmod set_symbol.ko symbol=amdgpu:sched_policy value=2
 *
 * Booting anew for such a parameter costs a test more time than all else that it does.
 */
#include <linux/kprobes.h>
#include <linux/module.h>

static char *symbol;
module_param(symbol, charp, 0444);
MODULE_PARM_DESC(symbol, "MODULE:NAME of an int");

static int value;
module_param(value, int, 0444);
MODULE_PARM_DESC(value, "what it shall be");

static int *place;
static int old;

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

static int __init set_symbol_init(void)
{
	place = symbol ? (int *)address_of(symbol) : NULL;
	if (!place)
		return -EINVAL;
	old = *place;
	WRITE_ONCE(*place, value);
	return 0;
}
module_init(set_symbol_init);

static void __exit set_symbol_exit(void)
{
	WRITE_ONCE(*place, old);
}
module_exit(set_symbol_exit);

MODULE_DESCRIPTION("Sets an int of another module, for tests");
MODULE_LICENSE("GPL");
