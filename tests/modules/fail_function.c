// SPDX-License-Identifier: GPL-2.0-only
/*
 * fail_function: the next call of a function comes to nothing, and returns 0 (false) or another
 * result; all later ones are as usual.
 *
 *   insmod fail_function.ko function=amdkfd_device_init
 *   insmod fail_function.ko function=drm_client_modeset_create result=-12
 */
#include <linux/atomic.h>
#include <linux/kprobes.h>
#include <linux/linkage.h>
#include <linux/module.h>
#include <asm/ibt.h>

static char *function;
module_param(function, charp, 0444);
MODULE_PARM_DESC(function, "the function that fails once");

static int result;
module_param(result, int, 0444);
MODULE_PARM_DESC(result, "what it returns then");

/* Where the probe leaves it: at its end, with the result in ax. */
asm(".pushsection .text\n"
    ".type fail_function_return, @function\n"
    "fail_function_return:\n"
    ASM_ENDBR
    ASM_RET
    ".size fail_function_return, . - fail_function_return\n"
    ".popsection\n");
extern asmlinkage void fail_function_return(void);

static atomic_t left = ATOMIC_INIT(1);

static int __kprobes fail(struct kprobe *probe, struct pt_regs *regs)
{
	if (atomic_dec_if_positive(&left) < 0)
		return 0;
	regs_set_return_value(regs, result);
	instruction_pointer_set(regs, (unsigned long)fail_function_return);
	return 1;
}

/* Nothing; but a probe that has none may become a jump, which goes on with the function. */
static void __kprobes after(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe probe = { .pre_handler = fail, .post_handler = after };

static int __init fail_function_init(void)
{
	probe.symbol_name = function;
	return function ? register_kprobe(&probe) : -EINVAL;
}
module_init(fail_function_init);

static void __exit fail_function_exit(void)
{
	unregister_kprobe(&probe);
}
module_exit(fail_function_exit);

MODULE_DESCRIPTION("Lets a function fail once, for tests");
MODULE_LICENSE("GPL");
