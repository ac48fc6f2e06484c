// SPDX-License-Identifier: GPL-2.0-only
/*
 * Holds amdgpu's devices while /dev/kfd changes hands: bound, awake, not resetting, not
 * repartitioning.
 *
 * The order of the locks is the PCI core's, rescan before device, and then amdgpu's: device,
 * partition, reset domain.
 */
#include <linux/pm_runtime.h>
#include <linux/suspend.h>

#include "attach.h"
#include "hold.h"

/*
 * How long resets that already run, or wait for their turn, may keep us from parking all queues.
 */
#define PARK_TIMEOUT (10 * HZ)

/*
 * How long no reset may begin, from when its queue is parked. Longer than all parking and any
 * hand-over take together; what lasts longer waits for a job of the GPU's that hangs, and amdgpu
 * ends that job on the parked queue.
 */
#define HOLD_TIME (20 * HZ)

struct holding held;

static struct device_driver *amdgpu_driver(void)
{
	return &amdgpu_object(amdgpu_kms_pci_driver).driver;
}

/*
 * Does amdgpu drive it, or could it? While it is being bound, the driver's own list has not got
 * it yet.
 */
static bool is_amdgpus(struct pci_dev *pdev)
{
	const struct device_driver *driver = amdgpu_driver();

	return READ_ONCE(pdev->dev.driver) == driver || driver->bus->match(&pdev->dev, driver);
}

/* Of another driver's device nobody knows how long that keeps the lock: -EBUSY. */
static int lock_device(struct device *dev)
{
	const struct device_driver *now = READ_ONCE(dev->driver);

	if (!now || now == amdgpu_driver()) {
		device_lock(dev);
		return 0;
	}
	if (device_trylock(dev))
		return 0;
	return refuse(-EBUSY, "%s is locked by another driver; try again", dev_name(dev));
}

/* Of a device that is locked. NULL: amdgpu does not drive it. */
static struct amdgpu_device *adev_of(struct device *dev)
{
	struct drm_device *drm = dev->driver == amdgpu_driver() ? dev_get_drvdata(dev) : NULL;

	return drm ? drm_to_adev(drm) : NULL;
}

static int look_at(struct device *dev, int (*look)(struct amdgpu_device *adev))
{
	struct amdgpu_device *adev;
	int ret;

	ret = lock_device(dev);
	if (ret)
		return ret;
	adev = adev_of(dev);
	ret = adev ? look(adev) : 0;
	device_unlock(dev);
	return ret;
}

int for_each_device(int (*look)(struct amdgpu_device *adev))
{
	struct pci_dev *pdev = NULL;
	int sum = 0;
	int ret;

	for_each_pci_dev(pdev) {
		ret = is_amdgpus(pdev) ? look_at(&pdev->dev, look) : 0;
		if (ret < 0) {
			pci_dev_put(pdev);
			return ret;
		}
		sum += ret;
	}
	return sum;
}

static int add_lock(struct pci_dev *pdev)
{
	int ret;

	if (held.locks == MAX_DEVICES)
		return refuse(-ENOSPC, "there are more than %u GPUs", MAX_DEVICES);
	ret = lock_device(&pdev->dev);
	if (!ret)
		held.locked[held.locks++] = pci_dev_get(pdev);
	return ret;
}

/*
 * Locks the devices that amdgpu drives, and those that it could: none must begin to be bound. In
 * the order of the bus, in which a reset of a whole bus locks them too. Under the lock of
 * rescans, so that none appears.
 */
static int lock_devices(void)
{
	struct pci_dev *pdev = NULL;
	int ret;

	for_each_pci_dev(pdev) {
		ret = is_amdgpus(pdev) ? add_lock(pdev) : 0;
		if (ret) {
			pci_dev_put(pdev);
			return ret;
		}
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

/*
 * A device that is bound. Not locked: amdgpu could not drive it a moment ago (somebody wrote to
 * "new_id").
 */
static int collect(struct device *dev, void *unused)
{
	struct amdgpu_device *adev;

	if (!is_locked(dev))
		return refuse(-EBUSY, "%s is just being bound", dev_name(dev));
	adev = adev_of(dev);
	if (!adev)
		return 0;
	/* One that does not wake up is counted as well: let_go() does not ask. */
	held.device[held.devices++] = (struct held_device){
		.dev = dev, .adev = adev, .awake = pm_runtime_get_sync(dev) >= 0,
	};
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
	if (!wait_for_completion_timeout(&parking->release, HOLD_TIME))
		pr_warn("/dev/kfd takes too long to change hands; GPUs may be reset again\n");
}

static bool is_parked(struct workqueue_struct *wq)
{
	unsigned int i;

	for (i = 0; i < held.parkings; i++)
		if (held.parking[i].wq == wq)
			return true;
	return false;
}

/* deadline: in jiffies, of all devices together. */
static int park_resets(struct amdgpu_device *adev, unsigned long deadline)
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
	if (wait_for_completion_timeout(&parking->parked, max_t(long, deadline - jiffies, 1)))
		return 0;
	return refuse(-EBUSY, "%s is being reset; try again", dev_name(adev->dev));
}

static void unpark(void)
{
	while (held.parkings) {
		struct parking *parking = &held.parking[--held.parkings];

		complete(&parking->release);
		cancel_work_sync(&parking->work);
	}
}

static void let_device_go(const struct held_device *device)
{
	if (device->adev->xcp_mgr)
		mutex_unlock(&device->adev->xcp_mgr->xcp_lock);
	pm_runtime_put_autosuspend(device->dev);
}

void let_go(void)
{
	unpark();
	while (held.devices)
		let_device_go(&held.device[--held.devices]);
	unlock_devices();
	pci_unlock_rescan_remove();
	unlock_system_sleep(held.sleep_flags);
}

int hold(void)
{
	struct held_device *device;
	unsigned long deadline;
	int ret;

	held.sleep_flags = lock_system_sleep();
	pci_lock_rescan_remove();
	ret = lock_devices();
	if (!ret)
		ret = driver_for_each_device(amdgpu_driver(), NULL, NULL, collect);
	/* While resets may run: who has one of these may wait for a job that only a reset ends. */
	for_each_held(device)
		if (device->adev->xcp_mgr)
			mutex_lock_nest_lock(&device->adev->xcp_mgr->xcp_lock, &attach_lock);
	deadline = jiffies + PARK_TIMEOUT;
	for_each_held(device)
		if (!ret)
			ret = park_resets(device->adev, deadline);
	if (ret)
		let_go();
	return ret;
}
