// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What debuggers use: single steps, address watches, traps at a wave's end, exceptions.

#[path = "support/bench.rs"]
mod bench;
#[path = "support/machine.rs"]
mod machine;
#[path = "support/toolchain.rs"]
mod toolchain;

use std::sync::OnceLock;

use bench::Bench;
use gcn::wave::{mode, status, trapsts};
use gcn::{Access, Outcome, Watch, WatchMode, WaveState};
use toolchain::Toolchain;

/// Writes TTMP0 and TRAPSTS to the log at s[96:97], clears TRAPSTS, skips an `s_trap`.
const HANDLER: &str = "s_getreg_b32 ttmp12, hwreg(HW_REG_STATUS)\n\
    s_getreg_b32 ttmp4, hwreg(HW_REG_TRAPSTS)\n s_store_dword ttmp0, s[96:97], 0x0\n\
    s_store_dword ttmp4, s[96:97], 0x4\n s_add_u32 s96, s96, 8\n s_addc_u32 s97, s97, 0\n\
    s_mov_b32 ttmp5, 0\n s_setreg_b32 hwreg(HW_REG_TRAPSTS), ttmp5\n\
    s_bfe_u32 ttmp6, ttmp1, 0x80010\n s_cbranch_scc0 2\n s_add_u32 ttmp0, ttmp0, 4\n\
    s_addc_u32 ttmp1, ttmp1, 0\n s_and_b32 ttmp1, ttmp1, 0xffff\n\
    s_setreg_b32 hwreg(HW_REG_STATUS), ttmp12\n s_rfe_b64 ttmp[0:1]";

/// A wave with that handler.
struct Debuggee {
    bench: Bench,
    entry: u64,
    log: u64,
}

impl Debuggee {
    fn new(text: &str) -> Self {
        let mut bench = Bench::new(text);
        static WORDS: OnceLock<Vec<u32>> = OnceLock::new();
        let handler = WORDS.get_or_init(|| Toolchain::new().assemble(HANDLER));
        let (tba, log) = (bench.ram.place(handler), bench.ram.allocate(4096));
        let wave = &mut bench.group.waves[0];
        wave.tba = tba;
        wave.status |= status::TRAP_EN;
        wave.set_scalar64(96, log);
        let entry = wave.pc;
        Debuggee { bench, entry, log }
    }

    /// Runs to the end; each trap's PC, from the program's beginning, and TRAPSTS.
    fn traps(&mut self) -> Vec<(u64, u32)> {
        assert_eq!(self.bench.run(), Outcome::Done);
        self.log()
    }

    fn log(&self) -> Vec<(u64, u32)> {
        let bytes = self.bench.wave().scalar64(96) - self.log;
        let words: Vec<u32> = self.bench.ram.take(self.log, bytes as usize / 4);
        let low = |pc: u32| u64::from(pc.wrapping_sub(self.entry as u32));
        words.chunks(2).map(|it| (low(it[0]), it[1])).collect()
    }

    /// Runs to a fault, which is final.
    fn violate(&mut self, bits: u32) -> bool {
        let Outcome::Fault { wave, fault, .. } = self.bench.run() else {
            panic!("no fault")
        };
        let Bench { group, ram, code } = &mut self.bench;
        group.violate(wave, fault.access, bits, ram, code)
    }
}

const STEP: u32 = trapsts::TRAP_AFTER_INST;

#[test]
fn a_stepped_wave_traps_after_each_instruction() {
    let text = "s_mov_b32 s4, 1\n s_mov_b32 s5, 0x12345\n s_nop 0\n s_branch 1\n s_mov_b32 s4, 9\n\
                v_mov_b32 v1, s5\n s_endpgm";
    let mut stepped = Debuggee::new(text);
    stepped.bench.group.waves[0].mode |= mode::DEBUG_EN;
    let traps = stepped.traps();
    assert_eq!(traps, [4, 12, 16, 24, 28].map(|pc| (pc, STEP)));
    let wave = stepped.bench.wave();
    assert_eq!((wave.scalar[4], wave.vgpr[1][5]), (1, 0x12345));
    assert_eq!(Debuggee::new(text).traps(), []);
}

