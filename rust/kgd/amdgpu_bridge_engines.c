// SPDX-License-Identifier: GPL-2.0-only
/*
 * bridge.h in terms of amdgpu: its queues (scheduler entities) for clearing and moving memory, once
 * a job of theirs has failed.
 *
 * amdgpu passes the error of an entity's last job on to the next one, for ever: nothing is cleared
 * and moved by it any more. Whoever waits for such a job is told of no error, VRAM counts as
 * cleared as soon as the job is made, and a buffer as moved. amdgpu makes new entities only when
 * the device is bound or wakes up. So the last job of one whose queue is empty is forgotten here.
 */
#include <linux/atomic.h>
#include <linux/cleanup.h>
#include <linux/delay.h>
#include <linux/dma-fence.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pm_runtime.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "amdgpu_bind.h"
#include "amdgpu_job.h"
#include "bridge.h"
#include "bridge_engines.h"
#include "bridge_vm.h"

/* The last job that a queue had given an engine, and the clock when that was first seen. */
struct move_mark {
	u64 context;
	u64 seqno;
	u64 clock;
};

/* The last job that a queue had given an engine when that was reset, until it is known to fail. */
struct suspect {
	struct dma_fence *last;		/* a reference, or NULL */
	u64 clock;			/* of its mark; 0: its queue moves nothing */
};

/* The default queue, and as many as engines for moves and for clears. */
#define MAX_QUEUES (1 + 2 * TTM_NUM_MOVE_FENCES)

/*
 * Whom a move that failed concerns is told by a clock that goes on when an engine is found to have
 * got another one. A process reads it before its eviction fence is signalled. The copies of its
 * buffers wait for that in their queue (though they may be in there already), so what an engine had
 * got by then is none of its own, but for what maps the buffer for the copies and goes before them:
 * see latest_time(). The failure of a job with a mark, or of one before it, concerns those alone
 * who have read the clock before that mark. What is younger may be anybody's.
 */
struct bridge_engines {
	struct list_head link;		/* in all_engines */
	struct amdgpu_device *adev;
	struct delayed_work later;
	atomic_t looks;			/* that are left to later */
	bool distrusted;		/* VRAM that amdgpu calls cleared may not be */
	spinlock_t lock;		/* for what follows */
	u64 clock;
	u64 failed_until;		/* who read less on the clock has lost memory */
	struct move_mark marks[TTM_NUM_MOVE_FENCES];
	struct suspect suspects[MAX_QUEUES];
};

static LIST_HEAD(all_engines);
static DEFINE_SPINLOCK(engines_lock);

/* It is there as long as the device is served. */
struct bridge_engines *bridge_engines_of(const struct amdgpu_device *adev)
{
	struct bridge_engines *engines;

	guard(spinlock)(&engines_lock);
	list_for_each_entry(engines, &all_engines, link)
		if (engines->adev == adev)
			return engines;
	return NULL;
}

/*
 * Whether a job that an engine has got has failed: with a reference, or under RCU since it was in
 * last_scheduled. A reset gives the engine's fence the error, before that signals: the job has it
 * only afterwards.
 */
static bool has_failed(const struct dma_fence *last)
{
	const struct drm_sched_fence *job = container_of(last, struct drm_sched_fence, finished);
	const struct dma_fence *engines = smp_load_acquire(&job->parent);

	return READ_ONCE(last->error) || (engines && READ_ONCE(engines->error));
}

bool bridge_entity_has_failed(struct drm_sched_entity *entity)
{
	struct dma_fence *last;

	guard(rcu)();
	last = rcu_dereference(entity->last_scheduled);
	return last && has_failed(last);
}

static bool is_marked(const struct move_mark *mark, const struct dma_fence *last)
{
	return last->context == mark->context && last->seqno == mark->seqno;
}

/*
 * Under the lock, so that a queue's marks get younger. Healed, and not used since, it keeps its
 * mark: what comes is younger still. A queue that was made anew has a context of its own.
 */
static void set_mark(struct bridge_engines *engines, const struct dma_fence *last,
		     struct move_mark *mark)
{
	if (is_marked(mark, last))
		return;
	mark->context = last->context;
	mark->seqno = last->seqno;
	mark->clock = ++engines->clock;
}

bool bridge_engines_distrusted(const struct bridge_engines *engines)
{
	return READ_ONCE(engines->distrusted);
}

