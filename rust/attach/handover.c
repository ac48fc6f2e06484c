// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/kfd changes hands while amdgpu is live: from the C amdkfd to us (take), and back (give).
 * Both ways the devices are held first (hold.c), looked at (inspect.c), and nobody can open
 * /dev/kfd. One hand-over at a time; attach.c has the lock.
 */
#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/lockdep.h>
#include <linux/mm.h>

#include "amdgpu_bind.h"
#include "kfd_device_queue_manager.h"
#include "attach.h"
#include "hold.h"
#include "inspect.h"
#include "isolation.h"
#include "kgd2kfd.h"

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

static struct mutex *scheduler_lock(struct kfd_dev *kfd, unsigned int node)
{
	return &kfd->nodes[node]->dqm->lock_hidden;
}

/*
 * Nobody is inside C's schedulers of the device any more, into which amdgpu calls from where it
 * submits jobs. adev->kfd.dev is NULL, and settle_interrupts() has seen each task that had read it
 * return, or go to sleep: on a scheduler's lock, or with it, for they sleep on nothing else before
 * it. Some go from one node's scheduler to the next: with all of them locked such a task waits,
 * too, and is seen.
 */
static void settle_schedulers(struct kfd_dev *kfd)
{
	bool waited_for;
	unsigned int i;

	/* They are of one class. Nobody else has two of them. */
	lockdep_off();
	do {
		for (i = 0; i < kfd->num_nodes; i++)
			mutex_lock(scheduler_lock(kfd, i));
		synchronize_rcu_tasks();
		waited_for = false;
		for (i = 0; i < kfd->num_nodes; i++) {
			waited_for |= READ_ONCE(scheduler_lock(kfd, i)->first_waiter) != NULL;
			mutex_unlock(scheduler_lock(kfd, i));
		}
	} while (waited_for);
	lockdep_on();
	/* The last one is between its mutex_unlock() and amdgpu's code. */
	synchronize_rcu_tasks();
}

/*
 * Whether amdgpu_amdkfd_device_init() has counted the memory of a device that has a KFD, with which
 * it initialises this work, which nobody else does: it has not while the device waits for its hive,
 * nor during the reset that comes then, nor after that has failed.
 */
static bool is_counted(struct amdgpu_device *adev)
{
	return adev->kfd.reset_work.func;
}

/*
 * Takes a device from the KFD that serves it, C or ours. The pointer goes first: amdgpu's own
 * device_fini_sw frees what an interrupt may still be using.
 */
static void take_device(struct held_device *device, bool from_c)
{
	struct amdgpu_device *adev = device->adev;
	struct kfd_dev *kfd = adev->kfd.dev;
	bool skipped;

	/* One that was taken and not offered again still ought to be served. */
	if (!kfd)
		return;
	/* Of that C has no schedulers. */
	skipped = from_c && is_skipped_by_c(adev);
	device->had_kfd = !skipped;
	/* C's device_exit undoes one suspend's count: exactly one, and no resume afterwards. */
	if (skipped)
		count_skipped();
	else
		amdgpu_call(amdgpu_amdkfd_suspend)(adev, true);
	WRITE_ONCE(adev->kfd.dev, NULL);
	settle_interrupts(adev);
	if (from_c && !skipped)
		settle_schedulers(kfd);
	amdgpu_call(kgd2kfd_device_exit)(kfd);
	if (!is_counted(adev))
		return;
	amdgpu_object(amdgpu_amdkfd_total_mem_size) -= adev->gmc.real_vram_size;
	/*
	 * A queue that does not stop makes the KFD ask for a reset. amdgpu_amdkfd_device_init()
	 * initialises this work, which must not be on the parked queue then.
	 */
	device->wants_reset |= cancel_work(&adev->kfd.reset_work);
}

/*
 * The KFD as a whole starts. amdgpu would count the memory anew, of which a part is in use by now.
 * What it had counted is what is left: it found that free when it was loaded, and the held devices'
 * shares have been taken off.
 */
