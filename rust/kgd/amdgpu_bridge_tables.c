// SPDX-License-Identifier: GPL-2.0-only
/*
 * How the page tables of a VM that compute has acquired are written: what amdgpu takes out of them
 * must be gone when it says so, for others get the memory. And how they come back when they were
 * evicted.
 */
#include <linux/cleanup.h>
#include <linux/delay.h>
#include <linux/dma-resv.h>
#include <linux/interval_tree_generic.h>
#include <linux/rcupdate.h>
#include <linux/spinlock.h>

#include "amdgpu_bind.h"
#include "amdgpu_job.h"
#include "bridge.h"
#include "bridge_vm.h"

/*
 * Where the CPU writes page tables amdgpu waits before it does, and where a signal, a stop or a
 * freezer ends the wait it writes nothing: amdgpu_vm_clear_freed() forgets the mapping even so, and
 * amdgpu_vm_pte_update_flags() the error. So it is waited for here what nothing ends: moves and
 * clears of the tables, and jobs in the VM, which amdgpu ends itself when they take too long.
 */
static int prepare(struct amdgpu_vm_update_params *params, struct amdgpu_sync *sync, u64 job)
{
	int ret = sync ? amdgpu_call(amdgpu_sync_wait)(sync, false) : 0;

	return ret ? ret : amdgpu_object(amdgpu_vm_cpu_funcs).prepare(params, sync, job);
}

static int update(struct amdgpu_vm_update_params *params, struct amdgpu_bo_vm *table, u64 at,
		  u64 address, unsigned int count, u32 step, u64 flags)
{
	dma_resv_wait_timeout(table->bo.tbo.base.resv, DMA_RESV_USAGE_KERNEL, false,
			      MAX_SCHEDULE_TIMEOUT);
	return amdgpu_object(amdgpu_vm_cpu_funcs).update(params, table, at, address, count, step,
							 flags);
}

static int map_table(struct amdgpu_bo_vm *table)
{
	return amdgpu_object(amdgpu_vm_cpu_funcs).map_table(table);
}

static int commit(struct amdgpu_vm_update_params *params, struct dma_fence **fence)
{
	return amdgpu_object(amdgpu_vm_cpu_funcs).commit(params, fence);
}

static const struct amdgpu_vm_update_funcs uninterrupted = {
	.map_table = map_table,
	.prepare = prepare,
	.update = update,
	.commit = commit,
};

/*
 * Where copy engines write page tables, an update is a job. amdgpu gives those for refused faults
 * to a queue of their own (immediate), which nothing orders with the others: what such a job makes
 * of a directory or clears may come after what was mapped there since. And a job whose update fails
 * half way it forgets, with its piece of a pool that all VMs of the device share, and for which
 * they wait without end. So all go by one queue, and what was not committed is freed as the next
 * update of its kind begins.
 */
enum update {
	UPDATE_UNLOCKED,	/* of a range, under vm->eviction_lock, which is not given up */
	UPDATE_RANGE,		/* under the reservation of the root, as the next ones */
	UPDATE_DIRECTORIES,
	UPDATE_CLEAR,		/* also within one of a range */
};

static struct bridge_vm *written_by_jobs(const struct amdgpu_vm *vm)
{
	return container_of(vm->update_funcs, struct bridge_vm, by_jobs);
}

/* Where the job is kept, or NULL: of one kind there is one update at a time. */
static struct amdgpu_job **job_of_kind(struct bridge_vm *vm, u64 kind, bool unlocked)
{
	static_assert(UPDATE_CLEAR + 1 == ARRAY_SIZE(vm->jobs));
	switch (kind) {
	case AMDGPU_KERNEL_JOB_ID_VM_UPDATE_RANGE:
		return &vm->jobs[unlocked ? UPDATE_UNLOCKED : UPDATE_RANGE];
	case AMDGPU_KERNEL_JOB_ID_VM_UPDATE_PDES:
		return &vm->jobs[UPDATE_DIRECTORIES];
	case AMDGPU_KERNEL_JOB_ID_VM_PT_CLEAR:
		return &vm->jobs[UPDATE_CLEAR];
	}
	return NULL;
}

