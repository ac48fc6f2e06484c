// SPDX-License-Identifier: GPL-2.0-only
/*
 * migrate.h in terms of the kernel, whose structures for this the Rust bindings lack.
 */
#include <linux/gfp.h>
#include <linux/highmem.h>
#include <linux/huge_mm.h>
#include <linux/jiffies.h>
#include <linux/memremap.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/rcupdate.h>
#include <linux/rmap.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/static_call.h>
#include <linux/xarray.h>

#include "features_generated.h"
#include "merged.h"
#include "migrate.h"
#include "whole.h"

static_assert(AMDKFD_LARGE_PAGES == 1UL << (PMD_SHIFT - PAGE_SHIFT));

/* Of a large folio: one that a page directory's entry maps. */
#define LARGE_ORDER (PMD_SHIFT - PAGE_SHIFT)

/* Of mm/internal.h. */
struct anon_vma *folio_get_anon_vma(const struct folio *folio);
void __put_anon_vma(struct anon_vma *anon_vma);

/* What the kernel does not export of what is needed to unmap pages. */
DEFINE_STATIC_CALL_NULL(get_anon_vma, folio_get_anon_vma);
DEFINE_STATIC_CALL_NULL(free_anon_vma, __put_anon_vma);
DEFINE_STATIC_CALL_NULL(unmap_folio, try_to_migrate);
DEFINE_STATIC_CALL_NULL(map_again, remove_migration_ptes);

struct amdkfd_migration {
	struct migrate_vma args;	/* vma: NULL if pages were collected by number */
	struct amdkfd_whole whole;	/* with a folio: then the kernel has collected nothing */
	bool committed;
	unsigned int kept;		/* references of anon_vmas */
	unsigned long entries[];	/* sources, targets; without a VMA those as well */
};

static struct amdkfd_migration *new_migration(unsigned long count, unsigned int arrays)
{
	struct amdkfd_migration *migration;

	migration = kvzalloc(struct_size(migration, entries, arrays * count), GFP_KERNEL);
	if (!migration)
		return NULL;
	migration->args.src = migration->entries;
	migration->args.dst = migration->entries + count;
	migration->args.npages = count;
	return migration;
}

int amdkfd_migration_collect(struct vm_area_struct *vma, unsigned long start, unsigned long end,
			     u32 what, void *owner, struct vm_fault *fault,
			     struct amdkfd_migration **out)
{
	unsigned long count = (end - start) >> PAGE_SHIFT;
	struct amdkfd_migration *migration;
	int ret;

	if (end <= start)
		return -EINVAL;
	migration = new_migration(count, 2);
	if (!migration)
		return -ENOMEM;
	migration->args.vma = vma;
	migration->args.start = start;
	migration->args.end = end;
	migration->args.pgmap_owner = owner;
	if (what == AMDKFD_MIGRATE_LARGE)
		migration->args.flags = MIGRATE_VMA_SELECT_SYSTEM | MIGRATE_VMA_SELECT_COMPOUND;
	else if (what & AMDKFD_MIGRATE_FROM_DEVICE)
		migration->args.flags = MIGRATE_VMA_SELECT_DEVICE_PRIVATE;
	else
		migration->args.flags = MIGRATE_VMA_SELECT_SYSTEM;
	migration->args.fault_page = fault ? fault->page : NULL;
	ret = 0;
	if (what == (AMDKFD_MIGRATE_FROM_DEVICE | AMDKFD_MIGRATE_LARGE))
		ret = amdkfd_whole_collect(&migration->whole, vma, start, end, owner, fault);
	if (ret > 0)
		migration->args.src[0] = migrate_pfn(folio_pfn(migration->whole.folio)) |
					 MIGRATE_PFN_MIGRATE | MIGRATE_PFN_COMPOUND;
	else if (!ret)
		ret = migrate_vma_setup(&migration->args);
	if (ret < 0) {
		kvfree(migration);
		return ret;
	}
	*out = migration;
	return 0;
}

/* What was collected: the kernel may have found fewer than there was room for. */
u32 amdkfd_migration_count(const struct amdkfd_migration *migration)
{
	return migration->args.npages;
}

