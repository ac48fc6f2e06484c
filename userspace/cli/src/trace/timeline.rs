// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kfdctl trace --perfetto FILE`: what was traced as a timeline, with what the driver's
//! tracepoints and the programs' rings tell of the same time.

mod dispatches;
mod driver;
mod kernels;

use super::call::{Call, End};
use crate::clocks::{self, Moment};
use anyhow::{Context, Result};
use dispatches::{Dispatch, Names, Queue, Watcher};
use driver::{Event, Tracing};
use kfd_timeline::{Timeline, TrackId, Value};
use nix::unistd::Pid;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// This writer's number in the file; the models of `kfd-vm run --perfetto` have 2 and more.
const WRITER: u32 = 1;

/// A call as the timeline has it.
struct Done {
    task: Pid,
    leader: Pid,
    begin: u64,
    end: u64,
    name: String,
    facts: Vec<(&'static str, Value)>,
}

/// What is gathered while programs run.
pub struct Recording {
    file: File,
    /// The file's name.
    path: PathBuf,
    tracing: Result<Tracing, String>,
    clocks: Result<Vec<Moment>, String>,
    watcher: Watcher,
    calls: Vec<Done>,
    names: HashMap<Pid, String>,
}

impl Recording {
    /// Begins, before the program does, what is written to `file` in the end.
    pub fn start(file: File, path: &Path) -> Result<Self> {
        let clocks = clocks::moments().map_err(|error| format!("{error:#}"));
        Ok(Self {
            file,
            path: path.to_owned(),
            tracing: Tracing::start(),
            clocks,
            watcher: Watcher::start().context("a thread")?,
            calls: Vec::new(),
            names: HashMap::new(),
        })
    }

    /// A call begins: the last moment at which a queue that it destroys can be looked at.
    pub fn begins(&mut self, leader: Pid, call: &Call) {
        self.watcher.settle();
        if call.name == "DESTROY_QUEUE" {
            if let Some(id) = call.before("queue_id") {
                self.watcher.remove(leader.as_raw(), id as u32);
            }
        }
    }

    /// A call has ended.
    pub fn ended(&mut self, task: Pid, leader: Pid, call: &Call, end: &End) {
        for id in [task, leader] {
            self.names.entry(id).or_insert_with(|| name(id));
        }
        if call.name.starts_with("open") {
            // By then it is the program, not what started it.
            self.names.insert(leader, name(leader));
        }
        if matches!(end.outcome, Some(Ok(_))) {
            self.note(leader.as_raw(), call, end);
        }
        self.calls.push(Done {
            task,
            leader,
            begin: call.start,
            end: call.start + end.time.as_nanos() as u64,
            name: call.name.clone(),
            facts: call.facts(end),
        });
    }

    /// What calls say of queues and of the loader's list.
    fn note(&self, pid: i32, call: &Call, end: &End) {
        match call.name.as_str() {
            "CREATE_QUEUE" if call.says("queue_type", "COMPUTE_AQL") => {
                let field = |name| call.after(end, name).unwrap_or(0);
                self.watcher.add(Queue::new(
                    pid,
                    field("gpu_id") as u32,
                    field("queue_id") as u32,
                    (field("ring_base_address"), field("ring_size")),
                    (
                        field("read_pointer_address"),
                        field("write_pointer_address"),
                    ),
                ));
            }
            "RUNTIME_ENABLE" => {
                if let Some(at) = call.before("r_debug").filter(|at| *at != 0) {
                    self.watcher.loader(pid, at);
                }
            }
            _ => {}
        }
    }

