// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Reads a fuzzer's bytes as numbers, addresses and packets. One per input; after its end
//! everything is 0.

/// The bytes not used yet.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (now, rest) = self.0.split_at(self.0.len().min(N));
        self.0 = rest;
        let mut bytes = [0; N];
        bytes[..now.len()].copy_from_slice(now);
        bytes
    }

    pub fn u8(&mut self) -> u8 {
        self.bytes::<1>()[0]
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.bytes())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }

    /// One of several.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.u8()) % all.len()]
    }

    /// A dword as packets have them: mostly small, an address, or a bit; sometimes anything.
    pub fn word(&mut self) -> u32 {
        match self.u8() & 7 {
            0 => self.u32(),
            1 => self.u8().into(),
            2 => u32::from(self.u16()) << 12 & 0x0fff_ffff,
            3 => u32::from(self.u16()) << 2,
            4 => 1 << (self.u8() & 31),
            5 => u32::MAX,
            6 => 0x80,
            _ => 0,
        }
    }
}