#[test]
fn stepping_can_begin_and_end_in_the_program() {
    // DEBUG_EN is bit 11 of MODE.
    let text = "s_nop 0\n s_setreg_imm32_b32 hwreg(HW_REG_MODE, 11, 1), 1\n s_nop 0\n s_nop 0\n\
                s_setreg_imm32_b32 hwreg(HW_REG_MODE, 11, 1), 0\n s_nop 0\n s_endpgm";
    let traps = Debuggee::new(text).traps();
    assert_eq!(traps, [16, 20, 28].map(|pc| (pc, STEP)));
}

#[test]
fn a_stepped_s_trap_is_a_trap_and_no_step() {
    let mut stepped = Debuggee::new("s_nop 0\n s_trap 1\n s_nop 0\n s_endpgm");
    stepped.bench.group.waves[0].mode |= mode::DEBUG_EN;
    assert_eq!(stepped.traps(), [(4, STEP), (4, 0), (12, STEP)]);
}

#[test]
fn a_step_over_a_barrier_ends_when_the_barrier_does() {
    let mut stepped = Debuggee::new("s_barrier\n s_nop 0\n s_endpgm");
    let other = stepped.bench.group.waves[0].clone();
    stepped.bench.group.waves[0].mode |= mode::DEBUG_EN;
    stepped.bench.group.waves.push(other);
    stepped.bench.group.waves[1].status |= status::HALT;
    assert_eq!(stepped.bench.run(), Outcome::Halted);
    assert_eq!(stepped.log(), []);
    // Saved now, it would be at the barrier again.
    let mut saved = stepped.bench.group.waves[0].clone();
    assert!(saved.save_context());
    assert_eq!(saved.trapsts, trapsts::SAVECTX);
    stepped.bench.group.waves[1].status &= !status::HALT;
    assert_eq!(stepped.traps(), [(4, STEP), (8, STEP)]);
}

#[test]
fn a_step_and_a_save_come_together() {
    let mut stepped = Debuggee::new("s_nop 0\n s_nop 0\n s_endpgm");
    let Bench { group, ram, code } = &mut stepped.bench;
    group.waves[0].mode |= mode::DEBUG_EN;
    assert_eq!(group.run(ram, code, 1), Outcome::Budget);
    let wave = &mut group.waves[0];
    assert!(wave.save_context());
    assert_eq!(wave.trapsts, trapsts::SAVECTX | STEP);
    assert_eq!(wave.scalar64(gcn::wave::sreg::TTMP0), stepped.entry + 4);
}

#[test]
fn a_wave_traps_once_at_its_end() {
    let mut wave = Debuggee::new("s_nop 0\n s_endpgm");
    wave.bench.group.waves[0].mode |= mode::TRAP_ON_END;
    assert_eq!(wave.traps(), [(4, trapsts::WAVE_END)]);
    assert_eq!(wave.bench.wave().mode & mode::TRAP_ON_END, 0);
}

/// A store to `s[2:3]` + 256 + 4 * lane, and code that does not wait for it at once.
const STORE: &str = "v_lshlrev_b32 v1, 2, v0\n global_store_dword v1, v0, s[2:3] offset:256\n\
                     s_nop 0\n s_nop 0\n s_waitcnt vmcnt(0)\n s_endpgm";

fn watching(text: &str, number: usize, offset: u64, mode: WatchMode) -> Debuggee {
    let mut it = Debuggee::new(text);
    it.bench.group.debug.watches[number] = Some(Watch {
        address: it.bench.wave().scalar64(2) + offset,
        mask: !0x7f,
        mode,
    });
    it.bench.group.waves[0].mode |= trapsts::ADDR_WATCH[0] << mode::EXCP_EN_SHIFT;
    it
}

