/* SPDX-License-Identifier: GPL-2.0-only */
/* A large folio of device pages goes home where it is mapped: for migrate.c alone. */
#ifndef AMDKFD_LINUX_WHOLE_H
#define AMDKFD_LINUX_WHOLE_H

#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/xarray.h>

/* Those of migrate.c, by the number of 2 MiB: a folio that leaves has a mark there. */
extern struct xarray amdkfd_large_owners;

/* How long a large folio's lock is waited for, in jiffies, of one that may leave or be split. */
#define AMDKFD_LARGE_PATIENCE HZ
/* Waits for a moment. False: it is @until already, or the task is being killed. */
bool amdkfd_large_pause(unsigned long until);

/* One that is collected, until the end. */
struct amdkfd_whole {
	struct folio *folio;		/* NULL: there is none */
	struct vm_area_struct *vma;
	unsigned long address;
	pmd_t *pmd;
	void *owner;
	bool lock_is_faults;
	bool is_locked;			/* by whom it is collected */
	bool leaves;
	struct mmu_notifier_range range;
};

/* Looks up what this needs of the kernel. False: it has not all. */
bool amdkfd_whole_bind(unsigned long (*lookup)(const char *name));
/*
 * Collects the large folio of @owner's that is mapped at [start, end) of @vma as a whole, and
 * nowhere else. Under mmap_lock. 1: done; 0: there is none; -E2BIG: there is, and it has to be
 * split before; -EINTR: the task is being killed. @fault: as for amdkfd_migration_collect().
 */
int amdkfd_whole_collect(struct amdkfd_whole *whole, struct vm_area_struct *vma,
			 unsigned long start, unsigned long end, void *owner,
			 const struct vm_fault *fault);
/*
 * It leaves: from now on it may be copied. No device has it, nor is shown it; who touches it, or
 * would collect it, waits for the end, and its lock is free.
 */
void amdkfd_whole_leave(struct amdkfd_whole *whole);
/*
 * Maps @target, a new folio of that size which is locked and has its contents, in its place. False:
 * it is not mapped there any more.
 */
bool amdkfd_whole_move(struct amdkfd_whole *whole, struct folio *target);
/* Lets it go. Its memory is free afterwards if it has moved. */
void amdkfd_whole_end(struct amdkfd_whole *whole);

#endif
