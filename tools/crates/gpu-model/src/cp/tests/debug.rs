// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Debugging waves as a debugger does: by the words of MAP_PROCESS, with the kernel's trap handler
//! and a second one that halts, through the context save area.

use gcn::wave::{mode, status, trapsts};

use super::aql::{self, send, signal, value, BASE};
use super::cwsr::{
    self, AREA, CODE, DESCRIPTOR, HANDLER, HANDLER_MEMORY, KERNARG, OUT, STACK_BYTES,
};
use super::runlist;
use crate::cp::mqd::dw;
use crate::cp::packet::op;
use crate::cp::reg::CpRegister;
use crate::flat::{pkt, Rig, Setup};
use crate::processor::runner::Mode;

/// The second-level handler, and where it is.
const HALTS: &[u32] = &[
    0xbef8_1a8d, // s_bitset1_b32 ttmp12, 13
    0x866d_ff6d,
    0xffff,      // s_and_b32 ttmp1, ttmp1, 0xffff
    0xb978_f802, // s_setreg_b32 hwreg(HW_REG_STATUS), ttmp12
    0xbe80_1f6c, // s_rfe_b64 ttmp[0:1]
];
const SECOND_LEVEL: u32 = 0xb_8000;

const S_NOP: u32 = 0xbf80_0000;
const S_ENDPGM: u32 = 0xbf81_0000;
/// s_nop; v_mov_b32 v1, 42; s_nop; s_endpgm.
const PROGRAM: &[u32] = &[S_NOP, 0x7e02_02aa, S_NOP, S_ENDPGM];
/// Stores 42 at the pointer in kernarg + 4 * work-item, at 20, and waits for that at 36.
const STORE: &[u32] = &[
    0xc006_0080,
    0,           // s_load_dwordx2 s[2:3], s[0:1], 0
    0x2400_0082, // v_lshlrev_b32 v0, 2, v0
    0x7e02_02aa, // v_mov_b32 v1, 42
    0xbf8c_c07f, // s_waitcnt lgkmcnt(0)
    0xdc70_8000,
    0x0002_0100, // global_store_dword v0, v1, s[2:3]
    S_NOP,
    S_NOP,
    0xbf8c_0000, // s_waitcnt 0
    S_ENDPGM,
];

/// Fields of SPI_GDBG_PER_VMID_CNTL.
const TRAP_EN: u32 = 1 << 3;
const LAUNCH_HALTED: u32 = 1 << 1;
const LAUNCH_STEPPED: u32 = 3 << 1;
const EXCP_EN_WATCH: u32 = 0x80 << 4;
const TRAP_ON_START: u32 = 1 << 14;
const TRAP_ON_END: u32 = 1 << 15;

/// Process 3 with both handlers and `code`; its queue is not mapped.
fn rig(code: &[u32]) -> Rig {
    let rig = cwsr::rig(Mode::Sync);
    rig.write(BASE + u64::from(SECOND_LEVEL), HALTS);
    rig.write64(BASE + u64::from(HANDLER_MEMORY), SECOND_LEVEL.into());
    rig.write(BASE + u64::from(CODE), code);
    rig
}

/// Maps process 3's queue with these words of MAP_PROCESS.
fn map(rig: &Rig, words: &[(usize, u32)]) {
    let mut list = runlist::process(3, &[]);
    list[6] = HANDLER >> 8;
    list[8] = HANDLER_MEMORY >> 8;
    for (at, value) in words {
        list[*at] |= value;
    }
    list.extend(aql::map_packet());
    runlist::run(rig, &list);
}

fn map_with(rig: &Rig, spi: u32) {
    map(rig, &[(14, TRAP_EN | spi)]);
}

/// One wave; its completion signal.
fn start(rig: &Rig) -> u32 {
    let done = signal(rig, 0, false);
    let mut packet = [0; 16];
    packet[0] = 2 | 1 << 8 | 2 << 9 | 2 << 11 | 1 << 16;
    packet[1] = 1 << 16 | 64;
    packet[2] = 1;
    packet[3..6].copy_from_slice(&[64, 1, 1]);
    packet[8] = DESCRIPTOR;
    packet[10] = KERNARG;
    packet[14] = done;
    send(rig, packet);
    done
}

/// The saved wave, where ROCdbgapi looks (`src/architecture.cpp`, gfx9 to gfx940).
struct Saved<'a> {
    rig: &'a Rig,
    /// Its record, which begins with 32 vector registers.
    record: u64,
}

