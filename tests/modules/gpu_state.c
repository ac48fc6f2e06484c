// SPDX-License-Identifier: GPL-2.0-only
/*
 * gpu_state: keeps one of amdgpu's devices in a state that lasts a moment otherwise, until rmmod.
 *
 *   insmod gpu_state.ko device=0000:00:02.0 state=resetting
 *
 * resetting: a reset runs, as in the recovery from a PCI error, which amdgpu does not run on its
 * queue. wanted: the KFD's work that resets it is queued, and its turn does not come. broken: it
 * does not wake up.
 */
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
MODULE_PARM_DESC(state, "resetting, wanted or broken");

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

static const struct {
	const char *name;
	void (*set)(bool on);
} states[] = {
	{ "resetting", set_resetting },
	{ "wanted", set_wanted },
	{ "broken", set_broken },
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
