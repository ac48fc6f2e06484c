// SPDX-License-Identifier: GPL-2.0-only
/*
 * bridge.h in terms of amdgpu: the user's own pages (USERPTR). When the kernel takes them back
 * amdgpu has the process's queues stop, and a worker of amdgpu's shows the new ones and lets the
 * queues go on. Until then the page tables have the old ones. So jobs of the render node in the
 * VM, which nobody stops, are waited for, and the next one takes the entries out.
 *
 * amdgpu asks for the address space of the process's leader (info->pid, usertask of a buffer) where
 * it means the one that the pages are of. The leader can end before other threads do, and run
 * another program while a child keeps the memory.
 */
#include <linux/cleanup.h>
#include <linux/delay.h>
#include <linux/dma-resv.h>
#include <linux/hashtable.h>
#include <linux/idr.h>
#include <linux/pid.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "amdgpu_bind.h"
#include "bridge.h"
#include "bridge_vm.h"

/* Milliseconds; amdgpu's AMDGPU_USERPTR_RESTORE_DELAY_MS. */
#define DELAY 1

static bool has_mm(struct pid *pid)
{
	struct task_struct *task = get_pid_task(pid, PIDTYPE_PID);
	struct mm_struct *mm = task ? get_task_mm(task) : NULL;

	if (task)
		put_task_struct(task);
	if (mm)
		mmput(mm);
	return mm;
}

/* The name of a task whose memory that is, or NULL. */
static struct pid *task_with(const struct mm_struct *mm)
{
	struct task_struct *process, *thread;
	struct pid *pid = NULL;

	rcu_read_lock();
	for_each_process_thread(process, thread) {
		if (READ_ONCE(thread->mm) != mm || thread->flags & PF_KTHREAD)
			continue;
		pid = get_task_pid(thread, PIDTYPE_PID);
		if (pid)
			goto found;
	}
found:
	rcu_read_unlock();
	return pid;
}

/*
 * amdgpu's worker does nothing, and is not called again, where the task that the info names has no
 * memory any more; whose it is that it has it does not look at. Has the info name a task that has
 * the process's. Whether it is another one than before. For the worker; others read the name under
 * the lock.
 */
static bool name_living_task(struct amdkfd_process_info *info)
{
	struct pid *pid = NULL;

	if (has_mm(info->pid))
		return false;
	/* Without a VM the fence may be gone. */
	mutex_lock(&info->lock);
	if (info->n_vms)
		pid = task_with(info->eviction_fence->mm);
	if (pid)
		swap(info->pid, pid);
	mutex_unlock(&info->lock);
	if (!pid)
		return false;
	put_pid(pid);
	return true;
}

/* A ring of AQL packets is mapped twice. */
#define ENTRIES 2

/* As long as a buffer may be mapped into a VM: by these. */
struct shown {
	struct list_head list;
	struct bridge_vm *vm;
	struct kfd_mem_attachment *entries[ENTRIES];
};

/*
 * Of a buffer, from its first mapping on. lock: of shown. It is taken where memory is reclaimed, so
 * nothing waits for memory under it; it is had as long as jobs are waited for.
 */
struct user_pages {
	struct hlist_node node;
	struct amdgpu_bo *bo;		/* with a reference: nobody has its address next */
	struct mutex lock;
	struct list_head shown;
};

static DEFINE_HASHTABLE(all_pages, 8);
static DEFINE_SPINLOCK(all_lock);

/* It is there until the buffer is freed, before which nobody is told any more that pages go. */
static struct user_pages *find(const struct amdgpu_bo *bo)
{
	struct user_pages *pages;

	guard(spinlock)(&all_lock);
	hash_for_each_possible(all_pages, pages, node, (unsigned long)bo)
		if (pages->bo == bo)
			return pages;
	return NULL;
}

static struct shown *find_shown(const struct user_pages *pages, const struct bridge_vm *vm)
{
	struct shown *shown;

	list_for_each_entry(shown, &pages->shown, list)
		if (shown->vm == vm)
			return shown;
	return NULL;
}

static struct user_pages *make_pages(struct amdgpu_bo *bo)
{
	struct user_pages *pages = kzalloc(sizeof(*pages), GFP_KERNEL_ACCOUNT);

