// SPDX-License-Identifier: GPL-2.0-only
/*
 * Redirected calls of amdgpu's that need both of us, the bridge and what is in Rust.
 */
#include <linux/sched/mm.h>

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

/* What amdgpu validates for a job beside has a parameter. */
int upcall_validate_vm(struct amdgpu_device *adev, struct amdgpu_vm *vm,
		       struct ww_acquire_ctx *ticket,
		       int (*validate)(void *p, struct amdgpu_bo *bo), void *param)
{
	int ret = bridge_tables_validate(adev, vm, ticket, validate, param);
	struct mm_struct *mm = !ret && param ? bridge_pages_owed_by(vm) : NULL;

	if (!mm)
		return ret;
	amdkfd_hurry(mm);
	return -EBUSY;
}
