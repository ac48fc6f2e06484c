// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The driver's tracepoints, by an instance of tracefs of our own: others may trace meanwhile.

use nix::errno::Errno;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// KiB for each CPU: some 200,000 events.
const BUFFER: &str = "16384";
/// How instances of tracers are named, before the tracer's process.
const NAME: &str = "kfdctl-";

/// An event as the kernel prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The task in which it happened; 0 on an idle CPU.
    pub task: i32,
    /// Nanoseconds of CLOCK_MONOTONIC, rounded to the microsecond.
    pub at: u64,
    /// The tracepoint, without `amdkfd_`.
    pub name: String,
    /// What it says.
    pub text: String,
}

impl Event {
    /// A field `NAME=VALUE` that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        let fields = self.text.split_whitespace();
        let mut values = fields.filter_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        values.next()?.parse().ok()
    }
}

/// Tracepoints that are on until this goes.
#[derive(Debug)]
pub struct Tracing {
    instance: PathBuf,
    /// While one of its files is open the kernel lets nobody remove the instance.
    held: Option<File>,
}

impl Tracing {
    /// Turns them on, or says why they can't be.
    pub fn start() -> Result<Self, String> {
        let mut mounts = MOUNTS.iter().map(Path::new);
        // Where it may not be looked the kernel says why.
        let is_there = |mount: &&Path| mount.join("instances").try_exists().unwrap_or(true);
        let mount = mounts.find(is_there);
        let mount = mount.ok_or("tracefs is not mounted at /sys/kernel/tracing")?;
        let says = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
        let instances = mount.join("instances");
        remove_left(&instances);
        let instance = instances.join(format!("{NAME}{}", std::process::id()));
        let held = make(&instance).map_err(|error| says(&instance, error))?;
        let tracing = Self {
            instance,
            held: Some(held),
        };
        let events = tracing.instance.join("events/amdkfd");
        if !events.exists() {
            return Err("no driver with tracepoints is there (amdkfd.ko has them)".into());
        }
        for (file, text) in [
            ("trace_clock", "mono"),
            ("buffer_size_kb", BUFFER),
            ("events/amdkfd/enable", "1"),
        ] {
            let path = tracing.instance.join(file);
            fs::write(&path, text).map_err(|error| says(&path, error))?;
        }
        Ok(tracing)
    }

    /// What was told since, and how many events were lost because there were too many.
    pub fn events(&self) -> (Vec<Event>, u64) {
        let _ = fs::write(self.instance.join("events/amdkfd/enable"), "0");
        let text = fs::read(self.instance.join("trace")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        (text.lines().filter_map(event).collect(), lost(&text))
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        let _ = fs::write(self.instance.join("events/amdkfd/enable"), "0");
        self.held = None;
        // An instance goes with its directory, which looks full to others.
        let _ = fs::remove_dir(&self.instance);
    }
}

/// Makes the instance, and opens one of its files: before that somebody who clears up may take it
/// for one that was left, where he does not see this process (another PID namespace).
fn make(instance: &Path) -> std::io::Result<File> {
    let mut tries = 4;
    loop {
        tries -= 1;
        let made = fs::create_dir(instance).and_then(|()| {
            let held = File::open(instance.join("buffer_size_kb"));
            held.inspect_err(|_| drop(fs::remove_dir(instance)))
        });
        let gone = |error: &std::io::Error| {
            let errno = error.raw_os_error().map(Errno::from_raw);
            matches!(errno, Some(Errno::ENOENT | Errno::ENODEV))
        };
        match made {
            Err(error) if tries > 0 && gone(&error) => {}
            made => return made,
        }
    }
}

/// Removes what tracers have left that were killed: their tracepoints are on, and their buffers
/// take memory. The kernel refuses it for those that are in use.
fn remove_left(instances: &Path) {
    for left in fs::read_dir(instances).into_iter().flatten().flatten() {
        if is_left(&left.file_name().to_string_lossy()) {
            let _ = fs::remove_dir(left.path());
        }
    }
}

/// Whether a tracer that is gone has named an instance so.
fn is_left(name: &str) -> bool {
    let process = name.strip_prefix(NAME);
    let process = process.and_then(|process| process.parse::<u32>().ok());
    let lives = |process: u32| Path::new("/proc").join(process.to_string()).exists();
    // Numbers come again, in containers soon.
    process.is_some_and(|process| process == std::process::id() || !lives(process))
}

/// `COMM-PID [CPU] FLAGS SECONDS: amdkfd_NAME: TEXT`; the name of a task may hold anything.
fn event(line: &str) -> Option<Event> {
    let (head, tail) = line.split_once(": amdkfd_")?;
    let (name, text) = tail.split_once(": ")?;
    let (head, seconds) = head.rsplit_once(' ')?;
    let (seconds, micros) = seconds.split_once('.')?;
    let task = head.rsplit_once('[')?.0.trim_end().rsplit_once('-')?.1;
    let seconds = seconds.parse::<u64>().ok()?;
    Some(Event {
        task: task.parse().ok()?,
        at: seconds * 1_000_000_000 + micros.parse::<u64>().ok()? * 1000,
        name: name.to_owned(),
        text: text.trim().to_owned(),
    })
}

/// `# entries-in-buffer/entries-written: 17/20`.
fn lost(text: &str) -> u64 {
    let counts = text.lines().find_map(|line| {
        let counts = line.strip_prefix("# entries-in-buffer/entries-written: ")?;
        let (kept, written) = counts.split_whitespace().next()?.split_once('/')?;
        Some((kept.parse::<u64>().ok()?, written.parse::<u64>().ok()?))
    });
    counts.map_or(0, |(kept, written)| written.saturating_sub(kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_tracer_has_left_is_removed() {
        let instances = std::env::temp_dir().join(format!("kfdctl-left-{}", std::process::id()));
        // No process has the last number: it is more than the kernel gives.
        let [own, living, dead] =
            [std::process::id(), 1, 4_194_305].map(|id| format!("{NAME}{id}"));
        for name in ["kfdctl-mine", "other", &own, &living, &dead] {
            fs::create_dir_all(instances.join(name)).unwrap();
        }
        remove_left(&instances);
        let left = fs::read_dir(&instances)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let mut left: Vec<_> = left.map(|name| name.into_string().unwrap()).collect();
        left.sort();
        let mut wanted = [living, "kfdctl-mine".into(), "other".into()];
        wanted.sort();
        assert_eq!(left, wanted);
        fs::remove_dir_all(instances).unwrap();
    }

    #[test]
    fn lines_of_any_task_are_read() {
        let text = "# tracer: nop\n# entries-in-buffer/entries-written: 17/20   #P:2\n\
            a [0] b-c-140     [001] .....    12.345678: amdkfd_ioctl_done: X result=-22\n\
            <idle>-0       [000] d.h1.    13.000001: amdkfd_interrupt: gpu_id=77 entry={0x1}\n";
        let events: Vec<_> = text.lines().filter_map(event).collect();
        assert_eq!(events.len(), 2);
        assert_eq!((events[0].task, events[0].at), (140, 12_345_678_000));
        assert_eq!(events[0].name, "ioctl_done");
        assert_eq!(events[0].text, "X result=-22");
        assert_eq!((events[1].task, events[1].number("gpu_id")), (0, Some(77)));
        assert_eq!(lost(text), 3);
    }
}