	if (!pages)
		return NULL;
	pages->bo = amdgpu_call(amdgpu_bo_ref)(bo);
	mutex_init(&pages->lock);
	INIT_LIST_HEAD(&pages->shown);
	guard(spinlock)(&all_lock);
	hash_add(all_pages, &pages->node, (unsigned long)bo);
	return pages;
}

static bool shows_user_pages(const struct kgd_mem *mem)
{
	return mem->alloc_flags & KFD_IOC_ALLOC_MEM_FLAGS_USERPTR;
}

int bridge_user_pages_prepare(struct bridge_vm *vm, struct kgd_mem *mem)
{
	struct user_pages *pages;
	struct shown *shown;

	if (!shows_user_pages(mem))
		return 0;
	pages = find(mem->bo) ?: make_pages(mem->bo);
	if (!pages)
		return -ENOMEM;
	/* Nobody else adds one: the caller's table of buffers is locked. */
	if (find_shown(pages, vm))
		return 0;
	shown = kzalloc(sizeof(*shown), GFP_KERNEL_ACCOUNT);
	if (!shown)
		return -ENOMEM;
	shown->vm = vm;
	guard(mutex)(&pages->lock);
	list_add_tail(&shown->list, &pages->shown);
	return 0;
}

/* At once, whatever jobs do: these have a fault. Where its tables are away there is nothing. */
static void take_out(struct shown *shown)
{
	struct bridge_vm *vm = shown->vm;
	unsigned int flags = memalloc_noreclaim_save();
	struct kfd_mem_attachment *entry;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(shown->entries); i++) {
		entry = shown->entries[i];
		if (entry && READ_ONCE(entry->is_mapped))
			bridge_pages_unmap(vm->adev, vm, entry->va >> PAGE_SHIFT,
					   entry->bo_va->base.bo->tbo.base.size >> PAGE_SHIFT);
	}
	bridge_vm_flush_tlb(vm->adev, vm, TLB_FLUSH_HEAVYWEIGHT, vm->adev->gfx.xcc_mask);
	memalloc_noreclaim_restore(flags);
}

void bridge_user_pages_leave(struct bridge_vm *vm, struct kgd_mem *mem)
{
	struct user_pages *pages = shows_user_pages(mem) ? find(mem->bo) : NULL;
	struct shown *shown;

	if (!pages)
		return;
	mutex_lock(&pages->lock);
	shown = find_shown(pages, vm);
	if (shown)
		list_del(&shown->list);
	mutex_unlock(&pages->lock);
	kfree(shown);
}

struct user_pages *bridge_user_pages_of(struct kgd_mem *mem)
{
	return shows_user_pages(mem) ? find(mem->bo) : NULL;
}

void bridge_user_pages_freed(struct user_pages *pages)
{
	struct shown *shown, *next;

	if (!pages)
		return;
	spin_lock(&all_lock);
	hash_del(&pages->node);
	spin_unlock(&all_lock);
	list_for_each_entry_safe(shown, next, &pages->shown, list)
		kfree(shown);
	amdgpu_call(amdgpu_bo_unref)(&pages->bo);
	mutex_destroy(&pages->lock);
	kfree(pages);
}

/* A GPU for which an IOMMU translates otherwise has a buffer of its own for another one's. */
static bool is_second(const struct amdgpu_bo *bo)
{
	return bo->tbo.type == ttm_bo_type_sg && bo->parent;
}

static const struct kgd_mem *user_memory_of(const struct amdgpu_bo *bo)
{
	const struct kgd_mem *mem = is_second(bo) ? bo->parent->kfd_bo : bo->kfd_bo;

	return mem && shows_user_pages(mem) ? mem : NULL;
}

/*
 * Somebody handles what was marked in a VM, whose root he has reserved. late: second buffers that
 * were marked meanwhile, under the VM's individual_lock: amdgpu would write what they were.
 */
struct handling {
	struct list_head list;
	const struct amdgpu_vm *vm;
	struct list_head late;
};

static LIST_HEAD(all_handling);
static DEFINE_SPINLOCK(handling_lock);

static struct list_head *late_of(const struct amdgpu_vm *vm)
{
	struct handling *handling;

	guard(spinlock)(&handling_lock);
	list_for_each_entry(handling, &all_handling, list)
		if (handling->vm == vm)
			return &handling->late;
	return NULL;
}

