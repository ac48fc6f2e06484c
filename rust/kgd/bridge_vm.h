/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the C files of the bridge share of a process and its VMs.
 */
#ifndef AMDKFD_BRIDGE_VM_H
#define AMDKFD_BRIDGE_VM_H

#include <linux/mutex.h>
#include <linux/signal.h>

#include <drm/drm_drv.h>

#include "amdgpu_bind.h"

/*
 * amdgpu is handed a place for its process info, and takes it for the field kgd_process_info of the
 * C driver's struct kfd_process: it reads the field context_id at the same distance
 * (amdgpu_amdkfd_gpuvm.c, init_kfd_vm). So the place lies in a block with the same spacing.
 */
#define IMAGE_START offsetof(struct kfd_process, kgd_process_info)
#define IMAGE_CONTEXT (offsetof(struct kfd_process, context_id) - IMAGE_START)

static_assert(offsetof(struct kfd_process, context_id) > IMAGE_START);
static_assert(IMAGE_START % sizeof(void *) == 0);

struct bridge_process {
	struct mutex lock;			/* of the acquire and release of VMs */
	struct mutex sharing;			/* of imports and ends of dma-bufs */
	unsigned int vms;			/* that are acquired; they keep info */
	bool distrusts;				/* what userptrs show may not be there yet */
	struct mm_struct *mm;			/* kept as a name: it may have ended */
	struct dma_fence __rcu *eviction_fence;	/* NULL while it has no VM */
	union {
		void *info;
		u8 image[IMAGE_CONTEXT + sizeof(u16)];
	};
};

struct bridge_vm {
	struct bridge_process *process;
	struct amdgpu_device *adev;
	struct file *file;
	void *drm_priv;
	struct amdgpu_vm *vm;
	struct list_head acquiring;		/* among those being acquired */
	struct mutex flushing;			/* amdgpu skips a flush that another has begun */
	bool hangs;				/* an update of page tables did not end in time */
	bool ends, stopped;			/* the process has; its jobs were cancelled */
	struct amdgpu_vm_update_funcs by_jobs;	/* how copy engines write page tables */
	bool handed_half;			/* they have not, while it was acquired */
	struct amdgpu_job *jobs[4];		/* of updates by them that go on, or have failed */
	struct amdgpu_bo_vm *cleared;		/* the last table given to them, by its name */
	struct list_head noted;			/* pages that it is to take out at the end */
	struct list_head copies;		/* of these, should that be cancelled */
	unsigned long jobs_late;		/* 0, or jiffies: those of the render node were */
	unsigned int owes;			/* bridge_pages_set_owes() */
	struct list_head owing;			/* among those that do */
	spinlock_t last_lock;
	struct dma_fence *last;			/* of what was committed; all three under it */
};

/*
 * Keeps the file in which the device's buffers have their handles, and lets it go: a process's VM
 * does (amdgpu_bridge_client.c). keep: -ENODEV if the device was unplugged, and it is gone. let_go:
 * while somebody has a file of the device open; sleeps.
 */
int bridge_client_keep(struct amdgpu_device *adev);
void bridge_client_let_go(struct amdgpu_device *adev);

/*
 * amdgpu_job_timedout() of a device that was unplugged, and what comes before its
 * amdgpu_ttm_disable_buffer_funcs() (amdgpu_bridge_abandoned.c). exports_end: whoever has imported
 * from it is told to let go; takes reservations, and waits. moves_end: nobody fills its queues.
 */
enum drm_gpu_sched_stat bridge_job_abandoned(struct drm_sched_job *job);
void bridge_moves_end(struct amdgpu_device *adev);
void bridge_exports_end(struct amdgpu_device *adev);

/*
 * Buffers and dma-bufs (amdgpu_bridge_import.c). dmabuf_map: amdgpu_dma_buf_map(), or -ENODEV if
 * the exporter's device was unplugged; under the reservation.
 */