/* Others have jobs of their own. */
static struct amdgpu_job **kept(struct bridge_vm *vm, const struct amdgpu_job *job)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(vm->jobs); i++)
		if (READ_ONCE(vm->jobs[i]) == job)
			return &vm->jobs[i];
	return NULL;
}

static void free_kept(struct amdgpu_job **kept)
{
	struct amdgpu_job *job = *kept;

	WRITE_ONCE(*kept, NULL);
	if (job)
		amdgpu_call(amdgpu_job_free)(job);
}

/* amdgpu clears none but new tables between here and their first update. */
static int map_table_of_job(struct amdgpu_bo_vm *table)
{
	struct amdgpu_vm_bo_base *entry = table->bo.vm_bo;

	if (entry)
		written_by_jobs(entry->vm)->cleared = table;
	return amdgpu_object(amdgpu_vm_sdma_funcs).map_table(table);
}

/*
 * amdgpu_vm_pt_alloc() frees a table that it could not clear, and goes on to take it for one of the
 * VM's. That of the VM itself is made before there is anything of ours.
 */
static void forget_uncleared(struct bridge_vm *vm)
{
	struct amdgpu_bo *table = &vm->cleared->bo;
	struct amdgpu_vm_bo_base *entry = table->vm_bo;

	amdgpu_call(amdgpu_vm_update_stats)(entry, table->tbo.resource, -1);
	amdgpu_call(ttm_bo_set_bulk_move)(&table->tbo, NULL);
	list_del_init(&entry->vm_status);
	entry->bo = NULL;
	table->vm_bo = NULL;
}

static int prepare_job(struct amdgpu_vm_update_params *params, struct amdgpu_sync *sync, u64 kind)
{
	struct bridge_vm *vm = written_by_jobs(params->vm);
	struct amdgpu_job **job = job_of_kind(vm, kind, params->unlocked);
	int ret;

	if (job)
		free_kept(job);
	params->immediate = false;
	ret = amdgpu_object(amdgpu_vm_sdma_funcs).prepare(params, sync, kind);
	if (!ret && job)
		WRITE_ONCE(*job, params->job);
	if (ret && kind == AMDGPU_KERNEL_JOB_ID_VM_PT_CLEAR)
		forget_uncleared(vm);
	return ret;
}

/*
 * amdgpu commits a full job in between, and gets another one. Where entries are written it forgets
 * the error: so what is left of the update fails, too.
 */
static int update_job(struct amdgpu_vm_update_params *params, struct amdgpu_bo_vm *table, u64 at,
		      u64 address, unsigned int count, u32 step, u64 flags)
{
	struct bridge_vm *vm = written_by_jobs(params->vm);
	struct amdgpu_job **job;
	int ret;

	if (!params->job)
		return -ENOMEM;
	job = kept(vm, params->job);
	/* What is committed in between may be freed, and its address be another job's. */
	if (job)
		WRITE_ONCE(*job, NULL);
	ret = amdgpu_object(amdgpu_vm_sdma_funcs).update(params, table, at, address, count, step,
							  flags);
	if (ret && params->job) {
		amdgpu_call(amdgpu_job_free)(params->job);
		params->job = NULL;
	}
	if (job)
		WRITE_ONCE(*job, params->job);
	if (ret && job == &vm->jobs[UPDATE_CLEAR])
		forget_uncleared(vm);
	return ret;
}

/* Two may commit at a time, a notifier beside who has the root. */
static void keep_last(struct bridge_vm *vm, struct dma_fence *fence)
{
	struct dma_fence *other = dma_fence_get(fence);

	spin_lock(&vm->last_lock);
	if (!vm->last || vm->last->context != other->context || dma_fence_is_later(other, vm->last))
		swap(vm->last, other);
	spin_unlock(&vm->last_lock);
	dma_fence_put(other);
}

