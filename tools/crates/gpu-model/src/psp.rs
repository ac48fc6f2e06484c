// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Platform security processor (MP0 13.0.2): boots its "secure OS" from a firmware image the driver
//! hands over, then takes commands from a ring. One per GPU.
//!
//! The model has no secure world: a firmware load is accepted as it is, and what a command would
//! change in the real chip has no effect here. Of trusted applications (TAs) it knows one,
//! `psp/xgmi.rs`. Mailbox and ring protocol as in `linux:drivers/gpu/drm/amd/amdgpu/psp_v13_0.c`
//! and `psp_gfx_if.h`.

mod xgmi;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::bus::Block;
use crate::chip::Chip;
use crate::gmc::{Hub, Refusal, Vm};
use crate::preset::{ip, Preset};
use crate::registers;
use crate::regs::{name_of, place, Key, Placed, RegisterFile};

registers! {
    /// The mailbox registers of MP0.
    pub enum PspRegister from "mp/mp_13_0_2" {
        /// `C2PMSG_32` to `_127`.
        MP0_SMN_C2PMSG_32[96] = 0 @ 0x0060;
    }
}

use PspRegister::MP0_SMN_C2PMSG_32 as C2PMSG;

/// Mailboxes by their number.
mod mailbox {
    /// Bootloader ready.
    pub const BOOT_READY: usize = 33;
    /// Bootloader command, bit 31: done.
    pub const BOOT_COMMAND: usize = 35;
    /// Version of the secure OS.
    pub const OS_VERSION: usize = 58;
    /// Secure OS command, bit 31: done.
    pub const OS_COMMAND: usize = 64;
    /// Write pointer of the command ring, in dwords.
    pub const RING_WPTR: usize = 67;
    pub const RING_LOW: usize = 69;
    pub const RING_HIGH: usize = 70;
    pub const RING_SIZE: usize = 71;
    /// Sign of life of the secure OS: not 0 once it runs.
    pub const SIGN_OF_LIFE: usize = 81;
}

const READY: u32 = 1 << 31;
/// `PSP_BL__LOAD_SOSDRV`.
const LOAD_SOSDRV: u32 = 0x2_0000;
/// `GFX_CTRL_CMD_ID_INIT_GPCOM_RING`.
const INIT_RING: u32 = 0x2_0000;
/// `GFX_CTRL_CMD_ID_DESTROY_RINGS`.
const DESTROY_RINGS: u32 = 0x3_0000;
/// `GFX_CTRL_CMD_ID_MODE1_RST`.
const MODE1_RESET: u32 = 0x7_0000;
/// `GFX_CMD_ID_MASK`.
const COMMAND_MASK: u32 = 0xf_0000;
/// What our secure OS calls itself: 0.54.0.130.
const VERSION: u32 = 0x0036_0082;

/// `sizeof(struct psp_gfx_rb_frame)` in dwords.
const FRAME_DWORDS: u32 = 16;
/// `offsetof(struct psp_gfx_cmd_resp, cmd_id)`.
const COMMAND_ID: u64 = 8;
/// `offsetof(struct psp_gfx_cmd_resp, cmd)`.
const COMMAND_DATA: u64 = 28;
/// `offsetof(struct psp_gfx_cmd_resp, resp)`; its first dword is the status.
const RESPONSE: u64 = 864;
/// `offsetof(struct psp_gfx_resp, session_id)`.
const SESSION: u64 = RESPONSE + 4;
/// `TEE_SUCCESS`, `TEE_ERROR_BAD_PARAMETERS` and `TEE_ERROR_NOT_SUPPORTED`.
const SUCCESS: u32 = 0;
const BAD_PARAMETERS: u32 = 0xffff_0006;
const NOT_SUPPORTED: u32 = 0xffff_000a;

/// `enum psp_gfx_cmd_id`: those whose success the model can honestly report, having nothing behind
/// them.
const ACCEPTED: &[u32] = &[
    0x5,  // SETUP_TMR
    0x6,  // LOAD_IP_FW
    0x7,  // DESTROY_TMR
    0xb,  // PROG_REG
    0x20, // LOAD_TOC
    0x21, // AUTOLOAD_RLC
];