#[test]
fn a_watch_traps_when_the_store_is_waited_for_and_precisely_after_it() {
    for (number, bit) in (0..).zip(trapsts::ADDR_WATCH) {
        let mut watched = watching(STORE, number, 384, WatchMode::NonRead);
        assert_eq!(watched.traps(), [(20, bit)], "at s_waitcnt");
        let stored = watched.bench.wave().scalar64(2) + 256;
        let stored: Vec<u32> = watched.bench.ram.take(stored, 64);
        assert!(stored.iter().zip(0..).all(|(value, lane)| *value == lane));
        let mut watched = watching(STORE, number, 384, WatchMode::NonRead);
        watched.bench.group.debug.precise = true;
        assert_eq!(watched.traps(), [(12, bit)]);
    }
    assert_eq!(watching(STORE, 0, 128, WatchMode::All).traps(), []);
    assert_eq!(watching(STORE, 0, 384, WatchMode::Read).traps(), []);
    // Lanes that are off access nothing: the last 32 are those of the second block.
    let mut half = watching(STORE, 0, 384, WatchMode::All);
    half.bench.group.waves[0].set_exec(0xffff_ffff);
    assert_eq!(half.traps(), []);
    // A bit that does not trap stays.
    let mut quiet = watching(STORE, 2, 384, WatchMode::All);
    quiet.bench.group.waves[0].mode &= !mode::EXCP_EN;
    assert_eq!(quiet.traps(), []);
    assert_eq!(quiet.bench.wave().trapsts, trapsts::ADDR_WATCH[2]);
}

#[test]
fn a_watch_sees_no_dwords_out_of_a_buffers_bounds() {
    // Two of the four dwords are within, which end where another block begins.
    let text = "s_mov_b64 s[4:5], s[2:3]\n s_movk_i32 s6, 128\n s_mov_b32 s7, 0x27000\n\
                buffer_load_dwordx4 v[4:7], off, s[4:7], 0 offset:120\n\
                s_waitcnt vmcnt(0)\n s_endpgm";
    assert_eq!(watching(text, 0, 0, WatchMode::Read).traps().len(), 1);
    assert_eq!(watching(text, 0, 128, WatchMode::Read).traps(), []);
}

#[test]
fn watches_see_vector_memory_by_what_it_does() {
    let load = "global_load_dword v1, v2, s[2:3]\n s_endpgm";
    let atomic = "global_atomic_add v2, v2, s[2:3]\n s_endpgm";
    let scalar = "s_load_dword s4, s[2:3], 0x0\n s_waitcnt lgkmcnt(0)\n s_endpgm";
    let flat = "v_mov_b32 v4, s2\n v_mov_b32 v5, s3\n flat_load_dword v1, v[4:5]\n s_endpgm";
    let lds = "v_mov_b32 v4, 0\n v_mov_b32 v5, 0x10000\n flat_load_dword v1, v[4:5]\n s_endpgm";
    let count = |text: &str, mode| {
        let mut it = watching(text, 1, 0, mode);
        it.bench.group.debug.precise = true;
        it.traps().len()
    };
    for (text, seen) in [
        (load, [1, 0, 0, 1]),
        (atomic, [0, 1, 1, 1]),
        (scalar, [0; 4]),
        (flat, [1, 0, 0, 1]),
        (lds, [0; 4]),
    ] {
        use WatchMode::*;
        let counts = [Read, NonRead, Atomic, All].map(|mode| count(text, mode));
        assert_eq!(counts, seen, "{text}");
    }
}

const REFUSED: u32 = trapsts::MEM_VIOL | trapsts::XNACK_ERROR;

#[test]
fn a_violation_traps_late_unless_memory_operations_are_precise() {
    let text = "s_mov_b64 s[4:5], 0x1000\n global_load_dword v1, v2, s[4:5]\n s_nop 0\n s_nop 0\n\
                s_nop 0\n s_nop 0\n s_nop 0\n s_endpgm";
    for (precise, pc) in [(false, 16 + 4 * 4), (true, 16)] {
        let mut wave = Debuggee::new(text);
        wave.bench.group.debug.precise = precise;
        assert!(wave.violate(REFUSED));
        assert_eq!(wave.traps(), [(pc, REFUSED)], "{precise}");
    }
    // One that is saved meanwhile enters the handler with both.
    let mut wave = Debuggee::new(text);
    assert!(wave.violate(REFUSED));
    assert!(wave.bench.group.waves[0].save_context());
    let saved = wave.bench.wave().trapsts;
    assert_eq!(saved, REFUSED | trapsts::SAVECTX);
    // Without a handler it cannot go on.
    let mut wave = Debuggee::new(text);
    wave.bench.group.waves[0].tba = 0;
    assert!(!wave.violate(REFUSED));
    assert_eq!(wave.bench.wave().state, WaveState::Ready);
}