    /// Writes the file, and says on standard error what is not in it.
    pub fn finish(mut self) -> Result<()> {
        let (queues, kernels) = self.watcher.finish();
        let mut notes = Vec::new();
        let (events, lost) = match &self.tracing {
            Ok(tracing) => tracing.events(),
            Err(why) => {
                notes.push(format!("the driver's tracepoints: {why}"));
                (Vec::new(), 0)
            }
        };
        if lost > 0 {
            notes.push(format!("{lost} events of the driver: there were too many"));
        }
        let mut moments = match self.clocks {
            Ok(moments) => moments,
            Err(why) => {
                notes.push(format!("the GPUs' clocks: {why}"));
                Vec::new()
            }
        };
        moments.extend(clocks::moments().unwrap_or_default());
        for queue in queues.iter().filter(|queue| queue.missed > 0) {
            let (id, pid) = (queue.id, queue.pid);
            notes.push(format!(
                "{} packets of queue {id} of process {pid}",
                queue.missed
            ));
        }
        let mut picture = Picture::new(self.names);
        picture.calls(&self.calls);
        picture.driver(&events);
        for queue in &queues {
            picture.queue(queue, &kernels);
        }
        picture.clocks(&moments);
        let bytes = picture.timeline.encode();
        let written = self.file.write_all(&bytes);
        written.with_context(|| self.path.display().to_string())?;
        for note in notes {
            eprintln!("kfdctl: not in the timeline: {note}");
        }
        Ok(())
    }
}

fn name(task: Pid) -> String {
    crate::queues::name_of(task.as_raw() as u32)
}

/// The timeline in the making.
struct Picture {
    timeline: Timeline,
    names: HashMap<Pid, String>,
    processes: HashMap<Pid, TrackId>,
    threads: HashMap<Pid, TrackId>,
    driver: Option<TrackId>,
    parts: BTreeMap<String, TrackId>,
}

impl Picture {
    fn new(names: HashMap<Pid, String>) -> Self {
        Self {
            timeline: Timeline::new(WRITER),
            names,
            processes: HashMap::new(),
            threads: HashMap::new(),
            driver: None,
            parts: BTreeMap::new(),
        }
    }

    fn process(&mut self, leader: Pid) -> TrackId {
        let name = self.names.get(&leader).map_or("", String::as_str);
        let timeline = &mut self.timeline;
        let known = self.processes.entry(leader);
        *known.or_insert_with(|| timeline.process(leader.as_raw(), name))
    }

    fn calls(&mut self, calls: &[Done]) {
        for call in calls {
            let process = self.process(call.leader);
            let name = self.names.get(&call.task).map_or("", String::as_str);
            let (pid, tid) = (call.leader.as_raw(), call.task.as_raw());
            let timeline = &mut self.timeline;
            let known = self.threads.entry(call.task);
            let thread = *known.or_insert_with(|| timeline.thread(process, pid, tid, name));
            timeline.slice(thread, call.begin, call.end, &call.name, call.facts.clone());
        }
    }

    /// A track of the driver's.
    fn part(&mut self, name: &str) -> TrackId {
        let timeline = &mut self.timeline;
        let driver = *self
            .driver
            .get_or_insert_with(|| timeline.track(None, "amdkfd"));
        let known = self.parts.entry(name.to_owned());
        *known.or_insert_with(|| timeline.track(Some(driver), name))
    }

    /// Calls as the driver saw them lie in those of the threads; the rest has tracks of its own.
    fn driver(&mut self, events: &[Event]) {
        let mut begun: HashMap<i32, (u64, String)> = HashMap::new();
        for event in events {
            let known = self.threads.get(&Pid::from_raw(event.task)).copied();
            match (event.name.as_str(), known) {
                // Those of others, such as what asks for the clocks, are not shown.
                ("ioctl", _) => {
                    begun.insert(event.task, (event.at, event.text.clone()));
                }
                ("ioctl_done", Some(thread)) => {
                    if let Some((at, name)) = begun.remove(&event.task) {
                        let result = event.text.rsplit('=').next().unwrap_or_default();
                        let facts = [("result", result.into())];
                        let name = format!("amdkfd {name}");
                        self.timeline.slice(thread, at, event.at, &name, facts);
                    }
                }
                ("ioctl_done", None) => {}
                (name, _) => self.instant(name, event),
            }
        }
    }

    fn instant(&mut self, name: &str, event: &Event) {
        let (track, title) = match name {
            "interrupt" => {
                let gpu = event.number("gpu_id").unwrap_or(0);
                (format!("interrupts of GPU {gpu}"), source(&event.text))
            }
            name => {
                let first = event.text.split([' ', '=']).next().unwrap_or_default();
                let track = match name {
                    "process" => "evictions".to_owned(),
                    _ if name.starts_with("svm_") => "shared virtual memory".to_owned(),
                    _ => format!("{name}s"),
                };
                let title = match name.strip_prefix("svm_") {
                    Some(what) => what.to_owned(),
                    None => first.to_owned(),
                };
                (track, title)
            }
        };
        let track = self.part(&track);
        let facts = [
            ("says", event.text.as_str().into()),
            ("task", (event.task as u64).into()),
        ];
        self.timeline.instant(track, event.at, &title, facts);
    }