/// `GFX_CMD_ID_LOAD_TA`, `_UNLOAD_TA` and `_INVOKE_CMD`.
const LOAD_TA: u32 = 1;
const UNLOAD_TA: u32 = 2;
const INVOKE: u32 = 3;

/// The only session there is: its TA's.
const XGMI_SESSION: u32 = 1;

/// `GFX_CMD_ID_SRIOV_SPATIAL_PART`: into how many partitions to split the GPU.
const SPATIAL_PARTITION: u32 = 0x27;

/// Offset of that register of an XCC in segment 1 (`gc_9_4_3_offset.h`).
const CP_HYP_XCP_CTL: u64 = 0x5828;

/// Where the secure OS is.
mod os {
    pub const ABSENT: u32 = 0;
    /// Loaded; the next look at the sign of life still sees nothing.
    pub const STARTING: u32 = 1;
    pub const RUNNING: u32 = 2;
}

/// The block.
pub struct Psp {
    bases: Vec<u32>,
    registers: RegisterFile<PspRegister>,
    os: AtomicU32,
    /// Dwords of the ring consumed.
    ring_read: AtomicU32,
    /// The buffer that the XGMI application shares with the driver, once it is loaded.
    xgmi: Mutex<Option<u64>>,
}

impl Psp {
    pub fn new(preset: &Preset) -> Self {
        let block = Self {
            bases: preset.bases(ip::MP0, 0).to_vec(),
            registers: RegisterFile::new(),
            os: AtomicU32::new(os::ABSENT),
            ring_read: AtomicU32::new(0),
            xgmi: Mutex::new(None),
        };
        block.power_on();
        block
    }

    fn power_on(&self) {
        self.registers.clear();
        self.set(mailbox::BOOT_READY, READY);
        self.set(mailbox::BOOT_COMMAND, READY);
        self.os.store(os::ABSENT, Ordering::Release);
        self.ring_read.store(0, Ordering::Release);
        self.share(None);
    }

    /// The XGMI application has been loaded, with this buffer, or unloaded.
    fn share(&self, buffer: Option<u64>) {
        *self.xgmi.lock().unwrap_or_else(PoisonError::into_inner) = buffer;
    }

    fn shared(&self) -> Option<u64> {
        *self.xgmi.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, number: usize) -> u32 {
        self.registers.at(C2PMSG, number - 32)
    }

    fn set(&self, number: usize, value: u32) {
        self.registers.set_at(C2PMSG, number - 32, value);
    }

    /// A bootloader command: every component is taken; the secure OS, once loaded, starts.
    fn boot_command(&self, command: u32) {
        tracing::debug!(target: "psp", "bootloader command {command:#x}");
        if command == LOAD_SOSDRV && self.os.load(Ordering::Acquire) == os::ABSENT {
            self.os.store(os::STARTING, Ordering::Release);
            self.set(mailbox::OS_COMMAND, READY);
            self.set(mailbox::OS_VERSION, VERSION);
        }
        self.set(mailbox::BOOT_COMMAND, READY);
    }

    /// Starting takes until the second look, so that who waits for a change sees one.
    fn sign_of_life(&self) -> u32 {
        match self.os.load(Ordering::Acquire) {
            os::ABSENT => 0,
            os::STARTING => {
                self.os.store(os::RUNNING, Ordering::Release);
                0
            }
            _ => 1,
        }
    }

    fn os_command(&self, chip: &Chip, command: u32) {
        tracing::debug!(target: "psp", "secure OS command {command:#x}");
        match command & COMMAND_MASK {
            INIT_RING => {
                self.set(mailbox::RING_WPTR, 0);
                self.ring_read.store(0, Ordering::Release);
            }
            DESTROY_RINGS => self.set(mailbox::RING_SIZE, 0),
            MODE1_RESET => return chip.request_reset(),
            other => tracing::warn!(target: "psp", "secure OS command {other:#x} has no effect"),
        }
        self.set(mailbox::OS_COMMAND, READY);
    }

