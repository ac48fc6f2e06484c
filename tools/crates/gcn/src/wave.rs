// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! One wavefront of 64 lanes: its architectural state as plain data, which can be kept, resumed,
//! compared and serialised.
//!
//! A [`Workgroup`](crate::Workgroup) owns its waves. Nothing here runs.

pub use host_simd::Rows;

/// Lanes in a wave.
pub const LANES: usize = 64;

/// One vector register: a dword for each lane.
pub type Vgpr = [u32; LANES];

/// Indices into [`Wave::scalar`], which are the operand codes of the ISA.
pub mod sreg {
    /// FLAT_SCRATCH_LO; HI follows.
    pub const FLAT_SCRATCH: usize = 102;
    /// XNACK_MASK_LO; HI follows.
    pub const XNACK_MASK: usize = 104;
    /// VCC_LO; HI follows.
    pub const VCC: usize = 106;
    /// TTMP0 of 16 trap temporaries.
    pub const TTMP0: usize = 108;
    /// M0.
    pub const M0: usize = 124;
    /// EXEC_LO; HI follows.
    pub const EXEC: usize = 126;
}

/// Fields of the MODE register (hwreg 1): SQ_WAVE_MODE of `gc_9_4_3_sh_mask.h`, and TRAP_ON_END as
/// ROCdbgapi (`src/architecture.cpp`, gfx940) has it.
pub mod mode {
    use super::trapsts::EXCP;

    /// FP_ROUND: bits 1:0 for f32, 3:2 for f16 and f64; 0 nearest even, 1 up, 2 down, 3 to zero.
    pub const FP_ROUND: u32 = 0xf;
    /// FP_DENORM: bits 5:4 for f32, 7:6 for f16 and f64; bit 0 allows inputs, bit 1 allows outputs.
    pub const FP_DENORM: u32 = 0xf << 4;
    /// DX10_CLAMP: clamp turns NaN into 0.
    pub const DX10_CLAMP: u32 = 1 << 8;
    /// IEEE: signalling NaNs are quieted by min, max and friends.
    pub const IEEE: u32 = 1 << 9;
    /// DEBUG_EN: a trap after each instruction.
    pub const DEBUG_EN: u32 = 1 << 11;
    /// EXCP_EN: which exceptions trap; the bits are those of TRAPSTS.EXCP.
    pub const EXCP_EN: u32 = EXCP << EXCP_EN_SHIFT;
    /// Where EXCP_EN begins.
    pub const EXCP_EN_SHIFT: u32 = 12;
    /// TRAP_ON_END: a trap at `s_endpgm`.
    pub const TRAP_ON_END: u32 = 1 << 21;
    /// FP16_OVFL: f16 overflow gives the largest finite value.
    pub const FP16_OVFL: u32 = 1 << 23;
    /// GPR_IDX_EN: VGPR indexing by M0.
    pub const GPR_IDX_EN: u32 = 1 << 27;
    /// VSKIP: vector instructions are skipped.
    pub const VSKIP: u32 = 1 << 28;
}

/// Fields of the STATUS register (hwreg 2).
pub mod status {
    /// SCC: the scalar condition code.
    pub const SCC: u32 = 1;
    /// PRIV: in the trap handler.
    pub const PRIV: u32 = 1 << 5;
    /// TRAP_EN: a trap handler is installed.
    pub const TRAP_EN: u32 = 1 << 6;
    /// HALT: the wave does not issue.
    pub const HALT: u32 = 1 << 13;
    /// COND_DBG_USER: what `s_cbranch_cdbguser` looks at.
    pub const COND_DBG_USER: u32 = 1 << 20;
    /// COND_DBG_SYS: what `s_cbranch_cdbgsys` looks at.
    pub const COND_DBG_SYS: u32 = 1 << 21;
}