static int commit_job(struct amdgpu_vm_update_params *params, struct dma_fence **fence)
{
	struct bridge_vm *vm = written_by_jobs(params->vm);
	struct dma_fence *last = NULL;
	struct amdgpu_job **job;
	int ret;

	if (!params->job)
		return -ENOMEM;
	job = kept(vm, params->job);
	if (job)
		WRITE_ONCE(*job, NULL);
	ret = amdgpu_object(amdgpu_vm_sdma_funcs).commit(params, &last);
	if (last)
		keep_last(vm, last);
	if (last && fence)
		swap(*fence, last);
	dma_fence_put(last);
	return ret;
}

void bridge_tables_keep(struct bridge_vm *vm, struct kgd_mem *mem)
{
	struct dma_resv *resv = mem->bo->tbo.base.resv;
	struct dma_fence *last;
	int ret;

	spin_lock(&vm->last_lock);
	last = dma_fence_get(vm->last);
	spin_unlock(&vm->last_lock);
	if (last && !dma_fence_is_signaled(last)) {
		dma_resv_lock(resv, NULL);
		ret = dma_resv_reserve_fences(resv, 1);
		if (!ret)
			dma_resv_add_fence(resv, last, DMA_RESV_USAGE_BOOKKEEP);
		dma_resv_unlock(resv);
		mutex_lock(&mem->lock);
		ret = ret ?: amdgpu_call(amdgpu_sync_fence)(&mem->sync, last, GFP_KERNEL);
		mutex_unlock(&mem->lock);
		if (ret)
			dma_fence_wait(last, false);
	}
	dma_fence_put(last);
}

/*
 * Whoever gave a VM's entities their last job has them stopped for good when he closes the file
 * and is being killed (amdgpu_flush): mostly who opened it, for whom it was cleared. From then on
 * amdgpu leaves entries in place that it is asked to take out (amdgpu_vm_ready), and says 0, or
 * adds jobs that never run: this process's queues would go on with memory that is another's. So
 * amdgpu_vm_wait_idle() does nothing for a VM as long as compute has it. Where somebody has closed
 * the file already he may be about to stop them: nothing that he does until then sleeps.
 */
static void forget_opener(struct drm_sched_entity *const entities[2])
{
	bool closed = false;
	u32 i;

	for (i = 0; i < 2; i++)
		closed |= !xchg(&entities[i]->last_user, NULL);
	if (closed)
		synchronize_rcu_tasks();
}

/*
 * One that is stopped takes jobs again. Not if there are some in it already: none would have the
 * scheduler look at it, and it is as with the C driver.
 */
static bool start(struct drm_sched_entity *entity)
{
	bool starts;

	spin_lock(&entity->lock);
	starts = !entity->stopped || !spsc_queue_count(&entity->job_queue);
	if (starts)
		entity->stopped = false;
	spin_unlock(&entity->lock);
	return starts;
}

void bridge_tables_begin(struct bridge_vm *vm)
{
	struct drm_sched_entity *const entities[2] = { &vm->vm->immediate, &vm->vm->delayed };
	struct dma_resv *resv = vm->vm->root.bo->tbo.base.resv;
	bool start_all;

	forget_opener(entities);
	dma_resv_lock(resv, NULL);
	start_all = start(entities[0]);
	start_all &= start(entities[1]);
	if (vm->vm->update_funcs == &amdgpu_object(amdgpu_vm_cpu_funcs)) {
		vm->vm->update_funcs = &uninterrupted;
	} else if (start_all && vm->vm->update_funcs == &amdgpu_object(amdgpu_vm_sdma_funcs)) {
		vm->by_jobs = amdgpu_object(amdgpu_vm_sdma_funcs);
		vm->by_jobs.map_table = map_table_of_job;
		vm->by_jobs.prepare = prepare_job;
		vm->by_jobs.update = update_job;
		vm->by_jobs.commit = commit_job;
		vm->vm->update_funcs = &vm->by_jobs;
	}
	dma_resv_unlock(resv);
}

