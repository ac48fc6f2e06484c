// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/kfd changes hands while amdgpu is live: from the C amdkfd to us (take), and back (give). Both
 * ways the devices are held first: bound, awake, not resetting, not repartitioning, and nobody can
 * open /dev/kfd. One hand-over at a time; attach.c has the lock.
 */
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/lockdep.h>
#include <linux/pci.h>
#include <linux/pm_runtime.h>
#include <linux/suspend.h>
#include <linux/workqueue.h>

#include "amdgpu_bind.h"
#include "attach.h"
#include "kgd2kfd.h"

#define MAX_DEVICES 64

/* How long a reset that already runs, or waits for its turn, may keep us from parking its queue. */
#define PARK_TIMEOUT (10 * HZ)

/* An item on a reset domain's ordered work queue: while it lies there, no recovery begins. */
struct parking {
	struct work_struct work;
	struct workqueue_struct *wq;
	struct completion parked, release;
};

static struct {
	struct pci_dev *locked[MAX_DEVICES];		/* all that amdgpu could drive */
	struct device *dev[MAX_DEVICES];		/* those that it does, in the order in which they were bound */
	struct amdgpu_device *adev[MAX_DEVICES];
	struct parking parking[MAX_DEVICES];
	unsigned int locks, devices, parkings;
	unsigned int sleep_flags;
} held;

/* Bytes that amdgpu believes the machine has; it adds up anew at each change of hands. */
static u64 total_mem_size;

/* Of another driver's device nobody knows how long that keeps the lock: -EBUSY. */
static int lock_device(struct device *dev, const struct device_driver *driver)
{
	const struct device_driver *now = READ_ONCE(dev->driver);

	if (now && now != driver)
		return device_trylock(dev) ? 0 : -EBUSY;
	device_lock(dev);
	return 0;
}

/*
 * Locks the devices that amdgpu drives, and those that it could: while one is being bound the driver's list has not got
 * it yet, and none must begin to be. In the order of the bus, in which a reset of a whole bus locks them too. Under the
 * lock of rescans, so that none appears.
 */
static int lock_devices(const struct device_driver *driver)
{
	struct pci_dev *pdev = NULL;
	int ret;

	for_each_pci_dev(pdev) {
		if (READ_ONCE(pdev->dev.driver) != driver && !driver->bus->match(&pdev->dev, driver))
			continue;
		ret = held.locks < MAX_DEVICES ? lock_device(&pdev->dev, driver) : -ENOSPC;
		if (ret) {
			pci_dev_put(pdev);
			return ret;
		}
		held.locked[held.locks++] = pci_dev_get(pdev);
	}
	return 0;
}

static bool is_locked(const struct device *dev)
{
	unsigned int i;

	for (i = 0; i < held.locks; i++)
		if (&held.locked[i]->dev == dev)
			return true;
	return false;
}

/* A device that is bound. -EBUSY: amdgpu could not drive it a moment ago (somebody wrote to "new_id"). */
static int collect(struct device *dev, void *unused)
{
	if (!is_locked(dev))
		return -EBUSY;
	if (!pci_get_drvdata(to_pci_dev(dev)))
		return 0;
	pm_runtime_get_sync(dev);
	held.dev[held.devices] = dev;
	held.adev[held.devices++] = drm_to_adev(pci_get_drvdata(to_pci_dev(dev)));
	return 0;
}

static void unlock_devices(void)
{
	while (held.locks) {
		struct pci_dev *pdev = held.locked[--held.locks];

		device_unlock(&pdev->dev);
		pci_dev_put(pdev);
	}
}

static void park(struct work_struct *work)
{
	struct parking *parking = container_of(work, struct parking, work);

	complete(&parking->parked);
	wait_for_completion(&parking->release);
}

static bool is_parked(struct workqueue_struct *wq)
{
	unsigned int i;

	for (i = 0; i < held.parkings; i++)
		if (held.parking[i].wq == wq)
			return true;
	return false;
}

static int park_resets(struct amdgpu_device *adev)
{
	struct parking *parking = &held.parking[held.parkings];

	if (is_parked(adev->reset_domain->wq))
		return 0;
	parking->wq = adev->reset_domain->wq;
	INIT_WORK(&parking->work, park);
	init_completion(&parking->parked);
	init_completion(&parking->release);
	queue_work(parking->wq, &parking->work);
	held.parkings++;
	return wait_for_completion_timeout(&parking->parked, PARK_TIMEOUT) ? 0 : -EBUSY;
}