u32 amdkfd_migration_source(const struct amdkfd_migration *migration, u32 index,
			    unsigned long *pfn)
{
	unsigned long entry = migration->args.src[index];
	struct page *page = migrate_pfn_to_page(entry);

	*pfn = 0;
	if (!(entry & MIGRATE_PFN_MIGRATE))
		return AMDKFD_MIGRATE_STAYS;
	if (!page)
		return AMDKFD_MIGRATE_EMPTY;
	*pfn = page_to_pfn(page);
	return is_zone_device_page(page) ? AMDKFD_MIGRATE_DEVICE : AMDKFD_MIGRATE_SYSTEM;
}

u32 amdkfd_migration_size(const struct amdkfd_migration *migration, u32 index)
{
	if (migration->args.src[index] & MIGRATE_PFN_COMPOUND)
		return min_t(unsigned long, AMDKFD_LARGE_PAGES, migration->args.npages - index);
	return 1;
}

static void put_anon_vma(struct anon_vma *anon_vma)
{
	if (atomic_dec_and_test(&anon_vma->refcount))
		static_call(free_anon_vma)(anon_vma);
}

/* Puts it when the migration ends. Most pages have the same one as that before. */
static void keep_anon_vma(struct amdkfd_migration *migration, struct anon_vma *anon_vma)
{
	unsigned long *kept = migration->entries + 2 * migration->args.npages + migration->kept;

	if (migration->kept && kept[-1] == (unsigned long)anon_vma) {
		put_anon_vma(anon_vma);
		return;
	}
	*kept = (unsigned long)anon_vma;
	migration->kept++;
}

static void put_anon_vmas(struct amdkfd_migration *migration)
{
	unsigned long *kept = migration->entries + 2 * migration->args.npages;

	while (migration->kept)
		put_anon_vma((struct anon_vma *)kept[--migration->kept]);
}

/*
 * Locks a device page, or the large folio that begins with it, and unmaps it. Its entry, or 0.
 *
 * By the anon_vma those are found who have mapped it, when it goes back there or its target does.
 * They may unmap it or end meanwhile, for there is no mmap_lock here that would keep them: what
 * migrate_device_pfns() has unmapped might be looked for in an anon_vma that is free. So there is
 * a reference, as in the kernel's migrations by page, from before the page is unmapped. The page's
 * lock keeps its anon_vma the same, and that by which KSM finds its own pages.
 *
 * A large one is unmapped page by page, and so it is mapped afterwards: zap_huge_pmd_folio() takes
 * a page directory's migration entry of a device folio for a mapping, and would take away that and
 * a reference, which are gone already.
 */
static unsigned long collect_page(struct amdkfd_migration *migration, unsigned long pfn, u32 most)
{
	struct folio *folio = folio_get_nontail_page(pfn_to_page(pfn));
	struct anon_vma *anon_vma;

	if (!folio)
		return 0;
	if (!folio_trylock(folio))
		goto put;
	if (folio_nr_pages(folio) > most || amdkfd_large_is_leaving(pfn))
		goto unlock;
	if (!folio_test_ksm(folio)) {
		anon_vma = static_call(get_anon_vma)(folio);
		/* It is mapped nowhere, nor will be: whoever has it is about to let it go. */
		if (!anon_vma)
			goto unlock;
		keep_anon_vma(migration, anon_vma);
	}
	static_call(unmap_folio)(folio, TTU_SPLIT_HUGE_PMD);
	if (!folio_mapped(folio))
		return migrate_pfn(pfn) | MIGRATE_PFN_MIGRATE |
		       (folio_test_large(folio) ? MIGRATE_PFN_COMPOUND : 0);
	static_call(map_again)(folio, folio, 0);
unlock:
	folio_unlock(folio);
put:
	folio_put(folio);
	return 0;
}

int amdkfd_migration_collect_pages(const unsigned long *pfns, u32 count,
				   struct amdkfd_migration **out)
{
	struct amdkfd_migration *migration = new_migration(count, 3);
	u32 i = 0;

	if (!migration)
		return -ENOMEM;
	while (i < count) {
		migration->args.src[i] = collect_page(migration, pfns[i], count - i);
		i += amdkfd_migration_size(migration, i);
	}
	*out = migration;
	return 0;
}

unsigned long amdkfd_migration_target(const struct amdkfd_migration *migration, u32 index)
{
	struct page *page = migrate_pfn_to_page(migration->args.dst[index]);

	return page ? page_to_pfn(page) : 0;
}