static void begin_handling(struct handling *handling, const struct amdgpu_vm *vm)
{
	handling->vm = vm;
	INIT_LIST_HEAD(&handling->late);
	guard(spinlock)(&handling_lock);
	list_add(&handling->list, &all_handling);
}

static void end_handling(struct handling *handling, struct amdgpu_vm *vm)
{
	guard(spinlock)(&vm->individual_lock);
	spin_lock(&handling_lock);
	list_del(&handling->list);
	spin_unlock(&handling_lock);
	list_splice(&handling->late, &vm->individual.needs_update);
}

/* Whoever submits a job looks at these, and comes again (amdgpu_cs_submit()). */
static void mark_moved(struct amdgpu_vm_bo_base *base)
{
	struct amdgpu_vm *vm = base->vm;
	struct list_head *late;

	guard(spinlock)(&vm->individual_lock);
	late = is_second(base->bo) ? late_of(vm) : NULL;
	base->moved = true;
	list_move(&base->vm_status, late ?: &vm->individual.needs_update);
}

static void mark_all(const struct shown *shown)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(shown->entries); i++)
		if (shown->entries[i])
			mark_moved(&shown->entries[i]->bo_va->base);
}

void bridge_user_pages_mapped(struct bridge_vm *vm, struct kgd_mem *mem)
{
	struct kfd_mem_attachment *entries[ENTRIES] = { };
	struct kfd_mem_attachment *entry;
	struct user_pages *pages;
	struct shown *shown;
	u32 found = 0;

	pages = shows_user_pages(mem) ? find(mem->bo) : NULL;
	if (!pages)
		return;
	mutex_lock(&mem->lock);
	list_for_each_entry(entry, &mem->attachments, list)
		if (entry->bo_va->base.vm == vm->vm && found < ARRAY_SIZE(entries))
			entries[found++] = entry;
	mutex_unlock(&mem->lock);
	guard(mutex)(&pages->lock);
	shown = find_shown(pages, vm);
	memcpy(shown->entries, entries, sizeof(entries));
	/*
	 * Who was told meanwhile did not know of these. The worker writes new ones, and queues run,
	 * only when it has had this lock: not meanwhile.
	 */
	guard(mutex)(&mem->process_info->notifier_lock);
	if (mem->invalid) {
		mark_all(shown);
		take_out(shown);
	}
}

void bridge_user_pages_unmapped(struct bridge_vm *vm, struct kgd_mem *mem)
{
	struct user_pages *pages = shows_user_pages(mem) ? find(mem->bo) : NULL;
	struct shown *shown;

	if (!pages)
		return;
	guard(mutex)(&pages->lock);
	shown = find_shown(pages, vm);
	if (shown)
		memset(shown->entries, 0, sizeof(shown->entries));
}

/* More than amdgpu gives a job, if nobody has asked for more. */
#define JOBS_TIMEOUT (10 * HZ)
/* Jobs of a VM that were so late are not waited for again for so long. */
#define LATE_TIME HZ

static bool is_late(const struct bridge_vm *vm)
{
	unsigned long late = READ_ONCE(vm->jobs_late);

	return late && time_before(jiffies, late);
}

/* Without one no job is submitted in its file. An idr on Linux 7.2. */
static bool has_context(const struct bridge_vm *vm)
{
	struct amdgpu_ctx_mgr *contexts = &container_of(vm->vm, struct amdgpu_fpriv, vm)->ctx_mgr;

	return !_Generic(&contexts->ctx_handles, struct idr *: idr_is_empty,
			 struct xarray *: xa_empty)(&contexts->ctx_handles);
}

/*
 * Who submits a job has the device's lock from when he looks for marks until it is known in the
 * reservation. So has amdgpu, for as long as it waits for jobs of anybody's when pages of buffers
 * of the render node's go: that is not for others to wait for.
 */
static bool lock_submissions(struct bridge_vm *vm, unsigned long until)
{
	while (!mutex_trylock(&vm->adev->notifier_lock)) {
		if (!has_context(vm) || time_after(jiffies, until))
			return false;
		usleep_range(500, 1000);
	}
	return true;
}

/* The fence of a job in the VM that has not ended, with a reference. Others are of its tables. */
static struct dma_fence *next_job(struct dma_resv *resv)
{
	struct dma_resv_iter cursor;
	struct dma_fence *fence;

