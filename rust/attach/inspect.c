// SPDX-License-Identifier: GPL-2.0-only
/*
 * What of amdgpu's and its C amdkfd's state a hand-over depends on: all of it is read here, before
 * anything changes, and once more when C has the devices again.
 */
#include <linux/kernfs.h>

#include "attach.h"
#include "hold.h"
#include "inspect.h"
#include "kgd2kfd.h"

static const char in_use[] = "/dev/kfd is in use; end the processes that use it first";

/*
 * Runs a reset of it, or is one wanted? While the reset queues are parked neither can begin, but
 * the recovery from a PCI error, which runs elsewhere, may have, and the KFD may have asked.
 */
static bool is_being_reset(struct amdgpu_device *adev)
{
	return atomic_read(&adev->reset_domain->in_gpu_reset) ||
	       work_pending(&adev->kfd.reset_work);
}

bool waits_for_hive(const struct amdgpu_device *adev)
{
	return adev->init_lvl->level == AMDGPU_INIT_LEVEL_MINIMAL_XGMI;
}

/* Its memory is counted as amdgpu has asked C to serve it: is_counted(). */
bool is_skipped_by_c(const struct amdgpu_device *adev)
{
	return adev->kfd.dev && !adev->kfd.dev->init_complete && adev->kfd.reset_work.func &&
	       !waits_for_hive(adev);
}

void count_skipped(void)
{
	guard(mutex)(&amdgpu_object(kfd_processes_mutex));
	amdgpu_object(kfd_locked)++;
}

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
		return is_skipped_by_c(adev) ? 0 : refuse(-ENODEV, "%s: %s", name, why);
	if (is_being_reset(adev))
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
 * The same of one that is not held. While its partitions are changed it has no KFD's device, or one
 * that is being freed.
 */
static int check_unheld_gpu(struct amdgpu_device *adev)
{
	int ret;

	if (!adev->xcp_mgr)
		return check_gpu(adev);
	mutex_lock(&adev->xcp_mgr->xcp_lock);
	ret = check_gpu(adev);
	mutex_unlock(&adev->xcp_mgr->xcp_lock);
	return ret;
}

/*
 * Has the C amdkfd a process? Certain once open() was blocked and C's release queue flushed: an
 * opener that came before is in the table, or waits for the table's mutex, or for the flush of that
 * queue, and finds the devices locked then.
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
	gpus = for_each_device(check_unheld_gpu);
	if (gpus <= 0)
		return gpus ?: HANDOVER_NO_GPU;
	return processes_exist() ? refuse(-EBUSY, in_use) : 0;
}

/*
 * Has a process of C's ended of which a file of /dev/kfd is left? The file is mapped by an inode
 * that goes with C. Such a process is in no table; its devices count it, but it may have none (a
 * device cgroup hides them all). What it has is a directory in sysfs. Certain where
 * processes_exist() is.
 */
static bool processes_remain(void)
{
	const struct kobject *proc = amdgpu_object(procfs).kobj;

	return proc && proc->sd && READ_ONCE(proc->sd->dir.subdirs);
}

/*
 * Locks C's devices against new processes; -EBUSY if one has an old one, even without a process.
 */
static int lock_kfd(void)
{
	struct held_device *device;

	if (processes_exist() || processes_remain())
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

int check_rest(void)
{
	struct held_device *device;

	for_each_held(device) {
		if (!device->awake)
			return refuse(-EBUSY, "%s does not wake up", dev_name(device->dev));
		/* Without runtime PM: switched off (vga_switcheroo), or a resume has failed. */
		if (READ_ONCE(device->adev->in_suspend))
			return refuse(-EBUSY, "%s is suspended", dev_name(device->dev));
		if (is_being_reset(device->adev))
			return refuse(-EBUSY, "%s is being reset; try again",
				      dev_name(device->dev));
	}
	return 0;
}

/*
 * How often is C locked? Its end of a device lowers the count (kgd2kfd_device_exit), which its
 * suspend raises only for one that is up: after the end of one that it could not bring up the count
 * stays below 0, and C does not suspend its processes any more. While all devices are held and
 * awake, none is being suspended, reset or partitioned, so 0 is right.
 */
static int kfd_locks(void)
{
	struct mutex *lock = &amdgpu_object(kfd_processes_mutex);
	int locked;

	mutex_lock(lock);
	locked = amdgpu_object(kfd_locked);
	if (locked < 0)
		amdgpu_object(kfd_locked) = 0;
	mutex_unlock(lock);
	if (locked < 0)
		pr_info("the C amdkfd's kfd_locked was %d with no device suspended; it is 0 now\n",
			locked);
	return max(locked, 0);
}

int check_held(void)
{
	struct held_device *device;
	int gpus = 0;
	int locked, ret;

	ret = check_rest();
	if (ret)
		return ret;
	locked = kfd_locks();
	if (locked)
		return refuse(-EBUSY, "the C amdkfd is locked (%d)", locked);
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

void inspect_c(void)
{
	int locked = kfd_locks();

	if (locked)
		pr_err("the C amdkfd is locked (%d) after it was given /dev/kfd back\n", locked);
}
