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
 *   the merged one in place, wherever else it is mapped.
 *
 * The second may happen at any time, also between the look and migrate_vma_setup(): there this does
 * not exclude it.
 */
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/pagewalk.h>
#include <linux/static_call.h>
#include <linux/swap.h>
/* After mm.h and swap.h, which it needs. */
#include <linux/leafops.h>

#include "merged.h"

/* The kernel does not export it. */
DEFINE_STATIC_CALL_NULL(walk_pages, walk_page_range_vma);

int amdkfd_merged_bind(unsigned long (*lookup)(const char *name), const char **missing)
{
	static const char name[] = "walk_page_range_vma";
	unsigned long at = lookup(name);

	if (!at) {
		*missing = name;
		return -ENOENT;
	}
	static_call_update(walk_pages, (void *)at);
	return 0;
}

bool amdkfd_may_be_collected(const struct vm_area_struct *vma)
{
	return !(vma->vm_flags & (VM_MERGEABLE | VM_SPECIAL | VM_HUGETLB)) && !vma_is_dax(vma);
}

struct run {
	unsigned long start, end;
};

/* What is large is not merged, nor does a page of the swap come there. */
static int pass_large(pmd_t *pmd, unsigned long address, unsigned long next, struct mm_walk *walk)
{
	const pmd_t entry = pmdp_get_lockless(pmd);

	if (!pmd_present(entry) || pmd_leaf(entry))
		walk->action = ACTION_CONTINUE;
	return 0;
}

static bool may_be_merged(pte_t entry)
{
	if (pte_none(entry))
		return false;
	if (!pte_present(entry))
		return !softleaf_is_device_private(softleaf_from_pte(entry));
	if (pte_special(entry) || !pfn_valid(pte_pfn(entry)))
		return false;
	return folio_test_ksm(page_folio(pfn_to_page(pte_pfn(entry))));
}

/* Under the page table's lock. */
static int end_run(pte_t *pte, unsigned long address, unsigned long next, struct mm_walk *walk)
{
	struct run *run = walk->private;

	if (!may_be_merged(ptep_get(pte)))
		return 0;
	if (address > run->start) {
		run->end = address;
		return 1;
	}
	run->start = next;
	return 0;
}

/*
 * What is no merged page and no entry of the swap, and is not shared by fork(), does not become a
 * merged page as long as mmap_lock is held: for that it must have been one when the flag was taken
 * away.
 */
bool amdkfd_next_run(struct vm_area_struct *vma, unsigned long *start, unsigned long *end)
{
	static const struct mm_walk_ops ops = {
		.pmd_entry = pass_large,
		.pte_entry = end_run,
		.walk_lock = PGWALK_RDLOCK,
	};
	struct run run = { *start, *end };

	if (run.start >= run.end || !amdkfd_may_be_collected(vma))
		return false;
	if (static_call(walk_pages)(vma, run.start, run.end, &ops, &run) < 0)
		return false;
	*start = run.start;
	*end = run.end;
	return run.start < run.end;
}