	dma_resv_iter_begin(&cursor, resv, DMA_RESV_USAGE_READ);
	dma_resv_for_each_fence_unlocked(&cursor, fence)
		if (dma_resv_iter_usage(&cursor) != DMA_RESV_USAGE_KERNEL &&
		    !dma_fence_is_signaled(fence))
			break;
	dma_fence_get(fence);
	dma_resv_iter_end(&cursor);
	return fence;
}

static bool jobs_end(struct dma_resv *resv, unsigned long until)
{
	struct dma_fence *job;
	long left;

	while ((job = next_job(resv))) {
		left = until - jiffies;
		left = left > 0 ? dma_fence_wait_timeout(job, false, left) : 0;
		dma_fence_put(job);
		if (left <= 0)
			return false;
	}
	return true;
}

/*
 * As amdgpu does, but that it ends: then jobs have page faults, and so have, for a while, those of
 * the same VM behind other pages, for which nobody waits as long once more.
 */
static bool wait_for_jobs_of(struct bridge_vm *vm)
{
	struct dma_resv *resv = vm->vm->root.bo->tbo.base.resv;
	bool waits = has_context(vm) && !is_late(vm);
	unsigned long until = jiffies + (waits ? JOBS_TIMEOUT : 0);
	bool ended = false;

	/* Without a context it may have had one. */
	if (waits ? lock_submissions(vm, until) : mutex_trylock(&vm->adev->notifier_lock)) {
		ended = jobs_end(resv, until);
		mutex_unlock(&vm->adev->notifier_lock);
	}
	if (waits && !ended && time_after_eq(jiffies, until))
		WRITE_ONCE(vm->jobs_late, jiffies + LATE_TIME);
	return ended;
}

static void keep_from_jobs(struct user_pages *pages)
{
	struct shown *shown;

	guard(mutex)(&pages->lock);
	list_for_each_entry(shown, &pages->shown, list)
		mark_all(shown);
	list_for_each_entry(shown, &pages->shown, list)
		if (!wait_for_jobs_of(shown->vm))
			take_out(shown);
}

int bridge_user_pages_evict(struct mmu_interval_notifier *notifier, unsigned long seq,
			    struct kgd_mem *mem)
{
	/* The process's queues are asked to stop in it. */
	int ret = amdgpu_call(amdgpu_amdkfd_evict_userptr)(notifier, seq, mem);
	struct user_pages *pages = find(mem->bo);

	/* During a restore from a checkpoint amdgpu is not to know. */
	if (pages && READ_ONCE(mem->invalid))
		keep_from_jobs(pages);
	return ret;
}

/* Whether it shows pages that the kernel has taken back. Under the reservation of the VM's root. */
static bool shows_gone(const struct amdgpu_vm_bo_base *base)
{
	const struct kgd_mem *mem = base->bo ? user_memory_of(base->bo) : NULL;

	return mem && READ_ONCE(mem->invalid) &&
	       !container_of(base, struct amdgpu_bo_va, base)->cleared;
}

/* Whether it has old addresses, even when its buffer has new pages, until the worker writes it. */
static bool is_marked_second(const struct amdgpu_vm_bo_base *base)
{
	return base->bo && is_second(base->bo) && user_memory_of(base->bo);
}

static void move_if(bool (*is)(const struct amdgpu_vm_bo_base *), struct list_head *from,
		    struct list_head *to)
{
	struct amdgpu_vm_bo_base *base, *next;

	list_for_each_entry_safe(base, next, from, vm_status)
		if (is(base))
			list_move(&base->vm_status, to);
}

/* Behind the VM's jobs; the worker writes them again. all: not only those that are marked. */
static int clear_those(struct amdgpu_device *adev, struct amdgpu_vm *vm, bool all,
		       bool (*are)(const struct amdgpu_vm_bo_base *))
{
	struct dma_resv *resv = vm->root.bo->tbo.base.resv;
	struct amdgpu_vm_bo_base *base;
	LIST_HEAD(gone);
	int ret;

	/* Of what was unlocked, of this, and of its flush. */
	ret = dma_resv_reserve_fences(resv, 4);
	if (ret)
		return ret;
	spin_lock(&vm->individual_lock);
	if (all)
		move_if(are, &vm->individual.idle, &gone);
	move_if(are, &vm->individual.needs_update, &gone);
	/* Whoever marks one takes it off this list. */
	while (!ret && !list_empty(&gone)) {
		base = list_first_entry(&gone, struct amdgpu_vm_bo_base, vm_status);
		list_move(&base->vm_status, &vm->individual.idle);
		spin_unlock(&vm->individual_lock);
		ret = amdgpu_call(amdgpu_vm_bo_update)(adev, container_of(base, struct amdgpu_bo_va,
									  base), true);
		spin_lock(&vm->individual_lock);
		/* Else nobody would do it again. */
		if (ret)
			list_move(&base->vm_status, &gone);
	}
	list_splice(&gone, &vm->individual.needs_update);
	spin_unlock(&vm->individual_lock);
	return ret ?: dma_resv_reserve_fences(resv, BRIDGE_PLACES);
}