#[test]
fn an_atomic_at_an_odd_address_does_nothing() {
    let text = "v_mov_b32 v1, 7\n v_mov_b32 v2, 2\n global_atomic_add v2, v1, s[2:3]\n s_endpgm";
    let mut bench = Bench::new(text);
    let (data, entry) = (bench.wave().scalar64(2), bench.wave().pc);
    let outcome = Outcome::Misaligned {
        wave: 0,
        pc: entry + 8,
        address: data + 2,
    };
    assert_eq!(bench.run(), outcome);
    assert_eq!(bench.ram.take::<u32>(data, 2), [0, 0]);
}

#[test]
fn code_that_cannot_be_fetched_traps_where_it_is() {
    let mut wave = Debuggee::new("s_setpc_b64 s[4:5]");
    wave.bench.group.waves[0].set_scalar64(4, 0x4000);
    assert!(wave.violate(REFUSED));
    let Outcome::Fault { fault, .. } = wave.bench.run() else {
        panic!("the handler returned there")
    };
    assert_eq!((fault.address, fault.access), (0x4000, Access::Fetch));
    assert_eq!(wave.log()[0].1, REFUSED);
}

/// What the program's instructions raise, all exceptions enabled: for each, with its source.
const RAISING: &[(&str, u32)] = &[
    ("v_add_f32 v1, 1.0, v2", 0),                     // 2^-23
    ("v_add_f32 v1, 1.0, v3", trapsts::INEXACT),      // 2^-31
    ("v_add_f32 v1, v4, v4", OVERFLOWS),              // the largest
    ("v_sub_f32 v1, v5, v5", trapsts::INVALID),       // infinity
    ("v_add_f32 v1, v5, v4", 0),                      // infinity
    ("v_mul_f32 v1, v6, v6", UNDERFLOWS),             // 3e-30
    ("v_mul_f32 v1, 2.0, v7", trapsts::INPUT_DENORM), // 2^-140
    ("v_fma_f32 v1, v8, v8, -1.0", trapsts::INEXACT), // 1 + 1 ulp
    ("v_fmac_f32 v18, v8, v8", 0),                    // infinity
    ("v_fmac_f32 v19, v8, v8", trapsts::INEXACT),     // -1
    (
        "v_fma_f64 v[12:13], v[10:11], v[10:11], 1.0",
        trapsts::INEXACT,
    ), // 1 + 1 ulp
    ("v_add_f16 v1, v14, v14", OVERFLOWS),            // the largest
    ("v_rcp_f32 v1, v9", trapsts::DIV0),              // zero
    ("v_rcp_iflag_f32 v1, v9", trapsts::INT_DIV0),
    ("v_rcp_f32 v1, v4", 0),
    ("v_sqrt_f32 v1, -1.0", trapsts::INVALID),
    ("v_log_f32 v1, v9", trapsts::DIV0),
    ("v_div_fixup_f32 v1, v15, v9, 1.0", trapsts::DIV0), // NaN so far
    ("v_div_fixup_f32 v1, v15, v9, v9", trapsts::INVALID),
    ("v_cvt_i32_f32 v1, 0.5", 0),
    ("v_cvt_i32_f32 v1, 0.5 clamp", trapsts::INEXACT),
    ("v_cvt_u32_f64 v1, v[10:11]", 0),
    ("v_cvt_u16_f16 v1, 0.5 clamp", trapsts::INEXACT),
    ("v_cvt_i32_f32 v1, v4", trapsts::INVALID),
    ("v_cvt_i32_f32 v1, v15", trapsts::INVALID),
    ("v_cvt_u32_f32 v1, 4.0", 0),
    ("v_cvt_f32_i32 v1, v16", trapsts::INEXACT), // 2^24 + 1
    ("v_cvt_f32_f64 v1, v[10:11]", trapsts::INEXACT),
    ("v_cvt_f16_f32 v1, v4", OVERFLOWS),
    ("v_cmp_lt_f32 vcc, v15, v4", 0),
    ("v_cmp_lt_f32 vcc, v17, v4", trapsts::INVALID), // a signalling NaN
    ("v_cmp_class_f32 vcc, v17, v4", 0),
    ("v_max_f32 v1, v17, v4", trapsts::INVALID),
    ("v_mov_b32 v1, v17", 0),
    ("v_add_u32 v1, v17, v17", 0),
    ("v_cndmask_b32 v1, v17, v17, vcc", 0),
];
const OVERFLOWS: u32 = trapsts::OVERFLOW | trapsts::INEXACT;
const UNDERFLOWS: u32 = trapsts::UNDERFLOW | trapsts::INEXACT;

