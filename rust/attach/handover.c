// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/kfd changes hands while amdgpu is live: from the C amdkfd to us (take), and back (give).
 * Both ways the devices are held first (hold.c), and nobody can open /dev/kfd. One hand-over at a
 * time; attach.c has the lock.
 */
#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/lockdep.h>

#include "attach.h"
#include "hold.h"
#include "kgd2kfd.h"

/*
 * Bytes of system memory that amdgpu found free when it was loaded. To them it adds the memory of
 * each GPU.
 */
static u64 system_mem_size;

static const char in_use[] = "/dev/kfd is in use; end the processes that use it first";

/*
 * Is it a GPU that C serves (1) or none of a KFD's (0), or what speaks against taking it from C?
 * Locked.
 */
static int check_gpu(struct amdgpu_device *adev)
{
	u32 version = amdgpu_ip_version(adev, GC_HWIP, 0);
	const char *name = dev_name(adev->dev);
	char why[96];

	if (adev->kfd.dev && !amdkfd_supports(version, amdgpu_sriov_vf(adev), why, sizeof(why)))
		return refuse(-ENODEV, "%s: %s", name, why);
	if (atomic_read(&adev->reset_domain->in_gpu_reset))
		return refuse(-EBUSY, "%s is being reset; try again", name);
	/*
	 * Of such a device C's suspend and its end do not count alike: it would believe itself
	 * locked for good.
	 */
	if (adev->kfd.dev && !adev->kfd.dev->init_complete)
		return refuse(-EBUSY, "%s is not up in the C amdkfd", name);
	return adev->kfd.dev ? 1 : 0;
}

/*
 * Has the C amdkfd a process? Certain once open() was blocked and C's release queue flushed: an
 * opener that came before is in the table, or waits for the table's mutex.
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

int handover_check(void)
{
	int gpus;

	/*
	 * It could not be started again after we, or another of us, gave back: then it has no
	 * work queue to flush.
	 */
	if (!amdgpu_object(kfd_process_wq)) {
		pr_err("the C amdkfd does not serve, so there is nothing to take over\n");
		return -ENODEV;
	}
	gpus = for_each_device(check_gpu);
	if (gpus <= 0)
		return gpus ?: HANDOVER_NO_GPU;
	return processes_exist() ? refuse(-EBUSY, in_use) : 0;
}

/*
 * Locks C's devices against new processes; -EBUSY if one has an old one, even without a process.
 */
static int lock_kfd(void)
{
	struct held_device *device;

	if (processes_exist())
		return -EBUSY;
	for_each_held(device)
		if (device->adev->kfd.dev &&
		    amdgpu_call(kgd2kfd_check_and_lock_kfd)(device->adev->kfd.dev))
			break;
	if (device == held.device + held.devices)
		return 0;
	while (device-- > held.device)
		if (device->adev->kfd.dev)
			amdgpu_call(kgd2kfd_unlock_kfd)(device->adev->kfd.dev);
	return -EBUSY;
}

/*
 * A file of SMI events outlives its process, and writes to the node when it is closed. None can be
 * added while the devices are held and nobody has a process.
 */
static bool has_smi_files(const struct kfd_dev *kfd)
{
	unsigned int i;

	for (i = 0; i < kfd->num_nodes; i++)
		if (!list_empty(&kfd->nodes[i]->smi_clients))
			return true;
	return false;
}

/*
 * What handover_check() asked, now that nothing of it can change, and whether nobody uses C.
 * Locks C's devices.
 */
static int check_held(void)
{
	struct held_device *device;
	int gpus = 0;
	int ret;

	for_each_held(device) {
		ret = check_gpu(device->adev);
		if (ret < 0)
			return ret;
		gpus += ret;
		if (ret && has_smi_files(device->adev->kfd.dev))
			return refuse(-EBUSY, in_use);
	}
	if (!gpus)
		return HANDOVER_NO_GPU;
	return lock_kfd() ? refuse(-EBUSY, in_use) : 0;
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
 * Takes a device from the KFD that serves it. The pointer goes first: amdgpu's own device_fini_sw
 * frees what an interrupt may still be using.
 */
static void take_device(struct held_device *device)
{
	struct amdgpu_device *adev = device->adev;
	struct kfd_dev *kfd = adev->kfd.dev;

	device->had_kfd = kfd;
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

/*
 * The KFD as a whole starts. amdgpu would count the memory anew, of which a part is in use by
 * now.
 */
static int start_kfd(void)
{
	int ret = amdgpu_call(amdgpu_amdkfd_init)();

	amdgpu_object(amdgpu_amdkfd_total_mem_size) = system_mem_size;
	return ret;
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

	amdgpu_call(amdgpu_amdkfd_device_probe)(adev);
	amdgpu_call(amdgpu_amdkfd_device_init)(adev);
	if (!adev->kfd.dev)
		return !device->had_kfd;
	amdgpu_call(amdgpu_amdkfd_drm_client_create)(adev);
	return adev->kfd.init_complete && adev->kfd.client.file;
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

/* Pages of the device's memory for C's SVM; it has none if it was bound while we served. */
static void make_device_pages(struct amdgpu_device *adev)
{
	if (!adev->kfd.pgmap.type)
		amdgpu_call(kgd2kfd_init_zone_device)(adev);
}

static void give_held(void)
{
	u32 major = amdkfd_major();
	struct held_device *device;
	const char *failed;

	for (device = held.device + held.devices; device-- > held.device;)
		take_device(device);
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
}

/*
 * The C amdkfd as a whole ends. It waits for its release queue, whose work may wait for a reset,
 * which may want the partition locks that we hold: lockdep sees a circle there. It cannot close.
 * A process that is being released is counted by its devices until it has done that waiting, and
 * lock_kfd() has found none.
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
		take_device(device);
	/* What is left when each GPU's share has been taken off. */
	system_mem_size = amdgpu_object(amdgpu_amdkfd_total_mem_size);
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
	standin_remove();
	give_held();
	return failed ? refuse(-ENODEV, "%s cannot be served", failed) :
			refuse(-ENODEV, "/dev/kfd cannot be published (%d)", ret);
}

int handover_take(void)
{
	unsigned int devices;
	int ret;

	hooks_block_open(true);
	/* Before the reset queues are parked, which C's release work may wait for. */
	flush_workqueue(amdgpu_object(kfd_process_wq));
	synchronize_rcu_tasks();
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

/* TIMEOUT: none for hold(); unloading cannot fail, and a reset that runs ends. */
void handover_give(void)
{
	unsigned int devices;

	hooks_block_open(true);
	while (hold()) {
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
