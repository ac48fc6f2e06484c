// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kfdctl svm`: a process's shared virtual memory, what it has said of which range, and where its
//! pages are. Our driver tells it in `/sys/kernel/debug/amdkfd/svm`; C does not. Needs root.

use crate::queues::{name_of, number};
use crate::units::bytes;
use anyhow::{bail, Context, Result};
use clap::Args;
use kfd_uapi as uapi;
use serde::Serialize;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

const FILE: &str = "/sys/kernel/debug/amdkfd/svm";
const PAGE: u64 = 4096;

/// Whose memory to show.
#[derive(Args)]
pub struct Svm {
    /// The process.
    pid: u32,
}

/// A place for pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Location {
    /// Wherever it is best.
    Anywhere,
    System,
    Gpu(u32),
}

impl Location {
    /// As `KFD_IOCTL_SVM_LOCATION_*` has it.
    fn of(value: u64) -> Self {
        match value as u32 {
            0 => Self::System,
            u32::MAX => Self::Anywhere,
            id => Self::Gpu(id),
        }
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Anywhere => f.write_str("anywhere"),
            Self::System => f.write_str("system memory"),
            Self::Gpu(id) => write!(f, "GPU {id}"),
        }
    }
}

/// How a GPU may access a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Access {
    /// Not at all.
    No,
    /// Where the pages are.
    InPlace,
    /// They may move to where it is best.
    Yes,
}

/// A range, as one GPU sees it; in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct View {
    gpu_id: u32,
    access: Access,
    /// In its VRAM. What partitions of a device have is the first one's.
    vram: u64,
    /// What its page tables show.
    seen: u64,
}

/// A range: pages of which the process has said the same; in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Range {
    start: u64,
    bytes: u64,
    /// Where it shall be when GPUs use it.
    preferred: Location,
    /// Where it was last asked to go.
    prefetch: Location,
    /// By the names of `KFD_IOCTL_SVM_FLAG_*`.
    flags: Vec<&'static str>,
    /// So much moves together.
    granularity: u64,
    /// In system memory.
    system: u64,
    /// Nowhere yet, or in swap.
    absent: u64,
    /// What was on its way while the driver looked.
    unknown: u64,
    gpus: Vec<View>,
}

const FLAGS: [(u32, &str); 8] = [
    (uapi::KFD_IOCTL_SVM_FLAG_HOST_ACCESS, "host_access"),
    (uapi::KFD_IOCTL_SVM_FLAG_COHERENT, "coherent"),
    (uapi::KFD_IOCTL_SVM_FLAG_HIVE_LOCAL, "hive_local"),
    (uapi::KFD_IOCTL_SVM_FLAG_GPU_RO, "gpu_ro"),
    (uapi::KFD_IOCTL_SVM_FLAG_GPU_EXEC, "gpu_exec"),
    (uapi::KFD_IOCTL_SVM_FLAG_GPU_READ_MOSTLY, "gpu_read_mostly"),
    (
        uapi::KFD_IOCTL_SVM_FLAG_GPU_ALWAYS_MAPPED,
        "gpu_always_mapped",
    ),
    (uapi::KFD_IOCTL_SVM_FLAG_EXT_COHERENT, "ext_coherent"),
];

impl Svm {
    /// Shows the process's ranges.
    pub fn run(&self, json: bool) -> Result<()> {
        let text = match fs::read_to_string(FILE) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                bail!("{FILE}: {error}: only root may look into other programs' memory")
            }
            Err(error) if error.kind() == ErrorKind::NotFound => bail!(
                "{FILE}: {error}: is amdkfd.ko loaded, and debugfs mounted? The C driver does not \
                tell of shared virtual memory"
            ),
            Err(error) => return Err(error).context(FILE),
        };
        if !Path::new(&format!("/proc/{}", self.pid)).exists() {
            bail!("there is no process {}", self.pid)
        }
        let ranges = parse(&text, self.pid);
        if ranges.is_empty() {
            bail!(
                "process {} has said nothing of its memory to any GPU (with the module \
                parameter svm=0 the driver has no shared virtual memory)",
                self.pid
            )
        }
        let name = name_of(self.pid);
        if json {
            let value = serde_json::json!({ "pid": self.pid, "name": name, "ranges": ranges });
            outln!("{value}");
        } else {
            out!("{}", screen(self.pid, &name, &ranges));
        }
        Ok(())
    }
}

/// The ranges of a process: lines of pairs of name and value, one for a range, followed by one for
/// each GPU.
fn parse(text: &str, pid: u32) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let value = |name: &str| {
            let at = words.iter().position(|word| *word == name)?;
            words.get(at + 1).copied()
        };
        let field = |name: &str| value(name).and_then(number);
        if field("pid") != Some(pid.into()) {
            continue;
        }
        match (field("gpu_id"), ranges.last_mut()) {
            (Some(gpu_id), Some(range)) if field("start") == Some(range.start) => {
                range.gpus.extend(view(gpu_id as u32, &value));
            }
            _ => ranges.extend(range(&field)),
        }
    }
    ranges
}

