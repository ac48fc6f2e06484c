// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The memory the model works on, shared with QEMU: local memory in a memfd, and the guest's RAM as
//! QEMU maps it to the device.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{Context, Result};
use gpu_model::memory::{BusError, PhysicalMemory};
use rustix::fs::{fallocate, ftruncate, memfd_create, FallocateFlags, MemfdFlags};
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};

/// Reads and writes a mapped region; aligned accesses of up to 8 bytes are one access.
struct Region(MmapRegion);

impl Region {
    fn read(&self, offset: u64, out: &mut [u8]) -> Option<()> {
        let offset = usize::try_from(offset).ok()?;
        match out.len() {
            4 if offset % 4 == 0 => {
                let value = self.0.get_atomic_ref::<AtomicU32>(offset).ok()?;
                out.copy_from_slice(&value.load(Ordering::Acquire).to_le_bytes());
            }
            8 if offset % 8 == 0 => {
                let value = self.0.get_atomic_ref::<AtomicU64>(offset).ok()?;
                out.copy_from_slice(&value.load(Ordering::Acquire).to_le_bytes());
            }
            length => {
                let slice = self.0.get_slice(offset, length).ok()?;
                slice.read_slice(out, 0).ok()?;
            }
        }
        Some(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Option<()> {
        let offset = usize::try_from(offset).ok()?;
        match *data {
            [a, b, c, d] if offset % 4 == 0 => {
                let cell = self.0.get_atomic_ref::<AtomicU32>(offset).ok()?;
                cell.store(u32::from_le_bytes([a, b, c, d]), Ordering::Release);
            }
            [a, b, c, d, e, f, g, h] if offset % 8 == 0 => {
                let cell = self.0.get_atomic_ref::<AtomicU64>(offset).ok()?;
                cell.store(
                    u64::from_le_bytes([a, b, c, d, e, f, g, h]),
                    Ordering::Release,
                );
            }
            _ => {
                let slice = self.0.get_slice(offset, data.len()).ok()?;
                slice.write_slice(data, 0).ok()?;
            }
        }
        Some(())
    }

    fn update32(&self, offset: u64, change: &mut dyn FnMut(u32) -> u32) -> Option<u32> {
        let cell = self
            .0
            .get_atomic_ref::<AtomicU32>(usize::try_from(offset).ok()?)
            .ok()?;
        let mut old = cell.load(Ordering::Acquire);
        loop {
            let new = change(old);
            match cell.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(old) => return Some(old),
                Err(now) => old = now,
            }
        }
    }

    fn update64(&self, offset: u64, change: &mut dyn FnMut(u64) -> u64) -> Option<u64> {
        let cell = self
            .0
            .get_atomic_ref::<AtomicU64>(usize::try_from(offset).ok()?)
            .ok()?;
        let mut old = cell.load(Ordering::Acquire);
        loop {
            let new = change(old);
            match cell.compare_exchange_weak(old, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(old) => return Some(old),
                Err(now) => old = now,
            }
        }
    }
}

/// The GPU's own memory.
pub struct LocalMemory {
    region: Region,
    file: File,
}

impl LocalMemory {
    /// Zeroed memory, and the file QEMU maps as BAR0. Pages are taken only when used.
    pub fn new(size: u64) -> Result<(Self, File)> {
        let fd =
            memfd_create("gpu-vram", MemfdFlags::CLOEXEC).context("cannot make local memory")?;
        Self::of(File::from(fd), size)
    }

    /// Memory in a file that other processes use as well: a hive's. It is made as large as it has
    /// to be.
    pub fn open(path: &Path, size: u64) -> Result<(Self, File)> {
        let open = OpenOptions::new().read(true).write(true).open(path);
        Self::of(open.with_context(|| path.display().to_string())?, size)
    }