static void unpark(void)
{
	while (held.parkings) {
		struct parking *parking = &held.parking[--held.parkings];

		complete(&parking->release);
		cancel_work_sync(&parking->work);
	}
}

static void let_device_go(unsigned int i)
{
	if (held.adev[i]->xcp_mgr)
		mutex_unlock(&held.adev[i]->xcp_mgr->xcp_lock);
	pm_runtime_put_autosuspend(held.dev[i]);
}

static void let_go(void)
{
	unpark();
	while (held.devices)
		let_device_go(--held.devices);
	unlock_devices();
	pci_unlock_rescan_remove();
	unlock_system_sleep(held.sleep_flags);
}

static int check_reset(struct device *dev, void *driver)
{
	struct drm_device *drm;
	int ret = 0;

	device_lock(dev);
	drm = dev->driver == driver ? pci_get_drvdata(to_pci_dev(dev)) : NULL;
	if (drm && atomic_read(&drm_to_adev(drm)->reset_domain->in_gpu_reset))
		ret = -EBUSY;
	device_unlock(dev);
	return ret;
}

int handover_check(void)
{
	struct device_driver *driver = &amdgpu_object(amdgpu_kms_pci_driver).driver;
	int ret = driver_for_each_device(driver, NULL, driver, check_reset);

	if (ret)
		pr_err("a GPU is being reset; try again\n");
	return ret;
}

/*
 * The order of the locks is the PCI core's, rescan before device, and then amdgpu's: device, reset domain, partition. A
 * probe that is under way is waited for: it belongs to the KFD that served when it began.
 */
static int hold(void)
{
	struct device_driver *driver = &amdgpu_object(amdgpu_kms_pci_driver).driver;
	unsigned int i;
	int ret;

	held.sleep_flags = lock_system_sleep();
	pci_lock_rescan_remove();
	ret = lock_devices(driver);
	if (!ret)
		ret = driver_for_each_device(driver, NULL, NULL, collect);
	for (i = 0; i < held.devices && !ret; i++)
		ret = park_resets(held.adev[i]);
	for (i = 0; i < held.devices; i++)
		if (held.adev[i]->xcp_mgr)
			mutex_lock_nest_lock(&held.adev[i]->xcp_mgr->xcp_lock, &attach_lock);
	if (ret)
		let_go();
	return ret;
}

/*
 * Has the C amdkfd a process? Asked after open() was blocked and C's release queue flushed: an opener
 * that came before is in the table, or waits for the table's mutex.
 */
static bool processes_exist(void)
{
	struct mutex *lock = &amdgpu_object(kfd_processes_mutex);
	bool exist;

	mutex_lock(lock);
	exist = !hash_empty(amdgpu_object(kfd_processes_table)) || READ_ONCE(lock->first_waiter);
	mutex_unlock(lock);
	return exist;
}

/* Locks C's devices against new processes; -EBUSY if one has an old one, even without a process. */
static int lock_kfd(void)
{
	unsigned int i;

	if (processes_exist())
		return -EBUSY;
	for (i = 0; i < held.devices; i++)
		if (held.adev[i]->kfd.dev &&
		    amdgpu_call(kgd2kfd_check_and_lock_kfd)(held.adev[i]->kfd.dev))
			break;
	if (i == held.devices)
		return 0;
	while (i--)
		if (held.adev[i]->kfd.dev)
			amdgpu_call(kgd2kfd_unlock_kfd)(held.adev[i]->kfd.dev);
	return -EBUSY;
}

static bool all_supported(void)
{
	struct amdgpu_device *adev;
	unsigned int i;

	for (i = 0; i < held.devices; i++) {
		adev = held.adev[i];
		if (adev->kfd.dev && !amdkfd_supports(amdgpu_ip_version(adev, GC_HWIP, 0),
						      amdgpu_sriov_vf(adev)))
			return false;
	}
	return true;
}

/* No interrupt of the device's is on its way into a KFD any more. adev->kfd.dev is NULL. */
static void settle_interrupts(struct amdgpu_device *adev)
{
	if (adev->irq.installed)
		synchronize_irq(adev->irq.irq);
	flush_work(&adev->irq.ih1_work);
	flush_work(&adev->irq.ih2_work);
	flush_work(&adev->irq.ih_soft_work);
	synchronize_rcu();
	synchronize_rcu_tasks();
}

/*
 * Takes a device from the KFD that serves it. The pointer goes first: amdgpu's own device_fini_sw frees
 * what an interrupt may still be using.
 */
