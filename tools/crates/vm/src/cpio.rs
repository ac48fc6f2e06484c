// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Writes a cpio archive in the "newc" format, which the kernel unpacks as its first root
//! (linux:Documentation/driver-api/early-userspace/buffer-format.rst).

use std::io::{self, Write};

const MAGIC: &str = "070701";
const FILE: u32 = 0o100000;
const DIRECTORY: u32 = 0o040000;
const TRAILER: &str = "TRAILER!!!";

/// Entries get ascending inode numbers and no time, so that equal content gives equal archives.
pub struct Writer<W: Write> {
    out: W,
    inode: u32,
}

impl<W: Write> Writer<W> {
    pub fn new(out: W) -> Self {
        Self { out, inode: 0 }
    }

    pub fn directory(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, DIRECTORY | 0o755, &[])
    }

    pub fn file(&mut self, name: &str, mode: u32, data: &[u8]) -> io::Result<()> {
        self.entry(name, FILE | mode, data)
    }

    pub fn finish(mut self) -> io::Result<W> {
        self.entry(TRAILER, 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) -> io::Result<()> {
        self.inode += 1;
        let size = u32::try_from(data.len()).map_err(io::Error::other)?;
        let name_size = name.len() as u32 + 1;
        write!(
            self.out,
            "{MAGIC}{:08x}{mode:08x}{:08x}{:08x}{:08x}{:08x}",
            self.inode, 0, 0, 1, 0
        )?;
        write!(
            self.out,
            "{size:08x}{:08x}{:08x}{:08x}{:08x}{name_size:08x}{:08x}",
            0, 0, 0, 0, 0
        )?;
        self.out.write_all(name.as_bytes())?;
        self.out.write_all(&[0])?;
        self.pad(110 + name_size as usize)?;
        self.out.write_all(data)?;
        self.pad(data.len())
    }

    fn pad(&mut self, written: usize) -> io::Result<()> {
        self.out.write_all(&[0; 3][..written.wrapping_neg() % 4])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn archive() -> Vec<u8> {
        let mut writer = Writer::new(Vec::new());
        writer.directory("dev").unwrap();
        writer.file("init", 0o755, b"hello").unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn everything_is_aligned() {
        let bytes = archive();
        assert_eq!(bytes.len() % 4, 0);
        let starts = bytes.windows(6).enumerate().filter(|(_, w)| w == b"070701");
        let starts: Vec<_> = starts.map(|(at, _)| at).collect();
        assert_eq!(starts.len(), 3);
        assert!(starts.iter().all(|at| at % 4 == 0), "{starts:?}");
    }

    #[test]
    fn cpio_unpacks_it() {
        let dir = tempfile::tempdir().unwrap();
        let mut cpio = Command::new("cpio");
        cpio.args(["-id", "--quiet"])
            .current_dir(&dir)
            .stdin(Stdio::piped());
        let child = cpio.spawn();
        let Ok(mut child) = child else {
            return eprintln!("skipped: no cpio here");
        };
        child.stdin.take().unwrap().write_all(&archive()).unwrap();
        assert!(child.wait().unwrap().success());
        assert_eq!(std::fs::read(dir.path().join("init")).unwrap(), b"hello");
        assert!(dir.path().join("dev").is_dir());
    }
}