/* VRAM that was to be cleared has what it had. */
static void distrust(struct bridge_engines *engines)
{
	if (READ_ONCE(engines->distrusted))
		return;
	WRITE_ONCE(engines->distrusted, true);
	dev_info(engines->adev->dev,
		 "amdkfd: VRAM was not cleared or moved: its buffers are cleared twice\n");
}

/*
 * A job has failed, of a queue that moves memory, which has a mark, or clears it. A move clears
 * what it leaves, too. Before it is forgotten: who finds no failure any more finds this. As long as
 * the queue stays in failure it is told again: with the same last job that concerns nobody who has
 * read the clock since, and whoever's moves are cancelled has read it before the last of those.
 */
static void note_failure(struct bridge_engines *engines, struct drm_sched_entity *entity,
			 struct move_mark *mark)
{
	struct dma_fence *last;

	if (mark) {
		guard(rcu)();
		guard(spinlock)(&engines->lock);
		last = rcu_dereference(entity->last_scheduled);
		if (last)
			set_mark(engines, last, mark);
		engines->failed_until = max(engines->failed_until, mark->clock);
	}
	distrust(engines);
}

/* Whether it has failed. It is kept where that is not known yet. Under the lock. */
static bool judge_one(struct bridge_engines *engines, struct suspect *suspect)
{
	bool ended, failed;

	if (!suspect->last)
		return false;
	/* In this order: it has its error before it is signalled. */
	ended = dma_fence_is_signaled(suspect->last);
	failed = has_failed(suspect->last);
	if (failed)
		engines->failed_until = max(engines->failed_until, suspect->clock);
	if (ended || failed) {
		dma_fence_put(suspect->last);
		suspect->last = NULL;
	}
	return failed;
}

/* Finds those that have failed: as a restore that has waited for a job of theirs ends, say. */
static void judge(struct bridge_engines *engines)
{
	bool failed = false;
	u32 i;

	scoped_guard(spinlock, &engines->lock)
		for (i = 0; i < MAX_QUEUES; i++)
			failed |= judge_one(engines, &engines->suspects[i]);
	if (failed)
		distrust(engines);
}

/*
 * An engine is about to be reset, and the scheduler of what is lost of it stands still. It goes on
 * before the jobs are told to have failed: the next job of a queue does not fail, and is the last
 * one then. What is given the error is all that the engine has of a queue from one job on: if any
 * of it, the last. That of an engine that works may have no reference left, as it is replaced: no
 * matter, nothing of it is lost. Returns whether the one of a reset before has failed. Under the
 * lock.
 */
static bool suspect(struct bridge_engines *engines, struct drm_sched_entity *entity,
		    struct move_mark *mark, struct suspect *suspect)
{
	struct dma_fence *last;
	bool failed;

	guard(rcu)();
	last = rcu_dereference(entity->last_scheduled);
	if (last && dma_fence_is_signaled(last))
		last = NULL;
	if (last)
		last = dma_fence_get_rcu(last);
	/* After the look at the queue: what is popped now comes after an error. */
	failed = judge_one(engines, suspect);
	if (!last || last == suspect->last) {
		dma_fence_put(last);
		return failed;
	}
	if (mark)
		set_mark(engines, last, mark);
	dma_fence_put(suspect->last);
	suspect->last = last;
	suspect->clock = mark ? mark->clock : 0;
	return failed;
}

/*
 * Forgets the last job, if that has ended with an error. Under the entity's lock, which who gives
 * it jobs has: with an empty queue the scheduler has written last_scheduled before
 * (drm_sched_entity_pop_job), and nobody writes it now. Who reads it does so under RCU or the lock.
 */
static void forget_last(struct bridge_engines *engines, struct amdgpu_ttm_buffer_entity *entity,
			struct move_mark *mark)
{
	struct drm_sched_entity *base = &entity->base;
	struct dma_fence *last;

	if (spsc_queue_count(&base->job_queue))
		return;
	smp_rmb();
	last = rcu_dereference_protected(base->last_scheduled, lockdep_is_held(&entity->lock));
	if (!last || !dma_fence_is_signaled(last) || !last->error)
		return;
	/* Once more: it may have been given jobs since it was found. */
	note_failure(engines, base, mark);
	rcu_assign_pointer(base->last_scheduled, NULL);
	dma_fence_put(last);
}

/* How often it is tried, 1 ms apart, for who waits: a queue of cancelled jobs is soon empty. */
#define TRIES 20

/* If it has failed it takes jobs again afterwards, unless it is busy. */
static void heal(struct bridge_engines *engines, struct amdgpu_ttm_buffer_entity *entity,
		 struct move_mark *mark, bool wait)
{
	unsigned int tries = wait ? TRIES : 1;

