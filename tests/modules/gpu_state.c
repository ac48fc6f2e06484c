// SPDX-License-Identifier: GPL-2.0-only
/*
 * gpu_state: keeps one of amdgpu's devices in a state that lasts a moment otherwise, until rmmod.
 *
 *   insmod gpu_state.ko device=0000:00:02.0 state=resetting
 *
 * resetting: a reset runs, as in the recovery from a PCI error, which amdgpu does not run on its
 * queue. wanted: the KFD's work that resets it is queued, and its turn does not come. broken: it
 * does not wake up. submitting: amdgpu's jobs come one after the other, and take turns with the KFD
 * (enforce_isolation): their begin and their end, without the jobs, for this needs firmware that
 * knows the cleaner shader otherwise.
 */
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/pm_runtime.h>

#include "amdgpu.h"
#include "amdgpu_reset.h"

static char *device;
module_param(device, charp, 0444);
MODULE_PARM_DESC(device, "the address of the device");

static char *state;
module_param(state, charp, 0444);
MODULE_PARM_DESC(state, "resetting, wanted, broken or submitting");

static ulong jobs;
module_param(jobs, ulong, 0444);
MODULE_PARM_DESC(jobs, "how many have been submitted");

static struct pci_dev *pdev;

static struct amdgpu_device *adev(void)
{
	return drm_to_adev(pci_get_drvdata(pdev));
}

static void set_resetting(bool on)
{
	atomic_set(&adev()->reset_domain->in_gpu_reset, on);
}

static struct workqueue_struct *queue;
static DECLARE_COMPLETION(its_turn);

static void wait_for_turn(struct work_struct *work)
{
	wait_for_completion(&its_turn);
}
static DECLARE_WORK(before, wait_for_turn);

static void set_wanted(bool on)
{
	if (on) {
		queue_work(queue, &before);
		queue_work(queue, &adev()->kfd.reset_work);
		return;
	}
	cancel_work(&adev()->kfd.reset_work);
	complete(&its_turn);
	flush_work(&before);
}

static void set_broken(bool on)
{
	WRITE_ONCE(pdev->dev.power.runtime_error, on ? -EIO : 0);
}

static int submit(void *unused)
{
	struct amdgpu_ring *ring = &adev()->gfx.compute_ring[0];

	while (!kthread_should_stop()) {
		ring->funcs->begin_use(ring);
		udelay(50);
		ring->funcs->end_use(ring);
		WRITE_ONCE(jobs, jobs + 1);
		usleep_range(200, 400);
	}
	return 0;
}

static void isolate(bool on)
{
	mutex_lock(&adev()->enforce_isolation_mutex);
	adev()->enforce_isolation[0] = on ? AMDGPU_ENFORCE_ISOLATION_ENABLE :
					    AMDGPU_ENFORCE_ISOLATION_DISABLE;
	adev()->gfx.enable_cleaner_shader = on;
	mutex_unlock(&adev()->enforce_isolation_mutex);
}

static struct task_struct *submitter;

static void set_submitting(bool on)
{
	if (on) {
		isolate(true);
		submitter = kthread_run(submit, NULL, "gpu_state");
		return;
	}
	if (!IS_ERR(submitter))
		kthread_stop(submitter);
	flush_delayed_work(&adev()->gfx.enforce_isolation[0].work);
	isolate(false);
}

static const struct {
	const char *name;
	void (*set)(bool on);
} states[] = {
	{ "resetting", set_resetting },
	{ "wanted", set_wanted },
	{ "broken", set_broken },
	{ "submitting", set_submitting },
};
static void (*set)(bool on);

static int find(void)
{
	unsigned int domain, bus, slot, function, i;

	for (i = 0; state && i < ARRAY_SIZE(states); i++)
		if (!strcmp(state, states[i].name))
			set = states[i].set;
	if (!set || !device ||
	    sscanf(device, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
		return -EINVAL;
	pdev = pci_get_domain_bus_and_slot(domain, bus, PCI_DEVFN(slot, function));
	return pdev ? 0 : -ENODEV;
}

static int __init gpu_state_init(void)
{
	int ret;

	ret = find();
	if (ret)
		return ret;
	queue = alloc_ordered_workqueue("gpu_state", 0);
	if (!queue) {
		pci_dev_put(pdev);
		return -ENOMEM;
	}
	set(true);
	return 0;
}
module_init(gpu_state_init);

static void __exit gpu_state_exit(void)
{
	set(false);
	destroy_workqueue(queue);
	pci_dev_put(pdev);
}
module_exit(gpu_state_exit);

MODULE_DESCRIPTION("Keeps a GPU in a passing state, for tests");
MODULE_LICENSE("GPL");
