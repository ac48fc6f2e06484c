// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Who runs the queues: a few host threads, or the caller itself in synchronous mode. One
//! [`Runner`] per GPU.
//!
//! A queue is a [`Job`]: it is stepped for a bounded slice, over and over, until it says it is
//! idle; one that polls memory is stepped again after a growing pause. Ringing a doorbell
//! wakes it.

use std::collections::VecDeque;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::stats::Stats;
use crate::engine::Progress;

/// Something to run, a slice of a few milliseconds at most at a time.
pub trait Job: Send + Sync {
    /// Runs one slice.
    fn step(&self) -> Progress;
}

/// How jobs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// On the thread that calls [`Runner::poll`].
    Sync,
    /// On this many host threads.
    Threads(usize),
}

/// Steps that one poll may take in synchronous mode before it returns.
const SYNC_STEPS: usize = 256;
/// First and longest pause of a job that polls.
const POLL_MIN: Duration = Duration::from_micros(20);
const POLL_MAX: Duration = Duration::from_millis(2);

const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
const AGAIN: u8 = 3;

/// A job with its place in the runner.
pub struct Task {
    job: Arc<dyn Job>,
    /// Read and written under the lock of [`Lists`] only.
    state: AtomicU8,
}

impl Task {
    /// Wraps a job.
    pub fn new(job: Arc<dyn Job>) -> Arc<Self> {
        Arc::new(Task {
            job,
            state: AtomicU8::new(IDLE),
        })
    }
}

struct Paused {
    task: Arc<Task>,
    until: Instant,
    pause: Duration,
}

#[derive(Default)]
struct Lists {
    ready: VecDeque<(Arc<Task>, Duration)>,
    paused: Vec<Paused>,
    stop: bool,
}

impl Lists {
    fn pop(&mut self) -> Option<(Arc<Task>, Duration)> {
        let ready = self.ready.pop_front()?;
        ready.0.state.store(RUNNING, Ordering::Relaxed);
        Some(ready)
    }

    fn unpause(&mut self, now: Instant) {
        while let Some(at) = self.paused.iter().position(|paused| paused.until <= now) {
            let paused = self.paused.swap_remove(at);
            self.ready.push_back((paused.task, paused.pause));
        }
    }
}

struct Inner {
    lists: Mutex<Lists>,
    wake: Condvar,
    stats: Arc<Stats>,
    /// Nanoseconds that jobs have run, on all threads together.
    busy: Arc<AtomicU64>,
}

