// SPDX-License-Identifier: GPL-2.0-only
/*
 * fail_function: the next call of a function comes to nothing, and returns 0 (false) or another
 * result; all later ones are as usual. Or so many of those calls do of which an argument is true.
 *
 *   insmod fail_function.ko function=amdkfd_device_init
 *   insmod fail_function.ko function=drm_client_modeset_create result=-12
 *   insmod fail_function.ko function=amdgpu_vm_update_range result=-16 only=3 times=1000000
 *   insmod fail_function.ko function=amdgpu_vm_update_range result=-12 only=5 after=1 times=9
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

static int times = 1;
module_param(times, int, 0444);
MODULE_PARM_DESC(times, "how many calls fail");

static int after;
module_param(after, int, 0444);
MODULE_PARM_DESC(after, "how many of the calls that are meant pass before the first one fails");

static int only = -1;
module_param(only, int, 0444);
MODULE_PARM_DESC(only, "the argument, a bool, from 0 on, without which none fails");

/* Where the probe leaves it: at its end, with the result in ax. */
asm(".pushsection .text\n"
    ".type fail_function_return, @function\n"
    "fail_function_return:\n"
    ASM_ENDBR
    ASM_RET
    ".size fail_function_return, . - fail_function_return\n"
    ".popsection\n");
extern asmlinkage void fail_function_return(void);

static atomic_t left;
static atomic_t spared;

/* Of a bool the lowest byte counts. */
static bool __kprobes is_meant(struct pt_regs *regs)
{
	return only < 0 || (u8)regs_get_kernel_argument(regs, only);
}

static int __kprobes fail(struct kprobe *probe, struct pt_regs *regs)
{
	if (!is_meant(regs) || atomic_dec_if_positive(&spared) >= 0 ||
	    atomic_dec_if_positive(&left) < 0)
		return 0;
	regs_set_return_value(regs, result);
	instruction_pointer_set(regs, (unsigned long)fail_function_return);
	return 1;
}

/* Nothing; but a probe that has none may become a jump, which goes on with the function. */
static void __kprobes done(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}

static struct kprobe probe = { .pre_handler = fail, .post_handler = done };

static int __init fail_function_init(void)
{
	probe.symbol_name = function;
	atomic_set(&left, times);
	atomic_set(&spared, after);
	return function ? register_kprobe(&probe) : -EINVAL;
}
module_init(fail_function_init);

static void __exit fail_function_exit(void)
{
	unregister_kprobe(&probe);
}
module_exit(fail_function_exit);

MODULE_DESCRIPTION("Lets a function fail, for tests");
MODULE_LICENSE("GPL");
