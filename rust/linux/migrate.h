/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Moving pages between system memory and device pages (linux/migrate.h), as functions that Rust can
 * call. A page is meant by its page frame number (pfn); 0 is none.
 */
#ifndef AMDKFD_LINUX_MIGRATE_H
#define AMDKFD_LINUX_MIGRATE_H

#include <linux/types.h>

struct folio;
struct page;
struct vm_area_struct;
struct vm_fault;

/*
 * A device page of ours has this bit set in its zone_device_data, beside the address of its owner;
 * one of the C driver's has not.
 */
#define AMDKFD_PAGE_TAG 1UL

/*
 * Whether a device page is ours. In a folio that the kernel has split the tag does not tell: then
 * it is among those that amdkfd_migration_take() has made a large one of.
 */
bool amdkfd_is_our_page(const struct page *page);

/* Pages of a large folio: 2 MiB. */
#define AMDKFD_LARGE_PAGES 512UL

/* Looks up what this needs of the kernel, before it is used. -ENOENT: it has not @missing. */
int amdkfd_migration_bind(unsigned long (*lookup)(const char *name), const char **missing);
/* The same of what large folios need beside that, which it may do without. */
void amdkfd_large_bind(unsigned long (*lookup)(const char *name));
/* Whether there can be large folios of device pages: else amdkfd_migration_take() gets none. */
bool amdkfd_large_is_possible(void);
/*
 * Whether large pages may be made in a mapping: neither it (MADV_NOHUGEPAGE) nor its process
 * (PR_SET_THP_DISABLE) forbids them. Under mmap_lock.
 */
bool amdkfd_large_is_allowed(struct vm_area_struct *vma);
/*
 * Makes single pages of the large folio that a device page is in. Nothing is done if it is in none.
 * Sleeps, for a grace period of RCU as well. -EAGAIN: somebody uses it, for some time already.
 */
int amdkfd_large_split(unsigned long pfn);
/*
 * The same of the folio that the page is in which is touched: the fault has its lock and the only
 * reference beside those of where it is mapped. Both are the page's afterwards.
 */
int amdkfd_fault_split(const struct vm_fault *fault);

/* Pages that were collected: locked, and mapped nowhere, until the end. */
struct amdkfd_migration;

#define AMDKFD_MIGRATE_FROM_DEVICE	1
#define AMDKFD_MIGRATE_LARGE		2

/*
 * Collects the pages of [start, end) of @vma: those in system memory, and places without a page, in
 * what amdkfd_next_run() has said; or (FROM_DEVICE) the device pages of @owner. Under mmap_lock.
 * LARGE: a large folio of which all is there is one place, and so is as much without a page; else
 * the kernel splits such folios, but those of device pages, which stay. Of device pages all is to
 * be of that folio, and -E2BIG says that it has to be split before, since others have mapped it as
 * well, or what it is mapped in.
 * @fault: in which fault of one of these pages this is, or NULL.
 */
int amdkfd_migration_collect(struct vm_area_struct *vma, unsigned long start, unsigned long end,
			     u32 what, void *owner, struct vm_fault *fault,
			     struct amdkfd_migration **out);
/* Collects those of @count device pages that somebody has, whoever that is. */
int amdkfd_migration_collect_pages(const unsigned long *pfns, u32 count,
				   struct amdkfd_migration **out);
/* How many there are at most. */
u32 amdkfd_migration_count(const struct amdkfd_migration *migration);

#define AMDKFD_MIGRATE_STAYS	0	/* not collected */
#define AMDKFD_MIGRATE_EMPTY	1	/* a place that reads as zeros */
#define AMDKFD_MIGRATE_SYSTEM	2
#define AMDKFD_MIGRATE_DEVICE	3
/* What is at @index, and its page. */
u32 amdkfd_migration_source(const struct amdkfd_migration *migration, u32 index,
			    unsigned long *pfn);
/* How many pages what is at @index has: where there are several the places behind are empty. */
u32 amdkfd_migration_size(const struct amdkfd_migration *migration, u32 index);
/* Where it goes. */
unsigned long amdkfd_migration_target(const struct amdkfd_migration *migration, u32 index);
/*
 * New pages in system memory as the target of device pages, dirty from the first: these may be
 * copied from now on. 0: no memory, or a large page is not allowed where it goes.
 */
unsigned long amdkfd_migration_allocate(struct amdkfd_migration *migration, u32 index);
/*
 * Free device pages as the target, from @pfn on, which are @owner's from here on. -EBUSY: they are
 * not free, and stay whose they are. Of a large folio: there must be a place for its owner, from
 * amdkfd_large_reserve() until amdkfd_large_forget(), when no page of it is in use any more.
 */
int amdkfd_migration_take(struct amdkfd_migration *migration, u32 index, unsigned long pfn,
			  void *owner);
/* -EBUSY: there is such a place already, whose memory is not free. */
int amdkfd_large_reserve(unsigned long pfn);
/* For who has reserved it. Never sleeps. */
void amdkfd_large_forget(unsigned long pfn);
/* Moves what has a target, and lets all pages go. Returns how many have moved. */
u32 amdkfd_migration_commit(struct amdkfd_migration *migration);
/* Lets all pages go, unless that was done, and frees it. */
void amdkfd_migration_end(struct amdkfd_migration *migration);

/*
 * The owner of a device page of ours, or NULL, and its number: the page of a fault, or the first of
 * its folio if that is mapped as a whole; and the first of @count that are being freed.
 */
void *amdkfd_fault_owner(const struct vm_fault *fault, unsigned long *pfn);
void *amdkfd_folio_owner(const struct folio *folio, unsigned long *pfn, u32 *count);
/* The address of that page. @large: its folio is mapped as a whole. */
unsigned long amdkfd_fault_place(const struct vm_fault *fault, bool *large);
/* Whether the page is of a large folio that is mapped page by page. */
bool amdkfd_fault_is_part(const struct vm_fault *fault);

/*
 * Whether the large folio that a device page is in is being copied to its target: no device may be
 * shown it until it is there. Legal in any context.
 */
bool amdkfd_large_is_leaving(unsigned long pfn);
/*
 * Waits while the page's folio is leaving. 0: it was not; 1: it is over, and whoever has touched it
 * is to do that again; -EINTR: the task is being killed.
 */
int amdkfd_fault_wait(const struct vm_fault *fault);
/* In a fault that is to be tried again: sleeps. False: the task is being killed. */
bool amdkfd_fault_pause(unsigned int milliseconds);

/* Copies a page in system memory to or from @memory. */
void amdkfd_copy_page(unsigned long pfn, void *memory, bool from_page);
/* The owner of the device page that was collected at @index, and its number; NULL: not ours. */
void *amdkfd_migration_owner(const struct amdkfd_migration *migration, u32 index,
			     unsigned long *pfn);
/* The page of zeros. */
unsigned long amdkfd_zero_page(void);
/* Fills a page in system memory with zeros. */
void amdkfd_clear_page(unsigned long pfn);

#endif
