// SPDX-License-Identifier: GPL-2.0-only
/*
 * Attaching to a live amdgpu, and letting go of it. At once, if it is live when this module is
 * loaded; else when it has become so and has a GPU. Until then, and whenever we refuse, amdgpu's
 * own C amdkfd serves.
 *
 * While we serve amdgpu is pinned: it cannot be unloaded under us, nor we be left with hooks in
 * its freed text.
 *
 * The notifiers only queue the work: they are called under locks of the module loader's and the
 * driver core's, some with a device locked, and an attempt locks all devices. They are gone, and
 * the work is over, before we let go.
 */
#include <linux/async.h>
#include <linux/atomic.h>
#include <linux/build_bug.h>
#include <linux/device/bus.h>
#include <linux/elf.h>
#include <linux/kprobes.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/pci.h>
#include <linux/static_call.h>
#include <linux/suspend.h>
#include <linux/workqueue.h>

#include "../linux/migrate.h"
#include "amdgpu_bind.h"
#include "attach.h"
#include "bridge.h"
#include "kgd2kfd.h"
#include "amdgpu_build_id_generated.h"

MODULE_VERSION(AMDKFD_VERSION);
/* For who looks before he loads: kfdctl driver. What decides is check_build_id(). */
MODULE_INFO(amdgpu_build_id, AMDGPU_BUILD_ID_TEXT);

static const char amdgpu_name[] = "amdgpu";

DEFINE_MUTEX(attach_lock);
/* amdgpu, while we serve in it. */
static struct module *attached;

/* amdgpu is not live, or has no GPU for a KFD: nothing to attach to yet. */
#define NOT_YET HANDOVER_NO_GPU

/*
 * How often an attempt is repeated that met something which passes (-EBUSY), and after how long.
 */
#define TRIES 30
#define RETRY_AFTER (2 * HZ)
/*
 * How many are left of these, of one life of amdgpu's. 0: it is left to C until it is loaded
 * anew, or we are.
 */
static atomic_t tries = ATOMIC_INIT(TRIES);

/* Where the attempts run that are not insmod's own. NULL: there are none. */
static struct workqueue_struct *attempts;
static void attempt(struct work_struct *work);
static DECLARE_DELAYED_WORK(attempt_work, attempt);

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

/*
 * What the linker left in the module's read-only memory. Sysfs has it too, but too late for us.
 */
struct build_id_note {
	struct elf32_note header;
	char owner[sizeof("GNU")];
	u8 id[sizeof((u8[]){ AMDGPU_BUILD_ID })];
};

/*
 * Looks at memory that belongs to whatever stands in amdgpu's read-only data: KASAN must not
 * mind.
 */
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

	/*
	 * The id stands in our file once, as bytes that can be read (and, by a test, changed)
	 * there.
	 */
	OPTIMIZER_HIDE_VAR(built_for);
	if (note && !memcmp(note->id, built_for, sizeof(recorded)))
		return 0;
	return refuse(-ENOEXEC, "built for amdgpu %*phN, but %*phN is loaded",
		      (int)sizeof(recorded), built_for, (int)(note ? sizeof(note->id) : 0),
		      note ? note->id : NULL);
}

static int bind(const struct module *module)
{
	const char *missing;
	int ret;

	ret = check_build_id(module);
	if (ret)
		return ret;
	ret = amdkfd_migration_bind(lookup, &missing);
	if (!ret && amdkfd_svm_large_enabled())
		amdkfd_large_bind(lookup);
	if (!ret)
		ret = amdgpu_bind(lookup, &missing);
	return ret ? refuse(ret, "symbol %s not found", missing) : 0;
}

/* A reference on amdgpu. NOT_YET: not loaded, or not up. */
static int get_amdgpu(struct module **out)
{
	struct module *module;
	int ret = 0;

	rcu_read_lock();
	module = static_call(find_module_by_name)(amdgpu_name);
	if (!module || module->state != MODULE_STATE_LIVE || !try_module_get(module))
		ret = NOT_YET;
	rcu_read_unlock();
	*out = module;
	return ret;
}

