// SPDX-License-Identifier: GPL-2.0-only
/*
 * With enforce_isolation amdgpu stops a partition's KFD while it has jobs of its own on it: at the
 * begin of a submission (amdgpu_gfx_enforce_isolation_ring_begin_use), and starts it some time
 * after the end by a delayed work. It counts the submissions for which init_complete says that
 * there is a KFD, at the begin and at the end. So init_complete stays as it is while a device
 * changes hands: each submission would have to be over first. What comes without a KFD then
 * hooks.c answers.
 */
#include "amdgpu_bind.h"
#include "isolation.h"

/* In amdgpu's order: under the first it waits for the delayed work, which takes the second. */
static void lock(struct amdgpu_device *adev)
{
	mutex_lock(&adev->gfx.userq_sch_mutex);
	mutex_lock(&adev->enforce_isolation_mutex);
}

static void unlock(struct amdgpu_device *adev)
{
	mutex_unlock(&adev->enforce_isolation_mutex);
	mutex_unlock(&adev->gfx.userq_sch_mutex);
}

void isolation_changed_hands(struct amdgpu_device *adev)
{
	unsigned int partition;

	lock(adev);
	/* amdgpu never clears it. */
	if (!adev->kfd.dev)
		adev->kfd.init_complete = false;
	/* The predecessor was stopped. Who started it would start the new one. */
	for (partition = 0; partition < MAX_XCP; partition++)
		if (adev->gfx.userq_sch_inactive[partition])
			amdgpu_call(amdgpu_amdkfd_stop_sched)(adev, partition);
	unlock(adev);
}
