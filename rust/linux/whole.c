// SPDX-License-Identifier: GPL-2.0-only
/*
 * A large folio of device pages goes home with no migration entry.
 *
 * migrate_vma_setup() would replace the device's entry in the page directory by a migration entry,
 * and there is code that takes that for the device's: zap_huge_pmd_folio() takes away a mapping
 * and a reference of the folio, which are gone. So the device's entry stays until the page is
 * copied, and then one of the new page takes its place, under the lock of the page directory.
 *
 * That is all it takes as long as
 *
 * - nobody writes to the page meanwhile. No processor can by the device's entry: it faults, and who
 *   handles that finds the folio leaving. The devices that have it lose it by the notifiers, after
 *   the folio was marked as leaving: who shows pages to a device asks for the mark, under the lock
 *   by which they are taken away. The mark goes when the new page is there, behind another section
 *   of the notifiers: who has found the device's page before, and sees no mark any more, sees that.
 * - nobody else has mapped it. There is one mapping, here; mmap_lock is held, so there is no fork,
 *   nor does the mapping end, move or get other rights. What needs less than that lock (above all
 *   MADV_DONTNEED) changes the entry under the lock of the page directory. Then it is not the
 *   folio's any more, which is found, and the copy is dropped.
 *
 * Neither a section of the notifiers nor the folio's lock lasts as long as the copy does: all who
 * wait for any section wait for the last one that is open in the address space, and who touches the
 * page and does not get the lock tries again at once. A folio that leaves is locked for a moment
 * only, by who sees that it does: nobody unmaps, splits or collects it.
 *
 * The new page is charged to the cgroup that the other one was, and else is like one that the
 * kernel makes for a fault.
 */
#include <linux/jiffies.h>
#include <linux/memcontrol.h>
#include <linux/pagemap.h>
#include <linux/rmap.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/static_call.h>
#include <linux/swap.h>
#include <linux/userfaultfd_k.h>
#include <linux/wait_bit.h>
#include <linux/xarray.h>

#include "features_generated.h"
#include "migrate.h"
#include "whole.h"

/* A folio that leaves. Who sets it has the folio's lock, and keeps it by a reference until then. */
#define LEAVING XA_MARK_0

bool amdkfd_large_is_leaving(unsigned long pfn)
{
	return xa_get_mark(&amdkfd_large_owners, pfn / AMDKFD_LARGE_PAGES, LEAVING);
}

static bool is_leaving(const struct folio *folio)
{
	return amdkfd_large_is_leaving(folio_pfn(folio));
}

int amdkfd_fault_wait(const struct vm_fault *fault)
{
	/* There is a reference: it stays the page's folio. */
	struct folio *folio = page_folio(fault->page);
	int ret;

	if (!is_leaving(folio))
		return 0;
	folio_unlock(folio);
	ret = wait_var_event_killable(folio, !is_leaving(folio));
	folio_lock(folio);
	return ret ? -EINTR : 1;
}

bool amdkfd_large_pause(unsigned long until)
{
	schedule_timeout_killable(1);
	return time_before(jiffies, until) && !fatal_signal_pending(current);
}

#if defined(HAVE_SPLIT_TAKES_REFERENCE) && defined(CONFIG_MEMCG) && \
	defined(CONFIG_MMU_NOTIFIER) && defined(CONFIG_ARCH_HAS_PMD_SOFTLEAVES)
#include <linux/leafops.h>

DEFINE_STATIC_CALL_NULL(begin_notifiers, __mmu_notifier_invalidate_range_start);
DEFINE_STATIC_CALL_NULL(end_notifiers, __mmu_notifier_invalidate_range_end);
DEFINE_STATIC_CALL_NULL(move_charge, mem_cgroup_migrate);
DEFINE_STATIC_CALL_NULL(add_rmap, folio_add_new_anon_rmap);
DEFINE_STATIC_CALL_NULL(remove_rmap, folio_remove_rmap_pmd);

bool amdkfd_whole_bind(unsigned long (*lookup)(const char *name))
{
	unsigned long begin = lookup("__mmu_notifier_invalidate_range_start");
	unsigned long end = lookup("__mmu_notifier_invalidate_range_end");
	unsigned long charge = lookup("mem_cgroup_migrate");
	unsigned long add = lookup("folio_add_new_anon_rmap");
	unsigned long remove = lookup("folio_remove_rmap_pmd");

	if (!begin || !end || !charge || !add || !remove)
		return false;
	static_call_update(begin_notifiers, (void *)begin);
	static_call_update(end_notifiers, (void *)end);
	static_call_update(move_charge, (void *)charge);
	static_call_update(add_rmap, (void *)add);
	static_call_update(remove_rmap, (void *)remove);
	return true;
}