/* Whatever fails before the hooks has changed nothing, and cost nobody anything. */
static int take_over(struct module *module)
{
	int ret;

	ret = bind(module);
	if (!ret)
		ret = handover_check();
	if (!ret)
		ret = hooks_install(lookup);
	if (ret)
		return ret;
	ret = handover_take();
	if (ret)
		hooks_remove();
	return ret;
}

/* The one line that says why the C amdkfd goes on. Some have said it where they found it. */
static void report_refusal(void)
{
	attach_set_state(ATTACH_REFUSED);
	if (refusal()[0])
		pr_err("%s; the C amdkfd keeps serving\n", refusal());
}

/*
 * An attempt that failed: again later, or not in this life of amdgpu's, of which the caller holds
 * a reference.
 */
static void plan_next(int err)
{
	if (err == NOT_YET)
		return;
	if (err == -EBUSY && atomic_dec_if_positive(&tries) > 0) {
		queue_delayed_work(attempts, &attempt_work, RETRY_AFTER);
		return;
	}
	atomic_set(&tries, 0);
	report_refusal();
}

/*
 * failed: what to do if it was there and could not be taken. Under attach_lock, and not attached.
 */
static int try_attach(void (*failed)(int err))
{
	struct module *module;
	int ret;

	attach_begin();
	ret = get_amdgpu(&module);
	if (ret)
		return ret;
	ret = take_over(module);
	if (!ret) {
		/*
		 * Not before: who binds a GPU while we may still fail is to queue the next attempt.
		 */
		WRITE_ONCE(attached, module);
		attach_set_state(ATTACH_SERVING);
		return 0;
	}
	failed(ret);
	module_put(module);
	return ret;
}

static void attempt(struct work_struct *work)
{
	/*
	 * amdgpu may have its devices probed behind its back: those that it found when it became
	 * live are decided on as one.
	 */
	async_synchronize_full();
	mutex_lock(&attach_lock);
	if (!attached && atomic_read(&tries))
		try_attach(plan_next);
	mutex_unlock(&attach_lock);
}

static void queue_attempt(void)
{
	struct workqueue_struct *queue = READ_ONCE(attempts);

	if (queue)
		queue_delayed_work(queue, &attempt_work, 0);
}

static int module_event(struct notifier_block *nb, unsigned long event, void *data)
{
	const struct module *module = data;

	if (event != MODULE_STATE_LIVE || strcmp(module->name, amdgpu_name))
		return NOTIFY_DONE;
	atomic_set(&tries, TRIES);
	queue_attempt();
	return NOTIFY_OK;
}

static struct notifier_block module_notifier = { .notifier_call = module_event };

/*
 * A GPU that comes when amdgpu is live already. Where C serves for good, it serves that one too.
 */
static int bus_event(struct notifier_block *nb, unsigned long event, void *data)
{
	const struct device *dev = data;

	if (event != BUS_NOTIFY_BOUND_DRIVER || strcmp(dev->driver->name, amdgpu_name))
		return NOTIFY_DONE;
	if (!READ_ONCE(attached) && atomic_read(&tries))
		queue_attempt();
	return NOTIFY_OK;
}

static struct notifier_block bus_notifier = { .notifier_call = bus_event };

/*
 * From here on we are told of what comes. What came before is found by the first attempt, which
 * is queued last.
 */
static int start_attempts(void)
{
	struct workqueue_struct *queue;
	int ret;

	queue = alloc_ordered_workqueue("amdkfd_attach", 0);
	if (!queue)
		return -ENOMEM;
	ret = register_module_notifier(&module_notifier);
	if (ret)
		goto free_queue;
	ret = bus_register_notifier(&pci_bus_type, &bus_notifier);
	if (ret)
		goto no_module_events;
	pr_info("waiting for amdgpu, and a GPU that its C amdkfd serves\n");
	WRITE_ONCE(attempts, queue);
	queue_attempt();
	return 0;

no_module_events:
	unregister_module_notifier(&module_notifier);
free_queue:
	destroy_workqueue(queue);
	return ret;
}

