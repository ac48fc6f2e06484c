/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The calls that come up from amdgpu, flattened: C declares and calls them, rust/kgd2kfd.rs defines
 * them. "kfd" is what amdkfd_probe returned for the device; it lives until amdkfd_exit.
 * Also the two calls by which Rust starts and ends it all.
 */
#ifndef AMDKFD_KGD2KFD_H
#define AMDKFD_KGD2KFD_H

#include <linux/types.h>

struct amdgpu_device;
struct folio;
struct kfd_dev;
struct kgd2kfd_shared_resources;
struct mm_struct;
struct vm_fault;

/* Rust calls these: attach to amdgpu, now or when it is loaded; and let go of it. */
int amdkfd_attach(void);
void amdkfd_detach(void);
/* Whether processes have shared virtual memory: the module parameter svm. In any context. */
bool amdkfd_svm_enabled(void);
/* Whether 2 MiB pages move as one in it: the module parameter svm_large. */
bool amdkfd_svm_large_enabled(void);
bool amdkfd_allows_untested(void);

/* Do we drive this generation? If not, why gets the reason: what of it fits into so many bytes. */
bool amdkfd_supports(u32 gc_version, bool virtual_function, char *why, size_t size);

/* May /dev/kfd be opened? Else -EAGAIN. It may unless this says otherwise. */
void amdkfd_gate(bool open);

/* The major number of our /dev/kfd; 0 while there is none. */
u32 amdkfd_major(void);

/* amdgpu comes up, goes away. exit: nothing if it never came up. */
int amdkfd_init(void);
void amdkfd_exit(void);
/* A device does. NULL: it is not served, and the log says why. name: for people to read. */
struct kfd_dev *amdkfd_probe(struct amdgpu_device *adev, const char *name, u32 gc_version,
			     bool virtual_function);
bool amdkfd_device_init(struct kfd_dev *kfd, const struct kgd2kfd_shared_resources *resources);
void amdkfd_device_exit(struct kfd_dev *kfd);
/* amdgpu is about to be unbound from a device, which works still, and may be none of ours. */
void amdkfd_unbinding(struct amdgpu_device *adev);
/*
 * The other way: amdgpu forgets what amdkfd_probe returned for a device that does not go before
 * amdkfd_exit. It was unbound, and somebody has a file of its open. From here on it stays until
 * amdkfd_let_device_go(). False: its last file is gone, and amdgpu calls amdkfd_device_exit, which
 * must not have returned when this is called. Sleeps.
 */
bool amdkfd_withdraw(struct amdgpu_device *adev, struct kfd_dev *kfd);
/* amdgpu may free the device. Sleeps. */
void amdkfd_let_device_go(struct amdgpu_device *adev);
/*
 * The device is going away: end the processes that use it, and wait until they let go. kfd: or
 * NULL.
 */
void amdkfd_teardown_processes(struct kfd_dev *kfd);

/* Power and reset. processes: theirs too, not the device's alone. */
void amdkfd_suspend(struct kfd_dev *kfd, bool processes);
int amdkfd_resume(struct kfd_dev *kfd, bool processes);
void amdkfd_suspend_process(struct kfd_dev *kfd);
int amdkfd_resume_process(struct kfd_dev *kfd);
/* Tasks run again after a sleep of the machine, or the attempt. Sleeps, for seconds at most. */
void amdkfd_woke_up(void);
/* cause: for people to read. */
int amdkfd_pre_reset(struct kfd_dev *kfd, const char *cause);
int amdkfd_post_reset(struct kfd_dev *kfd);
/* The current task is about to reset the device, as one of a hive. */
void amdkfd_prepare_reset(struct kfd_dev *kfd);
/* The same, as the one that amdgpu names; zaps the user mappings of its doorbells and registers. */
void amdkfd_clear_mappings(struct kfd_dev *kfd);

/* Hard IRQ: eight dwords of the interrupt ring. */
void amdkfd_interrupt(struct kfd_dev *kfd, const u32 *entry);
/* May the fault of that pasid be dropped at once? Hard IRQ or a worker. */
bool amdkfd_drop_fault(struct amdgpu_device *adev, u32 pasid);
void amdkfd_set_sram_ecc_flag(struct kfd_dev *kfd);
void amdkfd_throttle(struct kfd_dev *kfd, u64 bitmask);

/* Partition switch: -EBUSY while a process uses the device. */
int amdkfd_check_and_lock(struct kfd_dev *kfd);
void amdkfd_unlock(struct kfd_dev *kfd);

/*
 * The scheduler of one node, or (node < 0) of all: stopped as long as it is for any of these
 * reasons.
 */
enum amdkfd_pause {
	AMDKFD_PAUSE_ISOLATION,		/* enforce_isolation: a job of amdgpu's has the node */
	AMDKFD_PAUSE_LIMITER,		/* the peak tensor limiter (PTL) changes */
	AMDKFD_PAUSE_IDLE,		/* suspend to idle (s0ix) */
};
int amdkfd_start_sched(struct kfd_dev *kfd, int node, enum amdkfd_pause why);
int amdkfd_stop_sched(struct kfd_dev *kfd, int node, enum amdkfd_pause why);
bool amdkfd_compute_active(struct kfd_dev *kfd, u32 node);

/*
 * Memory pressure. quiesce: synchronous, in an MMU notifier. schedule: fence lock held, IRQs off.
 */
int amdkfd_quiesce_mm(struct mm_struct *mm, u32 trigger);
int amdkfd_resume_mm(struct mm_struct *mm);
/*
 * A GPU misses a page of a process's, and tries again until it has it; page: by number; write: it
 * was to be written; timestamp: of the interrupt ring. -EFAULT and the like: it must not try again.
 * A worker of amdgpu's.
 */
int amdkfd_page_fault(u32 pasid, u64 page, u64 timestamp, bool write);
/*
 * Somebody wants a job in its VM, where pages are that should have gone: it tries again to take
 * them out, in a worker. Does not wait; under reservations.
 */
void amdkfd_hurry(struct mm_struct *mm);
/* Its buffers found no room: the queues come back later. */
void amdkfd_restore_postponed(struct mm_struct *mm);
int amdkfd_schedule_evict_and_restore(struct mm_struct *mm, u16 context_id, u64 fence_seqno);

/*
 * For device pages that are ours, in any mode. to_ram: the processor touched one; mmap_lock or the
 * VMA's lock is held, the page is locked and referenced. A vm_fault_t. free: nobody refers to it
 * any more; atomic.
 */
unsigned int amdkfd_svm_to_ram(struct vm_fault *fault);
void amdkfd_svm_free(struct folio *folio);

#endif
