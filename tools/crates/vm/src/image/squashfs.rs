// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A tree as a disk image that a guest mounts: squashfs, since that needs no rights to be written,
//! and no room to be chosen.

use super::tree::{Kind, Node, Tree, Until};
use anyhow::{bail, Context, Result};
use backhand::compression::Compressor;
use backhand::{FilesystemCompressor, FilesystemWriter, NodeHeader};
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// backhand writes where a file's data begin, and how long a file is, in 32 bits.
const LARGEST: u64 = 1 << 32;

pub fn write(tree: &Tree, to: &File) -> Result<()> {
    write_within(tree, to, LARGEST)
}

fn write_within(tree: &Tree, to: &File, largest: u64) -> Result<()> {
    for (path, node) in &tree.nodes {
        if matches!(node.kind, Kind::File { length, .. } if length >= largest) {
            bail!("{}: {}", path.display(), too_large("a file", largest));
        }
    }
    let mut writer = FilesystemWriter::default();
    // It takes files of one first block for equal.
    writer.set_no_duplicate_files(false);
    writer.set_compressor(FilesystemCompressor::new(Compressor::Zstd, None)?);
    for (path, node) in &tree.nodes {
        if path.as_os_str().is_empty() {
            writer.set_root_mode(node.mode);
            writer.set_root_uid(node.uid);
            writer.set_root_gid(node.gid);
            continue;
        }
        push(&mut writer, tree, path, node).with_context(|| path.display().to_string())?;
    }
    writer.write(Within {
        to: BufWriter::new(to),
        at: 0,
        largest,
    })?;
    Ok(())
}

fn too_large(what: &str, largest: u64) -> String {
    format!("{what} of {largest} bytes or more can't be written; --root takes a disk of any size")
}

/// A disk that stays below a size.
struct Within<'a> {
    to: BufWriter<&'a File>,
    at: u64,
    largest: u64,
}

impl Write for Within<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.at + bytes.len() as u64 >= self.largest {
            let why = too_large("a disk", self.largest);
            return Err(io::Error::new(ErrorKind::FileTooLarge, why));
        }
        let count = self.to.write(bytes)?;
        self.at += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl Seek for Within<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = self.to.seek(to)?;
        Ok(self.at)
    }

    /// Without a seek, which writes out what is buffered.
    fn stream_position(&mut self) -> io::Result<u64> {
        Ok(self.at)
    }
}

fn push<'a>(
    writer: &mut FilesystemWriter<'a, '_, 'a>,
    tree: &'a Tree,
    path: &Path,
    node: &Node,
) -> Result<()> {
    let header = NodeHeader::new(node.mode, node.uid, node.gid, node.mtime);
    match &node.kind {
        Kind::Directory => writer.push_dir(path, header)?,
        Kind::File { start, length } => {
            let piece = Piece {
                file: &tree.spool,
                start: *start,
                left: *length,
            };
            let piece = Until {
                reader: piece,
                interrupt: tree.interrupt.clone(),
            };
            writer.push_file(piece, path, header)?;
        }
        Kind::Link(target) => writer.push_symlink(target, path, header)?,
        Kind::Character(number) => writer.push_char_device(*number, path, header)?,
        Kind::Block(number) => writer.push_block_device(*number, path, header)?,
        Kind::Fifo => writer.push_fifo(path, header)?,
    }
    Ok(())
}

/// A part of a file.
struct Piece<'a> {
    file: &'a File,
    start: u64,
    left: u64,
}

impl Read for Piece<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(self.left.try_into().unwrap_or(usize::MAX));
        let count = self.file.read_at(&mut buffer[..most], self.start)?;
        self.start += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::Interrupt;
    use backhand::{FilesystemReader, InnerNode};
    use sha2::{Digest, Sha256};
    use std::io::BufReader;

    /// A root with these files, and its disk.
    fn written(files: &[(&str, &[u8])], largest: u64) -> Result<File> {
        let mut archive = tar::Builder::new(Vec::new());
        for (name, data) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(data.len() as u64);
            header.set_mode(0o644);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            archive.append_data(&mut header, name, *data)?;
        }
        let mut tree = Tree::new(tempfile::tempfile()?, Interrupt::default());
        tree.lay(&archive.into_inner()?[..], false)?;
        let disk = tempfile::tempfile()?;
        write_within(&tree, &disk, largest)?;
        Ok(disk)
    }

    #[test]
    fn files_of_one_beginning_stay_different() {
        // The last is no multiple of a block.
        let ends: [&[u8]; 3] = [&[1; 131_072], &[2; 131_072], &[1; 200_000]];
        let all = ends.map(|end| [&[0; 131_072], end].concat());
        let files = ["a", "b", "c"]
            .into_iter()
            .zip(all.iter().map(|all| &all[..]));
        let files: Vec<_> = files.collect();
        let mut disk = written(&files, LARGEST).unwrap();
        disk.rewind().unwrap();
        let disk = BufReader::new(disk);
        let disk = FilesystemReader::from_reader(disk).unwrap();
        for (name, wanted) in files {
            let node = disk.files().find(|node| node.fullpath.ends_with(name));
            let InnerNode::File(file) = &node.unwrap().inner else {
                panic!("{name}")
            };
            let mut bytes = Vec::new();
            disk.file(file).reader().read_to_end(&mut bytes).unwrap();
            assert!(bytes == wanted, "{name}");
        }
    }

    #[test]
    fn a_file_or_a_disk_beyond_the_limit_is_refused() {
        // What does not compress.
        let noise: Vec<u8> = (0..2000u32)
            .flat_map(|n| Sha256::digest(n.to_le_bytes()))
            .collect();
        let refused = |files: &[(&str, &[u8])], largest| {
            format!("{:#}", written(files, largest).unwrap_err())
        };
        assert!(refused(&[("large", &noise)], 64_000).contains("large: a file of 64000"));
        let disk = refused(&[("a", &noise), ("b", &noise)], 64_001);
        assert!(disk.contains("a disk of 64001"), "{disk}");
        assert!(written(&[("a", &noise)], LARGEST).is_ok());
    }
}
