/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All of amdgpu's devices held still: bound, awake, not resetting, not repartitioning. Between
 * hold.c, which does that, and handover.c, which needs it. One at a time, under attach_lock.
 */
#ifndef AMDKFD_HOLD_H
#define AMDKFD_HOLD_H

#include <linux/completion.h>
#include <linux/pci.h>
#include <linux/workqueue.h>

#include "amdgpu_bind.h"

#define MAX_DEVICES 64

/* An item on a reset domain's ordered work queue: while it lies there, no recovery begins. */
struct parking {
	struct work_struct work;
	struct workqueue_struct *wq;
	struct completion parked, release;
};

struct held_device {
	struct device *dev;
	struct amdgpu_device *adev;
	bool awake;
	/* handover.c's: amdgpu wanted it reset while it changed hands. */
	bool wants_reset;
	/* handover.c's: a KFD had it when it changed hands. */
	bool had_kfd;
};

struct holding {
	/* All that amdgpu could drive. */
	struct pci_dev *locked[MAX_DEVICES];
	/* Those that it does, in the order in which they were bound. */
	struct held_device device[MAX_DEVICES];
	struct parking parking[MAX_DEVICES];
	unsigned int locks, devices, parkings;
	unsigned int sleep_flags;
};
extern struct holding held;

/* Over the devices that are held. */
#define for_each_held(each) \
	for ((each) = held.device; (each) < held.device + held.devices; (each)++)

/*
 * Holds the devices. Waits for a probe that is under way, and for a reset that runs, but not for
 * long: -EBUSY, and refuse() knows why. For HOLD_TIME no reset begins that runs on amdgpu's queues;
 * a PCI error's recovery does not, and may be under way.
 */
int hold(void);
void let_go(void);

/*
 * Calls look for each device that amdgpu drives, locked, one after the other; waits for a probe
 * that is under way. The first error, or the sum of what look returned.
 */
int for_each_device(int (*look)(struct amdgpu_device *adev));

#endif
