// SPDX-License-Identifier: GPL-2.0-only
/*
 * Heterogeneous memory management (HMM) for Rust: structures that its bindings lack.
 */
#include <linux/hmm.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/sched/mm.h>
#include <linux/userfaultfd_k.h>

#include "hmm.h"

/*
 * Of a large folio of device pages the kernel (hmm_vma_handle_absent_pmd()) counts from its first
 * page on, wherever in it the range begins. Where it counts right, and of the system's pages, this
 * changes nothing: what is mapped so is aligned, in memory and where it is mapped. The pages are
 * not asked whose they are: nothing keeps them, and of those of a folio that is being split it
 * cannot be said.
 */
static void place_within_large(const struct hmm_range *range)
{
	const unsigned long pages = 1UL << (PMD_SHIFT - PAGE_SHIFT);
	unsigned long address, *pfn = range->hmm_pfns;

	for (address = range->start; address < range->end; address += PAGE_SIZE, pfn++) {
		if (!(*pfn & HMM_PFN_VALID) || *pfn & HMM_PFN_ERROR ||
		    hmm_pfn_to_map_order(*pfn) != PMD_SHIFT - PAGE_SHIFT)
			continue;
		*pfn = (*pfn & ~(pages - 1)) | ((address >> PAGE_SHIFT) & (pages - 1));
	}
}

static int fill_range(struct hmm_range *range)
{
	int ret = hmm_range_fault(range);

	if (!ret)
		place_within_large(range);
	return ret;
}

int amdkfd_hmm_fault(struct mmu_interval_notifier *notifier, unsigned long seq,
		     unsigned long start, unsigned long end, bool write, void *owner,
		     unsigned long *pfns)
{
	struct hmm_range range = {
		.notifier = notifier,
		.notifier_seq = seq,
		.start = start,
		.end = end,
		.hmm_pfns = pfns,
		.default_flags = HMM_PFN_REQ_FAULT | (write ? HMM_PFN_REQ_WRITE : 0),
		.dev_private_owner = owner,
	};

	return fill_range(&range);
}

bool amdkfd_is_device_page(unsigned long pfn)
{
	/*
	 * Nothing keeps the page: whatever else it has may be another's by now. One of a file in
	 * persistent memory (DAX) counts, too.
	 */
	return is_zone_device_page(hmm_pfn_to_page(pfn));
}

/*
 * HMM asks that a page may be written, not that it is dirty: one that the CPU has only read since
 * it came from the swap, of a tmpfs file or one that was given up (MADV_FREE) has a clean entry
 * that may be written. Reclaim would drop what the device has written there. Before anybody cleans
 * a page the notifier takes it. Does not sleep: zap_pte_range() does it under a page table's lock.
 */
void amdkfd_hmm_mark_dirty(const unsigned long *pfns, u32 count)
{
	struct folio *folio, *last = NULL;
	u32 i;

	for (i = 0; i < count; i++) {
		if (!(pfns[i] & HMM_PFN_WRITE))
			continue;
		folio = page_folio(hmm_pfn_to_page(pfns[i]));
		if (folio == last || folio_test_dirty(folio))
			continue;
		last = folio;
		/* Nobody else has to hear of an anonymous one. */
		if (folio_test_anon(folio))
			folio_set_dirty(folio);
		else
			folio_mark_dirty(folio);
	}
}

int amdkfd_hmm_look(struct mmu_interval_notifier *notifier, unsigned long seq,
		    unsigned long start, unsigned long end, void *owner, unsigned long *pfns)
{
	struct hmm_range range = {
		.notifier = notifier,
		.notifier_seq = seq,
		.start = start,
		.end = end,
		.hmm_pfns = pfns,
		.dev_private_owner = owner,
	};

	return fill_range(&range);
}

unsigned int amdkfd_noreclaim_save(void)
{
	return memalloc_noreclaim_save();
}

void amdkfd_noreclaim_restore(unsigned int flags)
{
	memalloc_noreclaim_restore(flags);
}

bool amdkfd_may_have_pages(struct vm_area_struct *vma)
{
	return !vma_is_anonymous(vma) || READ_ONCE(vma->anon_vma);
}

bool amdkfd_is_supplied_by_user(struct vm_area_struct *vma)
{
	return userfaultfd_armed(vma);
}

bool amdkfd_is_heap_or_stack(struct vm_area_struct *vma)
{
	return vma_is_initial_heap(vma) || vma_is_initial_stack(vma);
}