void bridge_tables_end(struct bridge_vm *vm)
{
	struct dma_resv *resv = vm->vm->root.bo->tbo.base.resv;
	u32 i;

	dma_resv_lock(resv, NULL);
	if (vm->vm->update_funcs == &uninterrupted)
		vm->vm->update_funcs = &amdgpu_object(amdgpu_vm_cpu_funcs);
	else if (vm->vm->update_funcs == &vm->by_jobs)
		vm->vm->update_funcs = &amdgpu_object(amdgpu_vm_sdma_funcs);
	for (i = 0; i < ARRAY_SIZE(vm->jobs); i++)
		free_kept(&vm->jobs[i]);
	dma_resv_unlock(resv);
	bridge_tables_take_notes(vm);
	dma_fence_put(vm->last);
	vm->last = NULL;
}

#define STILL_POLL_MS 20
#define STOP_TIMEOUT_MS 60000

bool bridge_stands_still(struct drm_sched_entity *entity)
{
	guard(spinlock)(&entity->lock);
	return entity->rq && READ_ONCE(entity->rq->sched->pause_submit);
}

static bool stand_still(struct amdgpu_vm *vm)
{
	return bridge_stands_still(&vm->immediate) || bridge_stands_still(&vm->delayed);
}

/* What a VM's last close waits for, as it is at one time: what comes later is others'. */
struct awaited {
	struct dma_fence *fences[3];	/* references, or NULL */
	u32 immediate, delayed;		/* the last jobs of its entities */
};

/* Under the reservation of the root. */
static void note_awaited(struct amdgpu_vm *vm, struct awaited *awaited)
{
	awaited->fences[0] = dma_fence_get(vm->last_update);
	awaited->fences[1] = dma_fence_get(vm->last_unlocked);
	awaited->fences[2] = dma_fence_get(vm->last_tlb_flush);
	awaited->immediate = atomic_read(&vm->immediate.fence_seq);
	awaited->delayed = atomic_read(&vm->delayed.fence_seq);
}

/* Whether the scheduler has taken all jobs up to that one, which may never have come. */
static bool is_taken(struct drm_sched_entity *entity, u32 job)
{
	struct dma_fence *last;

	if (!spsc_queue_count(&entity->job_queue))
		return true;
	guard(rcu)();
	last = rcu_dereference(entity->last_scheduled);
	return last && (s32)(lower_32_bits(last->seqno) - job) >= 0;
}

static bool has_ended(struct amdgpu_vm *vm, const struct awaited *awaited)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(awaited->fences); i++)
		if (awaited->fences[i] && !dma_fence_is_signaled(awaited->fences[i]))
			return false;
	return is_taken(&vm->immediate, awaited->immediate) &&
	       is_taken(&vm->delayed, awaited->delayed);
}

/* A reset of the GPU cancels what an engine has got. */
static bool is_any_cancelled(struct amdgpu_vm *vm, const struct awaited *awaited)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(awaited->fences); i++)
		if (awaited->fences[i] && dma_fence_get_status(awaited->fences[i]) < 0)
			return true;
	return amdgpu_call(drm_sched_entity_error)(&vm->delayed) < 0;
}

/*
 * Schedulers stand still while something is reset, and from a reset of the GPU on that has failed:
 * what is queued never ends then, nor the last close of the file, which waits for it. The reset may
 * come while what hangs is waited for. On a device that is gone nobody has them go on. What does
 * not end is cancelled, as by amdgpu where a process is killed that has given it to the entities;
 * what an engine has got of it is amdgpu's to end. Jobs of others in the VM, which may be queued
 * still, must not run on what these have not written (amdgpu_job_run). So it is where nothing is
 * queued as yet, too: nothing is to be. Returns whether it was stopped.
 */
