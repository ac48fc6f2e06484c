// SPDX-License-Identifier: GPL-2.0-only
/*
 * The redirection of amdgpu's calls into the KFD: one ftrace_ops over all of them.
 *
 * How a redirected call is accounted for, so that this module can be unloaded: the ftrace handler
 * counts it in, the redirect function that it jumps to counts it out as the last thing it does.
 *   - Before the count: a task is in the handler. unregister_ftrace_function() and
 *     synchronize_rcu_tasks() wait for it.
 *   - Counted: it shows in "inside", even while it sleeps in our code.
 *   - After the count: a few instructions up to the return, without a voluntary switch among them:
 *     synchronize_rcu_tasks() waits for a task, synchronize_rcu() for an interrupt (over an idle
 *     CPU, where rcu_tasks does not look).
 */
#include <linux/delay.h>
#include <linux/ftrace.h>
#include <linux/memremap.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/static_call.h>
#include <linux/workqueue.h>

#include "amdgpu_bind.h"
#include "kfd_smi_events.h"
#include "kfd_svm.h"
#include "kfd_topology.h"
#include "attach.h"
#include "bridge_engines.h"
#include "bridge_vm.h"
#include "kgd2kfd.h"
#include "upcalls.h"
#include "../linux/migrate.h"

static atomic_t inside = ATOMIC_INIT(0);
static enum hook_mode mode = HOOK_PASS;
static bool open_blocked;

static __always_inline void leave(void)
{
	atomic_dec(&inside);
}

/*
 * Two forms: with a result and without. The type must be that of the function that it stands for.
 */
