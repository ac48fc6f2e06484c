// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Queues of all kinds, one at a time, and the descriptors (MQD) that the driver makes of them.
//!
//! Both drivers show descriptors in debugfs. What stands there of a queue must be the same on both,
//! dword by dword. Addresses differ from run to run: one that is the request's is printed by what
//! it points to, and only then; the one address that the driver picks, the descriptor's own, is not
//! printed. Dwords that are 0 are left out.

use crate::bench::{name, Bench};
use crate::raw::ioctl;
use anyhow::{bail, ensure, Context, Result};
use kfd::{topology, Device, Kfd, Memory, ProfilerLock};
use kfd_uapi as uapi;
use std::fs;

/// Where a driver shows the descriptors: ours, C's.
const FILES: [&str; 2] = [
    "/sys/kernel/debug/amdkfd/mqds",
    "/sys/kernel/debug/kfd/mqds",
];

/// The largest ring of the table.
const LARGEST_RING: usize = 1 << 20;

type Request = uapi::kfd_ioctl_create_queue_args;

/// Prints the descriptors of every queue of the table.
pub fn all() -> Result<()> {
    let kfd = Kfd::open()?;
    let nodes = topology::gpus()?;
    ensure!(!nodes.is_empty(), "no GPU");
    let device = Device::acquire(&kfd, &nodes[0])?;
    let bench = Bench::new(&device)?;
    let rings = Rings::new(&bench)?;
    for (kind, queue_type) in [
        ("AQL", uapi::KFD_IOC_QUEUE_TYPE_COMPUTE_AQL),
        ("PM4", uapi::KFD_IOC_QUEUE_TYPE_COMPUTE),
        ("SDMA", uapi::KFD_IOC_QUEUE_TYPE_SDMA),
    ] {
        let mut good = bench.queue();
        good.queue_type = queue_type;
        drive(&bench, kind, &good, &rings)?;
        if kind == "SDMA" {
            engines(&bench, &good)?;
        } else {
            buffers(&bench, kind, &good)?;
            cu_masks(&bench, kind, &good)?;
            wave_sync(&bench, kind, &good)?;
            counted(&bench, kind, &good)?;
        }
        updates(&bench, kind, &good, &rings)?;
    }
    Ok(())
}

/// Rings of other sizes than the bench's: a ring must be a whole buffer.
struct Rings {
    small: Memory,
    large: Memory,
}

impl Rings {
    fn new(bench: &Bench) -> Result<Self> {
        Ok(Self {
            small: Memory::gtt(&bench.device, 4096)?,
            large: Memory::gtt(&bench.device, LARGEST_RING)?,
        })
    }

    fn sizes(&self) -> [&Memory; 2] {
        [&self.small, &self.large]
    }
}

/// What decides when and how much a queue runs, and how long its ring is.
fn drive(bench: &Bench, kind: &str, good: &Request, rings: &Rings) -> Result<()> {
    show_new(bench, kind, *good)?;
    for queue_priority in 0..=uapi::KFD_MAX_QUEUE_PRIORITY {
        let args = Request {
            queue_priority,
            ..*good
        };
        show_new(bench, &format!("{kind} priority {queue_priority}"), args)?;
    }
    // Bits 15:8 are the XCC that reads PM4.
    for queue_percentage in [0, 1, 50, 0x164] {
        let args = Request {
            queue_percentage,
            ..*good
        };
        let title = format!("{kind} percentage {queue_percentage:#x}");
        show_new(bench, &title, args)?;
    }
    for ring in rings.sizes() {
        let args = Request {
            ring_base_address: ring.address(),
            ring_size: ring.size() as u32,
            ..*good
        };
        show_new(bench, &format!("{kind} ring of {}", ring.size()), args)?;
    }
    let args = Request {
        ring_size: 0,
        ..*good
    };
    show_new(bench, &format!("{kind} ring of 0"), args)
}

