// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The requests that vfio-user carries, as the server's backend gets them: regions, DMA maps,
//! interrupts, resets, with any numbers. (The bytes of the messages are the `vfio_user` crate's to
//! parse; their sender is QEMU, not the guest.)

use std::fs::File;
use std::sync::Arc;

use gpu_model::chip::Host;
use gpu_model::model::{Config, GpuModel};
use gpu_model::preset::Preset;
use gpu_model_server::backend::{Backend, Msi};
use gpu_model_server::memory::{GuestMemory, LocalMemory};
use rustix::fs::{ftruncate, memfd_create, MemfdFlags};
use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend};

use crate::input::Input;

const VRAM: u64 = 256 << 20;

/// A file for a DMA map: of so many bytes, perhaps fewer than the map claims.
fn file(bytes: u64) -> Option<File> {
    let fd = memfd_create("fuzz", MemfdFlags::CLOEXEC).ok()?;
    ftruncate(&fd, bytes).ok()?;
    Some(fd.into())
}

fn backend() -> Backend {
    let (vram, _) = LocalMemory::new(VRAM).expect("local memory");
    let system = Arc::new(GuestMemory::default());
    let msi = Arc::new(Msi::default());
    let host = Host {
        vram: Arc::new(vram),
        system: system.clone(),
        interrupt: msi.clone(),
        hive: None,
        doorbells: None,
    };
    let config = Config {
        preset: Preset::mi300x(),
        vram_size: VRAM,
        serial: 0,
        synchronous: true,
        hostile: None,
        loses_memory: false,
    };
    let model = GpuModel::new(config, host).expect("a model of this size can be made");
    Backend::new(Arc::new(model), system, msi)
}

/// Requests in any order; errors are answers.
pub fn vfio(data: &[u8]) {
    let (mut backend, mut input) = (backend(), Input::new(data));
    while !input.is_empty() {
        let region = u32::from(input.u8() % 10);
        let offset = match input.u8() & 3 {
            0 => input.u64(),
            1 => u64::MAX - u64::from(input.u8()),
            _ => u64::from(input.word()),
        };
        let mut bytes = vec![0; usize::from(input.u8() % 20)];
        let address = u64::from(input.word());
        let size = u64::from(input.u16()) << 10;
        let _ = match input.u8() & 7 {
            0 | 1 => backend.region_read(region, offset, &mut bytes),
            2 | 3 => {
                bytes.iter_mut().for_each(|byte| *byte = input.u8());
                backend.region_write(region, offset, &bytes)
            }
            4 => {
                let file = file(size.saturating_sub(u64::from(input.u8() & 1) << 12));
                let flags = DmaMapFlags::READ_WRITE;
                backend.dma_map(flags, offset & !0xfff, address << 12, size, file)
            }
            5 => {
                let flags = DmaUnmapFlags::from_bits_truncate(u32::from(input.u8()));
                backend.dma_unmap(flags, address << 12, size)
            }
            6 => {
                let fds = file(8).into_iter().collect();
                backend.set_irqs(region, input.word(), input.word(), input.word(), fds)
            }
            _ => backend.reset(),
        };
    }
}