static void take_device(struct amdgpu_device *adev)
{
	struct kfd_dev *kfd = adev->kfd.dev;

	if (!kfd)
		return;
	/* C's device_exit undoes one suspend's count: exactly one, and no resume afterwards. */
	amdgpu_call(amdgpu_amdkfd_suspend)(adev, true);
	WRITE_ONCE(adev->kfd.dev, NULL);
	settle_interrupts(adev);
	amdgpu_call(kgd2kfd_device_exit)(kfd);
	amdgpu_object(amdgpu_amdkfd_total_mem_size) -= adev->gmc.real_vram_size;
	/* amdgpu never clears it, and would call into a KFD that has no device. */
	adev->kfd.init_complete = false;
}

/* amdgpu offers all its devices to the KFD that serves now. False if one is not served after all. */
static bool offer_devices(void)
{
	struct amdgpu_device *adev;
	bool all = true;
	unsigned int i;

	for (i = 0; i < held.devices; i++) {
		adev = held.adev[i];
		amdgpu_call(amdgpu_amdkfd_device_probe)(adev);
		amdgpu_call(amdgpu_amdkfd_device_init)(adev);
		all &= !adev->kfd.dev || adev->kfd.init_complete;
	}
	return all;
}

static void give_held(void)
{
	unsigned int i;

	for (i = held.devices; i--;)
		take_device(held.adev[i]);
	if (standin_place(amdkfd_major()))
		pr_warn("openers may see ENXIO now\n");
	amdgpu_call(amdgpu_amdkfd_fini)();
	hooks_set_mode(HOOK_PASS);
	if (amdgpu_call(amdgpu_amdkfd_init)())
		pr_err("the C amdkfd does not start again\n");
	for (i = 0; i < held.devices; i++)
		if (!held.adev[i]->kfd.pgmap.type)
			amdgpu_call(kgd2kfd_init_zone_device)(held.adev[i]);
	if (!offer_devices())
		pr_err("the C amdkfd does not serve all GPUs again\n");
	if (total_mem_size)
		amdgpu_object(amdgpu_amdkfd_total_mem_size) = total_mem_size;
}

/*
 * The C amdkfd as a whole ends. It waits for its release queue, whose work may wait for a reset, which may want the
 * partition locks that we hold: lockdep sees a circle there. It cannot close. A process that is being released is
 * counted by its devices until it has done that waiting, and lock_kfd() has found none.
 */
static void end_c_kfd(void)
{
	lockdep_off();
	amdgpu_call(amdgpu_amdkfd_fini)();
	lockdep_on();
}

static int take_held(void)
{
	unsigned int i;

	if (!all_supported())
		return -ENODEV;
	if (lock_kfd()) {
		pr_err("/dev/kfd is in use; end the processes that use it first\n");
		return -EBUSY;
	}
	total_mem_size = amdgpu_object(amdgpu_amdkfd_total_mem_size);
	for (i = 0; i < held.devices; i++)
		take_device(held.adev[i]);
	end_c_kfd();
	hooks_set_mode(HOOK_OURS);
	if (!amdgpu_call(amdgpu_amdkfd_init)() && offer_devices())
		return 0;
	pr_err("cannot serve all GPUs; back to the C amdkfd\n");
	standin_remove();
	give_held();
	return -ENODEV;
}

int handover_take(void)
{
	unsigned int devices;
	int ret;

	/* C could not be started again after we, or another of us, gave back: then it has no work queue to flush. */
	if (!amdgpu_object(kfd_process_wq)) {
		pr_err("the C amdkfd does not serve, so there is nothing to take over\n");
		return -ENODEV;
	}
	hooks_block_open(true);
	/* Before the reset queues are parked, which C's release work may wait for. */
	flush_workqueue(amdgpu_object(kfd_process_wq));
	synchronize_rcu_tasks();
	ret = hold();
	if (ret) {
		pr_err("a GPU is being reset; try again\n");
	} else {
		ret = standin_place(amdgpu_object(kfd_char_dev_major));
		if (!ret)
			ret = take_held();
		devices = held.devices;
		let_go();
	}
	standin_remove();
	hooks_block_open(false);
	if (!ret)
		pr_info("took /dev/kfd over from the C amdkfd (%u GPUs)\n", devices);
	return ret;
}

/* TIMEOUT: none for hold(); unloading cannot fail, and a reset that runs ends. */
void handover_give(void)
{
	unsigned int devices;

	hooks_block_open(true);
	while (hold()) {
		pr_warn("waiting for a GPU reset to end\n");
		ssleep(1);
	}
	give_held();
	devices = held.devices;
	let_go();
	standin_remove();
	hooks_block_open(false);
	pr_info("gave /dev/kfd back to the C amdkfd (%u GPUs)\n", devices);
}