/// A queue without the buffers that it can do without.
fn buffers(bench: &Bench, kind: &str, good: &Request) -> Result<()> {
    let no_eop = Request {
        eop_buffer_address: 0,
        eop_buffer_size: 0,
        ..*good
    };
    show_new(bench, &format!("{kind} without EOP buffer"), no_eop)?;
    let no_context = Request {
        ctx_save_restore_address: 0,
        ctx_save_restore_size: 0,
        ctl_stack_size: 0,
        ..*good
    };
    show_new(bench, &format!("{kind} without context area"), no_context)
}

/// Each copy engine by its number, until there is no such engine.
fn engines(bench: &Bench, good: &Request) -> Result<()> {
    for sdma_engine_id in 0..17 {
        let args = Request {
            queue_type: uapi::KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID,
            sdma_engine_id,
            ..*good
        };
        show_new(bench, &format!("SDMA engine {sdma_engine_id}"), args)?;
    }
    let args = Request {
        queue_type: uapi::KFD_IOC_QUEUE_TYPE_SDMA_XGMI,
        ..*good
    };
    show_new(bench, "SDMA over xGMI", args)
}

/// A queue that may use only some compute units.
fn cu_masks(bench: &Bench, kind: &str, good: &Request) -> Result<()> {
    for (title, bits) in [
        ("one", vec![1]),
        ("odd", vec![0xaaaa_aaaa; 4]),
        ("all", vec![u32::MAX; 10]),
        ("more than all", vec![u32::MAX; 40]),
        ("no", vec![0; 2]),
    ] {
        let queue = Live::create(bench, *good).context("a queue as it should be")?;
        let mut args = uapi::kfd_ioctl_set_cu_mask_args {
            queue_id: queue.args.queue_id,
            num_cu_mask: bits.len() as u32 * u32::BITS,
            cu_mask_ptr: bits.as_ptr() as u64,
        };
        let title = format!("{kind} {title} CUs");
        match ioctl(bench.kfd(), uapi::IOC_SET_CU_MASK, &mut args) {
            Ok(()) => show(&title, &queue)?,
            Err(errno) => println!("queue {title}: {}", name(errno)),
        }
    }
    Ok(())
}

/// A queue that has the GPU's global wave sync, and gives it back.
fn wave_sync(bench: &Bench, kind: &str, good: &Request) -> Result<()> {
    let queue = Live::create(bench, *good).context("a queue as it should be")?;
    for (title, num_gws) in [("with", 64), ("without", 0)] {
        let mut args = uapi::kfd_ioctl_alloc_queue_gws_args {
            queue_id: queue.args.queue_id,
            num_gws,
            ..Default::default()
        };
        ioctl(bench.kfd(), uapi::IOC_ALLOC_QUEUE_GWS, &mut args).context(title)?;
        show(&format!("{kind} {title} wave sync"), &queue)?;
        let mut args = uapi::kfd_ioctl_update_queue_args {
            ring_base_address: good.ring_base_address,
            queue_id: queue.args.queue_id,
            ring_size: good.ring_size,
            queue_percentage: 100,
            queue_priority: if num_gws == 0 { 7 } else { 11 },
        };
        ioctl(bench.kfd(), uapi::IOC_UPDATE_QUEUE, &mut args)?;
        show(&format!("{kind} {title} wave sync, updated"), &queue)?;
    }
    Ok(())
}

/// A queue made while somebody has the performance counters, and one after that. None is there when
/// they are taken or given back: C locks itself out over it.
fn counted(bench: &Bench, kind: &str, good: &Request) -> Result<()> {
    let counters = ProfilerLock::take(&bench.device, true)?;
    show_new(bench, &format!("{kind} made while counted"), *good)?;
    drop(counters);
    show_new(bench, &format!("{kind} made after that"), *good)
}