impl Saved<'_> {
    /// After 112 scalar registers: M0, PC, EXEC, STATUS, TRAPSTS, XNACK_MASK, MODE; TTMPs from 16
    /// on.
    fn at(&self, index: u64) -> u64 {
        self.record + 32 * 256 + 448 + 4 * index
    }

    fn read(&self, index: u64) -> u32 {
        self.rig.read(self.at(index))
    }

    fn pc(&self) -> u32 {
        self.read(1) - CODE
    }

    fn status(&self) -> u32 {
        self.read(5)
    }

    fn trapsts(&self) -> u32 {
        self.read(6)
    }

    fn mode(&self) -> u32 {
        self.read(9)
    }

    fn vgpr(&self, number: u64, lane: u64) -> u32 {
        self.rig.read(self.record + 256 * number + 4 * lane)
    }

    /// Lets it go on, with this MODE.
    fn resume(&self, mode: u32) {
        self.rig.write(self.at(5), &[self.status() & !status::HALT]);
        self.rig.write(self.at(6), &[0]);
        self.rig.write(self.at(9), &[mode]);
    }
}

/// Suspends the queue, which has one wave.
fn suspend(rig: &Rig) -> Saved<'_> {
    assert!(runlist::unmap(rig, 2, 0, 0));
    let end = cwsr::mqd(rig, dw::CP_HQD_WG_STATE_OFFSET);
    assert_eq!(end - STACK_BYTES, 32 * 256 + 448 + 128 + 64, "one wave");
    let record = BASE + AREA + u64::from(STACK_BYTES);
    let saved = Saved { rig, record };
    assert_eq!(saved.trapsts() & trapsts::SAVECTX, 0);
    saved
}

#[test]
fn a_debugger_steps_a_wave_through_its_save_area() {
    let rig = rig(&[S_ENDPGM]);
    map_with(&rig, 0);
    // The ring has 64 packets.
    for _ in 0..64 {
        assert_eq!(value(&rig, start(&rig)), 0);
    }
    assert!(runlist::unmap(&rig, 2, 0, 0));
    rig.write(BASE + u64::from(CODE), PROGRAM);
    map_with(&rig, LAUNCH_STEPPED);
    let done = start(&rig);
    for (pc, v1) in [(4, 0), (8, 42), (12, 42)] {
        let wave = suspend(&rig);
        assert_eq!(wave.pc(), pc);
        assert_eq!(wave.trapsts(), trapsts::TRAP_AFTER_INST);
        assert_ne!(wave.status() & status::HALT, 0);
        assert_ne!(wave.mode() & mode::DEBUG_EN, 0);
        assert_eq!(wave.vgpr(1, 9), v1);
        // TTMP8 to 11: the group, and the packet's place in the ring with the wave's number.
        assert_eq!([24, 25, 26, 27].map(|at| wave.read(at)), [0; 4]);
        wave.resume(wave.mode());
        map_with(&rig, 0);
    }
    assert_eq!(value(&rig, done), 0);
    assert_eq!(rig.stats.all(), []);
}

#[test]
fn waves_are_launched_halted() {
    let rig = rig(PROGRAM);
    map_with(&rig, LAUNCH_HALTED);
    let done = start(&rig);
    let wave = suspend(&rig);
    assert_eq!((wave.pc(), wave.trapsts()), (0, 0));
    assert_ne!(wave.status() & status::HALT, 0);
    assert_eq!(wave.mode() & (mode::DEBUG_EN | mode::EXCP_EN), 0);
    wave.resume(wave.mode());
    map_with(&rig, LAUNCH_HALTED);
    assert_eq!(value(&rig, done), 0);
}

#[test]
fn waves_trap_at_their_beginning_and_end() {
    let rig = rig(PROGRAM);
    map_with(&rig, TRAP_ON_START | TRAP_ON_END);
    let done = start(&rig);
    for (pc, bit) in [(0, trapsts::WAVE_BEGIN), (12, trapsts::WAVE_END)] {
        let wave = suspend(&rig);
        assert_eq!((wave.pc(), wave.trapsts()), (pc, bit));
        wave.resume(wave.mode());
        map_with(&rig, 0);
    }
    assert_eq!(value(&rig, done), 0);
}

/// Sets watch 2's address, as kgd_gfx_v9_4_3_set_address_watch() does.
fn watch(rig: &Rig, address: u32) {
    let set = |register, value| assert!(rig.cp.reg_write(0, register, 2, value));
    set(CpRegister::TCP_WATCH0_ADDR_H, 0);
    set(CpRegister::TCP_WATCH0_ADDR_L, address);
}

/// TCP_WATCH2_CNTL: valid, stores and atomics, all bits compared.
const WATCH: u32 = 1 << 31 | 1 << 29 | 0xff_ffff;