    fn queue(&mut self, queue: &Queue, kernels: &Names) {
        let process = self.process(Pid::from_raw(queue.pid));
        let title = format!("queue {} on GPU {}", queue.id, queue.gpu_id);
        let track = self.timeline.track(Some(process), &title);
        let mut last = 0;
        for dispatch in &queue.dispatches {
            // Packets of one queue are shown one after the other, as they are done.
            let begin = dispatch.seen.max(last);
            let end = dispatch.done.unwrap_or(begin);
            last = end.max(begin);
            let name = match kernels.get(&(queue.pid, dispatch.kernel)) {
                Some(name) => name.clone(),
                None if dispatch.kernel != 0 => format!("kernel {:#x}", dispatch.kernel),
                None => dispatch.name.to_owned(),
            };
            self.timeline
                .slice(track, begin, end, &name, facts(dispatch));
        }
    }

    fn clocks(&mut self, moments: &[Moment]) {
        let track = self.timeline.track(None, "clocks");
        for moment in moments {
            let facts = [
                ("gpu_id", u64::from(moment.gpu_id).into()),
                ("ticks", moment.ticks.into()),
                ("within_ns", moment.within_ns.into()),
            ];
            let title = format!("GPU {}", moment.gpu_id);
            self.timeline
                .instant(track, moment.monotonic_ns, &title, facts);
        }
    }
}

fn facts(dispatch: &Dispatch) -> Vec<(&'static str, Value)> {
    let mut facts = vec![
        ("packet", dispatch.index.into()),
        ("seen_ns", dispatch.seen.into()),
    ];
    if dispatch.kernel != 0 {
        let size = |[x, y, z]: [u32; 3]| format!("{x}x{y}x{z}");
        facts.push(("kernel", dispatch.kernel.into()));
        facts.push(("grid", size(dispatch.grid).into()));
        facts.push(("workgroup", size(dispatch.group).into()));
    }
    facts
}

/// What an interrupt is of: client and source, the lowest bytes of its first word.
fn source(text: &str) -> String {
    let word = text.split_once("entry={").and_then(|(_, words)| {
        let word = words.split([',', '}']).next()?.strip_prefix("0x")?;
        u32::from_str_radix(word, 16).ok()
    });
    match word {
        Some(word) => format!("client {:#x} source {}", word & 0xff, word >> 8 & 0xff),
        None => "interrupt".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kfd_timeline::read;

    fn event(task: i32, at: u64, name: &str, text: &str) -> Event {
        let (name, text) = (name.to_owned(), text.to_owned());
        Event {
            task,
            at,
            name,
            text,
        }
    }

    #[test]
    fn the_drivers_part_of_a_call_lies_in_it() {
        let mut picture = Picture::new(HashMap::from([(Pid::from_raw(7), "gemm".into())]));
        let task = Pid::from_raw(7);
        picture.calls(&[Done {
            task,
            leader: task,
            begin: 1000,
            end: 9000,
            name: "CREATE_QUEUE".into(),
            facts: vec![("result", "0".into())],
        }]);
        picture.driver(&[
            event(7, 2000, "ioctl", "CREATE_QUEUE"),
            event(8, 2500, "ioctl", "GET_CLOCK_COUNTERS"),
            event(0, 3000, "interrupt", "gpu_id=77 entry={0xb514, 0x0}"),
            event(8, 3500, "ioctl_done", "GET_CLOCK_COUNTERS result=0"),
            event(7, 8000, "ioctl_done", "CREATE_QUEUE result=0"),
            event(7, 8500, "svm_restore", "pid=7 failures=0 result=0"),
        ]);
        let reading = read(&picture.timeline.encode()).expect("a timeline");
        let slices = |name: &'static str| -> Vec<_> {
            let tracks = reading.named(name);
            let slices = tracks.flat_map(|track| &track.slices);
            slices
                .map(|slice| (slice.name.as_str(), slice.begin, slice.end))
                .collect()
        };
        let of_process = reading
            .tracks
            .iter()
            .find(|track| track.of == Some((7, Some(7))));
        let thread = of_process.expect("the thread");
        assert_eq!(thread.slices.len(), 2);
        assert_eq!(thread.slices[1].name, "amdkfd CREATE_QUEUE");
        assert_eq!(
            slices("interrupts of GPU 77"),
            [("client 0x14 source 181", 3000, 3000)]
        );
        assert_eq!(slices("shared virtual memory"), [("restore", 8500, 8500)]);
    }
}
