/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef AMDKFD_LINUX_HMM_H
#define AMDKFD_LINUX_HMM_H

#include <linux/types.h>

struct mmu_interval_notifier;
struct vm_area_struct;

/*
 * Brings the pages of [start, end) of an address space in, for a device: pfns gets an HMM entry for
 * each. Under mmap_lock, and in an interval that notifier has; seq: what mmu_interval_read_begin()
 * said. -EBUSY: they were taken away meanwhile; -EFAULT: one cannot be had.
 */
int amdkfd_hmm_fault(struct mmu_interval_notifier *notifier, unsigned long seq,
		     unsigned long start, unsigned long end, bool write, void *owner,
		     unsigned long *pfns);
/*
 * Whether it is a device's, or of a file in persistent memory. pfn: HMM's, of a page that was
 * there, and may be another's by now.
 */
bool amdkfd_is_device_page(unsigned long pfn);
/*
 * A device may write to these from now on: what is to be kept of them is not what a file or the
 * swap has. pfns: HMM's, as amdkfd_hmm_fault() filled them in, none of which was taken away since;
 * the caller keeps the notifier from returning.
 */
void amdkfd_hmm_mark_dirty(const unsigned long *pfns, u32 count);
/* The same, but no page is brought in: the entry of one that is not there is not valid. */
int amdkfd_hmm_look(struct mmu_interval_notifier *notifier, unsigned long seq,
		    unsigned long start, unsigned long end, void *owner, unsigned long *pfns);
/* memalloc_noreclaim_save() and its end. */
unsigned int amdkfd_noreclaim_save(void);
void amdkfd_noreclaim_restore(unsigned int flags);
/* Whether there may be pages in it: false of a private mapping that nobody has touched yet. */
bool amdkfd_may_have_pages(struct vm_area_struct *vma);
/* Whether a program brings its missing pages in (userfaultfd): HMM does not wait for it. */
bool amdkfd_is_supplied_by_user(struct vm_area_struct *vma);
/* Whether it is the heap that the program started with, or its first thread's stack. */
bool amdkfd_is_heap_or_stack(struct vm_area_struct *vma);

#endif