/*
 * Around amdgpu's: it writes what second buffers have, and may show others' old pages once more.
 * Pages that go from here on are marked, and who submits a job comes again.
 */
int bridge_user_pages_handle_moved(struct amdgpu_device *adev, struct amdgpu_vm *vm,
				   struct ww_acquire_ctx *ticket)
{
	const struct amdkfd_process_info *info = vm->process_info;
	struct handling handling;
	int ret = 0;

	begin_handling(&handling, vm);
	if (READ_ONCE(info->evicted_bos))
		ret = clear_those(adev, vm, false, is_marked_second);
	if (!ret)
		ret = amdgpu_call(amdgpu_vm_handle_moved)(adev, vm, ticket);
	end_handling(&handling, vm);
	if (!ret && READ_ONCE(info->evicted_bos))
		ret = clear_those(adev, vm, true, shows_gone);
	return ret;
}

/*
 * The worker has written entries for pages that have gone meanwhile, and jobs may have begun
 * before: these get to see them until it comes again. Second buffers have old ones even where it
 * has found new pages. It writes all of these once more, as they are marked.
 */
static void take_out_gone(struct amdkfd_process_info *info)
{
	struct user_pages *pages;
	struct shown *shown;
	struct kgd_mem *mem;

	guard(mutex)(&info->lock);
	list_for_each_entry(mem, &info->userptr_inval_list, validate_list) {
		pages = find(mem->bo);
		if (!pages)
			continue;
		guard(mutex)(&pages->lock);
		list_for_each_entry(shown, &pages->shown, list) {
			mark_all(shown);
			take_out(shown);
		}
	}
}

static void restore_user_pages(struct work_struct *work)
{
	struct delayed_work *delayed = to_delayed_work(work);
	struct amdkfd_process_info *info = container_of(delayed, struct amdkfd_process_info,
							restore_userptr_work);

	name_living_task(info);
	bound_amdgpu_amdkfd_restore_userptr_worker(work);
	if (READ_ONCE(info->evicted_bos)) {
		bridge_halves_restored(info);
		take_out_gone(info);
	}
	/* It may have ended before amdgpu came to ask. */
	if (READ_ONCE(info->evicted_bos) && name_living_task(info))
		queue_delayed_work(system_freezable_wq, delayed, msecs_to_jiffies(DELAY));
}

void bridge_user_pages_begin(struct amdkfd_process_info *info)
{
	info->restore_userptr_work.work.func = restore_user_pages;
}

void bridge_user_pages_end(struct amdkfd_process_info *info)
{
	cancel_delayed_work_sync(&info->restore_userptr_work);
	info->restore_userptr_work.work.func = bound_amdgpu_amdkfd_restore_userptr_worker;
}

struct amdkfd_process_info *bridge_user_pages_restored(void)
{
	struct work_struct *work = current_work();

	if (!work || (work->func != restore_user_pages &&
		      work->func != bound_amdgpu_amdkfd_restore_userptr_worker))
		return NULL;
	return container_of(to_delayed_work(work), struct amdkfd_process_info,
			    restore_userptr_work);
}

void bridge_user_pages_forget(struct kgd_mem *mem)
{
	struct amdkfd_process_info *info = mem->process_info;
	struct amdgpu_hmm_range *range;

	if (!shows_user_pages(mem))
		return;
	mutex_lock(&info->lock);
	list_del_init(&mem->validate_list);
	range = mem->range;
	mem->range = NULL;
	mutex_unlock(&info->lock);
	amdgpu_call(amdgpu_hmm_range_free)(range);
}
