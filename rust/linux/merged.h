/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which pages of a mapping may be collected to go to a device: none that KSM has merged.
 */
#ifndef AMDKFD_LINUX_MERGED_H
#define AMDKFD_LINUX_MERGED_H

#include <linux/types.h>

struct vm_area_struct;

/* Looks up what this needs of the kernel, before it is used. -ENOENT: it has not @missing. */
int amdkfd_merged_bind(unsigned long (*lookup)(const char *name), const char **missing);
/* Whether there may be any such pages in a mapping. Under mmap_lock. */
bool amdkfd_may_be_collected(const struct vm_area_struct *vma);
/*
 * Makes [*@start, *@end), which lies in @vma, the first pages of it that may be collected at once,
 * under the same mmap_lock. Places without a page are among them, and device pages. False: none.
 * What is in the swap stays there, as with migrate_vma_setup(). Takes page tables' locks.
 *
 * *@stopped: whether this has KSM's lock, false for the first run. With what is true after the last
 * one amdkfd_end_runs() is called, by the same task, when they have been collected. A page that a
 * child or parent has, too, is copied where the lock is not to be had.
 */
bool amdkfd_next_run(struct vm_area_struct *vma, unsigned long *start, unsigned long *end,
		     bool *stopped);
void amdkfd_end_runs(bool stopped);

#endif