/*
 * When the kernel splits a large folio (a part of it is unmapped), only the operation folio_split
 * of the pages' device would hear of it, and the device's operations are C's, which have none. So
 * each page has its zone_device_data from the first; but where struct folio has something of its
 * own, in the first of the tail pages, that is gone. Whose these are is found here: the owners of
 * the large folios that there are or were, by their number of 2 MiB.
 */
DEFINE_XARRAY(amdkfd_large_owners);

#define FOLIO_PAGES (sizeof(struct folio) / sizeof(struct page))
static_assert(sizeof(struct folio) % sizeof(struct page) == 0);

static notrace bool may_be_overwritten(unsigned long pfn)
{
	unsigned long place = pfn % AMDKFD_LARGE_PAGES;

	return place > 0 && place < FOLIO_PAGES;
}

/* An entry that is there is its maker's, whether it has an owner already or not. */
int amdkfd_large_reserve(unsigned long pfn)
{
	return xa_insert(&amdkfd_large_owners, pfn >> LARGE_ORDER, NULL, GFP_KERNEL);
}

void amdkfd_large_forget(unsigned long pfn)
{
	xa_erase(&amdkfd_large_owners, pfn >> LARGE_ORDER);
}

/* What large folios need beside that. */
DEFINE_STATIC_CALL_NULL(split_unmapped, folio_split_unmapped);
DEFINE_STATIC_CALL_NULL(alloc_deferred, folio_memcg_alloc_deferred);
static bool are_large_bound;

void amdkfd_large_bind(unsigned long (*lookup)(const char *name))
{
	unsigned long split = lookup("folio_split_unmapped");
	unsigned long alloc = lookup("folio_memcg_alloc_deferred");

	if (!split || !alloc || !amdkfd_whole_bind(lookup))
		return;
	static_call_update(split_unmapped, (void *)split);
	static_call_update(alloc_deferred, (void *)alloc);
	WRITE_ONCE(are_large_bound, true);
}

int amdkfd_migration_bind(unsigned long (*lookup)(const char *name), const char **missing)
{
	static const char *const names[] = {
		"folio_get_anon_vma", "__put_anon_vma", "try_to_migrate", "remove_migration_ptes",
	};
	unsigned long at[ARRAY_SIZE(names)];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(names); i++) {
		at[i] = lookup(names[i]);
		if (!at[i]) {
			*missing = names[i];
			return -ENOENT;
		}
	}
	static_call_update(get_anon_vma, (void *)at[0]);
	static_call_update(free_anon_vma, (void *)at[1]);
	static_call_update(unmap_folio, (void *)at[2]);
	static_call_update(map_again, (void *)at[3]);
	return amdkfd_merged_bind(lookup, missing);
}

/*
 * Of a large folio that is mapped page by page, some kernels' migrate_vma_split_folio() takes its
 * reference when nothing keeps it any more: it may be free by then, and would be freed twice.
 */
bool amdkfd_large_is_possible(void)
{
#ifdef HAVE_SPLIT_TAKES_REFERENCE
	return READ_ONCE(are_large_bound);
#else
	return false;
#endif
}

/*
 * While a folio is split its tail pages have no page map for a moment. hmm_vma_handle_pte() follows
 * that of any device page that it finds in a page table, whose lock it does not take: whoever calls
 * it, amdgpu for user memory as well, it must not have found one of that folio. It reads an entry
 * and follows it in one RCU read-side critical section (pte_offset_map()). So a folio of ours is
 * split when it has been mapped nowhere for a grace period, by split_large() alone.
 *
 * The kernel would split one by itself, with no such pause, in migrate_vma_setup(). It splits none
 * under writeback (folio_check_splittable()), so a large folio of ours is marked as that from the
 * moment on at which it can be found. Nobody waits for the mark to go: those who wait for writeback
 * come by a list of pages, the page cache, or entries that map memory. A migration of the folio
 * takes it away, under the folio's lock, for its metadata cannot be moved with it.
 */
static bool is_large_device(const struct folio *folio)
{
	return folio_test_large(folio) && folio_is_device_private(folio);
}

