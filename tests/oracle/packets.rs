// SPDX-License-Identifier: GPL-2.0-only

//! Packets for the hardware scheduler.

use super::{line::Line, same_words};
use crate::{
    gfx::{
        testing::known,
        Engine,
        Generation,
        HwProcess,
        HwQueue,
        LaunchMode,
        MapProcess,
        Resources,
        RunList,
        ShMem,
        TrapMask,
        Watch,
        WaveControl, //
    },
    ids::Pasid,
};

pub(super) fn compare(generation: &Generation, line: &Line<'_>) -> Result<(), String> {
    let format = generation.formats.runlist;
    let packet = match line.kind {
        "map_process" => format.map_process(&map_process(line, &process(line))),
        "map_queues" => format.map_queue(&map_queue(line)),
        "run_list" => format.run_list(&RunList {
            address: line.gpu("address"),
            dwords: line.number("dwords"),
            chain: line.flag("chain"),
            concurrent_processes: line.number("concurrent"),
        }),
        "set_resources" => format.set_resources(&Resources {
            vmid_mask: line.number("vmids"),
            queue_mask: line.wide("queues"),
            unmap_latency: line.number("latency"),
            xnack_chain: line.flag("chain"),
        }),
        "unmap" => format.unmap_all(line.gpu("fence"), line.wide("value")),
        "write_register" => format.write_register(line.number("register"), line.number("value")),
        kind => return Err(format!("nobody compares {kind}")),
    };
    let words = packet.words();
    same_words(|index| words[index], words.len(), line)
}

/// A watch point, if it is set.
fn watch(line: &Line<'_>, number: usize) -> Option<Watch> {
    let [mode, mask] = ["mode", "mask"].map(|what| format!("watch{number}_{what}"));
    line.text(&mask)?;
    Some(Watch::new(line.number(&mode), line.number(&mask)))
}

fn process(line: &Line<'_>) -> HwProcess {
    let debugged = || WaveControl {
        dispatch_info: true,
        launch_mode: LaunchMode::new(line.number("launch")).expect("a mode"),
        traps: TrapMask::new(line.number("traps")),
        replaces_traps: line.flag("override"),
        watches: core::array::from_fn(|number| watch(line, number)),
        single_memory_operations: line.flag("single"),
    };
    // What its runtime has asked for, where a core has that in this packet.
    let at_rest = || WaveControl {
        dispatch_info: line.text("ttmp").is_some() && line.flag("ttmp"),
        ..WaveControl::default()
    };
    let control = match line.text("override") {
        Some(_) => debugged(),
        None => at_rest(),
    };
    HwProcess {
        pasid: known(Pasid::new(line.number("pasid"))),
        page_table_base: line.wide("tables"),
        sh_mem: ShMem {
            config: line.number("config"),
            bases: line.number("bases"),
        },
        trap: line
            .flag("tba")
            .then(|| (line.wide("tba"), line.wide("tma"))),
        control: control.set(),
    }
}

fn map_process<'a>(line: &Line<'_>, process: &'a HwProcess) -> MapProcess<'a> {
    MapProcess {
        process,
        queues: line.number("queues"),
        wave_sync: line.number("gws"),
        cleans: line.flag("cleans"),
    }
}

fn map_queue(line: &Line<'_>) -> HwQueue {
    HwQueue {
        engine: if line.flag("sdma") {
            Engine::Sdma(line.number("engine"))
        } else {
            Engine::Compute
        },
        doorbell: line.doorbell(),
        mqd: line.gpu("mqd"),
        write_pointer: line.user("wptr"),
        wave_sync: line.flag("gws"),
    }
}
