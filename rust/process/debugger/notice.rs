// SPDX-License-Identifier: GPL-2.0-only

//! Telling a debugger that there is something to ask for: a byte in a file of its own. One
//! [`Notice`] for each session, one [`Outbox`] for each process that debugs.
//!
//! A worker writes it, for the file may keep a writer waiting as long as its reader likes: who
//! reads a pipe into memory that a userfaultfd has to bring in holds the pipe's lock. One worker at
//! most waits for the files of a debugger, however many sessions it has or had, for its outbox is
//! one item of work. Its other files wait behind that one, and nobody else does: the module cannot
//! be unloaded meanwhile (`EBUSY`). Workers there are some 1000 of for all; a user has but 256
//! outboxes, so that no user's files keep them all.

use crate::{
    ids::Serial,
    linux::{
        fs::NoticeFile,
        module::ModuleRef,
        task::answerable_user,
        users::{
            Share,
            Users, //
        }, //
    },
    process::registry, //
};
use kernel::{
    new_mutex, new_work,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    static_lock_class,
    sync::{
        Arc,
        Mutex, //
    },
    workqueue::{
        impl_has_work,
        Work,
        WorkItem, //
    },
};

/// Outboxes that a user may have. A queue has `WQ_DFL_ACTIVE` workers: 1024.
const MAX_OUTBOXES: usize = 256;

/// How many outboxes each user has: nobody any. `EMFILE` is answered to who has all that may be.
pub(crate) fn outboxes() -> Result<Arc<Users<()>>> {
    let class = static_lock_class!();
    Users::new(c"amdkfd::Outboxes::users", class, MAX_OUTBOXES, EMFILE)
}

/// The files of a debugger, and the work that writes to them.
#[pin_data]
pub(super) struct Outbox {
    #[pin]
    work: Work<Outbox>,
    #[pin]
    files: Mutex<Files<Arc<NoticeFile>>>,
    _counted: Share<()>,
}

impl_has_work! {
    impl HasWork<Self> for Outbox { self.work }
}

/// A file for each session that there is.
struct Files<F>(RBTree<Serial, Told<F>>);

/// Where a debugger is told of a session.
struct Told<F> {
    file: F,
    /// Something happened, and is still to be told.
    due: bool,
}

impl<F: Clone> Files<F> {
    fn new() -> Self {
        Self(RBTree::new())
    }

    /// Something happened in a session.
    fn post(&mut self, session: Serial) {
        if let Some(told) = self.0.get_mut(&session) {
            told.due = true;
        }
    }

    /// The next session of which something is to be told, which is not due any more then.
    fn next(&mut self, after: Option<Serial>) -> Option<(Serial, F)> {
        let mut all = self.0.iter_mut();
        let (session, told) = all.find(|(session, told)| told.due && Some(**session) > after)?;
        told.due = false;
        Some((*session, told.file.clone()))
    }
}

impl Outbox {
    /// The current task's process's. `EMFILE`: its user has 256, those included that somebody keeps
    /// waiting after their debuggers have ended.
    pub(super) fn new() -> Result<Arc<Self>> {
        let user = answerable_user(kernel::current!());
        let counted = registry::get()?.outboxes().share(user, (), || false)?;
        let outbox = pin_init!(Self {
            work <- new_work!("amdkfd::Outbox"),
            files <- new_mutex!(Files::new(), "amdkfd::Outbox::files"),
            _counted: counted,
        });
        Arc::pin_init(outbox, GFP_KERNEL)
    }

    fn next(&self, after: Option<Serial>) -> Option<(Serial, Arc<NoticeFile>)> {
        self.files.lock().next(after)
    }
}

impl WorkItem for Outbox {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // Nobody is told any more when the module goes, which waits for this.
        let module = registry::get().and_then(|registry| ModuleRef::new(registry.module()));
        let Ok(_stays) = module else {
            return;
        };
        let mut last = None;
        // What becomes due behind it has it queued again.
        while let Some((session, file)) = this.next(last) {
            // One that is full says it already.
            if let Err(error) = file.write(b'.') {
                pr_debug!("a debugger's file was not written to: {error:?}\n");
            }
            last = Some(session);
        }
    }
}

/// How a debugger is told of a session.
pub(super) struct Notice {
    session: Serial,
    outbox: Arc<Outbox>,
}

impl Notice {
    /// For a new session, of which the debugger with that outbox is told in its file of that
    /// number; of none if that cannot be written. `EBADF`, `EINVAL`: see [`NoticeFile::get`].
    pub(super) fn new(outbox: &Arc<Outbox>, session: Serial, file: u32) -> Result<Self> {
        if let Some(file) = NoticeFile::get(file)? {
            let file = Arc::new(file, GFP_KERNEL)?;
            let node = RBTreeNode::new(session, Told { file, due: false }, GFP_KERNEL)?;
            // No session has had that name.
            let before = outbox.files.lock().0.insert(node);
            drop(before);
        }
        Ok(Self {
            session,
            outbox: outbox.clone(),
        })
    }

    /// Something happened. Waits for nobody.
    pub(super) fn send(&self) {
        self.outbox.files.lock().post(self.session);
        if let Ok(registry) = registry::get() {
            // If it is on its way already, it looks for what is due when it runs.
            let _ = registry.notices().enqueue(self.outbox.clone());
        }
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        let gone = self.outbox.files.lock().0.remove_node(&self.session);
        drop(gone);
    }
}

#[kernel::macros::kunit_tests(amdkfd_process_notice)]
mod tests {
    use super::*;
    use crate::linux::users::user_of;

    #[test]
    fn a_user_has_so_many_outboxes() {
        let all = outboxes().unwrap();
        let count = || all.share(user_of(1), (), || false);
        let mut kept = KVec::new();
        for _ in 0..MAX_OUTBOXES {
            kept.push(count().unwrap(), GFP_KERNEL).unwrap();
        }
        assert_eq!(count().err(), Some(EMFILE));
    }

    #[test]
    fn what_is_due_is_told_once_in_turn() {
        let mut files = Files::new();
        let sessions = [Serial::next(), Serial::next(), Serial::next()];
        for (file, session) in (0u32..).zip(sessions) {
            let told = Told { file, due: false };
            let node = RBTreeNode::new(session, told, GFP_KERNEL).unwrap();
            assert!(files.0.insert(node).is_none());
        }
        let [one, two, three] = sessions;
        assert_eq!(files.next(None), None);
        for session in [three, one, one] {
            files.post(session);
        }
        assert_eq!(files.next(None), Some((one, 0)));
        // It has happened again: it is not told before the others.
        files.post(one);
        assert_eq!(files.next(Some(one)), Some((three, 2)));
        assert_eq!(files.next(Some(three)), None);
        assert_eq!(files.next(None), Some((one, 0)));
        // A session that has ended is not told of.
        files.post(two);
        drop(files.0.remove_node(&two));
        files.post(two);
        assert_eq!(files.next(None), None);
    }
}