static int start_kfd(void)
{
	u64 size = amdgpu_object(amdgpu_amdkfd_total_mem_size);
	int ret = amdgpu_call(amdgpu_amdkfd_init)();

	amdgpu_object(amdgpu_amdkfd_total_mem_size) = size;
	return ret;
}

bool amdkfd_withdraw(struct amdgpu_device *adev, struct kfd_dev *kfd)
{
	/* Its last file was closed: amdgpu is on its way to amdkfd_device_exit(). */
	if (!kref_get_unless_zero(&adev_to_drm(adev)->ref))
		return false;
	if (adev->kfd.dev != kfd)
		return true;
	/* Work of amdgpu's that is still pending asks by this alone whether there is a KFD. */
	WRITE_ONCE(adev->kfd.init_complete, false);
	WRITE_ONCE(adev->kfd.dev, NULL);
	if (is_counted(adev))
		amdgpu_object(amdgpu_amdkfd_total_mem_size) -= adev->gmc.real_vram_size;
	/* A task that has read the pointer is in one of our hooks by then. */
	synchronize_rcu_tasks();
	return true;
}

void amdkfd_let_device_go(struct amdgpu_device *adev)
{
	amdgpu_call(drm_dev_put)(adev_to_drm(adev));
}

/*
 * amdgpu offers a device to the KFD that serves now. False if that does not serve it after all,
 * though it ought to.
 *
 * amdgpu allocates for processes through a DRM client, which it makes when a device is bound, but
 * only if a KFD was up on it then. The one that was not may be up now: we refused the device, or
 * its start had failed.
 */
static bool offer_device(const struct held_device *device)
{
	struct amdgpu_device *adev = device->adev;

	/* C would start what has no power, and once more when it is resumed. */
	if (READ_ONCE(adev->in_suspend)) {
		isolation_changed_hands(adev);
		return !device->had_kfd;
	}
	amdgpu_call(amdgpu_amdkfd_device_probe)(adev);
	if (waits_for_hive(adev))
		return true;
	amdgpu_call(amdgpu_amdkfd_device_init)(adev);
	isolation_changed_hands(adev);
	/* Whom it is offered to next asks for the reset; that work is initialised before. */
	if (!adev->kfd.dev)
		return !device->had_kfd;
	if (device->wants_reset)
		amdgpu_call(amdgpu_amdkfd_gpu_reset)(adev);
	/* See make_client() of the bridge. */
	if (amdgpu_call(amdgpu_amdkfd_drm_client_create)(adev))
		adev->kfd.client.dev = NULL;
	if (!adev->kfd.init_complete)
		return !device->had_kfd;
	return adev->kfd.client.file;
}

/* amdgpu offers all its devices. The name of one that is not served after all, or NULL. */
static const char *offer_devices(void)
{
	const char *failed = NULL;
	struct held_device *device;

	for_each_held(device)
		if (!offer_device(device) && !failed)
			failed = dev_name(device->dev);
	return failed;
}

/*
 * Pages of the device's memory for C's SVM; it has none if it was bound while we served. amdgpu
 * makes those of a device that waits for its hive when that is whole, without a look whether there
 * are any.
 */
static void make_device_pages(struct amdgpu_device *adev)
{
	if (!adev->kfd.pgmap.type && !waits_for_hive(adev))
		amdgpu_call(kgd2kfd_init_zone_device)(adev);
}

/*
 * C allocates through the client, and does not ask whether there is one. Where C is not up there is
 * none, and nothing to take: half of its nodes may be missing.
 */
static void take_without_client(struct held_device *device)
{
	struct amdgpu_device *adev = device->adev;

	if (!adev->kfd.init_complete || adev->kfd.client.file || waits_for_hive(adev))
		return;
	take_device(device, true);
	isolation_changed_hands(adev);
}

static void give_held(void)
{
	u32 major = amdkfd_major();
	struct held_device *device;
	const char *failed;

	for (device = held.device + held.devices; device-- > held.device;)
		take_device(device, false);
	/* Without a major number /dev/kfd was never published. */
	if (major && standin_place(major))
		pr_warn("openers may see ENXIO now\n");
	amdgpu_call(amdgpu_amdkfd_fini)();
	hooks_set_mode(HOOK_PASS);
	if (start_kfd())
		pr_err("the C amdkfd does not start again\n");
	for_each_held(device)
		make_device_pages(device->adev);
	failed = offer_devices();
	if (failed)
		pr_err("the C amdkfd does not serve %s again\n", failed);
	for_each_held(device)
		take_without_client(device);
	inspect_c();
}

