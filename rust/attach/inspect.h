/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Between inspect.c, which reads what amdgpu and its C amdkfd hold of the devices and changes
 * nothing, and handover.c, which acts on it.
 */
#ifndef AMDKFD_INSPECT_H
#define AMDKFD_INSPECT_H

#include <linux/types.h>

struct amdgpu_device;

/*
 * A device of a hive that is reset as a whole when its last one has been bound: until then most of
 * its hardware is not up, and amdgpu has probed its KFD only.
 */
bool waits_for_hive(const struct amdgpu_device *adev);
/*
 * Whether C, which knows the device, has refused to serve it: where its PCI slot has no atomic
 * operations, say. It tries again when the device has been reset. Held, or locked.
 */
bool is_skipped_by_c(const struct amdgpu_device *adev);
/* C's end of such a device would take a count back that its suspend has not made. Held. */
void count_skipped(void);

/*
 * The devices are held, and nobody can open /dev/kfd.
 *
 * Does anything speak against taking over: what handover_check() asks, now that nothing of it can
 * change, and all that can be told only now. Locks C's devices if not.
 */
int check_held(void);
/* -EBUSY, and refuse() knows why, if a device is asleep, or is, or is about to be, reset. */
int check_rest(void);
/* Says so if C, which has the devices again, is not as it was before we took them. */
void inspect_c(void);

#endif