    /// Works off the ring up to the new write pointer.
    fn ring(&self, chip: &Chip, wptr: u32) {
        let dwords = self.get(mailbox::RING_SIZE) / 4;
        if dwords < FRAME_DWORDS || wptr >= dwords {
            tracing::warn!(target: "psp", "write pointer {wptr:#x} in {dwords:#x} dwords of ring");
            return;
        }
        let base =
            u64::from(self.get(mailbox::RING_LOW)) | u64::from(self.get(mailbox::RING_HIGH)) << 32;
        let mut read = self.ring_read.load(Ordering::Acquire) % dwords;
        // A well-formed ring is empty after at most all its frames.
        for _ in 0..dwords / FRAME_DWORDS {
            if read == wptr {
                break;
            }
            let mut vm = chip.vm(Hub::Mm, 0);
            if let Err(fault) = self.frame(chip, &mut vm, base.wrapping_add(u64::from(read) * 4)) {
                chip.gmc.report(chip, &fault, None);
                // A ring outside memory may claim any length.
                break;
            }
            read = (read + FRAME_DWORDS) % dwords;
        }
        self.ring_read.store(read, Ordering::Release);
    }

    /// Splits the XCCs into so many partitions of equal size. False: that does not go.
    fn partition(chip: &Chip, count: u32) -> bool {
        let xccs = u32::from(chip.preset.xccs);
        if count == 0 || xccs % count != 0 {
            return false;
        }
        let each = xccs / count;
        for xcc in 0..chip.preset.xccs {
            let base = u64::from(chip.preset.base(ip::GC, xcc, 1));
            // CP_HYP_XCP_CTL: VIRTUAL_XCC_ID 2:0, NUM_XCC_IN_XCP 6:3.
            let member = (u32::from(xcc) % each) | (each << 3);
            chip.bus.write(chip, base + CP_HYP_XCP_CTL, member);
        }
        chip.partitions.store(count as u8, Ordering::Release);
        true
    }

    /// Loads the application if it is the one that the model knows and there is a hive to tell of.
    fn load_application(&self, chip: &Chip, vm: &mut Vm<'_>, command: u64) -> Result<u32, Refusal> {
        // struct psp_gfx_cmd_load_ta: the binary and its length, the buffer and its length.
        let data = command.wrapping_add(COMMAND_DATA);
        let binary = vm.read_u64(data)?;
        let buffer = vm.read_u64(data.wrapping_add(12))?;
        let mut mark = [0; xgmi::MARK.len()];
        if vm.read(binary, &mut mark).is_err() {
            return Ok(BAD_PARAMETERS);
        }
        if mark != *xgmi::MARK || chip.hive.is_none() {
            tracing::warn!(target: "psp", "unknown trusted application");
            return Ok(NOT_SUPPORTED);
        }
        self.share(Some(buffer));
        vm.write_u32(command.wrapping_add(SESSION), XGMI_SESSION)?;
        Ok(SUCCESS)
    }

    fn invoke(&self, chip: &Chip, vm: &mut Vm<'_>) -> Result<u32, Refusal> {
        let (Some(buffer), Some(hive)) = (self.shared(), &chip.hive) else {
            return Ok(BAD_PARAMETERS);
        };
        xgmi::invoke(hive, vm, buffer)?;
        Ok(SUCCESS)
    }

    /// One command: answer it, then signal its fence.
    fn frame(&self, chip: &Chip, vm: &mut Vm<'_>, frame: u64) -> Result<(), Refusal> {
        let command = vm.read_u64(frame)?;
        let id = vm.read_u32(command.wrapping_add(COMMAND_ID))?;
        let argument = vm.read_u32(command.wrapping_add(COMMAND_DATA))?;
        let status = match id {
            LOAD_TA => self.load_application(chip, vm, command)?,
            UNLOAD_TA | INVOKE if argument != XGMI_SESSION => BAD_PARAMETERS,
            UNLOAD_TA => {
                self.share(None);
                SUCCESS
            }
            INVOKE => self.invoke(chip, vm)?,
            SPATIAL_PARTITION if Self::partition(chip, argument) => SUCCESS,
            _ if ACCEPTED.contains(&id) => SUCCESS,
            _ => NOT_SUPPORTED,
        };
        tracing::debug!(target: "psp", "ring command {id:#x}: status {status:#x}");
        vm.write_u32(command.wrapping_add(RESPONSE), status)?;
        let fence = vm.read_u64(frame.wrapping_add(12))?;
        let value = vm.read_u32(frame.wrapping_add(20))?;
        vm.write_u32(fence, value)
    }
}

impl Block for Psp {
    fn name(&self) -> String {
        "MP0".into()
    }