	if (!bridge_entity_has_failed(&entity->base))
		return;
	note_failure(engines, &entity->base, mark);
	do {
		/* Whoever has it may wait for engines that stand still. */
		if (mutex_trylock(&entity->lock)) {
			forget_last(engines, entity, mark);
			mutex_unlock(&entity->lock);
		}
		if (!bridge_entity_has_failed(&entity->base) || !--tries)
			return;
		usleep_range(500, 1000);
	} while (true);
}

/* Whether one has failed still. Those that move have marks. */
static bool heal_all(struct bridge_engines *engines, struct amdgpu_ttm_buffer_entity *entities,
		     u32 count, struct move_mark *marks, bool wait)
{
	bool failed = false;
	u32 i;

	for (i = 0; i < count; i++) {
		heal(engines, &entities[i], marks ? &marks[i] : NULL, wait);
		failed |= bridge_entity_has_failed(&entities[i].base);
	}
	return failed;
}

/* The same, of the device, between get_entities() and put_entities(). */
static bool look(struct bridge_engines *engines, bool wait)
{
	struct amdgpu_mman *mman = &engines->adev->mman;
	bool failed;

	failed = heal_all(engines, &mman->default_entity, 1, NULL, wait);
	failed |= heal_all(engines, mman->move_entities, mman->num_move_entities, engines->marks,
			   wait);
	failed |= heal_all(engines, mman->clear_entities, mman->num_clear_entities, NULL, wait);
	/* See note_failure(). */
	smp_rmb();
	return failed;
}

/*
 * Marks what an engine has had of a queue until now, and returns the latest time for a process to
 * keep whose eviction fence is not signalled. A copy of its buffers that is in the queue, or comes
 * there before its lock is given back, may have had the last job map them
 * (amdgpu_ttm_map_buffer()), which waits for nothing: that is not marked now, or the time is one
 * before its mark.
 */
static u64 latest_time(struct bridge_engines *engines, struct amdgpu_ttm_buffer_entity *entity,
		   struct move_mark *mark)
{
	struct dma_fence *last;

	guard(rcu)();
	last = rcu_dereference(entity->base.last_scheduled);
	if (!last)
		return U64_MAX;
	/* Who has given the queue that job has its lock, or has given it the copy. */
	smp_rmb();
	/* What follows a mapping that has failed is cancelled, and younger. */
	if (!dma_fence_is_signaled(last) &&
	    (mutex_is_locked(&entity->lock) || spsc_queue_count(&entity->base.job_queue)))
		return is_marked(mark, last) ? mark->clock - 1 : U64_MAX;
	set_mark(engines, last, mark);
	return U64_MAX;
}

/* The time for it to keep, by all queues that move memory. */
static u64 mark_moves(struct bridge_engines *engines)
{
	struct amdgpu_mman *mman = &engines->adev->mman;
	u64 latest = U64_MAX;
	u32 i;

	guard(spinlock)(&engines->lock);
	for (i = 0; i < mman->num_move_entities; i++)
		latest = min(latest, latest_time(engines, &mman->move_entities[i],
						 &engines->marks[i]));
	return min(latest, engines->clock);
}

/* Whether its entities may be looked at, until put_entities(idx): it is awake, and plugged. */
static bool get_entities(struct bridge_engines *engines, int *idx)
{
	struct amdgpu_device *adev = engines->adev;

	if (pci_dev_is_disconnected(adev->pdev) ||
	    !amdgpu_call(drm_dev_enter)(adev_to_drm(adev), idx))
		return false;
	/* A sleep ends them, and says so only afterwards; what has failed goes then. */
	if (adev->mman.buffer_funcs_enabled && !READ_ONCE(adev->in_suspend))
		return true;
	amdgpu_call(drm_dev_exit)(*idx);
	return false;
}

static void put_entities(int idx)
{
	amdgpu_call(drm_dev_exit)(idx);
}

static bool look_if_plugged(struct bridge_engines *engines, bool wait)
{
	bool failed;
	int idx;

	judge(engines);
	if (!get_entities(engines, &idx))
		return false;
	failed = look(engines, wait);
	put_entities(idx);
	return failed;
}

/* Engines that stand still are reset within so long, and what waits for them is cancelled. */
#define LATER (HZ / 10)
#define LOOKS 600

/* Frozen tasks find the device asleep: the queue is, too. */
static void look_later(struct bridge_engines *engines, unsigned long delay)
{
	queue_delayed_work(system_freezable_wq, &engines->later, delay);
}

