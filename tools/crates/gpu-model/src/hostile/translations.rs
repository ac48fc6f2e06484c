// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Translations that a hub keeps until an invalidation names their VMID. One [`Translations`] per
//! hub, in its [`Gmc`](crate::gmc::Gmc).
//!
//! Only valid entries are kept: amdgpu does not invalidate after it has mapped pages where there
//! were none (`amdgpu_vm_update_range`: from GFX9 on, entries that are not valid do not enter the
//! TLB). Directories are not kept.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Hostile;
use crate::gmc::{Access, Translation};

/// As many as there is room for; the L2 of the hardware has as many of 4 KiB.
const ROOM: usize = 4096;
/// One look in so many finds that the entry had to give way to another.
const EVICTED: u64 = 32;
/// Bytes of a page.
const PAGE: u64 = 0x1000;

/// What one hub keeps.
pub struct Translations {
    hostile: Arc<Hostile>,
    kept: Mutex<HashMap<(u8, u64), Translation>>,
}

impl Translations {
    pub fn new(hostile: Arc<Hostile>) -> Self {
        Self {
            hostile,
            kept: Mutex::default(),
        }
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<(u8, u64), Translation>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where `va` leads: what is kept if it permits the access, else what `walk` finds for the
    /// page, which is kept then. The lock is held during the walk: no entry that is older than an
    /// invalidation comes in after it.
    pub fn lookup<E>(
        &self,
        vmid: u8,
        va: u64,
        access: Access,
        walk: impl FnOnce(u64) -> Result<Translation, E>,
    ) -> Result<Translation, E> {
        let mut kept = self.kept();
        let (key, inside) = ((vmid, va / PAGE), va % PAGE);
        let known = kept.get(&key).copied();
        let known = known.filter(|it| it.permits(access) && !self.hostile.one_in(EVICTED));
        let page = match known {
            Some(page) => {
                self.compare(vmid, va - inside, page, walk(va - inside).ok());
                page
            }
            None => {
                let page = walk(va - inside)?;
                if kept.len() >= ROOM {
                    kept.clear();
                }
                kept.insert(key, page);
                page
            }
        };
        let mut found = page;
        found.at.address += inside;
        found.length = PAGE - inside;
        Ok(found)
    }

    /// Counts what is used though the page tables say otherwise by now.
    fn compare(&self, vmid: u8, va: u64, kept: Translation, now: Option<Translation>) {
        if now.is_some_and(|now| now.at == kept.at) {
            return;
        }
        tracing::debug!(target: "hostile", "VMID {vmid}, {va:#x}: {kept:x?}, by now {now:x?}");
        self.hostile
            .stale_translations
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Drops what is kept for the VMIDs of `mask`.
    pub fn invalidate(&self, mask: u16) {
        self.kept().retain(|(vmid, _), _| mask >> vmid & 1 == 0);
    }
}
