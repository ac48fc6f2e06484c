// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The firmware files a stock amdgpu asks for, made by us. The model runs none of them, so each is
//! a header with the right fields and a text that says so; no vendor code is in them.
//!
//! Headers as in `linux:drivers/gpu/drm/amd/amdgpu/amdgpu_ucode.h` (`struct common_firmware_header`
//! and what follows it).

use crate::preset::Firmware;

/// Bytes of payload in each file.
const PAYLOAD: usize = 1024;

/// Little-endian dwords and what they begin with.
struct File {
    /// Header version: major, minor.
    version: (u16, u16),
    ucode_version: u32,
    /// The dwords after `common_firmware_header`.
    fields: Vec<u32>,
    payload: bool,
}

/// `sizeof(struct common_firmware_header)`.
const COMMON_HEADER: usize = 32;

impl File {
    fn bytes(&self) -> Vec<u8> {
        let payload = if self.payload { payload() } else { Vec::new() };
        let header = COMMON_HEADER + self.fields.len() * 4;
        let mut out = Vec::new();
        let mut u32 = |value: usize| out.extend((value as u32).to_le_bytes());
        u32(header + payload.len());
        u32(header);
        u32(usize::from(self.version.0) | usize::from(self.version.1) << 16);
        u32(0); // ip_version_major, ip_version_minor
        u32(self.ucode_version as usize);
        u32(payload.len());
        u32(header);
        u32(0); // crc32, which the driver does not check
        for &field in &self.fields {
            u32(field as usize);
        }
        out.extend(payload);
        out
    }
}

/// Version of the application that describes the hive.
const XGMI_VERSION: u32 = 0x2000_000b;

/// It begins with the mark by which the PSP knows the one application that it has; the others do
/// not mind.
fn payload() -> Vec<u8> {
    let text = b"XGMI-TA: No microcode: the GPU model of amdkfd-rs executes none. ";
    text.iter().copied().cycle().take(PAYLOAD).collect()
}

/// All files by their names under `amdgpu/`, with these versions.
pub fn files(versions: Firmware) -> Vec<(&'static str, Vec<u8>)> {
    let file = |version, ucode_version, fields: &[u32], payload| {
        File {
            version,
            ucode_version,
            fields: fields.to_vec(),
            payload,
        }
        .bytes()
    };
    // Of MI200, whatever the preset: drivers ask each generation's files for its versions.
    let old = Firmware::GC_9_4_2;
    // gfx_firmware_header_v1_0: feature version, jump table offset and size in dwords.
    let mec = file((1, 0), versions.mec, &[32, 64, 64], true);
    // rlc_firmware_header_v2_0: feature version, jump table, then list sizes and offsets: all
    // empty.
    let empty_lists = [1].into_iter().chain([0; 17]).collect::<Vec<_>>();
    let rlc = file((2, 0), 50, &empty_lists, true);
    // sdma_firmware_header_v1_0: feature version, change version, jump table offset and size.
    let sdma = file((1, 0), 20, &[1, 0, 0, 0], true);
    vec![
        (
            "aldebaran_mec.bin",
            file((1, 0), old.mec, &[32, 64, 64], true),
        ),
        ("aldebaran_rlc.bin", rlc.clone()),
        ("aldebaran_sdma.bin", sdma.clone()),
        (
            "aldebaran_smc.bin",
            file((2, 1), old.pmfw, &[0, 0, 0], true),
        ),
        ("gc_9_4_3_mec.bin", mec.clone()),
        ("gc_9_4_4_mec.bin", mec.clone()),
        ("gc_9_5_0_mec.bin", mec),
        ("gc_9_4_3_rlc.bin", rlc.clone()),
        ("gc_9_4_4_rlc.bin", rlc.clone()),
        ("gc_9_5_0_rlc.bin", rlc),
        ("sdma_4_4_2.bin", sdma.clone()),
        ("sdma_4_4_5.bin", sdma),
        // smc_firmware_header_v2_1: start address, no power-play tables.
        (
            "smu_13_0_6.bin",
            file((2, 1), versions.pmfw, &[0, 0, 0], true),
        ),
        // psp_firmware_header_v2_0: one binary, PSP_FW_TYPE_PSP_SOS (1), version, offset, size.
        (
            "aldebaran_sos.bin",
            file(
                (2, 0),
                0x0036_0082,
                &[1, 1, 0x0036_0082, 0, PAYLOAD as u32],
                true,
            ),
        ),
        // ta_firmware_header_v2_0: one trusted application, TA_FW_TYPE_PSP_XGMI (2), version,
        // offset, size. From version 0x2000000b on it is asked for links.
        (
            "aldebaran_ta.bin",
            file((2, 0), 1, &[1, 2, XGMI_VERSION, 0, PAYLOAD as u32], true),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::Preset;

    #[test]
    fn sizes_in_the_headers_are_those_of_the_files() {
        for (name, bytes) in files(Preset::mi300x().firmware) {
            let at = |i: usize| u32::from_le_bytes(bytes[i..i + 4].try_into().unwrap()) as usize;
            assert_eq!(at(0), bytes.len(), "{name}: size_bytes");
            assert_eq!(
                at(24) + at(20),
                bytes.len(),
                "{name}: payload ends the file"
            );
            assert_eq!(at(4), at(24), "{name}: payload follows the header");
        }
    }
}