bool bridge_tables_stop(struct bridge_vm *vm)
{
	unsigned int waited = 0, still = 0, patience = BRIDGE_STILL_MS, i;
	struct dma_resv *resv = vm->vm->root.bo->tbo.base.resv;
	struct awaited awaited;
	bool stands, ended;

	if (vm->vm->use_cpu_for_update)
		return false;
	dma_resv_lock(resv, NULL);
	note_awaited(vm->vm, &awaited);
	stands = stand_still(vm->vm);
	dma_resv_unlock(resv);
	while (!(ended = has_ended(vm->vm, &awaited)) || stands) {
		if (waited >= STOP_TIMEOUT_MS || still >= patience ||
		    (!ended && bridge_is_unplugged(vm->adev)))
			break;
		msleep(STILL_POLL_MS);
		waited += STILL_POLL_MS;
		dma_resv_lock(resv, NULL);
		stands = stand_still(vm->vm);
		dma_resv_unlock(resv);
		still = stands ? still + STILL_POLL_MS : 0;
		patience = amdgpu_call(amdgpu_in_reset)(vm->adev) ? BRIDGE_STILL_IN_RESET_MS :
								   BRIDGE_STILL_MS;
	}
	if (!ended || stands) {
		dma_resv_lock(resv, NULL);
		vm->vm->generation++;
		amdgpu_call(drm_sched_entity_kill)(&vm->vm->immediate);
		amdgpu_call(drm_sched_entity_kill)(&vm->vm->delayed);
		bridge_tables_note_again(vm);
		dma_resv_unlock(resv);
	} else if (is_any_cancelled(vm->vm, &awaited)) {
		dma_resv_lock(resv, NULL);
		bridge_tables_note_again(vm);
		dma_resv_unlock(resv);
	}
	for (i = 0; i < ARRAY_SIZE(awaited.fences); i++)
		dma_fence_put(awaited.fences[i]);
	return !ended || stands;
}

/* In what tables there are, which needs no other. */
int bridge_tables_clear(struct amdgpu_vm *vm, u64 first, u64 last)
{
	struct amdgpu_device *adev = amdgpu_ttm_adev(vm->root.bo->tbo.bdev);

	return amdgpu_call(amdgpu_vm_update_range)(adev, vm, false, true, true, false, NULL, first,
						   last, adev->gmc.init_pte_flags, 0, 0, NULL, NULL,
						   &vm->last_update);
}

/* The user's own pages; without the reservation. */
static bool is_users(struct amdgpu_bo *bo)
{
	return READ_ONCE(bo->notifier.mm);
}

static void mark_moved(struct amdgpu_vm *vm, struct amdgpu_vm_bo_base *base)
{
	/* Then it is on that list, or on that of what is validated first. */
	if (base->moved)
		return;
	/* These amdgpu takes out, at all their addresses, when it finds them there. */
	if (base->bo && is_users(base->bo))
		return;
	base->moved = true;
	/* Where the user has mapped nothing on purpose (PRT): each restore looks at that. */
	if (!base->bo)
		return;
	if (base->bo->tbo.base.resv == vm->root.bo->tbo.base.resv) {
		list_move(&base->vm_status, &vm->always_valid.needs_update);
		return;
	}
	spin_lock(&vm->individual_lock);
	list_move(&base->vm_status, &vm->individual.needs_update);
	spin_unlock(&vm->individual_lock);
}

/* What is mapped between these pages is written once more. */
static void mark_range(struct amdgpu_vm *vm, u64 first, u64 last)
{
	struct rb_root_cached *root = (struct rb_root_cached *)&vm->va;
	struct interval_tree_node *node = interval_tree_iter_first(root, first, last);

	for (; node; node = interval_tree_iter_next(node, first, last))
		mark_moved(vm, &container_of(&node->rb, struct amdgpu_bo_va_mapping,
					     rb)->bo_va->base);
}

/*
 * What was mapped while tables were not there is written by nobody, unless it moves. Not the user's
 * own pages (GEM_USERPTR), which amdgpu takes out when it finds them so.
 */
