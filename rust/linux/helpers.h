/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef AMDKFD_LINUX_HELPERS_H
#define AMDKFD_LINUX_HELPERS_H

#include <linux/types.h>

struct file;
struct inode;
struct mm_struct;
struct task_struct;
struct vm_area_struct;

/* Fills @vma with device memory at bus address @address, uncached. */
void amdkfd_map_uncached(struct vm_area_struct *vma);
int amdkfd_map_io(struct vm_area_struct *vma, phys_addr_t address);
/* Whether the current system call was made in 32-bit mode. */
bool amdkfd_in_compat_syscall(void);
/* Whether the current task is being killed. */
bool amdkfd_fatal_signal_pending(void);
unsigned int amdkfd_jiffies_to_msecs(unsigned long jiffies);
/* Takes mmap_lock for writing. -EINTR: the current task is being killed. */
int amdkfd_mm_lock_killable(struct mm_struct *mm);
void amdkfd_mm_unlock(struct mm_struct *mm);
/* An inode that nothing else uses, with a reference. NULL: no memory. */
struct inode *amdkfd_anon_inode(const char *name);
/* Sends a signal of the kernel's to the thread group of @task. */
void amdkfd_signal_group(struct task_struct *task, int number);
/* Sends a signal of the kernel's to each thread group of which a thread runs in @mm. */
void amdkfd_signal_users(const struct mm_struct *mm, int number);
/* The id of @task's thread group, as the task's own pid namespace has it. */
pid_t amdkfd_thread_group_id(struct task_struct *task);
/* The same for the initial one. */
pid_t amdkfd_system_thread_group_id(struct task_struct *task);
/*
 * Who answers for @task: its user; in a user namespace that a user has made, who has made the
 * outermost one, for its ids are for the asking.
 */
uid_t amdkfd_answerable_user(struct task_struct *task);
/* Whether what is missing in @vma comes without another program: a file's server, a userfaultfd. */
bool amdkfd_faults_alone(struct vm_area_struct *vma);
/*
 * Reads what is there of @vma, at most a page of it, and brings nothing in. mmap_lock is held.
 * Returns @bytes, or anything else.
 */
int amdkfd_read_present(struct vm_area_struct *vma, unsigned long address, void *to, int bytes);
/* The leader of @task's thread group, with a reference; NULL: it has ended. */
struct task_struct *amdkfd_get_leader(struct task_struct *task);
/* Whether @task is traced by the current task. */
bool amdkfd_current_traces(struct task_struct *task);
bool amdkfd_is_frozen(struct task_struct *task);
/*
 * 1: @file can be asked to write without waiting for who reads it; 0: it has no way of being
 * written at all, as /dev/kfd. -EBADF: it is not open for writing; -EINVAL: it always may wait (a
 * terminal, a named pipe of a filesystem that a server has) or is written otherwise.
 */
int amdkfd_check_nowait(struct file *file);
/*
 * Writes one byte to such a file: -EAGAIN if it would have to wait. Not at the file's position.
 */
int amdkfd_write_nowait(struct file *file, u8 byte);
/* mb() */
void amdkfd_mb(void);
/* Whether there have been no more than ten messages in 5 s, with this one. */
bool amdkfd_may_complain(void);

#endif
