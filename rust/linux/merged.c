// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages that KSM has merged stay where they are.
 *
 * migrate_vma_*() takes them, and puts the number of a device page into KSM's tree. ksmd reads that
 * page, which the kernel has no mapping of; and it passes over entries of device pages when it
 * looks for who has one, so that nobody finds them any more. Nor may merged pages be collected and
 * stay: an entry that migrate_vma_setup() has replaced is put back by asking KSM.
 *
 * In a mapping with VM_MERGEABLE any page may be merged at any time. In another one there is a
 * merged page if
 *
 * - it was in the swap cache while the flag was taken away, and was touched then: break_ksm()
 *   passes over entries of the swap;
 * - it is shared by fork() with a mapping that is mergeable: KSM makes the first of two equal pages
 *   the merged one in place, at any time, wherever else it is mapped.
 *
 * So merged pages are left out, and what is in the swap and may have been one. And where there are
 * pages that others may have as well, KSM merges nothing until they are collected: whoever merges
 * has KSM's lock. It is not waited for, as ksmd waits for mmap_lock with it. While ksmd has it, who
 * shares a page is given one of his own. What is his alone, in a mapping that is not mergeable,
 * does not become a merged page as long as mmap_lock is held.
 */
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/pagewalk.h>
#include <linux/static_call.h>
#include <linux/swap.h>
/* After mm.h and swap.h, which it needs. */
#include <linux/leafops.h>

#include "merged.h"

/* The kernel does not export it. */
DEFINE_STATIC_CALL_NULL(walk_pages, walk_page_range_vma);

/* ksm_thread_mutex. NULL: it has no name in this kernel, and counts as taken. */
static struct mutex *merging;

int amdkfd_merged_bind(unsigned long (*lookup)(const char *name), const char **missing)
{
	static const char name[] = "walk_page_range_vma";
	unsigned long at = lookup(name);

	if (!at) {
		*missing = name;
		return -ENOENT;
	}
	static_call_update(walk_pages, (void *)at);
	merging = (struct mutex *)lookup("ksm_thread_mutex");
	return 0;
}

bool amdkfd_may_be_collected(const struct vm_area_struct *vma)
{
	return !(vma->vm_flags & (VM_MERGEABLE | VM_SPECIAL | VM_HUGETLB)) && !vma_is_dax(vma);
}

/* Of a walk: what ends it. */
#define RUN_ENDS 1
#define IS_SHARED 2

struct run {
	unsigned long start, end;
	unsigned long shared;	/* what was found to be shared last */
	bool may_share;		/* KSM merges nothing now */
	bool fails;		/* nobody is given a page of his own */
};

/* What lies there is not collected. */
static int leave_out(struct run *run, unsigned long address, unsigned long next)
{
	if (address > run->start) {
		run->end = address;
		return RUN_ENDS;
	}
	run->start = next;
	return 0;
}

/* Under the page table's lock. */
static int look_at(struct page *page, struct run *run, unsigned long address, unsigned long next)
{
	const struct folio *folio = page_folio(page);

	if (!IS_ENABLED(CONFIG_KSM) || !folio_test_anon(folio))
		return 0;
	if (folio_test_ksm(folio))
		return leave_out(run, address, next);
	if (PageAnonExclusive(page) || run->may_share)
		return 0;
	if (run->fails || run->shared == address)
		return leave_out(run, address, next);
	run->shared = address;
	return IS_SHARED;
}

/* Nothing large is merged, but it may be split for that. */
static int look_at_large(pmd_t *pmd, unsigned long address, unsigned long next,
			 struct mm_walk *walk)
{
	spinlock_t *lock = pmd_lock(walk->mm, pmd);
	const pmd_t entry = pmdp_get(pmd);
	int ret = 0;

	if (!pmd_present(entry) || pmd_leaf(entry))
		walk->action = ACTION_CONTINUE;
	if (pmd_present(entry) && pmd_leaf(entry))
		ret = look_at(pmd_page(entry), walk->private, address, next);
	else if (pmd_is_migration_entry(entry))
		ret = leave_out(walk->private, address, next);
	spin_unlock(lock);
	return ret;
}

/*
 * An entry of the swap that is exclusive is of a page that was nobody else's: so it is when it is
 * back. Until then migrate_vma_setup() passes over it.
 */
static bool may_be_merged(pte_t entry)
{
	const softleaf_t leaf = softleaf_from_pte(entry);

	return !softleaf_is_device_private(leaf) &&
	       !(softleaf_is_swap(leaf) && pte_swp_exclusive(entry));
}

/* Under the page table's lock. */
static int look_at_page(pte_t *pte, unsigned long address, unsigned long next,
			struct mm_walk *walk)
{
	const pte_t entry = ptep_get(pte);

	if (pte_none(entry))
		return 0;
	if (!pte_present(entry))
		return may_be_merged(entry) ? leave_out(walk->private, address, next) : 0;
	if (pte_special(entry) || !pfn_valid(pte_pfn(entry)))
		return 0;
	return look_at(pfn_to_page(pte_pfn(entry)), walk->private, address, next);
}

/*
 * From here on a page that is shared may be collected: KSM merges nothing, or whoever has the
 * mapping has a copy, as if he had written to it. Where neither is possible it is left out.
 */
static void stop_sharing(struct vm_area_struct *vma, struct run *run)
{
	const unsigned int flags = FAULT_FLAG_UNSHARE | FAULT_FLAG_REMOTE;

	if (merging && mutex_trylock(merging))
		run->may_share = true;
	else if (fixup_user_fault(vma->vm_mm, run->shared, flags, NULL))
		/* No memory is left, or nothing may be read there: so it is with the next one. */
		run->fails = true;
}

bool amdkfd_next_run(struct vm_area_struct *vma, unsigned long *start, unsigned long *end,
		     bool *stopped)
{
	static const struct mm_walk_ops ops = {
		.pmd_entry = look_at_large,
		.pte_entry = look_at_page,
		.walk_lock = PGWALK_RDLOCK,
	};
	struct run run = { *start, *end, .shared = ULONG_MAX, .may_share = *stopped };
	unsigned long from = run.start;
	int ret = 0;

	if (run.start >= run.end || !amdkfd_may_be_collected(vma))
		return false;
	/* Each page is found to be shared once at most. */
	while (from < run.end) {
		ret = static_call(walk_pages)(vma, from, run.end, &ops, &run);
		if (ret != IS_SHARED)
			break;
		stop_sharing(vma, &run);
		from = run.shared;
	}
	*stopped = run.may_share;
	if (ret < 0)
		return false;
	*start = run.start;
	*end = run.end;
	return run.start < run.end;
}

void amdkfd_end_runs(bool stopped)
{
	if (stopped)
		mutex_unlock(merging);
}