static void mark_unwritten(struct amdgpu_vm *vm)
{
	struct amdgpu_vm_bo_base *base, *next;

	spin_lock(&vm->individual_lock);
	list_for_each_entry_safe(base, next, &vm->individual.idle, vm_status) {
		if (base->moved || !base->bo || is_users(base->bo) ||
		    list_empty(&container_of(base, struct amdgpu_bo_va, base)->invalids))
			continue;
		base->moved = true;
		list_move(&base->vm_status, &vm->individual.needs_update);
	}
	spin_unlock(&vm->individual_lock);
}

/* -EBUSY: a reset has failed, and jobs stand still. Others want the reservation. */
static int wait_for_vm_jobs(struct amdgpu_device *adev, struct amdgpu_vm *vm)
{
	const long step = msecs_to_jiffies(BRIDGE_STILL_MS);
	unsigned long since = 0;
	bool stands = false;
	long waited;

	do {
		waited = dma_resv_wait_timeout(vm->root.bo->tbo.base.resv, DMA_RESV_USAGE_READ,
					       true, step);
		if (waited > 0)
			return 0;
		if (!stands)
			since = jiffies;
		stands = stand_still(vm) && !amdgpu_call(amdgpu_in_reset)(adev);
		if (stands && time_after(jiffies, since + step))
			return -EBUSY;
	} while (!waited || bridge_waits_on(waited));
	return waited;
}

/*
 * amdgpu_vm_clear_freed() of others, which ask for no tables (GEM_CLOSE, GEM_VA, the exporter of
 * what is imported). What it takes out may be what an end has left mapped: so every later job in
 * the VM waits for it, and where the CPU writes, its own wait, which a signal ends with the note
 * gone and nothing written, has nothing to wait for.
 */
int bridge_tables_clear_freed(struct amdgpu_device *adev, struct amdgpu_vm *vm,
			      struct dma_fence **fence)
{
	int ret;

	if (bridge_tables_are_away(vm))
		return -EBUSY;
	if (vm->update_funcs == &amdgpu_object(amdgpu_vm_cpu_funcs)) {
		ret = wait_for_vm_jobs(adev, vm);
		if (ret)
			return ret;
	}
	ret = amdgpu_call(amdgpu_vm_clear_freed)(adev, vm, &vm->last_update);
	if (ret || !fence || fence == &vm->last_update)
		return ret;
	dma_fence_put(*fence);
	*fence = dma_fence_get(vm->last_update);
	return 0;
}

/*
 * Takes out what is noted, as amdgpu_vm_clear_freed(): behind the VM's jobs. amdgpu forgets what it
 * cannot take out, for lack of VRAM for a table: so it is done before in what tables there are.
 */
static int clear_noted(struct amdgpu_device *adev, struct amdgpu_vm *vm)
{
	struct dma_resv *resv = vm->root.bo->tbo.base.resv;
	struct amdgpu_bo_va_mapping *mapping;
	unsigned int count = 0;
	int ret;

	ret = wait_for_vm_jobs(adev, vm);
	if (ret)
		return ret;
	list_for_each_entry(mapping, &vm->freed, list) {
		ret = bridge_tables_clear(vm, mapping->start, mapping->last);
		if (ret)
			return ret;
		count++;
	}
	/* Each call takes one off the list, at least. */
	for (; count && !list_empty(&vm->freed); count--) {
		/* Of what was unlocked, of this, and of its flush. */
		ret = dma_resv_reserve_fences(resv, 4);
		if (ret)
			return ret;
		if (amdgpu_call(amdgpu_vm_clear_freed)(adev, vm, &vm->last_update))
			bridge_halves_relink(vm);
	}
	return 0;
}