/// Fields of the TRAPSTS register (hwreg 3): SQ_WAVE_TRAPSTS of `gc_9_4_3_sh_mask.h`; WAVE_BEGIN,
/// which is not there, and what is in EXCP and EXCP_HI as the driver's
/// `cwsr_trap_handler_gfx9.asm` and ROCdbgapi have it.
pub mod trapsts {
    /// EXCP.INVALID: an invalid operation on floats.
    pub const INVALID: u32 = 1;
    /// EXCP.DENORM: a subnormal operand.
    pub const INPUT_DENORM: u32 = 1 << 1;
    /// EXCP.DIV0: a float divided by zero.
    pub const DIV0: u32 = 1 << 2;
    /// EXCP.OVERFLOW: of a float.
    pub const OVERFLOW: u32 = 1 << 3;
    /// EXCP.UNDERFLOW: of a float.
    pub const UNDERFLOW: u32 = 1 << 4;
    /// EXCP.INEXACT: a float was rounded.
    pub const INEXACT: u32 = 1 << 5;
    /// EXCP.INT_DIV0: an integer divided by zero.
    pub const INT_DIV0: u32 = 1 << 6;
    /// The exceptions of arithmetic.
    pub const ARITHMETIC: u32 = 0x7f;
    /// What each address watch sets: EXCP.ADDR_WATCH, EXCP_HI.ADDR_WATCH1 to 3.
    pub const ADDR_WATCH: [u32; 4] = [1 << 7, 1 << 12, 1 << 13, 1 << 14];
    /// MEM_VIOL: memory refused an access.
    pub const MEM_VIOL: u32 = 1 << 8;
    /// EXCP: all of the low field.
    pub const EXCP: u32 = 0x1ff;
    /// SAVECTX: the context is to be saved.
    pub const SAVECTX: u32 = 1 << 10;
    /// ILLEGAL_INST: an unknown instruction was met.
    pub const ILLEGAL_INST: u32 = 1 << 11;
    /// WAVE_BEGIN: the wave has begun.
    pub const WAVE_BEGIN: u32 = 1 << 23;
    /// WAVE_END: the wave is at `s_endpgm`.
    pub const WAVE_END: u32 = 1 << 24;
    /// TRAP_AFTER_INST: an instruction was executed in single-step mode.
    pub const TRAP_AFTER_INST: u32 = 1 << 25;
    /// XNACK_ERROR: no translation, and no repetition; MEM_VIOL alone is another refusal.
    pub const XNACK_ERROR: u32 = 1 << 28;
    /// What traps whatever MODE.EXCP_EN says.
    pub const ALWAYS: u32 =
        MEM_VIOL | ILLEGAL_INST | WAVE_BEGIN | WAVE_END | TRAP_AFTER_INST | XNACK_ERROR;
}

/// Exceptions that have occurred and of which the trap handler does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pending {
    /// Bits of TRAPSTS.
    pub bits: u32,
    /// So many instructions issue before the trap.
    pub after: u32,
}

/// Whether a wave can issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum WaveState {
    /// It can.
    #[default]
    Ready,
    /// It waits at `s_barrier` for the rest of its work-group.
    Barrier,
    /// It met `s_endpgm`.
    Ended,
}

/// One wavefront.
///
/// Everything is public and plain: the caller sets the initial state (or lets
/// [`Dispatch::workgroup`](crate::Dispatch::workgroup) do it) and can save and restore it at any
/// time that [`Workgroup::run`](crate::Workgroup::run) is not running.
#[derive(Clone, Debug, PartialEq)]
pub struct Wave {
    /// Address of the next instruction.
    pub pc: u64,
    /// SGPRs and what shares their operand codes: FLAT_SCRATCH, XNACK_MASK, VCC, TTMPs, M0, EXEC
    /// (see [`sreg`]).
    pub scalar: [u32; 128],
    /// Architectural VGPRs, as many as the wave has.
    pub vgpr: Rows,
    /// Accumulation VGPRs.
    pub acc: Rows,
    /// The scalar condition code (STATUS.SCC).
    pub scc: bool,
    /// MODE (hwreg 1), see [`mode`].
    pub mode: u32,
    /// STATUS (hwreg 2) but SCC, EXECZ and VCCZ, which are computed; see [`status`].
    pub status: u32,
    /// TRAPSTS (hwreg 3), see [`trapsts`].
    pub trapsts: u32,
    /// HW_ID (hwreg 4), XCC_ID (hwreg 20): read only, for the caller to fill.
    pub hw_id: u32,
    /// XCC_ID (hwreg 20).
    pub xcc_id: u32,
    /// Trap handler address (TBA); 0 = none.
    pub tba: u64,
    /// Trap handler memory (TMA).
    pub tma: u64,
    /// Whether the wave can issue.
    pub state: WaveState,
    /// Its number in its work-group, for the caller to fill.
    pub number: u32,
    /// Exceptions that will trap.
    pub pending: Pending,
}