struct dma_buf *bridge_import_shared(struct kgd_mem *mem);
void bridge_import_put_shared(struct dma_buf *dmabuf, bool ended);
struct sg_table *bridge_dmabuf_map(struct dma_buf_attachment *attachment,
				   enum dma_data_direction direction);
bool bridge_import_is_known(struct kgd_mem *mem);
int bridge_import_free(struct amdgpu_device *adev, struct bridge_vm *vm, struct kgd_mem *mem,
		       u64 *freed);
int bridge_import_fence(struct amdkfd_process_info *info);

/*
 * Buffers that the process has from the render node (amdgpu_bridge_gem.c). has: whether one of its
 * VMs has something of that reservation; under info->lock and that. begin: as the VM is
 * acquired, before it has a queue; takes info->lock. opened: as a buffer comes into a VM; under
 * both reservations. bring_back: when the process is restored, what amdgpu does not; takes
 * info->lock. fence: behind it; an errno if that is to be tried again. Under info->lock, as
 * validate, which is amdgpu_amdkfd_bo_validate_and_fence() for imports of other devices.
 */
bool bridge_gem_has(struct amdkfd_process_info *info, const struct dma_resv *resv);
void bridge_gem_begin(struct amdgpu_vm *vm);
void bridge_gem_opened(struct amdgpu_vm *vm, struct amdgpu_bo *bo);
void bridge_gem_bring_back(struct amdkfd_process_info *info);
int bridge_gem_fence(struct amdkfd_process_info *info);
int bridge_gem_validate(struct amdgpu_bo *bo, u32 domain, struct dma_fence *fence);

/*
 * A buffer is about to lose its memory: has nobody go on to use it (amdgpu_bridge_gutted.c). Under
 * its reservation, before those who use it are waited for.
 */
void bridge_gutted(struct ttm_buffer_object *tbo);

/*
 * Of an import no memory goes but what an IOMMU has mapped for it. Where none translates, its
 * addresses stay those of its exporter, who tells where he moves: they may be used on, and no
 * restore would bring it back that finds no room for it.
 */
static inline bool bridge_keeps_addresses(const struct amdgpu_bo *bo)
{
	return bo->tbo.type == ttm_bo_type_sg &&
	       amdgpu_ttm_adev(bo->tbo.bdev)->ram_is_direct_mapped;
}

/*
 * From begin to end what amdgpu takes out of a VM's page tables is gone when it says so, or when
 * the job is done by which copy engines write them: whoever of those who have the VM's file is
 * killed, stopped or has a signal (amdgpu_bridge_tables.c). Both take the reservation of the VM's
 * root. Only we map memory into the VM without that; not before begin, nor after end. stop: behind
 * the end of the process; where copy engines stand still, what they were to write never is, and the
 * VM takes no jobs. Returns whether that is so.
 */
void bridge_tables_begin(struct bridge_vm *vm);
void bridge_tables_end(struct bridge_vm *vm);
bool bridge_tables_stop(struct bridge_vm *vm);

/*
 * The process has ended: whoever else has the VM's file takes out what it has left mapped
 * (bridge_pages_note()) before his next job, and once more if what he does it by is cancelled
 * (bridge_tables_stop()): note_again, under the reservation of the root, which take_notes takes.
 * forget_notes: when nothing is to be. (amdgpu_bridge_svm.c)
 */
void bridge_tables_take_notes(struct bridge_vm *vm);
void bridge_tables_note_again(struct bridge_vm *vm);
void bridge_tables_forget_notes(struct bridge_vm *vm);

/* Whose pages a job in it would have that should have gone (bridge_pages_set_owes()), or NULL. */
struct mm_struct *bridge_pages_owed_by(const struct amdgpu_vm *vm);

/* Its scheduler is in a reset, or behind one that has failed. */
bool bridge_stands_still(struct drm_sched_entity *entity);

/*
 * What stands still is ended after so long: amdgpu gives the queues of who is killed that time. A
 * reset may take longer, and what is queued goes on behind it.
 */