fn calculating(excp_en: u32) -> Debuggee {
    let lines = RAISING.iter().map(|(text, _)| format!("{text}\n"));
    let mut it = Debuggee::new(&format!("{}s_endpgm", lines.collect::<String>()));
    let wave = &mut it.bench.group.waves[0];
    wave.mode |= excp_en << mode::EXCP_EN_SHIFT;
    let mut set = |register: usize, value: f32| wave.vgpr[register] = [value.to_bits(); 64];
    set(2, 2f32.powi(-23));
    set(3, 2f32.powi(-31));
    set(4, f32::MAX);
    set(5, f32::INFINITY);
    set(6, 3e-20);
    set(7, 2f32.powi(-140));
    set(8, f32::from_bits(0x3f80_0001));
    set(9, 0.0);
    set(15, f32::NAN);
    set(17, f32::from_bits(0x7f80_0001));
    set(18, f32::INFINITY);
    set(19, -1.0);
    (wave.vgpr[10], wave.vgpr[11]) = ([1; 64], [0x3ff0_0000; 64]);
    (wave.vgpr[14], wave.vgpr[16]) = ([0x7bff; 64], [0x100_0001; 64]);
    it
}

#[test]
fn arithmetic_raises_what_is_enabled() {
    let raised = |it: &mut Debuggee| it.traps().iter().map(|(_, bits)| *bits).collect::<Vec<_>>();
    let expected = RAISING.iter().map(|(_, bits)| *bits);
    let expected: Vec<u32> = expected.filter(|bits| *bits != 0).collect();
    assert_eq!(raised(&mut calculating(trapsts::ARITHMETIC)), expected);
    assert_eq!(calculating(0).traps(), []);
    // Lanes that are off raise nothing.
    let mut off = calculating(trapsts::ARITHMETIC);
    off.bench.group.waves[0].set_exec(0);
    assert_eq!(off.traps(), []);
    // What is not enabled does not trap, and stays.
    let mut some = calculating(trapsts::INT_DIV0);
    let [(_, bits)] = some.traps()[..] else {
        panic!("one division of integers")
    };
    assert_eq!(bits & trapsts::INT_DIV0, trapsts::INT_DIV0);
    assert_ne!(bits & trapsts::DIV0, 0, "the one before");
}

#[test]
fn branches_look_at_the_debuggers_conditions() {
    let text = "s_cbranch_cdbguser 1\n s_mov_b32 s4, 1\n s_cbranch_cdbgsys 1\n s_mov_b32 s5, 1\n\
                s_cbranch_cdbgsys_or_user 1\n s_mov_b32 s6, 1\n s_cbranch_cdbgsys_and_user 1\n\
                s_mov_b32 s7, 1\n s_endpgm";
    let with = |bits: u32| {
        let mut bench = Bench::new(text);
        bench.group.waves[0].status |= bits;
        assert_eq!(bench.run(), Outcome::Done);
        bench.wave().scalar[4..8].to_vec()
    };
    assert_eq!(with(0), [1; 4]);
    assert_eq!(with(status::COND_DBG_USER), [0, 1, 0, 1]);
    assert_eq!(with(status::COND_DBG_SYS), [1, 0, 0, 1]);
    let both = status::COND_DBG_USER | status::COND_DBG_SYS;
    assert_eq!(with(both), [0; 4]);
}