/// What UPDATE_QUEUE makes of a queue: step by step, on the same one.
fn updates(bench: &Bench, kind: &str, good: &Request, rings: &Rings) -> Result<()> {
    let mut queue = Live::create(bench, *good).context("a queue as it should be")?;
    let (ring, size) = (good.ring_base_address, good.ring_size);
    let small = (rings.small.address(), rings.small.size() as u32);
    let large = (rings.large.address(), rings.large.size() as u32);
    for (title, ring, ring_size, queue_percentage, queue_priority) in [
        ("nothing", ring, size, 100, 7),
        ("stopped", ring, size, 0, 7),
        ("priority 11 while stopped", ring, size, 0, 11),
        ("started", ring, size, 100, 11),
        ("priority 0", ring, size, 100, 0),
        ("a smaller ring", small.0, small.1, 100, 7),
        ("a larger ring", large.0, large.1, 100, 15),
        ("no ring", 0, 0, 100, 7),
        ("the first ring again", ring, size, 100, 7),
    ] {
        let mut args = uapi::kfd_ioctl_update_queue_args {
            ring_base_address: ring,
            queue_id: queue.args.queue_id,
            ring_size,
            queue_percentage,
            queue_priority,
        };
        let title = format!("{kind} updated: {title}");
        match ioctl(bench.kfd(), uapi::IOC_UPDATE_QUEUE, &mut args) {
            Ok(()) => queue.args.ring_base_address = ring,
            Err(errno) => println!("queue {title}: {}", name(errno)),
        }
        show(&title, &queue)?;
    }
    Ok(())
}

/// A queue, taken down when dropped.
struct Live<'a> {
    bench: &'a Bench,
    args: Request,
}

impl<'a> Live<'a> {
    fn create(bench: &'a Bench, mut args: Request) -> rustix::io::Result<Self> {
        ioctl(bench.kfd(), uapi::IOC_CREATE_QUEUE, &mut args)?;
        Ok(Self { bench, args })
    }

    /// Where the `instance`th descriptor has which address, each by its name and its low half's and
    /// high half's dword.
    fn addresses(&self, instance: u64) -> Vec<(&'static str, [usize; 2], u64)> {
        let args = &self.args;
        match args.queue_type {
            uapi::KFD_IOC_QUEUE_TYPE_COMPUTE | uapi::KFD_IOC_QUEUE_TYPE_COMPUTE_AQL => {
                let area = match args.ctx_save_restore_address {
                    0 => 0,
                    area => area + instance * u64::from(args.ctx_save_restore_size),
                };
                // struct v9_mqd (v9_structs.h): cp_hqd_pq_base, cp_hqd_pq_rptr_report_addr,
                // cp_hqd_pq_wptr_poll_addr, cp_hqd_eop_base_addr, cp_hqd_ctx_save_base_addr.
                vec![
                    ("ring / 256", [136, 137], args.ring_base_address >> 8),
                    ("read index", [139, 140], args.read_pointer_address),
                    ("write index", [141, 142], args.write_pointer_address),
                    ("EOP buffer / 256", [165, 166], args.eop_buffer_address >> 8),
                    ("context area", [171, 172], area),
                ]
            }
            // struct v9_sdma_mqd: sdmax_rlcx_rb_base, sdmax_rlcx_rb_rptr_addr (the high half
            // first).
            _ => vec![
                ("ring / 256", [1, 2], args.ring_base_address >> 8),
                ("read index", [9, 8], args.read_pointer_address),
            ],
        }
    }

    /// The dwords that hold the descriptor's own address: cp_mqd_base_addr.
    fn own_address(&self) -> &'static [usize] {
        match self.args.queue_type {
            uapi::KFD_IOC_QUEUE_TYPE_COMPUTE | uapi::KFD_IOC_QUEUE_TYPE_COMPUTE_AQL => &[128, 129],
            _ => &[],
        }
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        let mut args = uapi::kfd_ioctl_destroy_queue_args {
            queue_id: self.args.queue_id,
            ..Default::default()
        };
        // What can't be destroyed is seen in what the next queue's descriptors look like.
        let _ = ioctl(self.bench.kfd(), uapi::IOC_DESTROY_QUEUE, &mut args);
    }
}