static void forbid_split(unsigned long entry)
{
	struct page *page = migrate_pfn_to_page(entry);

	if (page && is_large_device(page_folio(page)))
		folio_test_set_writeback(page_folio(page));
}

static void allow_move(unsigned long entry)
{
	struct page *page = migrate_pfn_to_page(entry);

	if (page && is_large_device(page_folio(page)))
		folio_test_clear_writeback(page_folio(page));
}

/*
 * Splits a large folio, which is locked, into single pages. Whoever calls this has the only
 * reference beside those of its mappings. Lock and reference are those of @kept afterwards, one of
 * its pages; or, after an error, the folio's as before.
 */
static int split_large(struct folio *folio, struct page *kept)
{
	struct page *first = folio_page(folio, 0);
	long i, count = folio_nr_pages(folio);
	struct anon_vma *anon_vma;
	int ret = -EAGAIN;

	if (folio_expected_ref_count(folio) != folio_ref_count(folio) - 1)
		return ret;
	/*
	 * By this the folio's mappings are found, to put it back there. They may go while it is
	 * unmapped: not every caller has the mmap_lock, and none that of all who map it.
	 */
	anon_vma = static_call(get_anon_vma)(folio);
	if (!anon_vma)
		return ret;
	static_call(unmap_folio)(folio, TTU_SPLIT_HUGE_PMD | TTU_SYNC);
	if (!folio_mapped(folio)) {
		synchronize_rcu_expedited();
		ret = static_call(split_unmapped)(folio, 0);
	}
	if (ret) {
		static_call(map_again)(folio, folio, 0);
		put_anon_vma(anon_vma);
		return ret;
	}
	folio_test_clear_writeback(folio);
	for (i = 0; i < count; i++) {
		folio = page_folio(first + i);
		static_call(map_again)(folio, folio, 0);
	}
	put_anon_vma(anon_vma);
	/* Each has a lock and a reference. What is mapped nowhere is freed here. */
	for (i = 0; i < count; i++) {
		if (first + i == kept)
			continue;
		unlock_page(first + i);
		put_page(first + i);
	}
	return 0;
}

/*
 * Nobody who has no lock of an address space gets a large folio home as single pages
 * (migrate_device_pages()), and there may be no large page in system memory.
 */
int amdkfd_large_split(unsigned long pfn)
{
	const unsigned long until = jiffies + AMDKFD_LARGE_PATIENCE;
	struct page *page = pfn_to_page(pfn);
	struct folio *folio;
	int ret = 0;

	for (;;) {
		folio = page_folio(page);
		if (!folio_test_large(folio) || !folio_try_get(folio))
			return 0;
		if (folio_trylock(folio)) {
			if (!amdkfd_large_is_leaving(pfn))
				break;
			folio_unlock(folio);
		}
		/* With one more reference whoever is splitting it could not. */
		folio_put(folio);
		if (!amdkfd_large_pause(until))
			return -EAGAIN;
	}
	/* It may have been split before there was a reference, and another made of its pages. */
	if (page_folio(page) == folio && is_large_device(folio))
		ret = split_large(folio, folio_page(folio, 0));
	folio_unlock(folio);
	folio_put(folio);
	return ret;
}

int amdkfd_fault_split(const struct vm_fault *fault)
{
	struct folio *folio = page_folio(fault->page);

	return folio_test_large(folio) ? split_large(folio, fault->page) : 0;
}

/*
 * In the list of folios that are to be split the system's has a place with those of the memory
 * cgroup that it is charged to, which is the source's: who makes a large folio sees to that list.
 */
static bool can_be_listed(struct folio *source)
{
	return !folio_memcg_charged(source) || !static_call(alloc_deferred)(source);
}

/*
 * For a large folio: whoever has touched it may wait for memory to be made free, but none is taken
 * from others for it, as for those that the kernel makes where the user has asked for them.
 */
#define GFP_LARGE (GFP_TRANSHUGE | __GFP_NORETRY)

bool amdkfd_large_is_allowed(struct vm_area_struct *vma)
{
	return !vma_thp_disabled(vma, vma->vm_flags, false);
}

