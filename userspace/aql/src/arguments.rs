// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Arguments`]: the bytes of a kernel's arguments, put together one by one.

/// A kernel's arguments in their order, each aligned to its size, as compilers lay them out.
///
/// ```
/// let arguments = kfd_aql::Arguments::default().u32(7).u64(0x1000).f32(1.5);
/// assert_eq!(arguments.bytes().len(), 20);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arguments(Vec<u8>);

impl Arguments {
    /// Adds 32 bits.
    pub fn u32(self, value: u32) -> Self {
        self.add(&value.to_le_bytes())
    }

    /// Adds 64 bits, or an address.
    pub fn u64(self, value: u64) -> Self {
        self.add(&value.to_le_bytes())
    }

    /// Adds a float of 32 bits.
    pub fn f32(self, value: f32) -> Self {
        self.add(&value.to_le_bytes())
    }

    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn add(mut self, bytes: &[u8]) -> Self {
        self.0.resize(self.0.len().next_multiple_of(bytes.len()), 0);
        self.0.extend_from_slice(bytes);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_aligned_to_their_size() {
        let arguments = Arguments::default().u32(1).u64(2).u32(3);
        assert_eq!(arguments.bytes().len(), 20);
        assert_eq!(arguments.bytes()[8], 2);
    }
}