#define BRIDGE_STILL_MS 1000
#define BRIDGE_STILL_IN_RESET_MS 30000

/*
 * Behind an unmapping: the buffer's memory is nobody else's before copy engines have done what they
 * were given for the VM until now. amdgpu forgets a job that takes the buffer out where another one
 * beside fails, and who ends waits for none; and they wait for jobs of render nodes in the VM, for
 * seconds. Whoever waits for the buffer's updates waits for that, too. Takes the buffer's
 * reservation, and mem->lock.
 */
void bridge_tables_keep(struct bridge_vm *vm, struct kgd_mem *mem);

/*
 * What others than the KFD (DRM's GEM_CLOSE and GEM_VA) have unmapped while page tables were not
 * there is noted by amdgpu, which brings the tables back as they were, and what they have mapped is
 * not written. validate: amdgpu_vm_validate(), which brings them back, and takes the former out of
 * them; who restores the process, which is to come then, writes the latter, and what has come in
 * the place of the former. bring_back: the same with the tables alone. -EBUSY: they are not there.
 * clear_freed: amdgpu_vm_clear_freed(), of a VM that has something noted; -EBUSY likewise.
 * clear: of pages of the VM. All under the reservation of the root.
 *
 * take_out_of: bring_back where something is noted; takes the reservation, and waits. Before
 * anything is mapped there. take_out: for all VMs of a process, before a restore; takes info->lock.
 */
static __always_inline bool bridge_tables_are_away(const struct amdgpu_vm *vm)
{
	return READ_ONCE(vm->evicting) || !list_empty(&vm->kernel.evicted);
}

int bridge_tables_validate(struct amdgpu_device *adev, struct amdgpu_vm *vm,
			   struct ww_acquire_ctx *ticket,
			   int (*validate)(void *p, struct amdgpu_bo *bo), void *param);
int bridge_tables_bring_back(struct amdgpu_device *adev, struct amdgpu_vm *vm);
int bridge_tables_clear_freed(struct amdgpu_device *adev, struct amdgpu_vm *vm,
			      struct dma_fence **fence);
/* As many as anybody reserves of the root's who brings tables back (amdgpu_vm_lock_pd). */
#define BRIDGE_PLACES 16
int bridge_tables_clear(struct amdgpu_vm *vm, u64 first, u64 last);
int bridge_tables_take_out_of(struct amdgpu_vm *vm);
int bridge_tables_take_out(struct amdkfd_process_info *info);

/* Whether a buffer is mapped anywhere between these pages. Under the reservation of its root. */
bool bridge_vm_maps(struct amdgpu_vm *vm, u64 first, u64 last);

/*
 * What fails half way (amdgpu_bridge_halves.c). All take the reservation of the VM's root.
 * unmap: behind a mapping of the buffer that failed so, by the task that called amdgpu: takes out
 * of the page tables what it has written; the TLB is the caller's to flush. A buffer that could not
 * even be attached, so that reservations may have been forgotten, is left alone. restored: behind a
 * restore that failed, likewise; takes info->lock. relink: what both do for tables; under
 * the reservation. recall: before an unmapping, for entries that such a
 * restore has left; of one mapping under the reservation.
 */
void bridge_halves_relink(struct amdgpu_vm *vm);
void bridge_halves_unmap(struct bridge_vm *vm, struct kgd_mem *mem, int error);
void bridge_halves_restored(struct amdkfd_process_info *info);
void bridge_halves_recall(struct bridge_vm *vm, struct kgd_mem *mem);
void bridge_halves_recall_one(struct kfd_mem_attachment *entry);

/*
 * A VM of the render node's is about to become compute's (amdgpu_bridge_handover.c). begin: what
 * copy engines write in its page tables has been written, from here on also where somebody has them
 * write more, but for what was given up (handed_half); -ETIME if they are late, or interrupted by a
 * signal. end: it does not become that.
 * Both take the reservation of its root; one task for a VM at a time.
 */
