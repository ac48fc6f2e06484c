// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Decoded code, kept by address. One [`CodeCache`] per address space (VMID); its owner invalidates it.

/// Decoded instructions of one address space.
///
/// Must be told when code can have changed: whenever the hardware would invalidate its instruction
/// cache (ACQUIRE_MEM, kernel launch with an acquire fence) or the page tables change.
#[derive(Debug, Default)]
pub struct CodeCache {}

impl CodeCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets everything.
    pub fn invalidate(&mut self) {}
}
