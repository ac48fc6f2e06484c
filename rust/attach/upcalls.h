/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Between hooks.c and upcalls.c. validate_vm: amdgpu_vm_validate() of a VM that a process has,
 * under the reservation of its root; -EBUSY: pages that should have gone are there, for a job.
 */
#ifndef AMDKFD_UPCALLS_H
#define AMDKFD_UPCALLS_H

#include "amdgpu_bind.h"

int upcall_resume_mm(struct mm_struct *mm);
void upcall_restore_postponed(struct mm_struct *mm);
int upcall_validate_vm(struct amdgpu_device *adev, struct amdgpu_vm *vm,
		       struct ww_acquire_ctx *ticket,
		       int (*validate)(void *p, struct amdgpu_bo *bo), void *param);

#endif