impl Wave {
    /// A wave with all registers zero, all lanes active and `vgprs` + `accs` vector registers.
    pub fn new(pc: u64, vgprs: usize, accs: usize) -> Self {
        let mut wave = Wave {
            pc,
            scalar: [0; 128],
            vgpr: Rows::new(vgprs),
            acc: Rows::new(accs),
            scc: false,
            mode: mode::DX10_CLAMP | mode::IEEE | mode::FP_DENORM,
            status: 0,
            trapsts: 0,
            hw_id: 0,
            xcc_id: 0,
            tba: 0,
            tma: 0,
            state: WaveState::Ready,
            number: 0,
            pending: Pending::default(),
        };
        wave.set_exec(!0);
        wave
    }

    /// The two SGPRs from `index` as one value.
    pub fn scalar64(&self, index: usize) -> u64 {
        u64::from(self.scalar[index]) | u64::from(self.scalar[index + 1]) << 32
    }

    /// Sets the two SGPRs from `index`.
    pub fn set_scalar64(&mut self, index: usize, value: u64) {
        self.scalar[index] = value as u32;
        self.scalar[index + 1] = (value >> 32) as u32;
    }

    /// The mask of active lanes.
    pub fn exec(&self) -> u64 {
        self.scalar64(sreg::EXEC)
    }

    /// Sets the mask of active lanes.
    pub fn set_exec(&mut self, mask: u64) {
        self.set_scalar64(sreg::EXEC, mask);
    }

    /// Lanes that an instruction which memory refused in the middle has left, for when it is
    /// repeated; 0: all. It lies in XNACK_MASK, which trap handlers save and restore; in a handler
    /// itself it has no meaning.
    pub fn replay(&self) -> u64 {
        match self.status & status::PRIV {
            0 => self.scalar64(sreg::XNACK_MASK),
            _ => 0,
        }
    }

    /// Sets these lanes.
    pub fn set_replay(&mut self, left: u64) {
        if self.status & status::PRIV == 0 {
            self.set_scalar64(sreg::XNACK_MASK, left);
        }
    }

    /// The vector condition code.
    pub fn vcc(&self) -> u64 {
        self.scalar64(sreg::VCC)
    }

    /// M0.
    pub fn m0(&self) -> u32 {
        self.scalar[sreg::M0]
    }

    /// Base of this wave's scratch backing (architected flat scratch). The lanes' dwords are
    /// interleaved: byte `o` of lane `l` is at `base + o / 4 * 256 + l * 4 + o % 4`.
    pub fn scratch_base(&self) -> u64 {
        self.scalar64(sreg::FLAT_SCRATCH)
    }

    /// Whether it has something to execute now. HALT does not hold a wave in the trap handler.
    pub fn can_issue(&self) -> bool {
        self.state == WaveState::Ready
            && self.status & (status::HALT | status::PRIV) != status::HALT
    }