static int take_out_noted(struct amdgpu_device *adev, struct amdgpu_vm *vm)
{
	struct dma_resv *resv = vm->root.bo->tbo.base.resv;
	struct amdgpu_bo_va_mapping *mapping;
	int ret;

	if (list_empty(&vm->freed))
		return 0;
	ret = dma_resv_reserve_fences(resv, 4);
	if (ret)
		return ret;
	list_for_each_entry(mapping, &vm->freed, list)
		mark_range(vm, mapping->start, mapping->last);
	ret = clear_noted(adev, vm);
	return ret ?: dma_resv_reserve_fences(resv, BRIDGE_PLACES);
}

int bridge_tables_validate(struct amdgpu_device *adev, struct amdgpu_vm *vm,
			   struct ww_acquire_ctx *ticket,
			   int (*validate)(void *p, struct amdgpu_bo *bo), void *param)
{
	bool away = bridge_tables_are_away(vm);
	int ret = amdgpu_call(amdgpu_vm_validate)(adev, vm, ticket, validate, param);

	/*
	 * With copy engines it is as in C where these are stopped: bridge_tables_begin(). And from
	 * a device that was unplugged nothing is taken any more.
	 */
	if (!amdgpu_call(amdgpu_vm_ready)(vm) || bridge_is_unplugged(adev))
		return ret;
	/* They are there, even if what else it validates has failed. */
	if (away)
		mark_unwritten(vm);
	return take_out_noted(adev, vm) ?: ret;
}

/*
 * amdgpu wants it for buffers of VMs whose tables were evicted: the tables, and what DRM has made
 * to be in the VM at all times, which may be in the system's memory.
 */
static int validate_table(void *unused, struct amdgpu_bo *bo)
{
	struct ttm_operation_ctx ctx = { };

	if (bo->tbo.pin_count)
		return 0;
	amdgpu_call(amdgpu_bo_placement_from_domain)(bo, bo->allowed_domains);
	return amdgpu_call(ttm_bo_validate)(&bo->tbo, &bo->placement, &ctx);
}

int bridge_tables_bring_back(struct amdgpu_device *adev, struct amdgpu_vm *vm)
{
	int ret;

	ret = dma_resv_reserve_fences(vm->root.bo->tbo.base.resv, 2);
	if (!ret)
		ret = bridge_tables_validate(adev, vm, NULL, validate_table, NULL);
	if (!ret && !amdgpu_call(amdgpu_vm_ready)(vm))
		ret = -EBUSY;
	/* Of what was unlocked, of an update, and of its flush. */
	return ret ? ret : dma_resv_reserve_fences(vm->root.bo->tbo.base.resv, 4);
}

int bridge_tables_take_out_of(struct amdgpu_vm *vm)
{
	struct amdgpu_device *adev = amdgpu_ttm_adev(vm->root.bo->tbo.bdev);
	struct dma_resv *resv = vm->root.bo->tbo.base.resv;
	struct dma_fence *fence;
	long waited;
	int ret;

	/* Whoever notes something later finds them there, or has it taken out the next time. */
	if (list_empty_careful(&vm->freed))
		return 0;
	dma_resv_lock(resv, NULL);
	ret = bridge_tables_bring_back(adev, vm);
	fence = dma_fence_get(vm->last_update);
	/* There may be jobs that never end. With copy engines it may be as in C: start(). */
	if (ret == -EBUSY) {
		dma_fence_put(fence);
		fence = NULL;
		ret = vm->immediate.stopped || vm->delayed.stopped ? 0 : ret;
	}
	dma_resv_unlock(resv);
	if (!fence)
		return ret;
	do
		waited = dma_fence_wait(fence, true);
	while (bridge_waits_on(waited));
	dma_fence_put(fence);
	return ret ?: waited;
}

int bridge_tables_take_out(struct amdkfd_process_info *info)
{
	struct amdgpu_vm *vm;
	int ret = 0;

	mutex_lock(&info->lock);
	list_for_each_entry(vm, &info->vm_list_head, vm_list_node)
		ret = bridge_tables_take_out_of(vm) ?: ret;
	mutex_unlock(&info->lock);
	return ret;
}