    fn registers(&self) -> Vec<Placed> {
        place::<PspRegister>(&self.bases)
    }

    fn register_name(&self, key: Key) -> String {
        match key.of::<PspRegister>() {
            Some((C2PMSG, index)) => format!("MP0_SMN_C2PMSG_{}", index + 32),
            None => name_of::<PspRegister>(key),
        }
    }

    fn read(&self, _chip: &Chip, key: Key) -> u32 {
        match key.of::<PspRegister>() {
            Some((C2PMSG, index)) if index + 32 == mailbox::SIGN_OF_LIFE => self.sign_of_life(),
            Some((C2PMSG, index)) => self.registers.at(C2PMSG, index),
            None => 0,
        }
    }

    fn write(&self, chip: &Chip, key: Key, value: u32) {
        let Some((C2PMSG, index)) = key.of::<PspRegister>() else {
            return;
        };
        match index + 32 {
            mailbox::BOOT_READY | mailbox::SIGN_OF_LIFE | mailbox::OS_VERSION => return,
            mailbox::BOOT_COMMAND => return self.boot_command(value),
            _ => self.registers.set_at(C2PMSG, index, value),
        }
        if self.os.load(Ordering::Acquire) == os::ABSENT {
            return;
        }
        match index + 32 {
            mailbox::OS_COMMAND => self.os_command(chip, value),
            mailbox::RING_WPTR => self.ring(chip, value),
            _ => {}
        }
    }