unsigned long amdkfd_migration_allocate(struct amdkfd_migration *migration, u32 index)
{
	struct migrate_vma *args = &migration->args;
	unsigned long address = args->start + ((unsigned long)index << PAGE_SHIFT);
	bool large = args->src[index] & MIGRATE_PFN_COMPOUND;
	gfp_t gfp = large ? GFP_LARGE : GFP_HIGHUSER_MOVABLE;
	unsigned int order = large ? LARGE_ORDER : 0;
	struct folio *folio;

	if (!(args->src[index] & MIGRATE_PFN_MIGRATE))
		return 0;
	if (large && args->vma && !amdkfd_large_is_allowed(args->vma))
		return 0;
	if (large && !can_be_listed(page_folio(migrate_pfn_to_page(args->src[index]))))
		return 0;
	if (args->vma)
		folio = vma_alloc_folio(gfp, order, args->vma, address);
	else
		folio = folio_alloc(gfp, order);
	if (!folio)
		return 0;
	folio_lock(folio);
	/*
	 * The device may have written to what comes: not even a page that was given up before it
	 * went there (MADV_FREE) may be dropped as one that nobody has written to since.
	 */
	folio_set_dirty(folio);
	args->dst[index] = migrate_pfn(folio_pfn(folio)) | (large ? MIGRATE_PFN_COMPOUND : 0);
	/* Not before: others who touch it have references then, with which it cannot be split. */
	if (migration->whole.folio)
		amdkfd_whole_leave(&migration->whole);
	return folio_pfn(folio);
}

static int take_large(struct amdkfd_migration *migration, u32 index, unsigned long pfn,
		      void *owner)
{
	struct page *page = pfn_to_page(pfn);
	u32 i;

	if (!IS_ALIGNED(pfn, AMDKFD_LARGE_PAGES))
		return -EINVAL;
	for (i = 0; i < AMDKFD_LARGE_PAGES; i++)
		if (page_ref_count(page + i))
			return -EBUSY;
	/* It was reserved: nothing is allocated. */
	if (xa_err(xa_store(&amdkfd_large_owners, pfn >> LARGE_ORDER, owner, GFP_NOWAIT)))
		return -ENOMEM;
	for (i = 0; i < AMDKFD_LARGE_PAGES; i++)
		page[i].zone_device_data = (void *)((unsigned long)owner | AMDKFD_PAGE_TAG);
	zone_device_page_init(page, page_pgmap(page), LARGE_ORDER);
	folio_set_large_rmappable(page_folio(page));
	migration->args.dst[index] = migrate_pfn(pfn) | MIGRATE_PFN_COMPOUND;
	return 0;
}

int amdkfd_migration_take(struct amdkfd_migration *migration, u32 index, unsigned long pfn,
			  void *owner)
{
	struct page *page = pfn_to_page(pfn);

	if (migration->args.src[index] & MIGRATE_PFN_COMPOUND)
		return take_large(migration, index, pfn, owner);
	/*
	 * A child of a process of the C amdkfd's may have it still: C lets amdgpu have the memory
	 * below such pages. Nobody gets the first reference of a page but who has its memory.
	 */
	if (page_ref_count(page))
		return -EBUSY;
	page->zone_device_data = (void *)((unsigned long)owner | AMDKFD_PAGE_TAG);
	zone_device_page_init(page, page_pgmap(page), 0);
	migration->args.dst[index] = migrate_pfn(pfn);
	return 0;
}

/* The target is let go: what is at @index stays. */
static void give_up(struct amdkfd_migration *migration, u32 index)
{
	struct page *page = migrate_pfn_to_page(migration->args.dst[index]);

	if (!page)
		return;
	migration->args.dst[index] = 0;
	unlock_page(page);
	put_page(page);
}

static void finalize(struct amdkfd_migration *migration)
{
	struct migrate_vma *args = &migration->args;

	migration->committed = true;
	if (migration->whole.folio)
		amdkfd_whole_end(&migration->whole);
	else if (args->vma)
		migrate_vma_finalize(args);
	else
		migrate_device_finalize(args->src, args->dst, args->npages);
}

static u32 commit_whole(struct amdkfd_migration *migration)
{
	struct page *page = migrate_pfn_to_page(migration->args.dst[0]);
	u32 moved = 0;

	if (page && amdkfd_whole_move(&migration->whole, page_folio(page)))
		moved = AMDKFD_LARGE_PAGES;
	/* Where it was not taken it is freed. */
	give_up(migration, 0);
	finalize(migration);
	return moved;
}