/* Page directories stay while mmap_lock is held. */
static pmd_t *find_pmd(struct mm_struct *mm, unsigned long address)
{
	pgd_t *pgd = pgd_offset(mm, address);
	p4d_t *p4d;
	pud_t *pud;

	if (!pgd_present(*pgd))
		return NULL;
	p4d = p4d_offset(pgd, address);
	if (!p4d_present(*p4d))
		return NULL;
	pud = pud_offset(p4d, address);
	if (!pud_present(*pud) || pud_leaf(*pud))
		return NULL;
	return pmd_offset(pud, address);
}

/* The folio whose device entry that is, or NULL. */
static struct folio *folio_of(pmd_t entry)
{
	const softleaf_t leaf = softleaf_from_pmd(entry);

	return softleaf_is_device_private(leaf) ? softleaf_to_folio(leaf) : NULL;
}

/* That which is mapped here now, with a reference. */
static struct folio *get_folio(const struct amdkfd_whole *whole, const void *owner)
{
	spinlock_t *lock = pmd_lock(whole->vma->vm_mm, whole->pmd);
	struct folio *folio = folio_of(*whole->pmd);

	if (folio && folio->pgmap->owner != owner)
		folio = NULL;
	if (folio)
		folio_get(folio);
	spin_unlock(lock);
	return folio;
}

/*
 * Gets and locks it, when it does not leave already. Waits for that with no reference: with one it
 * could not be split. Nor does it wait for the lock: without a reference that may be another's by
 * then, who does not know that somebody waits.
 */
static int lock_folio(struct amdkfd_whole *whole, const void *owner, const struct vm_fault *fault)
{
	const unsigned long until = jiffies + AMDKFD_LARGE_PATIENCE;
	struct folio *folio;

	for (;;) {
		folio = get_folio(whole, owner);
		if (!folio)
			return 0;
		whole->lock_is_faults = fault && page_folio(fault->page) == folio;
		if (whole->lock_is_faults || folio_trylock(folio)) {
			if (!is_leaving(folio)) {
				whole->folio = folio;
				return 1;
			}
			if (!whole->lock_is_faults)
				folio_unlock(folio);
		}
		folio_put(folio);
		/* Who has a folio's lock waits for no other one. */
		if (fault)
			return 0;
		if (!amdkfd_large_pause(until))
			return fatal_signal_pending(current) ? -EINTR : 0;
	}
}

/* After it has left, or not. */
static void lock_again(struct amdkfd_whole *whole)
{
	/* Nobody has it for long. */
	if (!whole->is_locked)
		folio_lock(whole->folio);
	whole->is_locked = true;
}

static void unlock_folio(struct amdkfd_whole *whole)
{
	if (!whole->lock_is_faults)
		folio_unlock(whole->folio);
	folio_put(whole->folio);
	whole->folio = NULL;
}

/* Whether it is the folio's entry still. */
static bool is_mapped(const struct amdkfd_whole *whole)
{
	spinlock_t *lock = pmd_lock(whole->vma->vm_mm, whole->pmd);
	bool is_mapped = folio_of(*whole->pmd) == whole->folio;

	spin_unlock(lock);
	return is_mapped;
}

static void begin(struct amdkfd_whole *whole)
{
	struct mmu_notifier_range *range = &whole->range;
	struct mm_struct *mm = whole->vma->vm_mm;

	mmu_notifier_range_init_owner(range, MMU_NOTIFY_MIGRATE, 0, mm, whole->address,
				      whole->address + PMD_SIZE, whole->owner);
	range->flags |= MMU_NOTIFIER_RANGE_BLOCKABLE;
	might_sleep();
	if (mm_has_notifiers(mm))
		static_call(begin_notifiers)(range);
}

/* None has come or gone: that takes mmap_lock. */
static void end(struct amdkfd_whole *whole)
{
	might_sleep();
	if (mm_has_notifiers(whole->range.mm))
		static_call(end_notifiers)(&whole->range);
}