    fn reset(&self, _chip: &Chip) {
        self.power_on();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::{Rig, FB};

    const BASE: u64 = 0x1_6060 - 32;
    const RING: u64 = 0x10_0000;
    const COMMAND: u64 = 0x20_0000;
    const FENCE: u64 = 0x30_0000;

    fn mail(number: usize) -> u64 {
        BASE + number as u64
    }

    fn started() -> Rig {
        start(Rig::new())
    }

    fn start(rig: Rig) -> Rig {
        rig.write(mail(mailbox::BOOT_COMMAND), LOAD_SOSDRV);
        assert_eq!(rig.read(mail(mailbox::BOOT_COMMAND)), READY);
        assert_eq!(rig.read(mail(mailbox::SIGN_OF_LIFE)), 0);
        assert_eq!(rig.read(mail(mailbox::SIGN_OF_LIFE)), 1);
        rig.write(mail(mailbox::RING_LOW), RING as u32);
        rig.write(mail(mailbox::RING_HIGH), (FB >> 32) as u32);
        rig.write(mail(mailbox::RING_SIZE), 0x1000);
        rig.write(mail(mailbox::OS_COMMAND), INIT_RING);
        rig
    }

    /// Puts a command into frame `slot` and rings; the response status.
    fn command(rig: &Rig, slot: u64, id: u32) -> u32 {
        let frame = RING + slot * 64;
        rig.vram().write_u64(frame, FB + COMMAND).unwrap();
        rig.vram().write_u64(frame + 12, FB + FENCE).unwrap();
        rig.vram().write_u32(frame + 20, slot as u32 + 100).unwrap();
        rig.vram().write_u32(COMMAND + COMMAND_ID, id).unwrap();
        let next = (slot as u32 + 1) * FRAME_DWORDS % 0x400;
        rig.write(mail(mailbox::RING_WPTR), next);
        assert_eq!(rig.vram().read_u32(FENCE), Ok(slot as u32 + 100));
        rig.vram().read_u32(COMMAND + RESPONSE).unwrap()
    }

    #[test]
    fn before_the_os_runs_there_is_no_sign_of_life() {
        let rig = Rig::new();
        assert_eq!(rig.read(mail(mailbox::BOOT_READY)), READY);
        for _ in 0..3 {
            assert_eq!(rig.read(mail(mailbox::SIGN_OF_LIFE)), 0);
        }
        rig.write(mail(mailbox::RING_WPTR), 16);
        assert_eq!(rig.vram().read_u32(FENCE), Ok(0));
    }

    #[test]
    fn commands_are_answered_and_fenced_around_the_ring() {
        let rig = started();
        for slot in 0..64 {
            assert_eq!(command(&rig, slot, 0x6), SUCCESS);
        }
        assert_eq!(command(&rig, 0, 0x8), NOT_SUPPORTED);
        // An application that lies nowhere.
        assert_eq!(command(&rig, 1, LOAD_TA), BAD_PARAMETERS);
    }

    #[test]
    fn an_application_is_loaded_invoked_and_unloaded() {
        let data = |rig: &Rig, at: u64, value| {
            let at = COMMAND + COMMAND_DATA + at;
            rig.vram().write_u64(at, value).unwrap();
        };
        let load = |rig: &Rig, slot| {
            rig.vram().write(0x40_0000, xgmi::MARK).unwrap();
            data(rig, 0, FB + 0x40_0000);
            data(rig, 12, FB + 0x50_0000);
            command(rig, slot, LOAD_TA)
        };
        let alone = started();
        assert_eq!(load(&alone, 0), NOT_SUPPORTED, "no hive");
        let memory = || std::sync::Arc::new(crate::memory::HeapMemory::new(256 << 20)) as _;
        let hive = crate::hive::Hive::new(0, 256 << 20, vec![memory(), memory()]);
        let rig = start(Rig::in_hive(hive.unwrap()));
        assert_eq!(load(&rig, 0), SUCCESS);
        assert_eq!(rig.vram().read_u32(COMMAND + SESSION), Ok(XGMI_SESSION));
        // GET_HIVE_ID.
        rig.vram().write_u32(0x50_0000, 2).unwrap();
        data(&rig, 0, XGMI_SESSION.into());
        assert_eq!(command(&rig, 1, INVOKE), SUCCESS);
        assert_eq!(rig.vram().read_u32(0x50_0004), Ok(0x8000_0002));
        data(&rig, 0, 9);
        assert_eq!(command(&rig, 2, INVOKE), BAD_PARAMETERS);
        data(&rig, 0, XGMI_SESSION.into());
        assert_eq!(command(&rig, 3, UNLOAD_TA), SUCCESS);
        assert_eq!(command(&rig, 4, INVOKE), BAD_PARAMETERS);
        rig.vram().write_u64(0x40_0000, 0).unwrap();
        data(&rig, 0, FB + 0x40_0000);
        assert_eq!(command(&rig, 5, LOAD_TA), NOT_SUPPORTED, "another one");
    }

    #[test]
    fn partitions_are_of_equal_size_and_show_in_the_registers() {
        let rig = start(Rig::of(Preset::mi308x()));
        let split = |slot, count| {
            rig.vram().write_u32(COMMAND + COMMAND_DATA, count).unwrap();
            command(&rig, slot, SPATIAL_PARTITION)
        };
        // CP_HYP_XCP_CTL of XCC 3, and BIF_BX_PF0_PARTITION_COMPUTE_STATUS.
        let state = || (rig.read(0x4_f828), rig.read(0xe83) >> 4);
        assert_eq!(state(), (3 | 4 << 3, 0));
        assert_eq!(split(0, 3), NOT_SUPPORTED);
        assert_eq!(split(1, 0), NOT_SUPPORTED);
        assert_eq!((split(2, 4), state()), (SUCCESS, (1 << 3, 4)));
        assert_eq!((split(3, 2), state()), (SUCCESS, (1 | 2 << 3, 1)));
        rig.model.reset();
        assert_eq!(state(), (3 | 4 << 3, 0));
    }

    #[test]
    fn bad_pointers_do_no_harm() {
        let rig = started();
        rig.write(mail(mailbox::RING_WPTR), u32::MAX);
        rig.write(mail(mailbox::RING_HIGH), u32::MAX);
        rig.write(mail(mailbox::RING_LOW), u32::MAX);
        rig.write(mail(mailbox::RING_WPTR), 0x3f0);
        rig.write(mail(mailbox::RING_SIZE), 1);
        rig.write(mail(mailbox::RING_WPTR), 16);
        assert_eq!(rig.vram().read_u32(FENCE), Ok(0));
    }

    #[test]
    fn a_mode_1_reset_takes_everything_back() {
        let rig = started();
        rig.write(0xe11, 0x55);
        rig.write(mail(mailbox::OS_COMMAND), MODE1_RESET);
        assert_eq!(rig.read(mail(mailbox::SIGN_OF_LIFE)), 0);
        assert_eq!(rig.read(mail(mailbox::BOOT_READY)), READY);
        assert_eq!(rig.read(0xe11), 0);
    }
}