    fn of(file: File, size: u64) -> Result<(Self, File)> {
        ftruncate(&file, size)
            .with_context(|| format!("cannot make local memory of {size:#x} bytes"))?;
        let offset = FileOffset::new(file.try_clone()?, 0);
        let region = MmapRegion::from_file(offset, usize::try_from(size)?)
            .context("cannot map local memory")?;
        let shared = file.try_clone()?;
        Ok((
            Self {
                region: Region(region),
                file,
            },
            shared,
        ))
    }

    /// The whole pages of a range, if there are enough of them to give back to the system.
    fn pages(address: u64, length: u64) -> Option<(u64, u64)> {
        const PAGE: u64 = 4096;
        let end = address.checked_add(length)? / PAGE * PAGE;
        let start = address.checked_next_multiple_of(PAGE)?;
        (end.checked_sub(start)? >= 16 * PAGE).then_some((start, end))
    }
}

impl PhysicalMemory for LocalMemory {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), BusError> {
        let length = out.len();
        self.region
            .read(address, out)
            .ok_or(BusError { address, length })
    }

    fn write(&self, address: u64, data: &[u8]) -> Result<(), BusError> {
        self.region.write(address, data).ok_or(BusError {
            address,
            length: data.len(),
        })
    }

    fn update32(&self, address: u64, change: &mut dyn FnMut(u32) -> u32) -> Result<u32, BusError> {
        self.region
            .update32(address, change)
            .ok_or(BusError { address, length: 4 })
    }

    fn update64(&self, address: u64, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, BusError> {
        self.region
            .update64(address, change)
            .ok_or(BusError { address, length: 8 })
    }

    /// A range of pages is punched out of the file: it reads as zeros and takes no memory.
    fn zero(&self, address: u64, length: u64) -> Result<(), BusError> {
        let error = BusError {
            address,
            length: usize::try_from(length).unwrap_or(usize::MAX),
        };
        let size = self.region.0.size() as u64;
        let end = address
            .checked_add(length)
            .filter(|&end| end <= size)
            .ok_or(error)?;
        let (first, last) = Self::pages(address, length).unwrap_or((end, end));
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if first < last && fallocate(&self.file, flags, first, last - first).is_err() {
            return Err(error);
        }
        for (from, to) in [(address, first), (last, end)] {
            let zeros = vec![0; (to - from) as usize];
            self.write(from, &zeros)?;
        }
        Ok(())
    }
}

/// What QEMU has mapped for the device, by guest-physical address. Regions do not overlap.
#[derive(Default)]
pub struct GuestMemory {
    regions: RwLock<BTreeMap<u64, Arc<Region>>>,
}

impl GuestMemory {
    /// Takes a mapping. One that overlaps another is refused.
    pub fn map(&self, address: u64, size: u64, file: File, offset: u64) -> std::io::Result<()> {
        let invalid = |text: &str| std::io::Error::new(std::io::ErrorKind::InvalidInput, text);
        let length = usize::try_from(size).map_err(|_| invalid("size"))?;
        let end = address
            .checked_add(size)
            .ok_or_else(|| invalid("range wraps"))?;
        let region = MmapRegion::from_file(FileOffset::new(file, offset), length)
            .map_err(|error| std::io::Error::other(error.to_string()))?;
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        let before = regions.range(..end).next_back();
        if before.is_some_and(|(start, r)| start + r.0.size() as u64 > address) {
            return Err(invalid("overlaps a mapping"));
        }
        regions.insert(address, Arc::new(Region(region)));
        Ok(())
    }

    /// Drops the mappings that lie inside the range.
    pub fn unmap(&self, address: u64, size: u64) {
        let end = address.saturating_add(size);
        let mut regions = self.regions.write().unwrap_or_else(PoisonError::into_inner);
        regions.retain(|&start, r| start < address || start + r.0.size() as u64 > end);
    }

    /// Drops all mappings.
    pub fn unmap_all(&self) {
        self.regions
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    /// The region around an address, and the offset inside it.
    fn find(&self, address: u64) -> Option<(Arc<Region>, u64)> {
        let regions = self.regions.read().unwrap_or_else(PoisonError::into_inner);
        let (start, region) = regions.range(..=address).next_back()?;
        let offset = address - start;
        (offset < region.0.size() as u64).then(|| (region.clone(), offset))
    }
}

impl PhysicalMemory for GuestMemory {
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), BusError> {
        let length = out.len();
        let found = self
            .find(address)
            .and_then(|(region, at)| region.read(at, out));
        found.ok_or(BusError { address, length })
    }