/// The threads (if any) and what they have to do. Dropping it joins them.
pub struct Runner {
    inner: Arc<Inner>,
    mode: Mode,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Runner {
    /// Starts the threads. `stats` is told of jobs that panic.
    pub fn new(mode: Mode, stats: Arc<Stats>) -> Self {
        let inner = Arc::new(Inner {
            lists: Mutex::default(),
            wake: Condvar::new(),
            stats,
            busy: Arc::default(),
        });
        let count = match mode {
            Mode::Sync => 0,
            Mode::Threads(count) => count.max(1),
        };
        let threads: Vec<_> = (0..count)
            .filter_map(|index| {
                let inner = inner.clone();
                let name = format!("gpu-engine-{index}");
                std::thread::Builder::new()
                    .name(name)
                    .spawn(move || inner.run())
                    .ok()
            })
            .collect();
        Runner {
            inner,
            mode,
            threads: Mutex::new(threads),
        }
    }

    /// Makes sure that `task` is stepped (again). In synchronous mode somebody must call
    /// [`Runner::poll`], who holds no lock: a job may want any.
    pub fn wake(&self, task: &Arc<Task>) {
        self.inner.enqueue(task);
    }

    /// The same after a while, unless somebody else wakes it before.
    pub fn wake_later(&self, task: &Arc<Task>, pause: Duration) {
        self.inner.enqueue_later(task, pause);
    }

    /// Synchronous mode: steps what can run, until nothing can or a limit is reached.
    pub fn poll(&self) {
        if self.mode != Mode::Sync {
            return;
        }
        self.inner.unpause_all();
        for _ in 0..SYNC_STEPS {
            let Some((task, pause)) = self.inner.lock().pop() else {
                return;
            };
            self.inner.step(task, pause);
        }
    }

    /// Nanoseconds that jobs have run, counting on.
    pub fn busy(&self) -> Arc<AtomicU64> {
        self.inner.busy.clone()
    }

    /// Whether the caller runs the jobs.
    pub fn is_synchronous(&self) -> bool {
        self.mode == Mode::Sync
    }

    /// Runs a job's step, or a part of one, on the calling thread. A panic costs the job as it does
    /// on the runner's own threads: it is counted, and the job is idle.
    pub fn guard(&self, step: impl FnOnce() -> Progress) -> Progress {
        self.inner.guard(step)
    }

    /// Ends the threads after the slices they run.
    pub fn stop(&self) {
        self.inner.lock().stop = true;
        self.inner.wake.notify_all();
        for thread in super::lock(&self.threads).drain(..) {
            let _ = thread.join();
        }
        // Jobs hold what they run on: part them.
        let lists = std::mem::take(&mut *self.inner.lock());
        self.inner.lock().stop = true;
        drop(lists);
    }

    /// Whether nothing is queued or paused.
    pub fn is_idle(&self) -> bool {
        let lists = self.inner.lock();
        lists.ready.is_empty() && lists.paused.is_empty()
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Lists> {
        self.lists
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
    }

    fn enqueue(&self, task: &Arc<Task>) {
        let mut lists = self.lock();
        match task.state.load(Ordering::Relaxed) {
            IDLE => {
                task.state.store(QUEUED, Ordering::Relaxed);
                lists.ready.push_back((task.clone(), POLL_MIN));
            }
            RUNNING => task.state.store(AGAIN, Ordering::Relaxed),
            _ => {
                if let Some(at) = lists.paused.iter().position(|p| Arc::ptr_eq(&p.task, task)) {
                    let paused = lists.paused.swap_remove(at);
                    lists.ready.push_back((paused.task, POLL_MIN));
                }
            }
        }
        self.wake.notify_one();
    }

    fn enqueue_later(&self, task: &Arc<Task>, pause: Duration) {
        let mut lists = self.lock();
        match task.state.load(Ordering::Relaxed) {
            IDLE => {
                task.state.store(QUEUED, Ordering::Relaxed);
                lists.paused.push(Paused {
                    task: task.clone(),
                    until: Instant::now() + pause,
                    pause: POLL_MIN,
                });
            }
            RUNNING => task.state.store(AGAIN, Ordering::Relaxed),
            // It will be stepped.
            _ => {}
        }
        self.wake.notify_one();
    }

    fn unpause_all(&self) {
        let mut lists = self.lock();
        for paused in std::mem::take(&mut lists.paused) {
            lists.ready.push_back((paused.task, paused.pause));
        }
    }

    fn run(&self) {
        while let Some((task, pause)) = self.next() {
            self.step(task, pause);
        }
    }

    fn next(&self) -> Option<(Arc<Task>, Duration)> {
        let mut lists = self.lock();
        loop {
            if lists.stop {
                return None;
            }
            let now = Instant::now();
            lists.unpause(now);
            if let Some(ready) = lists.pop() {
                return Some(ready);
            }
            let until = lists.paused.iter().map(|paused| paused.until).min();
            // TIMEOUT: until the next paused job is due, or a second to stay robust against lost
            // wake-ups.
            let timeout = until.map_or(Duration::from_secs(1), |until| until - now);
            lists = match self.wake.wait_timeout(lists, timeout) {
                Ok((lists, _)) => lists,
                Err(poison) => poison.into_inner().0,
            };
        }
    }

    /// A fault of the model costs the queue that it shows in, not the threads of all. These hold
    /// only locks, which go on after a panic.
    fn guard(&self, step: impl FnOnce() -> Progress) -> Progress {
        catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|_| {
            self.stats.count("steps of a queue that panicked");
            Progress::Idle
        })
    }

    fn step(&self, task: Arc<Task>, pause: Duration) {
        let began = Instant::now();
        let progress = self.guard(|| task.job.step());
        let took = began.elapsed().as_nanos() as u64;
        self.busy.fetch_add(took, Ordering::Relaxed);
        let mut lists = self.lock();
        let woken = task.state.swap(QUEUED, Ordering::Relaxed) == AGAIN;
        match progress {
            Progress::Busy => lists.ready.push_back((task, POLL_MIN)),
            _ if woken => lists.ready.push_back((task, POLL_MIN)),
            Progress::Polling => lists.paused.push(Paused {
                task,
                until: Instant::now() + pause,
                pause: (pause * 2).min(POLL_MAX),
            }),
            Progress::Idle => task.state.store(IDLE, Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    struct Count {
        left: AtomicUsize,
        steps: AtomicUsize,
    }

    impl Job for Count {
        fn step(&self) -> Progress {
            self.steps.fetch_add(1, Ordering::SeqCst);
            let more = |left: usize| left.checked_sub(1);
            match self
                .left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, more)
            {
                Ok(left) if left % 2 == 0 => Progress::Busy,
                Ok(_) => Progress::Polling,
                Err(_) => Progress::Idle,
            }
        }
    }

    fn count(left: usize) -> (Arc<Count>, Arc<Task>) {
        let job = Arc::new(Count {
            left: left.into(),
            steps: 0.into(),
        });
        (job.clone(), Task::new(job))
    }

    fn until(what: &str, holds: impl Fn() -> bool) {
        let start = Instant::now();
        while !holds() {
            assert!(start.elapsed() < Duration::from_secs(20), "not so: {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn threads_run_a_job_to_its_end() {
        let runner = Runner::new(Mode::Threads(2), Arc::default());
        let (job, task) = count(100);
        runner.wake(&task);
        until("it has ended", || job.left.load(Ordering::SeqCst) == 0);
    }

    struct Faulty;

    impl Job for Faulty {
        fn step(&self) -> Progress {
            panic!("a fault of the model, made up by this test")
        }
    }

    #[test]
    fn a_job_that_panics_leaves_the_threads_to_others() {
        let stats = Arc::new(Stats::default());
        let runner = Runner::new(Mode::Threads(2), stats.clone());
        let faulty = Task::new(Arc::new(Faulty));
        for panics in 1..4 {
            runner.wake(&faulty);
            let counted = || stats.all().first().map_or(0, |(_, count)| *count);
            until("it is counted", || counted() == panics);
        }
        let (job, task) = count(10);
        runner.wake(&task);
        until("it has ended", || job.left.load(Ordering::SeqCst) == 0);
    }

    #[test]
    fn synchronous_mode_runs_in_poll_and_looks_at_those_that_poll() {
        let runner = Runner::new(Mode::Sync, Arc::default());
        let (job, task) = count(2);
        runner.wake(&task);
        runner.poll();
        assert_eq!(job.steps.load(Ordering::SeqCst), 2);
        assert!(!runner.is_idle());
        runner.poll();
        assert_eq!(job.steps.load(Ordering::SeqCst), 3);
        assert!(runner.is_idle());
    }
}
