// SPDX-License-Identifier: GPL-2.0
/*
 * Attaching to amdgpu: when it is loaded after us (cold: before its first call into a KFD), or when it
 * is live already (hot: a hand-over). And letting go of it, when this module is unloaded.
 *
 * From the moment we serve, amdgpu is pinned: it cannot be unloaded under us, nor we be left with
 * hooks in its freed text.
 */
#include <linux/build_bug.h>
#include <linux/delay.h>
#include <linux/elf.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/static_call.h>

#include "amdgpu_bind.h"
#include "attach.h"
#include "kgd2kfd.h"
#include "amdgpu_build_id_generated.h"

MODULE_VERSION(AMDKFD_VERSION);
/* For who looks before he loads: kfdctl driver. What decides is check_build_id(). */
MODULE_INFO(amdgpu_build_id, AMDGPU_BUILD_ID_TEXT);

static const char amdgpu_name[] = "amdgpu";

DEFINE_MUTEX(attach_lock);
/* amdgpu, while we are hooked into it. */
static struct module *attached;
/* We are on our way out: whoever loads amdgpu now is none of ours. Under attach_lock. */
static bool leaving;

/* Not exported; bound like amdgpu's functions. */
unsigned long kallsyms_lookup_name(const char *name);
DEFINE_STATIC_CALL_NULL(lookup_name, kallsyms_lookup_name);
DEFINE_STATIC_CALL_NULL(find_module_by_name, find_module);

static unsigned long lookup(const char *name)
{
	return static_call(lookup_name)(name);
}

/* A kprobe is the one way to the address of a symbol. */
static int bind_lookup(void)
{
	struct kprobe probe = { .symbol_name = "kallsyms_lookup_name" };
	unsigned long address;
	int ret;

	ret = register_kprobe(&probe);
	if (ret) {
		pr_err("cannot find the kernel's symbols (%d)\n", ret);
		return ret;
	}
	static_call_update(lookup_name, (void *)probe.addr);
	unregister_kprobe(&probe);
	address = lookup("find_module");
	if (!address)
		return -ENOENT;
	static_call_update(find_module_by_name, (void *)address);
	return 0;
}

/* NT_GNU_BUILD_ID, which the kernel keeps to itself (lib/buildid.c). */
#define BUILD_ID_TYPE 3

/* What the linker left in the module's read-only memory. Sysfs has it too, but too late for us. */
struct build_id_note {
	struct elf32_note header;
	char owner[sizeof("GNU")];
	u8 id[sizeof((u8[]){ AMDGPU_BUILD_ID })];
};

/* Looks at memory that belongs to whatever stands in amdgpu's read-only data: KASAN must not mind. */
static __no_kasan_or_inline bool is_build_id(const struct build_id_note *note)
{
	return note->header.n_namesz == sizeof("GNU") &&
	       note->header.n_descsz == sizeof(note->id) &&
	       note->header.n_type == BUILD_ID_TYPE &&
	       note->owner[0] == 'G' && note->owner[1] == 'N' &&
	       note->owner[2] == 'U' && note->owner[3] == '\0';
}

static const struct build_id_note *find_build_id(const struct module *module)
{
	const void *at = module->mem[MOD_RODATA].base;
	const void *end = at + module->mem[MOD_RODATA].size;

	for (; at + sizeof(struct build_id_note) <= end; at += sizeof(u32))
		if (is_build_id(at))
			return at;
	return NULL;
}

/* Our structure layouts are those of one amdgpu.ko. */
static int check_build_id(const struct module *module)
{
	static const u8 recorded[] = { AMDGPU_BUILD_ID };
	const struct build_id_note *note = find_build_id(module);
	const u8 *built_for = recorded;

	/* The id stands in our file once, as bytes that can be read (and, by a test, changed) there. */
	OPTIMIZER_HIDE_VAR(built_for);
	if (note && !memcmp(note->id, built_for, sizeof(recorded)))
		return 0;
	pr_err("built for amdgpu %*phN, but %*phN is loaded: the C amdkfd keeps serving\n",
	       (int)sizeof(recorded), built_for, (int)(note ? sizeof(note->id) : 0),
	       note ? note->id : NULL);
	return -ENOEXEC;
}