#define REDIRECT(type, name, params, call)				\
	static notrace type redirect_##name params			\
	{								\
		type ret = (call);					\
									\
		leave();						\
		return ret;						\
	}								\
	static_assert(__same_type(name, redirect_##name))

#define REDIRECT_VOID(name, params, call)				\
	static notrace void redirect_##name params			\
	{								\
		call;							\
		leave();						\
	}								\
	static_assert(__same_type(name, redirect_##name))

REDIRECT(int, kgd2kfd_init, (void), amdkfd_init());
REDIRECT_VOID(kgd2kfd_exit, (void), amdkfd_exit());
REDIRECT(struct kfd_dev *, kgd2kfd_probe, (struct amdgpu_device *adev, bool vf),
	 amdkfd_probe(adev, dev_name(adev->dev), amdgpu_ip_version(adev, GC_HWIP, 0), vf));
REDIRECT(bool, kgd2kfd_device_init,
	 (struct kfd_dev *kfd, const struct kgd2kfd_shared_resources *resources),
	 amdkfd_device_init(kfd, resources));
REDIRECT_VOID(kgd2kfd_device_exit, (struct kfd_dev *kfd), amdkfd_device_exit(kfd));
REDIRECT_VOID(kgd2kfd_teardown_processes, (struct amdgpu_device *adev),
	      amdkfd_teardown_processes(adev->kfd.dev));
REDIRECT_VOID(kgd2kfd_suspend, (struct kfd_dev *kfd, bool processes),
	      amdkfd_suspend(kfd, processes));
REDIRECT(int, kgd2kfd_resume, (struct kfd_dev *kfd, bool processes), amdkfd_resume(kfd, processes));
REDIRECT_VOID(kgd2kfd_suspend_process, (struct kfd_dev *kfd), amdkfd_suspend_process(kfd));
REDIRECT(int, kgd2kfd_resume_process, (struct kfd_dev *kfd), amdkfd_resume_process(kfd));

/* context: or NULL. */
static int pre_reset(struct kfd_dev *kfd, struct amdgpu_reset_context *context)
{
	char cause[64] = "";

	if (context)
		amdgpu_call(amdgpu_reset_get_desc)(context, cause, sizeof(cause));
	return amdkfd_pre_reset(kfd, cause);
}

REDIRECT(int, kgd2kfd_pre_reset, (struct kfd_dev *kfd, struct amdgpu_reset_context *context),
	 pre_reset(kfd, context));
REDIRECT(int, kgd2kfd_post_reset, (struct kfd_dev *kfd), amdkfd_post_reset(kfd));

/* Of a hive, which is reset as a whole, amdgpu calls it for one device, with the hive's lock. */
static void clear_mappings(struct amdgpu_device *adev)
{
	struct amdgpu_hive_info *hive = adev->hive;
	struct amdgpu_device *other;
	struct kfd_dev *kfd;

	/* Virtual functions are reset each by itself, without that lock. */
	if (hive && !amdgpu_sriov_vf(adev) && adev->gmc.xgmi.num_physical_nodes > 1) {
		lockdep_assert_held(&hive->hive_lock);
		list_for_each_entry(other, &hive->device_list, gmc.xgmi.head) {
			kfd = READ_ONCE(other->kfd.dev);
			if (kfd)
				amdkfd_prepare_reset(kfd);
		}
	}
	if (adev->kfd.dev)
		amdkfd_clear_mappings(adev->kfd.dev);
}

REDIRECT_VOID(amdgpu_amdkfd_clear_kfd_mapping, (struct amdgpu_device *adev), clear_mappings(adev));

REDIRECT_VOID(kgd2kfd_interrupt, (struct kfd_dev *kfd, const void *entry),
	      amdkfd_interrupt(kfd, entry));
REDIRECT(bool, kgd2kfd_vmfault_fast_path,
	 (struct amdgpu_device *adev, struct amdgpu_iv_entry *entry, bool retry),
	 amdkfd_drop_fault(adev, entry->pasid));
REDIRECT_VOID(kgd2kfd_set_sram_ecc_flag, (struct kfd_dev *kfd),
	      ({ if (kfd) amdkfd_set_sram_ecc_flag(kfd); }));
REDIRECT_VOID(kgd2kfd_smi_event_throttle, (struct kfd_dev *kfd, uint64_t bitmask),
	      ({ if (kfd) amdkfd_throttle(kfd, bitmask); }));

REDIRECT(int, kgd2kfd_check_and_lock_kfd, (struct kfd_dev *kfd), amdkfd_check_and_lock(kfd));
REDIRECT_VOID(kgd2kfd_unlock_kfd, (struct kfd_dev *kfd), amdkfd_unlock(kfd));

/* With and without a KFD: see enum answered. */
REDIRECT(int, kgd2kfd_start_sched, (struct kfd_dev *kfd, uint32_t node),
	 kfd ? amdkfd_start_sched(kfd, node, AMDKFD_PAUSE_ISOLATION) : 0);
REDIRECT(int, kgd2kfd_stop_sched, (struct kfd_dev *kfd, uint32_t node),
	 kfd ? amdkfd_stop_sched(kfd, node, AMDKFD_PAUSE_ISOLATION) : 0);
REDIRECT(int, kgd2kfd_start_sched_all_nodes, (struct kfd_dev *kfd),
	 kfd ? amdkfd_start_sched(kfd, -1, AMDKFD_PAUSE_IDLE) : 0);
REDIRECT(int, kgd2kfd_stop_sched_all_nodes, (struct kfd_dev *kfd),
	 kfd ? amdkfd_stop_sched(kfd, -1, AMDKFD_PAUSE_IDLE) : 0);
REDIRECT(int, amdgpu_amdkfd_start_sched_all, (struct amdgpu_device *adev),
	 adev->kfd.dev ? amdkfd_start_sched(adev->kfd.dev, -1, AMDKFD_PAUSE_LIMITER) : 0);
REDIRECT(int, amdgpu_amdkfd_stop_sched_all, (struct amdgpu_device *adev),
	 adev->kfd.dev ? amdkfd_stop_sched(adev->kfd.dev, -1, AMDKFD_PAUSE_LIMITER) : 0);
REDIRECT(bool, kgd2kfd_compute_active, (struct kfd_dev *kfd, uint32_t node),
	 kfd && amdkfd_compute_active(kfd, node));

REDIRECT(int, amdgpu_amdkfd_evict_userptr,
	 (struct mmu_interval_notifier *mni, unsigned long cur_seq, struct kgd_mem *mem),
	 bridge_user_pages_evict(mni, cur_seq, mem));
REDIRECT(int, kgd2kfd_quiesce_mm, (struct mm_struct *mm, uint32_t trigger),
	 amdkfd_quiesce_mm(mm, trigger));
REDIRECT(int, kgd2kfd_resume_mm, (struct mm_struct *mm), upcall_resume_mm(mm));
REDIRECT(int, kgd2kfd_schedule_evict_and_restore_process,
	 (struct mm_struct *mm, u16 context_id, struct dma_fence *fence),
	 amdkfd_schedule_evict_and_restore(mm, context_id, fence->seqno));

/* For GPUs whose scheduler is MES, of which we drive none. */
#ifdef HAVE_RESET_MES_QUEUE
REDIRECT(int, kgd2kfd_reset_mes_queue,
	 (struct kfd_dev *kfd, uint32_t node, int type, int pipe, int queue, unsigned int doorbell),
	 -EOPNOTSUPP);
#endif

/*
 * amdgpu wants the memory of device pages that C moved there, and which children of C's processes
 * have still: who could move them home is gone. The one kernel is told to take other memory. The
 * other one gets what C says, which then does nothing either: amdgpu waits for the children.
 */
#ifdef HAVE_EVICT_SVM_BO
REDIRECT(int, svm_range_evict_svm_bo, (struct amdgpu_bo *bo), -EBUSY);
#else
REDIRECT(int, svm_range_schedule_evict_svm_bo, (struct amdgpu_amdkfd_fence *fence), 0);
#endif

/*
 * What belongs to shared virtual memory (SVM). amdgpu gets what it gets from a kernel without it,
 * but for init_zone_device, which passes to C where we use C's device pages (ANSWERED_FOR_PAGES).
 */
REDIRECT(int, svm_range_restore_pages,
	 (struct amdgpu_device *adev, unsigned int pasid, uint32_t vmid, uint32_t node,
	  uint64_t addr, uint64_t ts, bool write),
	 amdkfd_page_fault(pasid, addr, ts, write));
REDIRECT(int, kgd2kfd_init_zone_device, (struct amdgpu_device *adev), 0);
REDIRECT_VOID(kfd_update_svm_support_properties, (struct amdgpu_device *adev), );

/*
 * amdgpu.debug_mask=userptr looks a process up to blame it for a fault; we have none of C's kind.
 */
REDIRECT(struct kfd_process *, kfd_lookup_process_by_pid, (struct pid *pid), NULL);
REDIRECT_VOID(kfd_unref_process, (struct kfd_process *process), );
REDIRECT_VOID(kfd_signal_vm_fault_event_with_userptr, (struct kfd_process *p, uint64_t gpu_va), );

/*
 * amdgpu_gem_object_open calls it when a buffer comes into a VM. It concerns user queues of
 * graphics, of which GPUs that we drive have none.
 */
static int gem_opened(struct amdgpu_eviction_fence_mgr *mgr, struct amdgpu_bo *bo)
{
	bridge_gem_opened(&container_of(mgr, struct amdgpu_fpriv, evf_mgr)->vm, bo);
	return 0;
}

REDIRECT(int, amdgpu_evf_mgr_attach_fence,
	 (struct amdgpu_eviction_fence_mgr *mgr, struct amdgpu_bo *bo), gem_opened(mgr, bo));

REDIRECT(int, amdgpu_amdkfd_bo_validate_and_fence,
	 (struct amdgpu_bo *bo, uint32_t domain, struct dma_fence *fence),
	 bridge_gem_validate(bo, domain, fence));

/*
 * Without page tables nothing can be taken out of them, and amdgpu forgets what it has been asked
 * to: whoever brings the tables back does it. Where they are there, later jobs wait for it.
 */
REDIRECT(int, amdgpu_vm_clear_freed,
	 (struct amdgpu_device *adev, struct amdgpu_vm *vm, struct dma_fence **fence),
	 bridge_tables_clear_freed(adev, vm, fence));

REDIRECT(int, amdgpu_vm_validate,
	 (struct amdgpu_device *adev, struct amdgpu_vm *vm, struct ww_acquire_ctx *ticket,
	  int (*validate)(void *p, struct amdgpu_bo *bo), void *param),
	 upcall_validate_vm(adev, vm, ticket, validate, param));

REDIRECT(int, amdgpu_vm_handle_moved,
	 (struct amdgpu_device *adev, struct amdgpu_vm *vm, struct ww_acquire_ctx *ticket),
	 bridge_user_pages_handle_moved(adev, vm, ticket));

/*
 * Whoever closes a file of a render node waits for its VM's entities, and who is being killed has
 * them stopped for good if he was the last to give them a job.
 */
REDIRECT(long, amdgpu_vm_wait_idle, (struct amdgpu_vm *vm, long timeout), timeout);

REDIRECT_VOID(amdgpu_ring_backup_unprocessed_commands,
	      (struct amdgpu_ring *ring, struct amdgpu_fence *guilty_fence),
	      ({
		bridge_ring_reset(ring);
		amdgpu_call(amdgpu_ring_backup_unprocessed_commands)(ring, guilty_fence);
	      }));

/* TTM calls it for a buffer that it evicts. Without a place the buffer loses its memory. */
static void evict_flags(struct ttm_buffer_object *bo, struct ttm_placement *placement)
{
	amdgpu_call(amdgpu_evict_flags)(bo, placement);
	if (!placement->num_placement)
		bridge_gutted(bo);
}

/* Static there; the type is TTM's. */
static_assert(__same_type(&amdgpu_evict_flags, (struct ttm_device_funcs){ }.evict_flags));
REDIRECT_VOID(amdgpu_evict_flags, (struct ttm_buffer_object *bo, struct ttm_placement *placement),
	      evict_flags(bo, placement));

static_assert(__same_type(&amdgpu_dma_buf_map, (struct dma_buf_ops){ }.map_dma_buf));
REDIRECT(struct sg_table *, amdgpu_dma_buf_map,
	 (struct dma_buf_attachment *attachment, enum dma_data_direction direction),
	 bridge_dmabuf_map(attachment, direction));

/* What lies in VRAM stays there: no engine copies it any more. */
static_assert(__same_type(&amdgpu_bo_move, (struct ttm_device_funcs){ }.move));
REDIRECT(int, amdgpu_bo_move,
	 (struct ttm_buffer_object *bo, bool evict, struct ttm_operation_ctx *ctx,
	  struct ttm_resource *new_mem, struct ttm_place *hop), -ENODEV);

REDIRECT_VOID(amdgpu_ttm_disable_buffer_funcs, (struct amdgpu_device *adev),
	      ({
		bridge_moves_end(adev);
		bridge_exports_end(adev);
		amdgpu_call(amdgpu_ttm_disable_buffer_funcs)(adev);
	      }));

static_assert(__same_type(&amdgpu_job_timedout, (struct drm_sched_backend_ops){ }.timedout_job));
REDIRECT(enum drm_gpu_sched_stat, amdgpu_job_timedout, (struct drm_sched_job *job),
	 bridge_job_abandoned(job));

REDIRECT_VOID(kfd_smi_event_queue_restore_rescheduled, (struct mm_struct *mm),
	      upcall_restore_postponed(mm));

/* Only amdgpu_amdkfd_clear_kfd_mapping calls these, and that is redirected as a whole. */
REDIRECT_VOID(kfd_dev_unmap_mapping_range, (loff_t const begin, loff_t const length), );
REDIRECT(size_t, kfd_doorbell_process_slice, (struct kfd_dev *kfd), 0);

/*
 * The operations of C's device pages, for those pages that are ours (ANSWERED_BY_TAG). They are
 * static there, hence no types to check.
 */
static notrace vm_fault_t redirect_svm_migrate_to_ram(struct vm_fault *vmf)
{
	vm_fault_t ret = amdkfd_svm_to_ram(vmf);

	leave();
	return ret;
}

static notrace void redirect_svm_migrate_folio_free(struct folio *folio)
{
	amdkfd_svm_free(folio);
	leave();
}

/* open() of the C amdkfd's /dev/kfd; static there, hence no type to check. */
static notrace int redirect_kfd_open(struct inode *inode, struct file *file)
{
	leave();
	return -EAGAIN;
}

/*
 * Who answers a call, beside the mode.
 *
 * amdgpu asks by "init_complete" alone whether there is a KFD for some calls, which come at any
 * time: from the submission of jobs. While a device changes hands it has none. Then we answer
 * whatever the mode, for C would not; and the first argument tells.
 *
 * Device pages are C's, all of them: it made them when amdgpu bound the device. But some are in
 * use by C, or are left in children of its processes, and others by us, in each mode. The page
 * tells.
 *
 * What is thrown away is ours to tell of as soon as opening is blocked: what was before is looked
 * for then.
 */
enum answered {
	ANSWERED_BY_MODE,
	ANSWERED_WITHOUT_KFD,		/* the argument is the KFD's device */
	ANSWERED_WITHOUT_DEVICES_KFD,	/* the argument is amdgpu's device */
	ANSWERED_BY_FAULTS_TAG,		/* the argument is the fault of a device page */
	ANSWERED_BY_TAG,		/* the argument is the folio of a device page */
	ANSWERED_FOR_PAGES,		/* the argument is amdgpu's device: are there pages? */
	ANSWERED_FOR_IMPORT,		/* the argument is a buffer: is it another device's? */
	ANSWERED_FOR_COMPUTE,		/* the argument is of a file: is its VM one of compute's? */
	ANSWERED_FOR_COMPUTES_VM,	/* the argument is a VM: has a process acquired it? */
	ANSWERED_FOR_ITS_VM,		/* the second is: the same */
	ANSWERED_FROM_BLOCKED_ON,	/* before C is asked for what it has */
	/* the second is a VM of compute's: are its tables away, or something to be taken out? */
	ANSWERED_WITH_NOTES,
	ANSWERED_FOR_JOBS,		/* the same; or the last is not NULL, as for a job in it? */
	ANSWERED_WHEN_UNPLUGGED,	/* the argument is amdgpu's device: has it gone? */
	ANSWERED_WHEN_ABANDONED,	/* the argument is a job: of such a device? */
	ANSWERED_WHEN_IT_STAYS,		/* of a buffer that is moved: in VRAM of such a device? */
};

/* The busy ones first, by interrupt and by page: the handler looks from the top. */
#define HOOK_THAT(function, is_answered)					\
	{ .name = "amdgpu:" #function, .target = redirect_##function, .answered = is_answered }
#define HOOK(function) HOOK_THAT(function, ANSWERED_BY_MODE)
static struct hook {
	const char *name;
	void *target;
	enum answered answered;
	/* Where ftrace finds it called: the function's start, or past its ENDBR64. */
	unsigned long site;
} hooks[] = {
	HOOK(kgd2kfd_interrupt),
	HOOK_THAT(svm_migrate_folio_free, ANSWERED_BY_TAG),
	HOOK(svm_range_restore_pages),
	HOOK_THAT(svm_migrate_to_ram, ANSWERED_BY_FAULTS_TAG),
	HOOK_THAT(amdgpu_vm_clear_freed, ANSWERED_WITH_NOTES),
	HOOK_THAT(amdgpu_vm_validate, ANSWERED_FOR_JOBS),
	HOOK_THAT(amdgpu_vm_handle_moved, ANSWERED_FOR_ITS_VM),
	HOOK(amdgpu_amdkfd_evict_userptr),
	HOOK_THAT(amdgpu_evict_flags, ANSWERED_FROM_BLOCKED_ON),
	HOOK(kgd2kfd_vmfault_fast_path),
	HOOK(kgd2kfd_quiesce_mm),
	HOOK(kgd2kfd_resume_mm),
	HOOK(kgd2kfd_schedule_evict_and_restore_process),
	HOOK(kgd2kfd_init),
	HOOK(kgd2kfd_exit),
	HOOK(kgd2kfd_probe),
	HOOK(kgd2kfd_device_init),
	HOOK(kgd2kfd_device_exit),
	HOOK(kgd2kfd_teardown_processes),
	HOOK(kgd2kfd_suspend),
	HOOK(kgd2kfd_resume),
	HOOK(kgd2kfd_suspend_process),
	HOOK(kgd2kfd_resume_process),
	HOOK(kgd2kfd_pre_reset),
	HOOK(kgd2kfd_post_reset),
	HOOK(amdgpu_amdkfd_clear_kfd_mapping),
	HOOK(amdgpu_ring_backup_unprocessed_commands),
	HOOK(kgd2kfd_set_sram_ecc_flag),
	HOOK(kgd2kfd_smi_event_throttle),
	HOOK(kgd2kfd_check_and_lock_kfd),
	HOOK(kgd2kfd_unlock_kfd),
	HOOK_THAT(kgd2kfd_start_sched, ANSWERED_WITHOUT_KFD),
	HOOK_THAT(kgd2kfd_stop_sched, ANSWERED_WITHOUT_KFD),
	HOOK_THAT(kgd2kfd_start_sched_all_nodes, ANSWERED_WITHOUT_KFD),
	HOOK_THAT(kgd2kfd_stop_sched_all_nodes, ANSWERED_WITHOUT_KFD),
	HOOK_THAT(amdgpu_amdkfd_start_sched_all, ANSWERED_WITHOUT_DEVICES_KFD),
	HOOK_THAT(amdgpu_amdkfd_stop_sched_all, ANSWERED_WITHOUT_DEVICES_KFD),
	HOOK_THAT(kgd2kfd_compute_active, ANSWERED_WITHOUT_KFD),
#ifdef HAVE_EVICT_SVM_BO
	HOOK(svm_range_evict_svm_bo),
#else
	HOOK(svm_range_schedule_evict_svm_bo),
#endif
#ifdef HAVE_RESET_MES_QUEUE
	HOOK_THAT(kgd2kfd_reset_mes_queue, ANSWERED_WITHOUT_KFD),
#endif
	HOOK_THAT(kgd2kfd_init_zone_device, ANSWERED_FOR_PAGES),
	HOOK(kfd_update_svm_support_properties),
	HOOK_THAT(amdgpu_evf_mgr_attach_fence, ANSWERED_FOR_COMPUTE),
	HOOK_THAT(amdgpu_amdkfd_bo_validate_and_fence, ANSWERED_FOR_IMPORT),
	HOOK_THAT(amdgpu_vm_wait_idle, ANSWERED_FOR_COMPUTES_VM),
	HOOK(amdgpu_dma_buf_map),
	HOOK_THAT(amdgpu_bo_move, ANSWERED_WHEN_IT_STAYS),
	HOOK_THAT(amdgpu_job_timedout, ANSWERED_WHEN_ABANDONED),
	HOOK_THAT(amdgpu_ttm_disable_buffer_funcs, ANSWERED_WHEN_UNPLUGGED),
	HOOK(kfd_lookup_process_by_pid),
	HOOK(kfd_unref_process),
	HOOK(kfd_signal_vm_fault_event_with_userptr),
	HOOK(kfd_smi_event_queue_restore_rescheduled),
	HOOK(kfd_dev_unmap_mapping_range),
	HOOK(kfd_doorbell_process_slice),
	HOOK(kfd_open),
};

/* Not exported; bound like amdgpu's functions. */
DEFINE_STATIC_CALL_NULL(find_call_site, ftrace_location);

static notrace const struct hook *hook_at(unsigned long ip)
{
	const struct hook *hook;

	for (hook = hooks; hook < hooks + ARRAY_SIZE(hooks); hook++)
		if (ip == hook->site)
			return hook;
	return NULL;
}

/* While this module serves. C makes the pages of a device once, if we use them. */
static notrace bool has_pages(const struct amdgpu_device *adev)
{
	return !amdkfd_svm_enabled() || adev->kfd.pgmap.type;
}

static notrace bool is_computes(const struct amdgpu_eviction_fence_mgr *mgr)
{
	return READ_ONCE(container_of(mgr, struct amdgpu_fpriv, evf_mgr)->vm.process_info);
}

/* It stays one of compute's when the process has ended that acquired it (leave_process()). */
static notrace bool has_process(const struct amdgpu_vm *vm)
{
	return READ_ONCE(vm->is_compute_context) && !list_empty(&vm->vm_list_node);
}

/* Under the reservation of its root, as long as which they stay away. */
static notrace bool is_without_tables(const struct amdgpu_vm *vm)
{
	return READ_ONCE(vm->is_compute_context) && bridge_tables_are_away(vm);
}

/* The same. Who has a job wait for what he takes out himself does not wait for that (amdgpu_cs). */
static notrace bool has_notes(const struct amdgpu_vm *vm)
{
	return READ_ONCE(vm->is_compute_context) && !list_empty(&vm->freed);
}

static notrace bool has_gone(struct amdgpu_device *adev)
{
	return READ_ONCE(adev_to_drm(adev)->unplugged);
}

/* amdgpu's looks once more, in a section that ends before the device counts as unplugged. */
static notrace bool is_abandoned(const struct drm_sched_job *job)
{
	return has_gone(to_amdgpu_ring(job->sched)->adev);
}

static notrace bool stays(const struct ttm_buffer_object *bo, const struct ttm_resource *to)
{
	bool copied = to->mem_type == TTM_PL_VRAM ||
		      (bo->resource && bo->resource->mem_type == TTM_PL_VRAM);

	return copied && has_gone(amdgpu_ttm_adev(bo->bdev));
}

static notrace bool is_ours(const struct hook *hook, bool serves, bool blocked,
			    struct ftrace_regs *fregs)
{
	const void *first = (const void *)ftrace_regs_get_argument(fregs, 0);
	const void *second = (const void *)ftrace_regs_get_argument(fregs, 1);

	if (hook->target == redirect_kfd_open)
		return serves || blocked;
	switch (hook->answered) {
	case ANSWERED_BY_MODE:
		return serves;
	case ANSWERED_WITHOUT_KFD:
		return serves || (blocked && !first);
	case ANSWERED_WITHOUT_DEVICES_KFD:
		return serves ||
			(blocked && !READ_ONCE(((const struct amdgpu_device *)first)->kfd.dev));
	case ANSWERED_BY_FAULTS_TAG:
		return amdkfd_is_our_page(((const struct vm_fault *)first)->page);
	case ANSWERED_BY_TAG:
		return amdkfd_is_our_page(&((const struct folio *)first)->page);
	case ANSWERED_FOR_PAGES:
		return serves && has_pages(first);
	case ANSWERED_FOR_IMPORT:
		return serves && drm_gem_is_imported(&((const struct amdgpu_bo *)first)->tbo.base);
	case ANSWERED_FOR_COMPUTE:
		return serves && is_computes(first);
	case ANSWERED_FOR_COMPUTES_VM:
		return serves && has_process(first);
	case ANSWERED_FOR_ITS_VM:
		return serves && has_process(second);
	case ANSWERED_FROM_BLOCKED_ON:
		return serves || blocked;
	case ANSWERED_WITH_NOTES:
		return serves && (is_without_tables(second) || has_notes(second));
	case ANSWERED_FOR_JOBS:
		return serves && (is_without_tables(second) || has_notes(second) ||
				  (ftrace_regs_get_argument(fregs, 4) && has_process(second)));
	case ANSWERED_WHEN_UNPLUGGED:
		return serves && has_gone((struct amdgpu_device *)first);
	case ANSWERED_WHEN_ABANDONED:
		return serves && is_abandoned(first);
	case ANSWERED_WHEN_IT_STAYS:
		return serves && stays(first, (const void *)ftrace_regs_get_argument(fregs, 3));
	}
	return serves;
}

/* Whether ours calls amdgpu's. */
static notrace bool calls_amdgpus(const struct hook *hook)
{
	return hook->target == redirect_amdgpu_vm_clear_freed ||
	       hook->target == redirect_amdgpu_vm_validate ||
	       hook->target == redirect_amdgpu_vm_handle_moved ||
	       hook->target == redirect_amdgpu_amdkfd_evict_userptr ||
	       hook->target == redirect_amdgpu_evict_flags ||
	       hook->target == redirect_amdgpu_dma_buf_map ||
	       hook->target == redirect_amdgpu_ttm_disable_buffer_funcs ||
	       hook->target == redirect_amdgpu_ring_backup_unprocessed_commands;
}

static notrace void handler(unsigned long ip, unsigned long parent_ip, struct ftrace_ops *ops,
			    struct ftrace_regs *fregs)
{
	bool serves = READ_ONCE(mode) == HOOK_OURS;
	bool blocked = READ_ONCE(open_blocked);
	const struct hook *hook = hook_at(ip);

	/* hook is NULL for none of those that we have asked for. */
	if (!hook || !is_ours(hook, serves, blocked, fregs))
		return;
	if (calls_amdgpus(hook) && within_module(parent_ip, THIS_MODULE))
		return;
	atomic_inc(&inside);
	ftrace_regs_set_instruction_pointer(fregs, (unsigned long)hook->target);
}

/* PERMANENT: kernel.ftrace_enabled=0 must not hand our kfd_dev to C code. */
static struct ftrace_ops ops = {
	.func = handler,
	.flags = FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT
#ifndef CONFIG_HAVE_DYNAMIC_FTRACE_WITH_ARGS
		| FTRACE_OPS_FL_SAVE_REGS
#endif
};

/*
 * Finds the call sites of all hooks. A function without one could be told to ftrace and would be
 * served by C all the same, with a device of ours.
 */
static int find_sites(unsigned long (*lookup)(const char *name), unsigned long *sites)
{
	struct hook *hook;
	unsigned long address = lookup("ftrace_location");

	if (!address)
		return refuse(-ENOENT, "symbol ftrace_location not found");
	static_call_update(find_call_site, (void *)address);
	for (hook = hooks; hook < hooks + ARRAY_SIZE(hooks); hook++) {
		address = lookup(hook->name);
		if (!address)
			return refuse(-ENOENT, "symbol %s not found", hook->name);
		hook->site = static_call(find_call_site)(address);
		if (!hook->site)
			return refuse(-EOPNOTSUPP, "%s cannot be redirected", hook->name);
		*sites++ = hook->site;
	}
	return 0;
}

int hooks_install(unsigned long (*lookup)(const char *name))
{
	unsigned long sites[ARRAY_SIZE(hooks)];
	int ret;

	ret = find_sites(lookup, sites);
	if (ret)
		return ret;
	ret = ftrace_set_filter_ips(&ops, sites, ARRAY_SIZE(sites), 0, 1);
	if (!ret)
		ret = register_ftrace_function(&ops);
	if (!ret)
		return 0;
	ftrace_free_filter(&ops);
	/* Somebody is just changing how one of them is traced. */
	return refuse(ret == -EAGAIN ? -EBUSY : ret, "cannot redirect amdgpu's calls (%d)", ret);
}

/*
 * TIMEOUT: none. The caller is about to unload this text or to hand what the calls use to somebody
 * else; to go on while a task is inside would be a use after free. Each call is bounded itself.
 */
static void drain(void)
{
	unsigned int waited = 0;

	synchronize_rcu_tasks();
	synchronize_rcu();
	while (atomic_read(&inside)) {
		msleep(10);
		if (++waited % 1000 == 0)
			pr_warn("waiting for %d calls of amdgpu's to return\n",
				atomic_read(&inside));
	}
	synchronize_rcu_tasks();
	synchronize_rcu();
}

/*
 * After an error of its own ftrace changes no code any more (ftrace_kill()): amdgpu's functions go
 * on calling our handler, which passes all on to C. So this text must stay, and so must amdgpu. A
 * module that is being unloaded stays for one reason only: that its unloading does not end.
 */
static void __noreturn stay_forever(int err)
{
	pr_crit("ftrace does not let amdgpu's functions go (%d): this module stays loaded\n", err);
	for (;;)
		schedule_timeout_idle(MAX_SCHEDULE_TIMEOUT);
}

void hooks_remove(void)
{
	int ret;

	WRITE_ONCE(mode, HOOK_PASS);
	WRITE_ONCE(open_blocked, false);
	ret = unregister_ftrace_function(&ops);
	if (ret)
		stay_forever(ret);
	drain();
	ftrace_free_filter(&ops);
}

void hooks_set_mode(enum hook_mode new_mode)
{
	WRITE_ONCE(mode, new_mode);
	drain();
}

void hooks_block_open(bool blocked)
{
	WRITE_ONCE(open_blocked, blocked);
	amdkfd_gate(!blocked);
	/* A task that the handler let pass sleeps in C's kfd_open by now, or has left it. */
	synchronize_rcu_tasks();
}
