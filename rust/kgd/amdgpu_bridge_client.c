// SPDX-License-Identifier: GPL-2.0-only
/*
 * amdgpu gives each buffer of a process a handle in the file of a DRM client of its own, one for
 * the device (adev->kfd.client). drm frees that file when the device is unplugged, the pointer to
 * it stays, and processes may still have buffers then, and be inside amdgpu's calls about them.
 *
 * Those calls cannot be kept apart from the unplug: they wait for the device's engines, for other
 * processes' memory and for pages of the user's, as long as it takes; and a device that is being
 * unplugged ends what its engines have not done, but only after drm_dev_unplug(), which waits for
 * every section of drm_dev_enter() of all devices.
 *
 * So the file stays instead, for as long as a process has a VM of the device: the client is off
 * the device's list meanwhile, on which drm finds what to free.
 */
#include <linux/cleanup.h>
#include <linux/delay.h>
#include <linux/device.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/slab.h>

#include <drm/drm_client.h>

#include "amdgpu_bind.h"
#include "bridge_vm.h"

/* A device whose client is kept. */
struct kept_client {
	struct list_head link;
	struct amdgpu_device *adev;
	unsigned int users;
};

static LIST_HEAD(kept_clients);
/* Before the clientlist_mutex of a device. */
static DEFINE_MUTEX(kept_lock);

static struct kept_client *find_kept(const struct amdgpu_device *adev)
{
	struct kept_client *kept;

	list_for_each_entry(kept, &kept_clients, link)
		if (kept->adev == adev)
			return kept;
	return NULL;
}

/*
 * Takes the client off the device's list. -ENODEV: it is gone from there. -EAGAIN: the device is
 * just being bound, and has none yet.
 */
static int take_off_list(struct amdgpu_device *adev)
{
	struct drm_device *drm = adev_to_drm(adev);
	struct drm_client_dev *client;

	guard(mutex)(&drm->clientlist_mutex);
	list_for_each_entry(client, &drm->clientlist, list) {
		if (client != &adev->kfd.client)
			continue;
		list_del_init(&client->list);
		return 0;
	}
	return drm->registered ? -EAGAIN : -ENODEV;
}

/* Puts it back. False: nobody looks at the list any more. */
static bool put_on_list(struct amdgpu_device *adev)
{
	struct drm_device *drm = adev_to_drm(adev);

	guard(mutex)(&drm->clientlist_mutex);
	/* It is cleared before the list is walked, under the mutex, for the last time. */
	if (!drm->registered)
		return false;
	list_add(&adev->kfd.client.list, &drm->clientlist);
	return true;
}

static int try_to_keep(struct amdgpu_device *adev)
{
	struct kept_client *kept;
	int ret;

	guard(mutex)(&kept_lock);
	kept = find_kept(adev);
	if (kept) {
		kept->users++;
		return 0;
	}
	kept = kzalloc(sizeof(*kept), GFP_KERNEL);
	if (!kept)
		return -ENOMEM;
	ret = take_off_list(adev);
	if (ret) {
		kfree(kept);
		return ret;
	}
	kept->adev = adev;
	kept->users = 1;
	list_add(&kept->link, &kept_clients);
	return 0;
}

/*
 * Makes the client of a device that did not come up with us when it was bound, and did when it was
 * reset: amdgpu makes one when it binds a device and at no later time.
 */
static void make_client(struct amdgpu_device *adev)
{
	struct device *dev = adev_to_drm(adev)->dev;

	/* For one caller at a time: the next one finds it. */
	guard(mutex)(&kept_lock);
	/* Not while the device is bound, handed over or unbound. Who does that may wait for us. */
	if (!device_trylock(dev))
		return;
	/*
	 * Does nothing where there is one. Whether it could be made the list shows. One that could
	 * not, as for a signal, has its device all the same, which amdgpu takes for a client that
	 * is there.
	 */
	if (amdgpu_call(amdgpu_amdkfd_drm_client_create)(adev))
		adev->kfd.client.dev = NULL;
	device_unlock(dev);
}

/* amdgpu makes the client right after the device's files can be opened. */
#define CLIENT_TRIES 100

int bridge_client_keep(struct amdgpu_device *adev)
{
	unsigned int tries;
	int ret;

	for (tries = 0; tries < CLIENT_TRIES; tries++) {
		ret = try_to_keep(adev);
		if (ret != -EAGAIN)
			return ret;
		msleep(10);
	}
	make_client(adev);
	ret = try_to_keep(adev);
	return ret == -EAGAIN ? -ENODEV : ret;
}

/* Whether nobody is left who keeps it, and nobody else frees it. */
static bool is_last_user(struct amdgpu_device *adev)
{
	struct kept_client *kept;

	guard(mutex)(&kept_lock);
	kept = find_kept(adev);
	if (WARN_ON(!kept) || --kept->users)
		return false;
	list_del(&kept->link);
	kfree(kept);
	return !put_on_list(adev);
}

void bridge_client_let_go(struct amdgpu_device *adev)
{
	if (is_last_user(adev))
		amdgpu_call(drm_client_release)(&adev->kfd.client);
}