static int bind(const struct module *module)
{
	int ret;

	ret = check_build_id(module);
	return ret ? ret : amdgpu_bind(lookup);
}

static int hook(struct module *module)
{
	int ret;

	ret = hooks_install(lookup);
	if (!ret)
		attached = module;
	return ret;
}

static void unhook(void)
{
	hooks_remove();
	attached = NULL;
}

/* amdgpu is in memory, and has not run yet. It keeps the C amdkfd if we fail. */
static void attach_cold(struct module *module)
{
	if (!try_module_get(module))
		return;
	if (bind(module) || hook(module)) {
		module_put(module);
		return;
	}
	hooks_set_mode(HOOK_OURS);
	pr_info("serves /dev/kfd in place of the C amdkfd\n");
}

/* Its initialisation failed (nothing else unloads it while we hold it). It takes our reference along. */
static void amdgpu_gone(void)
{
	unhook();
	/* It does not say so itself when it fails after it has started us. */
	amdkfd_exit();
	pr_info("amdgpu is gone; waiting for it to be loaded\n");
}

static int module_event(struct notifier_block *nb, unsigned long event, void *data)
{
	struct module *module = data;

	if (strcmp(module->name, amdgpu_name))
		return NOTIFY_DONE;
	mutex_lock(&attach_lock);
	if (event == MODULE_STATE_COMING && !attached && !leaving)
		attach_cold(module);
	else if (event == MODULE_STATE_GOING && attached == module)
		amdgpu_gone();
	mutex_unlock(&attach_lock);
	return NOTIFY_OK;
}

static struct notifier_block module_notifier = { .notifier_call = module_event };

/* -ENOENT: not loaded. -EBUSY: it is, but not up. Else *out has a reference. */
static int get_amdgpu(struct module **out)
{
	struct module *module;
	int ret = 0;

	rcu_read_lock();
	module = static_call(find_module_by_name)(amdgpu_name);
	if (!module)
		ret = -ENOENT;
	else if (module->state != MODULE_STATE_LIVE || !try_module_get(module))
		ret = -EBUSY;
	rcu_read_unlock();
	*out = module;
	return ret;
}

static int attach_hot(struct module *module)
{
	int ret;

	ret = bind(module);
	if (!ret)
		ret = handover_check();
	if (!ret)
		ret = hook(module);
	if (ret)
		return ret;
	ret = handover_take();
	if (ret)
		unhook();
	return ret;
}

static int attach_now(void)
{
	struct module *module;
	int ret;

	ret = get_amdgpu(&module);
	if (ret == -ENOENT) {
		pr_info("waiting for amdgpu to be loaded\n");
		return 0;
	}
	if (ret) {
		pr_err("amdgpu is just being loaded; try again\n");
		return ret;
	}
	ret = attach_hot(module);
	if (ret)
		module_put(module);
	return ret;
}

int amdkfd_attach(void)
{
	int ret;

	ret = bind_lookup();
	if (!ret)
		ret = register_module_notifier(&module_notifier);
	if (ret)
		return ret;
	mutex_lock(&attach_lock);
	if (!attached)
		ret = attach_now();
	leaving = ret;
	mutex_unlock(&attach_lock);
	if (ret)
		unregister_module_notifier(&module_notifier);
	return ret;
}

/*
 * If its initialisation fails, the notifier takes it from us: until then it is on its way out with hooks in it.
 * TIMEOUT: none. Unloading cannot fail; amdgpu's initialisation ends, one way or the other.
 */
static void wait_until_live(void)
{
	while (attached && READ_ONCE(attached->state) != MODULE_STATE_LIVE) {
		mutex_unlock(&attach_lock);
		msleep(20);
		mutex_lock(&attach_lock);
	}
}

void amdkfd_detach(void)
{
	struct module *module;

	mutex_lock(&attach_lock);
	leaving = true;
	wait_until_live();
	module = attached;
	if (module) {
		handover_give();
		unhook();
		module_put(module);
	}
	mutex_unlock(&attach_lock);
	unregister_module_notifier(&module_notifier);
	rcu_barrier();
}