/*
 * The C amdkfd as a whole ends. It waits for its release queue, whose work may wait for a reset,
 * which may want the partition locks that we hold: lockdep sees a circle there. It cannot close.
 * A process that is being released is counted by its devices until it has done that waiting, and
 * check_held() has found none.
 */
static void end_c_kfd(void)
{
	lockdep_off();
	amdgpu_call(amdgpu_amdkfd_fini)();
	lockdep_on();
}

static void take_from_c(void)
{
	struct held_device *device;

	for_each_held(device)
		take_device(device, true);
	end_c_kfd();
	hooks_set_mode(HOOK_OURS);
}

static int take_held(void)
{
	const char *failed;
	int ret;

	ret = check_held();
	if (ret)
		return ret;
	take_from_c();
	ret = start_kfd();
	failed = ret ? NULL : offer_devices();
	if (!ret && !failed)
		return 0;
	/* Without a major number of ours it stays, where C was and is going to be. */
	if (amdkfd_major())
		standin_remove();
	give_held();
	return failed ? refuse(-ENODEV, "%s cannot be served", failed) :
			refuse(-ENODEV, "/dev/kfd cannot be published (%d)", ret);
}

/*
 * While the C amdkfd served, TTM took memory away and left the CPU's mappings of it
 * (amdgpu_bridge_gutted.c): of doorbells, say, that our queues get next. Now none is left any more,
 * and whoever touches what he has mapped gets what he has. An eviction that began before opening
 * was blocked holds the buffer's reservation, without which nothing is mapped again.
 */
static int empty_mappings(struct amdgpu_device *adev)
{
	unmap_mapping_range(adev_to_drm(adev)->anon_inode->i_mapping, 0, 0, 1);
	return 0;
}

int handover_take(void)
{
	unsigned int devices;
	int ret;

	hooks_block_open(true);
	/* Before the reset queues are parked, which C's release work may wait for. */
	flush_workqueue(amdgpu_object(kfd_process_wq));
	synchronize_rcu_tasks();
	/* Before the reset queues are parked, for which jobs of the users' may be waiting, too. */
	ret = for_each_device(empty_mappings);
	if (!ret)
		ret = hold();
	if (!ret) {
		ret = standin_place(amdgpu_object(kfd_char_dev_major));
		ret = ret ? refuse(ret, "/dev/kfd cannot be held (%d)", ret) : take_held();
		devices = held.devices;
		let_go();
	}
	standin_remove();
	hooks_block_open(false);
	if (!ret)
		pr_info("took /dev/kfd over from the C amdkfd (%u GPUs)\n", devices);
	return ret;
}

/*
 * How often, once a second, a device that is not at rest keeps us from giving it back. A PCI error
 * may have no end, and a device that does not wake up may never do.
 */
#define REST_TRIES 30

/* Holds the devices; they are at rest then, unless it is not patient any more. */
static int hold_to_give(bool patient)
{
	int ret;

	ret = hold();
	if (ret || !check_rest())
		return ret;
	if (patient) {
		let_go();
		return -EBUSY;
	}
	pr_warn("%s; /dev/kfd is given back all the same\n", refusal());
	return 0;
}

/* TIMEOUT: none for hold(); unloading cannot fail, and a reset that runs ends. */
void handover_give(void)
{
	unsigned int tries = 0;
	unsigned int devices;

	hooks_block_open(true);
	while (hold_to_give(tries < REST_TRIES)) {
		if (tries++ % 10 == 0)
			pr_warn("cannot give /dev/kfd back yet: %s\n", refusal());
		ssleep(1);
	}
	give_held();
	devices = held.devices;
	let_go();
	standin_remove();
	hooks_block_open(false);
	pr_info("gave /dev/kfd back to the C amdkfd (%u GPUs)\n", devices);
}
