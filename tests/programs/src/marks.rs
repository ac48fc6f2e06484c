// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Marks in the model's trace: numbers, written to a register that nothing else uses, by amdgpu's
//! own debug file.

use anyhow::{bail, Result};
use std::fs::{read_dir, File, OpenOptions};
use std::os::unix::fs::FileExt;

/// The first GPU's register.
pub struct Marks(File);

/// SCRATCH_REG7 (gc_9_4_3_offset.h: regSCRATCH_REG7, segment 1, which starts at 0xa000), in bytes.
const SCRATCH_REG7: u64 = (0xa000 + 0x2047) * 4;

impl Marks {
    pub fn open() -> Result<Self> {
        for entry in read_dir("/sys/kernel/debug/dri")? {
            let path = entry?.path().join("amdgpu_regs");
            if let Ok(file) = OpenOptions::new().write(true).open(path) {
                return Ok(Self(file));
            }
        }
        bail!("no amdgpu_regs in debugfs")
    }

    pub fn begin(&self) -> Result<()> {
        self.write(0xbeef_0001)
    }

    pub fn end(&self) -> Result<()> {
        self.write(0xbeef_0002)
    }

    fn write(&self, value: u32) -> Result<()> {
        self.0.write_all_at(&value.to_le_bytes(), SCRATCH_REG7)?;
        Ok(())
    }
}