static void look_again(struct work_struct *work)
{
	struct bridge_engines *engines =
		container_of(work, struct bridge_engines, later.work);
	struct device *dev = engines->adev->dev;
	int awake = pm_runtime_get_if_active(dev);

	/* One that sleeps gets new entities when it wakes up. */
	if (!awake)
		return;
	if (look_if_plugged(engines, true) && atomic_dec_if_positive(&engines->looks) > 0)
		look_later(engines, LATER);
	if (awake > 0)
		pm_runtime_put_autosuspend(dev);
}

void bridge_engines_heal_soon(struct bridge_engines *engines)
{
	atomic_set(&engines->looks, LOOKS);
	look_later(engines, 0);
}

u64 bridge_engines_heal(struct bridge_engines *engines, bool wait)
{
	if (look_if_plugged(engines, wait)) {
		atomic_set(&engines->looks, LOOKS);
		look_later(engines, LATER);
	}
	guard(spinlock)(&engines->lock);
	return engines->failed_until;
}

u64 bridge_engines_mark(struct bridge_engines *engines)
{
	u64 now;
	int idx;

	if (get_entities(engines, &idx)) {
		now = mark_moves(engines);
		put_entities(idx);
		return now;
	}
	/* What is not marked counts as younger than it is. */
	guard(spinlock)(&engines->lock);
	return engines->clock;
}

static void suspect_all(struct bridge_engines *engines)
{
	struct amdgpu_mman *mman = &engines->adev->mman;
	struct suspect *next = engines->suspects;
	bool failed;
	u32 i;

	scoped_guard(spinlock, &engines->lock) {
		failed = suspect(engines, &mman->default_entity.base, NULL, next++);
		for (i = 0; i < mman->num_move_entities; i++)
			failed |= suspect(engines, &mman->move_entities[i].base,
					  &engines->marks[i], next++);
		for (i = 0; i < min_t(u32, mman->num_clear_entities, TTM_NUM_MOVE_FENCES); i++)
			failed |= suspect(engines, &mman->clear_entities[i].base, NULL, next++);
	}
	if (failed)
		distrust(engines);
}

/*
 * The device may be going away, hence under the lock of all. Nothing is allocated: who resets a
 * queue's engine may have reclaim wait for it.
 */
static void suspect_of(struct amdgpu_device *adev)
{
	struct bridge_engines *engines;
	int idx;

	guard(spinlock)(&engines_lock);
	list_for_each_entry(engines, &all_engines, link) {
		if (engines->adev != adev)
			continue;
		if (get_entities(engines, &idx)) {
			suspect_all(engines);
			put_entities(idx);
		}
	}
}

void bridge_ring_reset(struct amdgpu_ring *ring)
{
	if (ring->funcs->type == AMDGPU_RING_TYPE_SDMA)
		suspect_of(ring->adev);
}

void bridge_engines_heal_of(struct amdgpu_device *adev)
{
	struct bridge_engines *engines = bridge_engines_of(adev);

	if (engines)
		bridge_engines_heal(engines, true);
}

void bridge_engines_heal_soon_of(struct amdgpu_device *adev)
{
	struct bridge_engines *engines = bridge_engines_of(adev);

	if (engines)
		bridge_engines_heal_soon(engines);
}

int bridge_engines_begin(struct amdgpu_device *adev, struct bridge_engines **out)
{
	struct bridge_engines *engines = kzalloc(sizeof(*engines), GFP_KERNEL);

	if (!engines)
		return -ENOMEM;
	engines->adev = adev;
	spin_lock_init(&engines->lock);
	engines->clock = 1;
	/*
	 * What failed before, and was healed, or went on with the next job, nobody knows any more.
	 * The count has resets of graphics and compute as well, which it does not tell from others.
	 */
	engines->distrusted = atomic_read(&adev->gpu_reset_counter) != 0;
	if (engines->distrusted)
		dev_info(adev->dev,
			 "amdkfd: it was reset before, or a ring was: VRAM is cleared twice\n");
	INIT_DELAYED_WORK(&engines->later, look_again);
	scoped_guard(spinlock, &engines_lock)
		list_add(&engines->link, &all_engines);
	*out = engines;
	return 0;
}

void bridge_engines_end(struct bridge_engines *engines)
{
	u32 i;

	scoped_guard(spinlock, &engines_lock)
		list_del(&engines->link);
	cancel_delayed_work_sync(&engines->later);
	for (i = 0; i < MAX_QUEUES; i++)
		dma_fence_put(engines->suspects[i].last);
	kfree(engines);
}
