/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Between inspect.c, which reads what amdgpu and its C amdkfd hold of the devices and changes
 * nothing, and handover.c, which acts on it.
 */
#ifndef AMDKFD_INSPECT_H
#define AMDKFD_INSPECT_H

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