fn range(field: &dyn Fn(&str) -> Option<u64>) -> Option<Range> {
    let pages = |name| Some(field(name)? * PAGE);
    let flags = field("flags")?;
    let named = FLAGS
        .iter()
        .filter(|(flag, _)| flags & u64::from(*flag) != 0);
    Some(Range {
        start: field("start")?,
        bytes: pages("pages")?,
        preferred: Location::of(field("preferred")?),
        prefetch: Location::of(field("prefetch")?),
        flags: named.map(|(_, name)| *name).collect(),
        granularity: PAGE << field("granularity")?.min(51),
        system: pages("system")?,
        absent: pages("absent")?,
        unknown: pages("unknown")?,
        gpus: Vec::new(),
    })
}

fn view<'a>(gpu_id: u32, value: &dyn Fn(&str) -> Option<&'a str>) -> Option<View> {
    let pages = |name| Some(value(name).and_then(number)? * PAGE);
    Some(View {
        gpu_id,
        access: match value("access")? {
            "yes" => Access::Yes,
            "in_place" => Access::InPlace,
            _ => Access::No,
        },
        vram: pages("vram")?,
        seen: pages("seen")?,
    })
}

/// A block for each range.
fn screen(pid: u32, name: &str, ranges: &[Range]) -> String {
    let mut text = format!("process {pid} ({name})\n");
    let size = |size| bytes(size).replace(".0 ", " ");
    for range in ranges {
        text += &format!("\n{:#x}, {}\n", range.start, size(range.bytes));
        let mut places: Vec<_> = [
            ("in system memory", range.system),
            ("not there", range.absent),
            ("on its way", range.unknown),
        ]
        .into_iter()
        .filter(|(_, bytes)| *bytes != 0)
        .map(|(place, bytes)| format!("{} {place}", size(bytes)))
        .collect();
        let in_vram = range.gpus.iter().filter(|view| view.vram != 0);
        places.extend(in_vram.map(|view| format!("{} on GPU {}", size(view.vram), view.gpu_id)));
        text += &format!("  pages        {}\n", places.join(", "));
        text += &format!(
            "  preferred    {}, last prefetched: {}\n",
            range.preferred,
            match range.prefetch {
                Location::Anywhere => "never".into(),
                place => place.to_string(),
            }
        );
        let granularity = size(range.granularity);
        text += &format!(
            "  flags        {}; {granularity} move together\n",
            range.flags.join(" ")
        );
        for view in &range.gpus {
            let access = match view.access {
                Access::No => "no access",
                Access::InPlace => "access in place",
                Access::Yes => "access",
            };
            let seen = size(view.seen);
            text += &format!("  GPU {:<8} {access}, sees {seen}\n", view.gpu_id);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
pid 812 start 0x7f0000000000 pages 1024 preferred 4294967295 prefetch 35969 flags 0x3 \
granularity 9 system 512 absent 0 unknown 0
pid 812 start 0x7f0000000000 gpu_id 35969 access yes vram 512 seen 1024
pid 812 start 0x7f0000400000 pages 3 preferred 0 prefetch 4294967295 flags 0xb granularity 0 \
system 1 absent 2 unknown 0
pid 812 start 0x7f0000400000 gpu_id 35969 access in_place vram 0 seen 1
pid 813 start 0x7f0000400000 pages 3 preferred 0 prefetch 0 flags 0x0 granularity 0 system 3 \
absent 0 unknown 0
pid 813 start 0x7f0000400000 gpu_id 35969 access no vram 0 seen 0
";

    #[test]
    fn the_drivers_file_is_read() {
        let ranges = parse(TEXT, 812);
        let [first, second] = &ranges[..] else {
            panic!("two ranges: {ranges:?}")
        };
        assert_eq!((first.bytes, first.system), (4 << 20, 2 << 20));
        assert_eq!(first.preferred, Location::Anywhere);
        assert_eq!(first.prefetch, Location::Gpu(35969));
        assert_eq!((first.gpus[0].vram, first.gpus[0].seen), (2 << 20, 4 << 20));
        assert_eq!(first.flags, ["host_access", "coherent"]);
        assert_eq!(second.flags, ["host_access", "coherent", "gpu_ro"]);
        assert_eq!((second.granularity, second.absent), (4096, 8192));
        assert_eq!(second.gpus[0].access, Access::InPlace);
        assert_eq!(parse(TEXT, 813)[0].gpus[0].access, Access::No);
        assert!(parse(TEXT, 81).is_empty());
    }

    #[test]
    fn a_block_says_where_pages_are() {
        let text = screen(812, "example", &parse(TEXT, 812));
        assert!(text.contains("\n0x7f0000000000, 4 MiB\n"), "{text}");
        assert!(
            text.contains("  pages        2 MiB in system memory, 2 MiB on GPU 35969\n"),
            "{text}"
        );
        assert!(
            text.contains("4 KiB in system memory, 8 KiB not there"),
            "{text}"
        );
        assert!(
            text.contains("GPU 35969    access in place, sees 4 KiB"),
            "{text}"
        );
    }
}
