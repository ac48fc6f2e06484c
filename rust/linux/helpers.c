// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the kernel offers as an inline function or a macro, as functions that Rust can call. One
 * line each; anything longer belongs in Rust.
 */

#include <asm/barrier.h>
#include <linux/anon_inodes.h>
#include <linux/compat.h>
#include <linux/cred.h>
#include <linux/err.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/highmem.h>
#include <linux/io.h>
#include <linux/jiffies.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/pid_namespace.h>
#include <linux/ptrace.h>
#include <linux/ratelimit.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/uio.h>
#include <linux/user_namespace.h>
#include <linux/userfaultfd_k.h>

#include "helpers.h"

void amdkfd_map_uncached(struct vm_area_struct *vma)
{
	vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
}

int amdkfd_map_io(struct vm_area_struct *vma, phys_addr_t address)
{
	return io_remap_pfn_range(vma, vma->vm_start, address >> PAGE_SHIFT,
				  vma->vm_end - vma->vm_start, vma->vm_page_prot);
}

bool amdkfd_in_compat_syscall(void)
{
	return in_compat_syscall();
}

bool amdkfd_fatal_signal_pending(void)
{
	return fatal_signal_pending(current);
}

unsigned int amdkfd_jiffies_to_msecs(unsigned long jiffies)
{
	return jiffies_to_msecs(jiffies);
}

int amdkfd_mm_lock_killable(struct mm_struct *mm)
{
	return mmap_write_lock_killable(mm);
}

void amdkfd_mm_unlock(struct mm_struct *mm)
{
	mmap_write_unlock(mm);
}

struct inode *amdkfd_anon_inode(const char *name)
{
	static const struct file_operations nothing;
	struct file *file = anon_inode_create_getfile(name, &nothing, NULL, O_RDWR, NULL);
	struct inode *inode;

	if (IS_ERR(file))
		return NULL;
	inode = igrab(file_inode(file));
	/* At once: its operations are in this module, which may be gone before a later moment. */
	__fput_sync(file);
	return inode;
}

void amdkfd_signal_group(struct task_struct *task, int number)
{
	guard(rcu)();
	kill_pid(task_tgid(task), number, 1);
}

void amdkfd_signal_users(const struct mm_struct *mm, int number)
{
	struct task_struct *group, *thread;

	guard(rcu)();
	for_each_process(group) {
		for_each_thread(group, thread) {
			if (READ_ONCE(thread->mm) != mm || thread->flags & PF_KTHREAD)
				continue;
			kill_pid(task_tgid(group), number, 1);
			break;
		}
	}
}

pid_t amdkfd_thread_group_id(struct task_struct *task)
{
	return task_tgid_nr_ns(task, task_active_pid_ns(task));
}

pid_t amdkfd_system_thread_group_id(struct task_struct *task)
{
	return task_tgid_nr(task);
}

uid_t amdkfd_answerable_user(struct task_struct *task)
{
	kuid_t user, owner = GLOBAL_ROOT_UID;
	const struct user_namespace *ns;

	rcu_read_lock();
	user = __task_cred(task)->uid;
	/* Its parents live as long as it does. */
	for (ns = __task_cred(task)->user_ns; ns->parent; ns = ns->parent)
		owner = ns->owner;
	rcu_read_unlock();
	/* One that root has made has the ids that root wanted it to have. */
	return __kuid_val(uid_eq(owner, GLOBAL_ROOT_UID) ? user : owner);
}

bool amdkfd_faults_alone(struct vm_area_struct *vma)
{
	return (vma_is_anonymous(vma) || vma->vm_flags & VM_PFNMAP) && !userfaultfd_armed(vma);
}

/* As access_process_vm(), whose lock is waited for. */
int amdkfd_read_present(struct vm_area_struct *vma, unsigned long address, void *to, int bytes)
{
	struct page *page;

	if (offset_in_page(address) + bytes > PAGE_SIZE)
		return -EFAULT;
	if (vma->vm_flags & (VM_IO | VM_PFNMAP))
		return vma->vm_ops && vma->vm_ops->access ?
			vma->vm_ops->access(vma, address, to, bytes, 0) : -EFAULT;
	if (get_user_pages_remote(vma->vm_mm, address, 1, FOLL_NOFAULT, &page, NULL) != 1)
		return -EFAULT;
	memcpy_from_page(to, page, offset_in_page(address), bytes);
	put_page(page);
	return bytes;
}

struct task_struct *amdkfd_get_leader(struct task_struct *task)
{
	guard(rcu)();
	return get_pid_task(task_tgid(task), PIDTYPE_TGID);
}

bool amdkfd_current_traces(struct task_struct *task)
{
	guard(rcu)();
	return ptrace_parent(task) == current;
}

/* The freezer of version 2 of control groups lets those go that are killed, and is none of this. */
bool amdkfd_is_frozen(struct task_struct *task)
{
	struct task_struct *thread;

	guard(rcu)();
	for_each_thread(task, thread)
		if (READ_ONCE(thread->__state) & TASK_FROZEN)
			return true;
	return false;
}

/*
 * Whether writing to a named pipe waits for nobody but its readers. Its file's times change, for
 * which a filesystem of a server's may wait.
 */
static bool is_local(const struct super_block *sb)
{
	switch (sb->s_magic) {
	case PIPEFS_MAGIC:
	case TMPFS_MAGIC:
	case OVERLAYFS_SUPER_MAGIC:
		return true;
	case FUSE_SUPER_MAGIC:
		return false;
	default:
		return sb->s_type->fs_flags & FS_REQUIRES_DEV;
	}
}

int amdkfd_check_nowait(struct file *file)
{
	umode_t mode = file_inode(file)->i_mode;

	if (!(file->f_mode & FMODE_WRITE))
		return -EBADF;
	if (!(file->f_mode & FMODE_CAN_WRITE))
		return 0;
	/* Nobody is told by these, and who writes has to keep them from being frozen. */
	if (S_ISREG(mode) || S_ISBLK(mode))
		return -EINVAL;
	if (!file->f_op->write_iter)
		return -EINVAL;
	if (!(file->f_mode & FMODE_NOWAIT) &&
	    !(S_ISFIFO(mode) && is_local(file_inode(file)->i_sb)))
		return -EINVAL;
	return 1;
}

int amdkfd_write_nowait(struct file *file, u8 byte)
{
	struct kvec vec = { .iov_base = &byte, .iov_len = sizeof(byte) };
	const struct cred *worker;
	struct iov_iter from;
	struct kiocb write;
	ssize_t ret;

	init_sync_kiocb(&write, file);
	write.ki_flags |= IOCB_NOWAIT;
	iov_iter_kvec(&from, ITER_SOURCE, &vec, 1, sizeof(byte));
	/* With the rights of who opened it: the other end may ask (SO_PASSCRED). */
	worker = override_creds(file->f_cred);
	ret = vfs_iocb_iter_write(file, &write, &from);
	revert_creds(worker);
	return ret < 0 ? ret : 0;
}

void amdkfd_mb(void)
{
	mb();
}

bool amdkfd_may_complain(void)
{
	static struct ratelimit_state state =
		RATELIMIT_STATE_INIT_FLAGS(state, DEFAULT_RATELIMIT_INTERVAL,
					   DEFAULT_RATELIMIT_BURST, RATELIMIT_MSG_ON_RELEASE);

	return __ratelimit(&state);
}
