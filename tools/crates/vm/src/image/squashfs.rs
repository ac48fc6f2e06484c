// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A tree as a disk image that a guest mounts: squashfs, since that needs no rights to be written,
//! and no room to be chosen.

use super::tree::{Kind, Node, Tree};
use anyhow::{Context, Result};
use backhand::compression::Compressor;
use backhand::{FilesystemCompressor, FilesystemWriter, NodeHeader};
use std::fs::File;
use std::io::{self, BufWriter, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

pub fn write(tree: &Tree, to: &File) -> Result<()> {
    let mut writer = FilesystemWriter::default();
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
    writer.write(BufWriter::new(to))?;
    Ok(())
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
