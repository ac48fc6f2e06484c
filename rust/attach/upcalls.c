// SPDX-License-Identifier: GPL-2.0-only
/*
 * Redirected calls of amdgpu's that need both of us, the bridge and what is in Rust.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>

#include "amdgpu_bind.h"
#include "bridge_vm.h"
#include "kgd2kfd.h"
#include "upcalls.h"

/*
 * amdgpu's worker names the address space that the process's leader has now: after execve that of
 * another program, which it has not stopped. The one that it has stopped the eviction fence knows.
 * Under the info's lock, which the worker has: without a VM the fence may be gone already
 * (amdgpu_amdkfd_gpuvm_destroy_cb), and so is the process.
 */
int upcall_resume_mm(struct mm_struct *mm)
{
	struct amdkfd_process_info *info = bridge_user_pages_restored();

	if (!info)
		return amdkfd_resume_mm(mm);
	return info->n_vms ? amdkfd_resume_mm(info->eviction_fence->mm) : 0;
}

/* The same, but that the worker has let go of the lock. */
void upcall_restore_postponed(struct mm_struct *mm)
{
	struct amdkfd_process_info *info = bridge_user_pages_restored();

	if (!info) {
		amdkfd_restore_postponed(mm);
		return;
	}
	mutex_lock(&info->lock);
	mm = info->n_vms ? info->eviction_fence->mm : NULL;
	if (mm)
		mmgrab(mm);
	mutex_unlock(&info->lock);
	if (!mm)
		return;
	amdkfd_restore_postponed(mm);
	mmdrop(mm);
}

/* Milliseconds. It takes that where nothing is in the way but a signal, or a reset. */
#define OWED_TIMEOUT 50
#define OWED_LOOKS 10

/*
 * Pages that should have gone, and that a job in the VM would have, are taken out at once if they
 * can. Its process needs none of the reservations for that which the caller has.
 */
static bool takes_out_owed(const struct amdgpu_vm *vm)
{
	unsigned long until = jiffies + msecs_to_jiffies(OWED_TIMEOUT);
	struct mm_struct *mm;
	u32 i;

	for (i = 0; (mm = bridge_pages_owed_by(vm)); i++) {
		if (time_after(jiffies, until) || fatal_signal_pending(current))
			return false;
		/* It may fail once more. */
		if (i % OWED_LOOKS == 0)
			amdkfd_hurry(mm);
		usleep_range(500, 1000);
	}
	return true;
}

/* What amdgpu validates for a job beside has a parameter. */
int upcall_validate_vm(struct amdgpu_device *adev, struct amdgpu_vm *vm,
		       struct ww_acquire_ctx *ticket,
		       int (*validate)(void *p, struct amdgpu_bo *bo), void *param)
{
	int ret = bridge_tables_validate(adev, vm, ticket, validate, param);

	if (ret || !param || takes_out_owed(vm))
		return ret;
	/* Programs try that again; of anything else they think that nothing goes on. */
	return -ENOMEM;
}