int bridge_handover_begin(struct bridge_vm *vm);
void bridge_handover_end(struct bridge_vm *vm);

/*
 * The user's own pages (amdgpu_bridge_user_pages.c). begin: has them brought back whoever of the
 * process's tasks is left; before it has buffers. end: ours is not called for that any more; sleeps
 * until it has returned, so without what resuming a process locks. forget: what was found of a
 * buffer's pages, before it is freed and while it is not mapped; sleeps while others are brought
 * back.
 */
void bridge_user_pages_begin(struct amdkfd_process_info *info);
void bridge_user_pages_end(struct amdkfd_process_info *info);
void bridge_user_pages_forget(struct kgd_mem *mem);

/*
 * Jobs of the render node beside them. prepare: before a mapping; -ENOMEM. mapped, unmapped: behind
 * it, and behind an unmapping, from when on another buffer may be there. leave: when it is unmapped
 * for good. of, freed: before and behind the buffer's end. evict: amdgpu_amdkfd_evict_userptr(), in
 * a notifier of the mm; waits for jobs. handle_moved: amdgpu_vm_handle_moved() of a process's VM;
 * under the reservation of its root.
 */
struct user_pages;
int bridge_user_pages_prepare(struct bridge_vm *vm, struct kgd_mem *mem);
void bridge_user_pages_mapped(struct bridge_vm *vm, struct kgd_mem *mem);
void bridge_user_pages_unmapped(struct bridge_vm *vm, struct kgd_mem *mem);
void bridge_user_pages_leave(struct bridge_vm *vm, struct kgd_mem *mem);
struct user_pages *bridge_user_pages_of(struct kgd_mem *mem);
void bridge_user_pages_freed(struct user_pages *pages);
int bridge_user_pages_evict(struct mmu_interval_notifier *notifier, unsigned long seq,
			    struct kgd_mem *mem);
int bridge_user_pages_handle_moved(struct amdgpu_device *adev, struct amdgpu_vm *vm,
				   struct ww_acquire_ctx *ticket);

/* Whose pages the calling task brings back, if that is what it does; else NULL. */
struct amdkfd_process_info *bridge_user_pages_restored(void);

/*
 * Whether it is no use to begin with what needs the device. It may be unplugged right afterwards:
 * who has begun goes on, and amdgpu ends what the engines do not.
 */
static inline bool bridge_is_unplugged(struct amdgpu_device *adev)
{
	int idx;

	if (!amdgpu_call(drm_dev_enter)(adev_to_drm(adev), &idx))
		return true;
	amdgpu_call(drm_dev_exit)(idx);
	return false;
}

/*
 * Whether a wait that a signal may end is to be begun again: nothing is to end it but what kills
 * the caller, since behind a reset that has failed nothing may end what is waited for. A signal
 * that is pending ends each at once.
 */
static inline bool bridge_waits_on(long ret)
{
	if (ret != -ERESTARTSYS)
		return false;
	/* Who is killed has to come to his end. Who is there already has to get on with it. */
	if (fatal_signal_pending(current) && !(current->flags & PF_EXITING))
		return false;
	schedule_timeout_uninterruptible(1);
	return true;
}

/*
 * amdgpu waits interruptibly where it has begun to change a buffer already, and leaves it half
 * changed if a signal comes: off the list of what is validated, but with its handle (freeing). So
 * signals wait until it is done; what is left is SIGKILL of a process with several threads, stops
 * and freezers, which wake them all up.
 */
static inline void bridge_block_signals(sigset_t *before)
{
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, before);
}

static inline void bridge_restore_signals(sigset_t *before)
{
	sigprocmask(SIG_SETMASK, before, NULL);
}

/* The device that a buffer was made on. */
static inline struct amdgpu_device *bridge_home(struct kgd_mem *mem)
{
	return amdgpu_ttm_adev(mem->bo->tbo.bdev);
}

#endif