    /// Asks it to save its context (TRAPSTS.SAVECTX), as the hardware does on preemption: it enters
    /// the trap handler now, or as soon as it leaves the one that it is in. A wave that waits at a
    /// barrier goes back to it. False if there is no handler.
    pub fn save_context(&mut self) -> bool {
        if !self.has_handler() {
            return false;
        }
        self.trapsts |= trapsts::SAVECTX;
        if self.status & status::PRIV != 0 {
            return true;
        }
        if self.state == WaveState::Barrier {
            self.pc = self.pc.wrapping_sub(4);
            self.state = WaveState::Ready;
            self.pending.bits &= !trapsts::TRAP_AFTER_INST;
        }
        self.except_here(0)
    }

    /// Whether traps lead anywhere.
    fn has_handler(&self) -> bool {
        self.tba != 0 && self.status & status::TRAP_EN != 0
    }

    /// Whether exceptions trap now.
    pub(crate) fn can_trap(&self) -> bool {
        self.has_handler() && self.status & status::PRIV == 0
    }

    /// Exceptions occur (bits of TRAPSTS): what MODE does not let trap is only noted, the rest
    /// traps once `after` more instructions have issued. Not in the trap handler, which nothing
    /// interrupts: there all of it is only noted.
    pub fn except(&mut self, bits: u32, after: u32) {
        let traps = match self.can_trap() {
            true => bits & self.enabled(),
            false => 0,
        };
        self.trapsts |= bits & !traps;
        if traps == 0 {
            return;
        }
        let sooner = match self.pending.bits {
            0 => after,
            _ => after.min(self.pending.after),
        };
        self.pending = Pending {
            bits: self.pending.bits | traps,
            after: sooner,
        };
    }

    /// Exceptions that trap.
    fn enabled(&self) -> u32 {
        let low = (self.mode & mode::EXCP_EN) >> mode::EXCP_EN_SHIFT;
        let [first, others @ ..] = trapsts::ADDR_WATCH;
        let others = match low & first {
            0 => 0,
            _ => others.iter().fold(0, |all, bit| all | bit),
        };
        trapsts::ALWAYS | low | others
    }

    /// Exceptions occur at the instruction that the PC is at, and the wave traps before it executes
    /// anything more. False: it does not, for want of a handler, or because it is in it.
    pub fn except_here(&mut self, bits: u32) -> bool {
        self.trapsts |= bits;
        if self.status & status::PRIV != 0 {
            return false;
        }
        self.trapsts |= std::mem::take(&mut self.pending).bits;
        self.enter_trap(0, false)
    }

    /// Whether its instructions are looked at one by one; `watched`: its process watches addresses.
    #[inline(always)]
    pub(crate) fn is_traced(&self, watched: bool) -> bool {
        const TRACED: u32 =
            mode::DEBUG_EN | mode::TRAP_ON_END | trapsts::ARITHMETIC << mode::EXCP_EN_SHIFT;
        let wanted = self.mode & TRACED | self.pending.bits | u32::from(watched);
        wanted != 0 && self.status & status::PRIV == 0
    }

    /// Enters the trap handler, as the hardware does for `s_trap` and exceptions: TTMP1:TTMP0 take
    /// the PC and
    /// `trap_id`; `host` marks a trap the host asked for (e.g. a context save, with TRAPSTS.SAVECTX
    /// set). False if there is no handler.
    pub fn enter_trap(&mut self, trap_id: u8, host: bool) -> bool {
        if !self.has_handler() {
            return false;
        }
        let info = u64::from(trap_id) << 48 | u64::from(host) << 56;
        self.set_scalar64(sreg::TTMP0, self.pc & 0xffff_ffff_ffff | info);
        self.pc = self.tba;
        self.status |= status::PRIV;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trap_needs_a_handler_and_keeps_the_pc() {
        let mut wave = Wave::new(0x1234_5678_9abc, 1, 0);
        assert!(!wave.enter_trap(2, false));
        wave.tba = 0x4000;
        wave.status |= status::TRAP_EN;
        assert!(wave.enter_trap(2, false));
        assert_eq!(wave.scalar64(sreg::TTMP0), 0x0002_1234_5678_9abc);
        assert_eq!(wave.pc, 0x4000);
        assert_ne!(wave.status & status::PRIV, 0);
    }
}