    fn write(&self, address: u64, data: &[u8]) -> Result<(), BusError> {
        let found = self
            .find(address)
            .and_then(|(region, at)| region.write(at, data));
        found.ok_or(BusError {
            address,
            length: data.len(),
        })
    }

    fn update32(&self, address: u64, change: &mut dyn FnMut(u32) -> u32) -> Result<u32, BusError> {
        let found = self
            .find(address)
            .and_then(|(region, at)| region.update32(at, change));
        found.ok_or(BusError { address, length: 4 })
    }

    fn update64(&self, address: u64, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, BusError> {
        let found = self
            .find(address)
            .and_then(|(region, at)| region.update64(at, change));
        found.ok_or(BusError { address, length: 8 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(size: u64) -> File {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, size).unwrap();
        File::from(fd)
    }

    #[test]
    fn clearing_reaches_exactly_its_range() {
        let (memory, _file) = LocalMemory::new(1 << 20).unwrap();
        for (start, length) in [
            (0x1234, 0x2_0000),
            (0x1000, 0x2_0000),
            (0x10, 0x30),
            (0, 1 << 20),
        ] {
            memory.write(0, &vec![0xff; 1 << 20]).unwrap();
            memory.zero(start, length).unwrap();
            let mut bytes = vec![0; 1 << 20];
            memory.read(0, &mut bytes).unwrap();
            let range = start as usize..(start + length) as usize;
            assert!(bytes
                .iter()
                .enumerate()
                .all(|(i, &b)| (b == 0) == range.contains(&i)));
        }
        assert!(memory.zero(1, 1 << 20).is_err());
        assert!(memory.zero(u64::MAX, 2).is_err());
    }

    #[test]
    fn a_file_is_the_same_memory_for_all_who_open_it() {
        let shared = file(0);
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&shared));
        let open = || LocalMemory::open(Path::new(&path), 1 << 20).unwrap().0;
        let (one, other) = (open(), open());
        one.write_u32(0xf_fffc, 77).unwrap();
        assert_eq!(other.update32(0xf_fffc, &mut |old| old + 1), Ok(77));
        assert_eq!(one.read_u32(0xf_fffc), Ok(78));
        assert!(LocalMemory::open(Path::new("/nowhere/memory"), 1 << 20).is_err());
    }

    #[test]
    fn mappings_answer_only_inside() {
        let guest = GuestMemory::default();
        guest.map(0x10_0000, 0x2000, file(0x4000), 0x1000).unwrap();
        assert!(guest.read_u32(0xf_fffc).is_err());
        guest.write_u64(0x10_1ff8, 0x1122).unwrap();
        assert_eq!(guest.read_u32(0x10_1ff8), Ok(0x1122));
        assert!(guest.read_u32(0x10_1ffe).is_err());
        assert!(guest.read_u32(0x10_2000).is_err());
        assert_eq!(guest.update32(0x10_0000, &mut |v| v + 3), Ok(0));
        assert_eq!(guest.read_u32(0x10_0000), Ok(3));
    }

    #[test]
    fn overlaps_are_refused_and_unmapping_takes_whole_regions() {
        let guest = GuestMemory::default();
        guest.map(0x1000, 0x2000, file(0x2000), 0).unwrap();
        assert!(guest.map(0x2000, 0x1000, file(0x1000), 0).is_err());
        assert!(guest.map(0, 0x1001, file(0x2000), 0).is_err());
        assert!(guest
            .map(u64::MAX - 0xfff, 0x1000, file(0x1000), 0)
            .is_err());
        guest.unmap(0, u64::MAX);
        assert!(guest.read_u32(0x1000).is_err());
        guest.map(0x2000, 0x1000, file(0x1000), 0).unwrap();
    }
}
