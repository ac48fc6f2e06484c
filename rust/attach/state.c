// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the module does, for people and tools: /sys/module/amdkfd/parameters/state. "serving";
 * "waiting", or "waiting: WHY" while an attempt is to be repeated; "refused: WHY". WHY is the
 * line that dmesg has.
 */
#include <linux/kernel.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/sysfs.h>

#include "attach.h"
#include "kgd2kfd.h"

/* A leaf: refuse() is called with devices locked, the parameter is read by anybody. */
static DEFINE_MUTEX(state_lock);
static enum attach_state state = ATTACH_WAITING;
static char reason[192];

void attach_set_state(enum attach_state new_state)
{
	mutex_lock(&state_lock);
	state = new_state;
	mutex_unlock(&state_lock);
}

void attach_begin(void)
{
	mutex_lock(&state_lock);
	state = ATTACH_WAITING;
	reason[0] = '\0';
	mutex_unlock(&state_lock);
}

int refuse(int err, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	mutex_lock(&state_lock);
	vscnprintf(reason, sizeof(reason), format, args);
	mutex_unlock(&state_lock);
	va_end(args);
	return err;
}

/* Written under attach_lock only, which the caller has. */
const char *refusal(void)
{
	return reason;
}

static int show_state(char *buffer, const struct kernel_param *param)
{
	static const char * const names[] = {
		[ATTACH_WAITING] = "waiting",
		[ATTACH_REFUSED] = "refused",
		[ATTACH_SERVING] = "serving",
	};
	bool told;
	int bytes;

	mutex_lock(&state_lock);
	told = state != ATTACH_SERVING && reason[0];
	bytes = sysfs_emit(buffer, "%s%s%s\n", names[state], told ? ": " : "", told ? reason : "");
	mutex_unlock(&state_lock);
	return bytes;
}

static int set_state(const char *value, const struct kernel_param *param)
{
	return -EPERM;
}

static const struct kernel_param_ops state_ops = {
	.set = set_state,
	.get = show_state,
};
module_param_cb(state, &state_ops, NULL, 0444);
MODULE_PARM_DESC(state, "what the module does, to be read: serving, waiting, or refused and why");

static bool svm = true;
module_param(svm, bool, 0444);
MODULE_PARM_DESC(svm, "shared virtual memory for all processes (default: 1)");

notrace bool amdkfd_svm_enabled(void)
{
	return svm;
}

static bool svm_large = true;
module_param(svm_large, bool, 0444);
MODULE_PARM_DESC(svm_large, "move 2 MiB pages as one, where the kernel can (default: 1)");

bool amdkfd_svm_large_enabled(void)
{
	return svm_large;
}

static bool allow_untested;
module_param(allow_untested, bool, 0444);
MODULE_PARM_DESC(allow_untested,
		 "serve graphics cores that this driver has never run (default: 0)");

bool amdkfd_allows_untested(void)
{
	return allow_untested;
}
