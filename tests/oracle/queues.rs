// SPDX-License-Identifier: GPL-2.0-only

//! Descriptors of queues.

use super::{line::Line, same_words};
use crate::{
    gfx::{
        cu_mask::{spread, ShaderEngines, Share},
        testing::known,
        ComputeFormat,
        ComputeQueue,
        CuMask,
        Generation,
        HiqQueue,
        SaveArea,
        SdmaPlace,
        SdmaQueue,
        Words,
        XccMqd, //
    },
    ids::{GpuVa, Vmid},
};
use std::cell::Cell;

/// Words as long as a descriptor.
struct Descriptor(Vec<Cell<u32>>);

impl Descriptor {
    fn new(bytes: usize) -> Self {
        Self(vec![Cell::new(0); bytes / 4])
    }
}

impl Words for Descriptor {
    fn get(&self, dword: usize) -> u32 {
        self.0[dword].get()
    }

    fn set(&self, dword: usize, value: u32) {
        self.0[dword].set(value);
    }
}

/// `UPDATE_FLAG_*` (kfd_priv.h).
const IS_GWS: u32 = 4;
const PERFCOUNT_ENABLE: u32 = 5;
const PERFCOUNT_DISABLE: u32 = 6;

/// What the hardware has made of the queue that is changed next, for each XCC.
#[derive(Default)]
pub(super) struct Queues {
    used: Vec<Vec<u32>>,
}

fn compute_queue(line: &Line<'_>) -> ComputeQueue {
    ComputeQueue {
        format: if line.flag("aql") {
            ComputeFormat::Aql
        } else {
            ComputeFormat::Pm4 {
                target_xcc: line.number("target") as u8,
            }
        },
        ring: line.gpu("ring"),
        ring_bytes: line.number("bytes"),
        read_pointer: line.user("rptr"),
        write_pointer: line.user("wptr"),
        doorbell: line.doorbell(),
        eop: (line.gpu("eop"), line.number("eop_bytes")),
        save_area: line.flag("save").then(|| SaveArea {
            address: line.gpu("save"),
            bytes: line.number("save_bytes"),
            control_stack: line.number("stack"),
        }),
        trap_handler: line.flag("trap"),
        priority: line.number("priority") as u8,
    }
}

fn place(line: &Line<'_>, logical_xcc: u32) -> XccMqd {
    XccMqd {
        xcc: line.number("xcc"),
        address: line.gpu("mqd"),
        stride: line.number("stride"),
        logical_xcc,
    }
}

/// The mask of one XCC, whose bits user space gave.
fn cu_mask(generation: &Generation, line: &Line<'_>) -> CuMask {
    let (xcc, xccs) = (line.number("xcc"), line.number("xccs"));
    let units = line.numbers("units");
    let mut present = [[0; 4]; 4];
    for (index, units) in units[xcc as usize * 16..][..16].iter().enumerate() {
        present[index / 4][index % 4] = *units;
    }
    let engines = ShaderEngines {
        count: line.number("engines"),
        arrays: line.number("arrays"),
        pairs: generation.chip.cu_pairs,
    };
    let cus = line.number("cus");
    spread(
        &line.numbers("mask"),
        &present,
        engines,
        Share { xcc, xccs, cus },
    )
}

impl Queues {
    pub(super) fn compare(
        &mut self,
        generation: &Generation,
        line: &Line<'_>,
    ) -> Result<(), String> {
        match line.kind {
            "compute" => self.new_queue(generation, line),
            "used" => {
                // What is changed in the end is what C's had become.
                let xcc = line.number("xcc") as usize;
                self.used.truncate(xcc);
                self.used
                    .push(line.words(generation.formats.mqd.bytes() / 4));
                Ok(())
            }
            "changed" => self.changed(generation, line),
            "hiq" => hiq(generation, line),
            _ => sdma(generation, line),
        }
    }

    fn new_queue(&mut self, generation: &Generation, line: &Line<'_>) -> Result<(), String> {
        let mqd = generation.formats.mqd;
        let ours = Descriptor::new(mqd.bytes());
        let logical = (line.number("start") + line.number("xcc")) % line.number("xccs");
        mqd.compute(&ours, place(line, logical), &compute_queue(line));
        if mqd.stride(line.number("stack")) != line.number("stride") as usize {
            return Err(format!(
                "stride: ours {:x}",
                mqd.stride(line.number("stack"))
            ));
        }
        same_words(|index| ours.get(index), mqd.bytes() / 4, line)
    }

    fn changed(&mut self, generation: &Generation, line: &Line<'_>) -> Result<(), String> {
        let mqd = generation.formats.mqd;
        let ours = Descriptor::new(mqd.bytes());
        let xcc = line.number("xcc");
        ours.set_row(
            0,
            self.used.get(xcc as usize).expect("a queue that was used"),
        );
        mqd.update(&ours, xcc, &compute_queue(line));
        if line.text("flag").is_some() {
            let flag = line.number("flag");
            match flag {
                PERFCOUNT_ENABLE => mqd.count_performance(&ours, true),
                PERFCOUNT_DISABLE => mqd.count_performance(&ours, false),
                _ => {}
            }
            // C takes the flags for bits there.
            mqd.spread_waves(&ours, flag & IS_GWS != 0);
        }
        if line.text("mask").is_some() {
            mqd.set_cu_mask(&ours, cu_mask(generation, line));
        }
        same_words(|index| ours.get(index), mqd.bytes() / 4, line)
    }
}

fn hiq(generation: &Generation, line: &Line<'_>) -> Result<(), String> {
    let mqd = generation.formats.mqd;
    let ours = Descriptor::new(mqd.bytes());
    let kernel = |name| known(GpuVa::new(line.wide(name)));
    let queue = HiqQueue {
        ring: line.gpu("ring"),
        ring_bytes: line.number("bytes"),
        read_pointer: kernel("rptr"),
        write_pointer: kernel("wptr"),
        eop: (line.gpu("eop"), line.number("eop_bytes")),
        doorbell: line.doorbell(),
    };
    mqd.hiq(&ours, place(line, 0), &queue);
    same_words(|index| ours.get(index), mqd.bytes() / 4, line)
}

fn sdma(generation: &Generation, line: &Line<'_>) -> Result<(), String> {
    let sdma = generation.formats.sdma;
    let ours = Descriptor::new(sdma.bytes());
    let queue = SdmaQueue {
        ring: line.gpu("ring"),
        ring_bytes: line.number("bytes"),
        read_pointer: line.user("rptr"),
        doorbell: line.doorbell(),
        place: SdmaPlace {
            engine: line.number("engine"),
            queue: line.number("queue"),
        },
    };
    sdma.encode(&ours, &queue);
    let vmid = known(Vmid::new(line.number("vmid") as u8));
    sdma.set_vmid(&ours, vmid, queue.place.engine);
    same_words(|index| ours.get(index), sdma.bytes() / 4, line)
}
