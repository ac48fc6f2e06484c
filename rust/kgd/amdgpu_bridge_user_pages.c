// SPDX-License-Identifier: GPL-2.0-only
/*
 * bridge.h in terms of amdgpu: the user's own pages (USERPTR). A worker of amdgpu's brings them
 * back after the kernel has moved them, and lets the queues go on.
 *
 * amdgpu asks for the address space of the process's leader (info->pid, usertask of a buffer) where
 * it means the one that the pages are of. The leader can end before other threads do, and run
 * another program while a child keeps the memory.
 */
#include <linux/pid.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/workqueue.h>

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

static void restore_user_pages(struct work_struct *work)
{
	struct delayed_work *delayed = to_delayed_work(work);
	struct amdkfd_process_info *info = container_of(delayed, struct amdkfd_process_info,
							restore_userptr_work);

	name_living_task(info);
	bound_amdgpu_amdkfd_restore_userptr_worker(work);
	if (READ_ONCE(info->evicted_bos))
		bridge_halves_restored(info);
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

	if (!(mem->alloc_flags & KFD_IOC_ALLOC_MEM_FLAGS_USERPTR))
		return;
	mutex_lock(&info->lock);
	list_del_init(&mem->validate_list);
	range = mem->range;
	mem->range = NULL;
	mutex_unlock(&info->lock);
	amdgpu_call(amdgpu_hmm_range_free)(range);
}
