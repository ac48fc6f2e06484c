// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The only place that knows vfio-user: turns QEMU's requests into calls of the model. One
//! [`Backend`] per connection.

use std::fs::File;
use std::io::{Error, ErrorKind, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{Context, Result};
use gpu_model::chip::InterruptLine;
use gpu_model::doorbells::TRAPPED;
use gpu_model::model::GpuModel;
use gpu_model::pci;
use vfio_bindings::bindings::vfio::*;
use vfio_user::{
    DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion, SparseArea,
};

use crate::memory::GuestMemory;

/// The device's one MSI vector, as the event file QEMU gave for it.
#[derive(Default)]
pub struct Msi(RwLock<Option<File>>);

impl Msi {
    fn set(&self, file: Option<File>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = file;
    }
}

impl InterruptLine for Msi {
    fn trigger(&self) {
        let event = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some(mut event) = event.as_ref() else {
            return;
        };
        if let Err(error) = event.write_all(&1u64.to_ne_bytes()) {
            tracing::error!("cannot raise the interrupt: {error}");
        }
    }
}

/// Binds the socket and describes regions and interrupts. `vram` and `doorbells` are what the guest
/// reaches of BAR0 and BAR2 without asking.
pub fn listen(
    socket: &Path,
    model: &GpuModel,
    vram: &File,
    doorbells: Option<&File>,
) -> Result<Server> {
    let mut regions: Vec<ServerRegion> = (0..VFIO_PCI_NUM_REGIONS).map(|i| region(i, 0)).collect();
    let vram_bar = pci::vram_bar(model.chip().vram_size);
    regions[VFIO_PCI_BAR0_REGION_INDEX as usize] =
        mapped(VFIO_PCI_BAR0_REGION_INDEX, 0..vram_bar, vram);
    let aperture = TRAPPED..pci::DOORBELL_SIZE;
    regions[VFIO_PCI_BAR2_REGION_INDEX as usize] = match doorbells {
        Some(file) => mapped(VFIO_PCI_BAR2_REGION_INDEX, aperture, file),
        None => region(VFIO_PCI_BAR2_REGION_INDEX, pci::DOORBELL_SIZE),
    };
    for (index, size) in [
        (VFIO_PCI_BAR5_REGION_INDEX, model.mmio_size()),
        (VFIO_PCI_CONFIG_REGION_INDEX, pci::SIZE as u64),
    ] {
        regions[index as usize] = region(index, size);
    }
    Server::new(socket, true, interrupts(), regions)
        .with_context(|| format!("cannot listen on {}", socket.display()))
}

fn region(index: u32, size: u64) -> ServerRegion {
    let flags = match size {
        0 => 0,
        _ => VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE,
    };
    let argsz = size_of::<vfio_region_info>() as u32;
    let region_info = vfio_region_info {
        argsz,
        index,
        size,
        flags,
        ..Default::default()
    };
    ServerRegion {
        region_info,
        sparse_areas: Vec::new(),
        mmap_fd: None,
    }
}

/// A region that ends where its mapped part does.
fn mapped(index: u32, part: Range<u64>, file: &File) -> ServerRegion {
    let mut region = region(index, part.end);
    region.region_info.flags |= VFIO_REGION_INFO_FLAG_MMAP;
    region.mmap_fd = Some(file.as_raw_fd());
    let area = vfio_region_sparse_mmap_area {
        offset: part.start,
        size: part.end - part.start,
    };
    region.sparse_areas.push(SparseArea { area });
    region
}

fn interrupts() -> Vec<IrqInfo> {
    let irq = |index| match index {
        VFIO_PCI_MSI_IRQ_INDEX => IrqInfo {
            index,
            flags: VFIO_IRQ_INFO_EVENTFD,
            count: 1,
        },
        _ => IrqInfo {
            index,
            flags: 0,
            count: 0,
        },
    };
    (0..VFIO_PCI_NUM_IRQS).map(irq).collect()
}

/// Serves one connection.
pub struct Backend {
    model: Arc<GpuModel>,
    memory: Arc<GuestMemory>,
    msi: Arc<Msi>,
}

impl Backend {
    pub fn new(model: Arc<GpuModel>, memory: Arc<GuestMemory>, msi: Arc<Msi>) -> Self {
        Self { model, memory, msi }
    }

    /// Refuses an access that leaves its region.
    fn check(&self, region: u32, offset: u64, length: usize) -> Result<(), Error> {
        let size = match region {
            VFIO_PCI_BAR0_REGION_INDEX => pci::vram_bar(self.model.chip().vram_size),
            VFIO_PCI_BAR2_REGION_INDEX => pci::DOORBELL_SIZE,
            VFIO_PCI_BAR5_REGION_INDEX => self.model.mmio_size(),
            VFIO_PCI_CONFIG_REGION_INDEX => pci::SIZE as u64,
            _ => 0,
        };
        match offset.checked_add(length as u64) {
            Some(end) if end <= size => Ok(()),
            _ => Err(Error::new(
                ErrorKind::InvalidInput,
                format!("region {region}: {offset:#x}+{length:#x} is outside its {size:#x} bytes"),
            )),
        }
    }
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), Error> {
        self.check(region, offset, data.len())?;
        match region {
            VFIO_PCI_BAR0_REGION_INDEX => {
                self.model
                    .chip()
                    .vram
                    .read(offset, data)
                    .map_err(Error::other)?;
            }
            VFIO_PCI_BAR5_REGION_INDEX => self.model.mmio_read(offset, data),
            VFIO_PCI_CONFIG_REGION_INDEX => self.model.config_read(offset, data),
            _ => data.fill(0),
        }
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.check(region, offset, data.len())?;
        match region {
            VFIO_PCI_BAR0_REGION_INDEX => {
                self.model
                    .chip()
                    .vram
                    .write(offset, data)
                    .map_err(Error::other)?;
            }
            VFIO_PCI_BAR2_REGION_INDEX => self.model.doorbell_write(offset, data),
            VFIO_PCI_BAR5_REGION_INDEX => self.model.mmio_write(offset, data),
            _ => self.model.config_write(offset, data),
        }
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> Result<(), Error> {
        tracing::debug!(target: "dma", "map {address:#x}+{size:#x} {flags:?} fd {}", fd.is_some());
        // Without a file it is a ROM or another device's BAR: nothing the GPU reaches.
        match fd {
            Some(file) => self.memory.map(address, size, file, offset),
            None => Ok(()),
        }
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> Result<(), Error> {
        tracing::debug!(target: "dma", "unmap {address:#x}+{size:#x}");
        if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
            self.memory.unmap_all();
        } else {
            self.memory.unmap(address, size);
        }
        Ok(())
    }

    fn reset(&mut self) -> Result<(), Error> {
        self.model.reset();
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        mut fds: Vec<File>,
    ) -> Result<(), Error> {
        tracing::debug!(target: "irq", "set {index} {flags:#x} {start}+{count} fds {}", fds.len());
        if index != VFIO_PCI_MSI_IRQ_INDEX || flags & VFIO_IRQ_SET_ACTION_TRIGGER == 0 {
            return Ok(());
        }
        if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
            self.msi.set(fds.pop());
        } else if count == 0 {
            self.msi.set(None);
        }
        Ok(())
    }
}