u32 amdkfd_migration_commit(struct amdkfd_migration *migration)
{
	struct migrate_vma *args = &migration->args;
	unsigned long i;
	u32 moved = 0;

	if (migration->whole.folio)
		return commit_whole(migration);
	for (i = 0; i < args->npages; i++)
		if (args->dst[i] && args->src[i] & MIGRATE_PFN_COMPOUND)
			allow_move(args->src[i]);
	if (args->vma)
		migrate_vma_pages(args);
	else
		migrate_device_pages(args->src, args->dst, args->npages);
	/* What has not moved, and what has come. All are still locked. */
	for (i = 0; i < args->npages; i++) {
		if (args->src[i] & MIGRATE_PFN_COMPOUND)
			forbid_split(args->src[i]);
		if (args->dst[i] & MIGRATE_PFN_COMPOUND)
			forbid_split(args->dst[i]);
	}
	finalize(migration);
	/* A target that was not taken is freed by now. */
	for (i = 0; i < args->npages; i++) {
		if (args->dst[i] && args->src[i] & MIGRATE_PFN_MIGRATE)
			moved += args->dst[i] & MIGRATE_PFN_COMPOUND ? AMDKFD_LARGE_PAGES : 1;
	}
	return moved;
}

void amdkfd_migration_end(struct amdkfd_migration *migration)
{
	u32 i;

	if (!migration->committed) {
		for (i = 0; i < migration->args.npages; i++)
			give_up(migration, i);
		finalize(migration);
	}
	put_anon_vmas(migration);
	kvfree(migration);
}

static notrace void *owner_at(const struct page *page)
{
	unsigned long pfn = page_to_pfn(page), data;
	void *owner;

	if (may_be_overwritten(pfn)) {
		owner = xa_load(&amdkfd_large_owners, pfn >> LARGE_ORDER);
		if (owner)
			return owner;
	}
	data = (unsigned long)READ_ONCE(page->zone_device_data);
	return data & AMDKFD_PAGE_TAG ? (void *)(data & ~AMDKFD_PAGE_TAG) : NULL;
}

notrace bool amdkfd_is_our_page(const struct page *page)
{
	return owner_at(page);
}

static void *owner_of(const struct page *page, unsigned long *pfn)
{
	if (!is_device_private_page(page))
		return NULL;
	*pfn = page_to_pfn(page);
	return owner_at(page);
}

void *amdkfd_fault_owner(const struct vm_fault *fault, unsigned long *pfn)
{
	return owner_of(fault->page, pfn);
}

/* Where a page table maps single pages the kernel says which one it was (do_swap_page()). */
unsigned long amdkfd_fault_place(const struct vm_fault *fault, bool *large)
{
	*large = !fault->pte && folio_test_large(page_folio(fault->page));
	return fault->address & (*large ? PMD_MASK : PAGE_MASK);
}

bool amdkfd_fault_is_part(const struct vm_fault *fault)
{
	return fault->pte && folio_test_large(page_folio(fault->page));
}

bool amdkfd_fault_pause(unsigned int milliseconds)
{
	schedule_timeout_killable(msecs_to_jiffies(milliseconds));
	return !fatal_signal_pending(current);
}

void *amdkfd_folio_owner(const struct folio *folio, unsigned long *pfn, u32 *count)
{
	*count = folio_nr_pages(folio);
	return owner_of(&folio->page, pfn);
}

void *amdkfd_migration_owner(const struct amdkfd_migration *migration, u32 index,
			     unsigned long *pfn)
{
	unsigned long entry = migration->args.src[index];
	struct page *page = migrate_pfn_to_page(entry);

	return page && entry & MIGRATE_PFN_MIGRATE ? owner_of(page, pfn) : NULL;
}

unsigned long amdkfd_zero_page(void)
{
	return page_to_pfn(ZERO_PAGE(0));
}

void amdkfd_clear_page(unsigned long pfn)
{
	clear_highpage(pfn_to_page(pfn));
}

void amdkfd_copy_page(unsigned long pfn, void *memory, bool from_page)
{
	if (from_page)
		memcpy_from_page(memory, pfn_to_page(pfn), 0, PAGE_SIZE);
	else
		memcpy_to_page(pfn_to_page(pfn), 0, memory, PAGE_SIZE);
}
