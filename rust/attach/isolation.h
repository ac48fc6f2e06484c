/* SPDX-License-Identifier: GPL-2.0-only */
/* amdgpu's enforce_isolation when a device changes hands. Between isolation.c and handover.c. */
#ifndef AMDKFD_ISOLATION_H
#define AMDKFD_ISOLATION_H

struct amdgpu_device;

/* The device was offered to another KFD, which has come up, or has not. */
void isolation_changed_hands(struct amdgpu_device *adev);

#endif