/*
 * Once the notifiers are gone only the work queues itself, and while it is being cancelled it
 * cannot.
 */
static void stop_attempts(void)
{
	if (!attempts)
		return;
	bus_unregister_notifier(&pci_bus_type, &bus_notifier);
	unregister_module_notifier(&module_notifier);
	cancel_delayed_work_sync(&attempt_work);
	destroy_workqueue(attempts);
}

static void insmod_failed(int err)
{
	if (err != NOT_YET)
		report_refusal();
}

/* An amdgpu that is part of the kernel is live already, is no module, and never will be. */
static bool amdgpu_is_built_in(void)
{
	unsigned long address = lookup("amdgpu_amdkfd_device_probe");

	return address && !is_vmalloc_or_module_addr((void *)address);
}

/*
 * amdgpu is about to leave a GPU, whose copy engines still work: once amdgpu tells us they do not.
 * But not those of a GPU that was pulled out. And amdgpu has left one. Under the device's lock.
 * Programs may be at work on the GPU before @attached is set, and those of one that is not served
 * are none of ours.
 */
static int unbind_event(struct notifier_block *nb, unsigned long event, void *data)
{
	const struct device *dev = data;
	struct drm_device *drm;

	if (event == BUS_NOTIFY_UNBOUND_DRIVER && READ_ONCE(attached)) {
		bridge_vram_unbound(to_pci_dev(dev));
		return NOTIFY_OK;
	}
	if (event != BUS_NOTIFY_UNBIND_DRIVER || strcmp(dev->driver->name, amdgpu_name) ||
	    pci_dev_is_disconnected(to_pci_dev(dev)))
		return NOTIFY_DONE;
	drm = dev_get_drvdata(dev);
	if (drm)
		amdkfd_unbinding(drm_to_adev(drm));
	return NOTIFY_OK;
}

static struct notifier_block unbind_notifier = { .notifier_call = unbind_event };

/* What amdgpu begins when the machine falls asleep it undoes before tasks run again, or not. */
static int power_event(struct notifier_block *nb, unsigned long event, void *data)
{
	if (event != PM_POST_SUSPEND && event != PM_POST_HIBERNATION && event != PM_POST_RESTORE)
		return NOTIFY_DONE;
	amdkfd_woke_up();
	return NOTIFY_OK;
}

static struct notifier_block power_notifier = { .notifier_call = power_event };

static int attach(void)
{
	int ret;

	ret = bind_lookup();
	if (ret)
		return ret;
	if (amdgpu_is_built_in()) {
		pr_err("amdgpu is built into this kernel; only a module's /dev/kfd can be taken\n");
		return -ENODEV;
	}
	mutex_lock(&attach_lock);
	ret = try_attach(insmod_failed);
	mutex_unlock(&attach_lock);
	return ret == NOT_YET ? start_attempts() : ret;
}

int amdkfd_attach(void)
{
	int ret;

	ret = bus_register_notifier(&pci_bus_type, &unbind_notifier);
	if (ret)
		return ret;
	ret = register_pm_notifier(&power_notifier);
	if (ret)
		goto unwatch;
	ret = attach();
	if (!ret)
		return 0;
	unregister_pm_notifier(&power_notifier);
unwatch:
	bus_unregister_notifier(&pci_bus_type, &unbind_notifier);
	return ret;
}

static void let_amdgpu_go(void)
{
	struct module *module = attached;

	handover_give();
	hooks_remove();
	attached = NULL;
	module_put(module);
}

void amdkfd_detach(void)
{
	unregister_pm_notifier(&power_notifier);
	bus_unregister_notifier(&pci_bus_type, &unbind_notifier);
	stop_attempts();
	mutex_lock(&attach_lock);
	if (attached)
		let_amdgpu_go();
	mutex_unlock(&attach_lock);
	rcu_barrier();
}