int amdkfd_whole_collect(struct amdkfd_whole *whole, struct vm_area_struct *vma,
			 unsigned long start, unsigned long end_, void *owner,
			 const struct vm_fault *fault)
{
	int ret;

	if (!IS_ALIGNED(start, PMD_SIZE) || end_ - start != PMD_SIZE)
		return 0;
	if (start < vma->vm_start || end_ > vma->vm_end)
		return 0;
	whole->vma = vma;
	whole->address = start;
	whole->pmd = find_pmd(vma->vm_mm, start);
	if (!whole->pmd || !pmd_is_device_private_entry(pmdp_get_lockless(whole->pmd)))
		return 0;
	/* What more there is to see to of these the kernel does not export. */
	if (vma->vm_flags & (VM_LOCKED | VM_SHADOW_STACK) || userfaultfd_armed(vma))
		return -E2BIG;
	ret = lock_folio(whole, owner, fault);
	if (ret <= 0)
		return ret;
	whole->is_locked = true;
	whole->owner = owner;
	if (!is_mapped(whole))
		ret = 0;
	else if (folio_mapcount(whole->folio) != 1)
		ret = -E2BIG;
	if (ret <= 0)
		unlock_folio(whole);
	return ret;
}

void amdkfd_whole_leave(struct amdkfd_whole *whole)
{
	xa_set_mark(&amdkfd_large_owners, folio_pfn(whole->folio) / AMDKFD_LARGE_PAGES, LEAVING);
	whole->leaves = true;
	whole->is_locked = false;
	folio_unlock(whole->folio);
	/* That may last: queues leave the hardware. Who touches the page meanwhile sleeps. */
	begin(whole);
	end(whole);
}

static void stop_leaving(struct amdkfd_whole *whole)
{
	if (!whole->leaves)
		return;
	whole->leaves = false;
	xa_clear_mark(&amdkfd_large_owners, folio_pfn(whole->folio) / AMDKFD_LARGE_PAGES, LEAVING);
	/* Who waits is seen, or sees that. */
	smp_mb();
	wake_up_var(whole->folio);
}

/* Under the folio's lock, in a section of the notifiers. */
static bool replace(struct amdkfd_whole *whole, struct folio *target)
{
	struct vm_area_struct *vma = whole->vma;
	struct mm_struct *mm = vma->vm_mm;
	struct folio *folio = whole->folio;
	pmd_t old, entry;
	spinlock_t *lock;

	/* What was copied is seen before the entry is. */
	__folio_mark_uptodate(target);
	lock = pmd_lock(mm, whole->pmd);
	old = *whole->pmd;
	if (folio_of(old) != folio) {
		spin_unlock(lock);
		return false;
	}
	entry = folio_mk_pmd(target, READ_ONCE(vma->vm_page_prot));
	if (pmd_swp_soft_dirty(old))
		entry = pmd_mksoft_dirty(entry);
	if (softleaf_is_device_private_write(softleaf_from_pmd(old)))
		entry = pmd_mkwrite_novma(entry);
	/* In this order: what is mapped counts for the cgroup that it is charged to. */
	static_call(remove_rmap)(folio, folio_page(folio, 0), vma);
	/* A charge is moved between two that are anonymous. */
	WRITE_ONCE(target->mapping, folio->mapping);
	static_call(move_charge)(folio, target);
	static_call(add_rmap)(target, vma, whole->address, RMAP_EXCLUSIVE);
	folio_get(target);
	set_pmd_at(mm, whole->address, whole->pmd, entry);
	update_mmu_cache_pmd(vma, whole->address, whole->pmd);
	spin_unlock(lock);
	folio_add_lru(target);
	/* The mapping's. */
	folio_put(folio);
	return true;
}

bool amdkfd_whole_move(struct amdkfd_whole *whole, struct folio *target)
{
	bool has_moved;

	begin(whole);
	lock_again(whole);
	has_moved = replace(whole, target);
	end(whole);
	return has_moved;
}

void amdkfd_whole_end(struct amdkfd_whole *whole)
{
	lock_again(whole);
	stop_leaving(whole);
	unlock_folio(whole);
}

#else

bool amdkfd_whole_bind(unsigned long (*lookup)(const char *name))
{
	return false;
}

int amdkfd_whole_collect(struct amdkfd_whole *whole, struct vm_area_struct *vma,
			 unsigned long start, unsigned long end, void *owner,
			 const struct vm_fault *fault)
{
	return 0;
}

void amdkfd_whole_leave(struct amdkfd_whole *whole)
{
}

bool amdkfd_whole_move(struct amdkfd_whole *whole, struct folio *target)
{
	return false;
}

void amdkfd_whole_end(struct amdkfd_whole *whole)
{
}

#endif
