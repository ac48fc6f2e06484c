// SPDX-License-Identifier: GPL-2.0-only

//! Words and registers as text, for debugfs.

use crate::{
    gfx::Words,
    kgd::Register, //
};
use kernel::{
    fmt,
    prelude::*, //
};

/// Words as `seq_hex_dump` writes them: eight a line, after their offset in bytes.
pub(super) fn dump(
    f: &mut fmt::Formatter<'_>,
    indent: &str,
    words: &dyn Words,
    count: usize,
) -> fmt::Result {
    for start in (0..count).step_by(8) {
        write!(f, "{indent}{:08x}:", start * size_of::<u32>())?;
        for dword in start..count.min(start + 8) {
            write!(f, " {:08x}", words.get(dword))?;
        }
        f.write_str("\n")?;
    }
    Ok(())
}

/// Registers, eight a line as long as each follows the one before, after the first one's offset.
pub(super) fn dump_registers(f: &mut fmt::Formatter<'_>, registers: &[Register]) -> fmt::Result {
    // CAST: 4.
    let next = |before: &Register| before.offset.wrapping_add(size_of::<u32>() as u32);
    for run in registers.chunk_by(|one, other| next(one) == other.offset) {
        for line in run.chunks(8) {
            write!(
                f,
                "    {:08x}:",
                line.first().map_or(0, |first| first.offset)
            )?;
            for register in line {
                write!(f, " {:08x}", register.value)?;
            }
            f.write_str("\n")?;
        }
    }
    Ok(())
}