fn show_new(bench: &Bench, title: &str, args: Request) -> Result<()> {
    match Live::create(bench, args) {
        Ok(queue) => show(title, &queue),
        Err(errno) => {
            println!("queue {title}: {}", name(errno));
            Ok(())
        }
    }
}

/// Prints the descriptors of the only queue that there is.
fn show(title: &str, queue: &Live<'_>) -> Result<()> {
    let descriptors = dumps(&FILES)?;
    ensure!(!descriptors.is_empty(), "no descriptor of queue {title}");
    println!("queue {title}: {} descriptors", descriptors.len());
    for (instance, words) in descriptors.iter().enumerate() {
        println!("queue {title} #{instance}: {} dwords", words.len());
        let mut names = vec![None; words.len()];
        for (what, [low, high], address) in queue.addresses(instance as u64) {
            for (place, half, value) in [
                (low, "low", address as u32),
                (high, "high", (address >> 32) as u32),
            ] {
                // What is not the request's address is printed as it is. One half may be 0 by
                // chance.
                if words.get(place) == Some(&value) && address != 0 {
                    names[place] = Some(format!("{what}, {half} half"));
                }
            }
        }
        let told = |(place, word): &(usize, &u32)| **word != 0 || names[*place].is_some();
        for (place, word) in words.iter().enumerate().filter(told) {
            let value = match &names[place] {
                _ if queue.own_address().contains(&place) => "its own address".into(),
                Some(name) => name.clone(),
                None => format!("{word:#010x}"),
            };
            println!("queue {title} #{instance} dword {place}: {value}");
        }
    }
    Ok(())
}

/// What the driver that has one of these files shows there, each dump as its dwords.
pub(crate) fn dumps(files: &[&str]) -> Result<Vec<Vec<u32>>> {
    for file in files {
        match fs::read_to_string(file) {
            Ok(text) => return parse(&text).with_context(|| file.to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).context(file.to_string()),
        }
    }
    bail!("none of {} is there", files.join(", "))
}

/// Lines of an offset and up to eight dwords; one at offset 0 opens a descriptor. Others are
/// titles.
fn parse(text: &str) -> Result<Vec<Vec<u32>>> {
    let mut found: Vec<Vec<u32>> = Vec::new();
    for line in text.lines() {
        let Some((Ok(offset), words)) = line
            .trim()
            .split_once(':')
            .map(|(offset, words)| (usize::from_str_radix(offset, 16), words))
        else {
            continue;
        };
        let words: Vec<u32> = words
            .split_whitespace()
            .map(|word| u32::from_str_radix(word, 16))
            .collect::<Result<_, _>>()
            .with_context(|| format!("not a dump: {line}"))?;
        if offset == 0 {
            found.push(Vec::new());
        }
        let descriptor = found.last_mut().context("a dump that does not open at 0")?;
        ensure!(descriptor.len() * 4 == offset, "a hole before {line}");
        descriptor.extend(words);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_open_at_offset_0() {
        let text =
            "Process 138 PASID 138:\n  Compute queue on device 89d1\n    00000000: c0310800 \
        00000001\n\
                    \x20   00000008: 00000002\n  Compute queue, XCC 1\n    00000000: 00000003\n";
        let found = parse(text).expect("a good dump");
        assert_eq!(found, [vec![0xc031_0800, 1, 2], vec![3]]);
    }

    #[test]
    fn a_torn_dump_is_an_error() {
        parse("    00000020: 00000001\n").expect_err("no beginning");
        parse("    00000000: 00000001\n    00000020: 00000001\n").expect_err("a hole");
        parse("    00000000: 0000000g\n").expect_err("not hexadecimal");
    }
}
