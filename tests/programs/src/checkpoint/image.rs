// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! A saved process in a file: the kernel's part, what memory held, and where the test looks.

use anyhow::{ensure, Context, Result};
use kfd::Checkpoint;
use kfd_uapi as uapi;
use std::io::{Read, Write};
use std::path::Path;

/// `KFD_IOC_ALLOC_MEM_FLAGS_VRAM` and `_GTT`.
pub const EXPORTED: u32 = 3;

/// Addresses that the test looks at.
#[derive(Clone, Copy)]
pub struct Places {
    /// What ends the kernel when it is 1.
    pub flag: u64,
    /// The signal of its end, an `amd_signal_t`.
    pub done: u64,
    /// What it writes then.
    pub out: u64,
    /// What it counts in.
    pub ticks: u64,
    pub vram: u64,
}

/// A saved process.
pub struct Saved {
    pub places: Places,
    /// Memory of the process's own: address and bytes.
    pub own: Vec<(u64, u64)>,
    pub checkpoint: Checkpoint,
}

/// The same with what its memory held.
pub struct Read_ {
    pub saved: Saved,
    pub contents: Vec<(u64, Vec<u8>)>,
}

fn words(places: &Places) -> [u64; 5] {
    [
        places.flag,
        places.done,
        places.out,
        places.ticks,
        places.vram,
    ]
}

/// Whether a buffer is memory that its file is mapped of.
pub fn is_exported(buffer: &uapi::kfd_criu_bo_bucket) -> bool {
    buffer.alloc_flags & EXPORTED != 0
}

impl Saved {
    /// All memory whose contents are kept.
    fn memory(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let buffers = self.checkpoint.buffers.iter().filter(|it| is_exported(it));
        let buffers = buffers.map(|it| (it.addr, it.size));
        buffers.chain(self.own.iter().copied())
    }

    /// Writes all of it.
    ///
    /// # Safety
    /// All of its memory is mapped by this process.
    pub unsafe fn write(&self, path: &Path) -> Result<()> {
        let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
        let mut put = |values: &[u64]| -> Result<()> {
            for value in values {
                file.write_all(&value.to_le_bytes())?;
            }
            Ok(())
        };
        put(&words(&self.places))?;
        put(&[self.own.len() as u64])?;
        for (address, bytes) in &self.own {
            put(&[*address, *bytes])?;
        }
        let kept = &self.checkpoint;
        put(&[kept.devices.len() as u64, kept.buffers.len() as u64])?;
        put(&[kept.objects.into(), kept.private.len() as u64])?;
        for device in &kept.devices {
            put(&[device.user_gpu_id.into(), device.actual_gpu_id.into()])?;
        }
        for it in &kept.buffers {
            put(&[it.addr, it.size, it.offset])?;
            put(&[it.gpu_id.into(), it.alloc_flags.into()])?;
        }
        file.write_all(&kept.private)?;
        for (address, bytes) in self.memory() {
            for at in (0..bytes).step_by(8) {
                // SAFETY: it is mapped, as the caller says. A GPU's memory is read by words.
                let word = unsafe { ((address + at) as *const u64).read_volatile() };
                file.write_all(&word.to_le_bytes())?;
            }
        }
        file.flush()?;
        Ok(())
    }
}

impl Read_ {
    pub fn read(path: &Path) -> Result<Self> {
        let mut file = std::io::BufReader::new(std::fs::File::open(path)?);
        let mut next = || -> Result<u64> {
            let mut bytes = [0; 8];
            file.read_exact(&mut bytes)?;
            Ok(u64::from_le_bytes(bytes))
        };
        let [flag, done, out, ticks, vram] = [next()?, next()?, next()?, next()?, next()?];
        let places = Places {
            flag,
            done,
            out,
            ticks,
            vram,
        };
        let own = (0..next()?)
            .map(|_| Ok((next()?, next()?)))
            .collect::<Result<Vec<_>>>()?;
        let (devices, buffers) = (next()?, next()?);
        let (objects, private) = (next()?, next()?);
        let mut checkpoint = Checkpoint::default();
        checkpoint.objects = objects as u32;
        for _ in 0..devices {
            checkpoint.devices.push(uapi::kfd_criu_device_bucket {
                user_gpu_id: next()? as u32,
                actual_gpu_id: next()? as u32,
                ..Default::default()
            });
        }
        for _ in 0..buffers {
            checkpoint.buffers.push(uapi::kfd_criu_bo_bucket {
                addr: next()?,
                size: next()?,
                offset: next()?,
                gpu_id: next()? as u32,
                alloc_flags: next()? as u32,
                dmabuf_fd: u32::MAX,
                ..Default::default()
            });
        }
        checkpoint.private = vec![0; private as usize];
        file.read_exact(&mut checkpoint.private)?;
        let saved = Saved {
            places,
            own,
            checkpoint,
        };
        let mut contents = Vec::new();
        for (address, bytes) in saved.memory() {
            let mut held = vec![0; bytes as usize];
            file.read_exact(&mut held)
                .context("the file is too short")?;
            contents.push((address, held));
        }
        ensure!(file.read(&mut [0])? == 0, "the file is too long");
        Ok(Self { saved, contents })
    }
}