#[test]
fn a_watched_store_stops_the_wave_at_once_if_memory_operations_are_precise() {
    for (single_memops, pc) in [(0, 36), (1 << 16, 28)] {
        let rig = rig(STORE);
        watch(&rig, OUT + 0x80);
        let spi = (14, TRAP_EN | EXCP_EN_WATCH);
        map(&rig, &[spi, (17, WATCH), (1, single_memops)]);
        let done = start(&rig);
        let wave = suspend(&rig);
        assert_eq!(wave.trapsts(), trapsts::ADDR_WATCH[2]);
        assert_eq!(wave.pc(), pc);
        assert_eq!(rig.read(BASE + u64::from(OUT) + 4 * 63), 42);
        wave.resume(wave.mode());
        // The next list has no watch.
        map_with(&rig, 0);
        assert_eq!(value(&rig, done), 0);
        assert_eq!(value(&rig, start(&rig)), 0);
    }
}

#[test]
fn a_watch_does_not_see_other_addresses_or_processes() {
    for (address, control, spi) in [
        (OUT + 0x100, WATCH, EXCP_EN_WATCH),
        (OUT + 0x80, WATCH & !(1 << 31), EXCP_EN_WATCH),
        (OUT + 0x80, WATCH, 0),
    ] {
        let rig = rig(STORE);
        watch(&rig, address);
        map(&rig, &[(14, TRAP_EN | spi), (17, control)]);
        assert_eq!(value(&rig, start(&rig)), 0);
    }
}

#[test]
fn a_memory_violation_says_that_there_was_no_translation() {
    let rig = rig(STORE);
    rig.write64(BASE + u64::from(KERNARG), 0x7f00_0000);
    map_with(&rig, 0);
    start(&rig);
    let wave = suspend(&rig);
    let bits = trapsts::MEM_VIOL | trapsts::XNACK_ERROR;
    assert_eq!((wave.pc(), wave.trapsts()), (36, bits));
    assert_eq!(rig.faults().len(), 1);
}

const VMID: u32 = 9;
const DIRECT: Setup = Setup {
    mqd: 0x28_0000,
    ring: 0x29_0000,
    order: 8,
    doorbell: 0x1200,
    aql: false,
    privileged: false,
    rptr: 0x28_0880,
    wptr: 0x28_0900,
    silent: false,
};
const DIRECT_CODE: u32 = 0x2b_0000;
const FENCE: u64 = 0x2c_0000;

/// Without the hardware scheduler the registers say it, VMID by VMID.
#[test]
fn a_queue_loaded_by_registers_obeys_those_of_its_vmid() {
    let rig = Rig::sync();
    let set = |register, index, value| assert!(rig.cp.reg_write(0, register, index, value));
    let select = |vmid: u32| set(CpRegister::GRBM_GFX_CNTL, 0, vmid << 4);
    select(VMID);
    set(CpRegister::SPI_GDBG_PER_VMID_CNTL, 0, LAUNCH_HALTED);
    let spi = || rig.cp.reg_read(0, CpRegister::SPI_GDBG_PER_VMID_CNTL, 0);
    assert_eq!(spi(), Some(LAUNCH_HALTED));
    select(VMID + 1);
    assert_eq!(spi(), Some(0));
    rig.write_mqd(DIRECT);
    rig.write(DIRECT_CODE.into(), PROGRAM);
    let sh = |at: u32, values: &[u32]| {
        let head = [
            pkt(op::SET_SH_REG.into(), 1 + values.len() as u32),
            0x200 + at,
        ];
        [&head[..], values].concat()
    };
    let packets = [
        sh(0x0c, &[DIRECT_CODE >> 8, 0]),
        sh(0x07, &[64, 1, 1]),
        vec![pkt(op::DISPATCH_DIRECT.into(), 4), 1, 1, 1, 1 | 1 << 2],
        vec![
            pkt(op::RELEASE_MEM.into(), 7),
            0x514,
            1 << 29,
            FENCE as u32,
            0,
            7,
            0,
            0,
        ],
    ];
    rig.submit(DIRECT, &packets.concat());
    rig.select(0, 1, 2, 3);
    for dword in 128..187 {
        rig.set_hqd(0, dword, rig.read(DIRECT.mqd + 4 * dword as u64));
    }
    rig.set_hqd(0, dw::CP_HQD_VMID, VMID);
    set(CpRegister::CP_PQ_WPTR_POLL_CNTL1, 0, 1 << 19);
    rig.set_hqd(0, dw::CP_HQD_ACTIVE, 1);
    rig.runner.poll();
    assert_eq!(rig.read(FENCE), 0, "halted");
    // SQ_CMD: SETHALT 0 of all waves of the VMID.
    set(CpRegister::SQ_CMD, 0, 1 | 1 << 4 | 1 << 7 | VMID << 28);
    rig.runner.poll();
    assert_eq!(rig.read(FENCE), 7);
}
