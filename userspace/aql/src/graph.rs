// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Graph`]: kernels that depend on each other, put together once and run as often as wanted.

use crate::signal::Deadline;
use crate::{BarrierAnd, Completion, Error, Launch, Packet, Queue, Result, Signal, Signals};
use std::sync::Arc;
use std::time::Duration;

/// Kernels and what each waits for, spread over some queues.
#[derive(Debug)]
pub struct Graph {
    queues: Vec<Arc<Queue>>,
    signals: Arc<Signals>,
    nodes: Vec<Node>,
    /// The last run has not come to its end.
    unfinished: bool,
}

/// One kernel of a [`Graph`], to be named by those that wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step(usize);

#[derive(Debug)]
struct Node {
    launch: Arc<Launch>,
    after: Vec<usize>,
    done: Signal,
    queue: usize,
}

impl Graph {
    /// An empty graph over `queues`, which nothing else should use while it runs.
    ///
    /// # Panics
    /// When there is no queue.
    pub fn new(queues: Vec<Arc<Queue>>, signals: &Arc<Signals>) -> Self {
        assert!(!queues.is_empty(), "a graph runs on a queue");
        Self {
            queues,
            signals: signals.clone(),
            nodes: Vec::new(),
            unfinished: false,
        }
    }

    /// Adds a kernel that runs when the steps `after` are done.
    pub fn add(&mut self, launch: &Arc<Launch>, after: &[Step]) -> Result<Step> {
        let number = self.nodes.len();
        if let Some(Step(late)) = after.iter().find(|Step(step)| *step >= number) {
            return Err(Error::Graph(number, *late));
        }
        let after: Vec<_> = after.iter().map(|Step(step)| *step).collect();
        let queue = place(&after, &self.nodes, self.queues.len());
        self.nodes.push(Node {
            launch: launch.clone(),
            after,
            done: self.signals.signal(1)?,
            queue,
        });
        Ok(Step(number))
    }

    /// Runs all of it and sleeps until the end; when each step began and ended, in the order of
    /// adding. Where the run before did not come to its end, this one begins when that has.
    ///
    /// After an error the GPU may still be at it: drop the queues before the graph, or the signals
    /// of its steps are lost to others until it is done, and for good its launches and the signals
    /// that steps on other queues wait for.
    ///
    /// `Launch`: a kernel needs more scratch than its queue has; nothing is run. `Fault`, `Lost`
    /// and `Timeout` as [`Queue::wait`].
    pub fn run(&mut self, timeout: Duration) -> Result<Vec<Completion>> {
        let deadline = Deadline::after(timeout);
        for node in &self.nodes {
            node.launch.check(&self.queues[node.queue])?;
        }
        // Their signals would be counted down by the packets of both runs, and barriers of the one
        // would wait for steps of the other.
        for node in self.nodes.iter().filter(|node| node.done.is_awaited()) {
            self.wait(node, deadline)?;
        }
        self.unfinished = true;
        self.nodes.iter().for_each(|node| node.done.store(1));
        for node in &self.nodes {
            self.submit(node, deadline)?;
        }
        let wait = |node| self.wait(node, deadline).map(|()| node.done.completion());
        let done = self.nodes.iter().map(wait).collect::<Result<_>>()?;
        self.unfinished = false;
        Ok(done)
    }

    fn wait(&self, node: &Node, deadline: Deadline) -> Result<()> {
        let watch = self.queues[node.queue].watch();
        watch.wait(&node.done, deadline)
    }

    /// Barriers on what other queues do first, then the kernel. On its own queue order is enough.
    fn submit(&self, node: &Node, deadline: Deadline) -> Result<()> {
        let queue = &self.queues[node.queue];
        let others = node.after.iter().map(|step| &self.nodes[*step]);
        let others: Vec<_> = others
            .filter(|other| other.queue != node.queue)
            .map(|other| other.done.address())
            .collect();
        let barriers = others
            .chunks(5)
            .map(|five| BarrierAnd::on(five).map(Packet::from));
        let barriers = barriers.collect::<Result<_>>()?;
        node.launch.put_by(queue, barriers, &node.done, deadline)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let queues = self.queues.drain(..).map(Arc::into_inner);
        let gone = |queue: Option<Queue>| queue.is_some_and(|queue| queue.destroy().is_ok());
        // The graph's own references were the last ones, and what was on the queues is gone with
        // them.
        if queues.fold(true, |all, queue| all & gone(queue)) {
            self.nodes.iter().for_each(|node| node.done.settle());
        } else if self.unfinished {
            // A queue may be at it until the process ends: nothing else comes to lie there.
            let (awaited, others) = awaited_elsewhere(std::mem::take(&mut self.nodes));
            let launches: Vec<_> = others.iter().map(|node| node.launch.clone()).collect();
            std::mem::forget((awaited, launches, self.signals.clone()));
        }
    }
}

/// The steps that others on other queues follow, and the rest. A barrier may still be to look at
/// the signal of one of the former, also where it is done: it would wait for whom the place is
/// given to.
fn awaited_elsewhere(nodes: Vec<Node>) -> (Vec<Node>, Vec<Node>) {
    let mut elsewhere = vec![false; nodes.len()];
    for node in &nodes {
        for step in &node.after {
            elsewhere[*step] |= nodes[*step].queue != node.queue;
        }
    }
    let mut elsewhere = elsewhere.into_iter();
    nodes
        .into_iter()
        .partition(|_| elsewhere.next() == Some(true))
}

/// The queue for a step: that of the first step it waits for, if it is the first to follow it; else
/// the next one around.
fn place(after: &[usize], nodes: &[Node], queues: usize) -> usize {
    let followed = |step: &usize| nodes.iter().any(|node| node.after.first() == Some(step));
    match after.first().filter(|step| !followed(step)) {
        Some(step) => nodes[*step].queue,
        None => nodes.len() % queues,
    }
}
