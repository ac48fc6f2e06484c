// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Sparse files of POSIX archives. An entry holds no more than the pieces between the holes; where
//! those belong is in its extended header (GNU's formats 0.0 and 0.1) or in front of them (1.0).

use anyhow::{anyhow, bail, Context, Result};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use tar::{Entry, PaxExtensions};

const BLOCK: u64 = 512;
/// How much of an entry may be its map.
const MOST_MAP: u64 = 16 << 20;

/// A file with holes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sparse {
    /// Unless the entry has it.
    pub name: Option<Vec<u8>>,
    length: u64,
    /// Where each piece begins and how long it is, in order.
    pieces: Vec<(u64, u64)>,
    /// In front of the pieces there is the map.
    in_data: bool,
}

impl Sparse {
    /// `None`: an entry holds what the file holds.
    pub fn of(entry: &mut Entry<impl Read>) -> Result<Option<Self>> {
        match entry.pax_extensions()? {
            Some(extensions) => Self::named(extensions),
            None => Ok(None),
        }
    }

    fn named(extensions: PaxExtensions) -> Result<Option<Self>> {
        let (mut sparse, mut length, mut numbers) = (Self::default(), None, Vec::new());
        let (mut seen, mut version) = (false, (0, 0));
        for extension in extensions {
            let extension = extension.context("reading an extended header")?;
            let value = extension.value_bytes();
            let key = extension.key_bytes();
            if key == b"SUN.holesdata" {
                bail!("a sparse file in a format of star's; GNU's are known here");
            }
            let Some(key) = key.strip_prefix(b"GNU.sparse.") else {
                continue;
            };
            seen = true;
            match key {
                b"major" => version.0 = number(value)?,
                b"minor" => version.1 = number(value)?,
                b"name" => sparse.name = Some(value.to_vec()),
                b"size" | b"realsize" => length = Some(number(value)?),
                b"offset" | b"numbytes" => numbers.push(number(value)?),
                b"map" if value.is_empty() => {}
                b"map" => {
                    for word in value.split(|byte| *byte == b',') {
                        numbers.push(number(word)?);
                    }
                }
                b"numblocks" => {}
                _ => bail!("a sparse file with {}", String::from_utf8_lossy(key)),
            }
        }
        if !seen {
            return Ok(None);
        }
        sparse.in_data = match version {
            (0, _) => false,
            (1, 0) => true,
            (major, minor) => bail!("a sparse file of format {major}.{minor}; 1.0 is known here"),
        };
        sparse.length = length.ok_or_else(|| anyhow!("a sparse file without a size"))?;
        sparse.pieces = pairs(&numbers)?;
        Ok(Some(sparse))
    }

    /// Writes the file at `start` of the spool, whose last it is; returns its length.
    pub fn store(
        &mut self,
        entry: &mut impl Read,
        size: u64,
        to: &mut File,
        start: u64,
    ) -> Result<u64> {
        let mut left = size;
        if self.in_data {
            let mut map = Map::of(entry.by_ref().take(size.min(MOST_MAP)));
            let count = map.number()?;
            let mut numbers = Vec::new();
            for _ in 0..count
                .checked_mul(2)
                .ok_or_else(|| anyhow!("a map of {count} pieces"))?
            {
                numbers.push(map.number()?);
            }
            left -= map.read;
            self.pieces = pairs(&numbers)?;
        }
        let mut end = 0;
        for &(at, length) in self.pieces.iter().filter(|piece| piece.1 != 0) {
            // Between pieces GNU's tar fills a block up, and others do not.
            if (size - left) % BLOCK != 0 {
                bail!("a piece of a sparse file ends within a block");
            }
            let past = at.checked_add(length).filter(|past| *past <= self.length);
            let past = past.ok_or_else(|| anyhow!("a piece beyond the end of a sparse file"))?;
            if at < end || length > left {
                bail!("a map of a sparse file that does not fit what it holds");
            }
            to.seek(SeekFrom::Start(start + at))?;
            if io::copy(&mut entry.by_ref().take(length), to)? != length {
                bail!("the archive ends within a file");
            }
            (end, left) = (past, left - length);
        }
        if left >= BLOCK {
            bail!("a sparse file holds more than its map says");
        }
        let past = start.checked_add(self.length);
        let past = past.ok_or_else(|| anyhow!("a sparse file of {} bytes", self.length))?;
        to.set_len(past).context("storing a sparse file")?;
        to.seek(SeekFrom::Start(past))?;
        Ok(self.length)
    }
}

fn number(text: &[u8]) -> Result<u64> {
    let digits = std::str::from_utf8(text).ok();
    let digits = digits.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| {
            anyhow!(
                "{:?} in the map of a sparse file",
                String::from_utf8_lossy(text)
            )
        })
}

fn pairs(numbers: &[u64]) -> Result<Vec<(u64, u64)>> {
    let pairs = numbers.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        bail!("the map of a sparse file ends within a piece");
    }
    Ok(pairs.map(|pair| (pair[0], pair[1])).collect())
}

/// Numbers, each with the end of a line behind it, in whole blocks.
struct Map<R> {
    reader: R,
    block: [u8; BLOCK as usize],
    at: usize,
    /// How many bytes it took; what is left of the last block is nobody's.
    read: u64,
}

impl<R: Read> Map<R> {
    fn of(reader: R) -> Self {
        Self {
            reader,
            block: [0; BLOCK as usize],
            at: BLOCK as usize,
            read: 0,
        }
    }

    fn number(&mut self) -> Result<u64> {
        let mut digits = Vec::new();
        loop {
            if self.at == self.block.len() {
                let read = self.reader.read_exact(&mut self.block);
                read.context("the map of a sparse file")?;
                (self.at, self.read) = (0, self.read + BLOCK);
            }
            let byte = self.block[self.at];
            self.at += 1;
            match byte {
                b'\n' => return number(&digits),
                _ if digits.len() > 20 => bail!("no number in the map of a sparse file"),
                byte => digits.push(byte),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::tree::{Kind, Tree};
    use crate::interrupt::Interrupt;
    use std::os::unix::fs::FileExt;
    use std::path::Path;
    use std::process::Command;
    use tar::{Builder, EntryType, Header};

    fn merged(archive: &[u8]) -> Result<Tree> {
        let mut tree = Tree::new(tempfile::tempfile().unwrap(), Interrupt::default());
        tree.lay(archive, true)?;
        Ok(tree)
    }

    fn read(tree: &Tree, path: &str) -> Vec<u8> {
        let Kind::File { start, length } = tree.nodes[Path::new(path)].kind else {
            panic!("{path}")
        };
        let mut bytes = vec![1; length as usize];
        tree.spool.read_exact_at(&mut bytes, start).unwrap();
        bytes
    }

    #[test]
    fn what_gnu_tar_writes_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let mut between = vec![0; 300_000];
        between[100_000..100_700].fill(7);
        between[250_000..].fill(8);
        let mut hole_last = vec![0; 70_001];
        hole_last[..1025].fill(9);
        let long = "l".repeat(120);
        let files = [
            ("between", between),
            ("hole-last", hole_last),
            ("nothing", vec![0; 50_000]),
            (&long, [vec![0; 20_000], vec![3; 17]].concat()),
            ("plain", b"no hole".to_vec()),
        ];
        for (name, bytes) in &files {
            // With holes: where there are none tar does not look.
            let file = File::create(directory.path().join(name)).unwrap();
            file.set_len(bytes.len() as u64).unwrap();
            for (number, page) in bytes.chunks(4096).enumerate() {
                if page.iter().any(|byte| *byte != 0) {
                    file.write_all_at(page, number as u64 * 4096).unwrap();
                }
            }
        }
        for format in [
            &["--format=posix", "--sparse-version=0.0"][..],
            &["--format=posix", "--sparse-version=0.1"],
            &["--format=posix", "--sparse-version=1.0"],
            &["--format=gnu"],
        ] {
            let mut tar = Command::new("tar");
            tar.args(format)
                .args(["-S", "--hole-detection=raw", "-cf", "-", "-C"]);
            let made = tar.arg(directory.path()).arg(".").output().unwrap();
            assert!(made.status.success(), "{made:?}");
            // Smaller than what is in the files: there are holes.
            assert!(made.stdout.len() < 150_000, "{format:?}");
            let tree = merged(&made.stdout).unwrap();
            assert_eq!(tree.nodes.len(), files.len() + 1, "{format:?}");
            for (name, bytes) in &files {
                assert!(read(&tree, name) == *bytes, "{format:?}: {name}");
            }
        }
    }

    /// An archive of one file with an extended header, and one after it.
    fn archive(extensions: &[(&str, &str)], data: &[u8]) -> Vec<u8> {
        let mut archive = Builder::new(Vec::new());
        let extensions = extensions
            .iter()
            .map(|(key, value)| (*key, value.as_bytes()));
        archive.append_pax_extensions(extensions).unwrap();
        for (name, data) in [("a", data), ("b", b"next")] {
            let mut header = Header::new_ustar();
            header.set_entry_type(EntryType::Regular);
            header.set_size(data.len() as u64);
            for set in [Header::set_uid, Header::set_gid, Header::set_mtime] {
                set(&mut header, 0);
            }
            header.set_mode(0o644);
            archive.append_data(&mut header, name, data).unwrap();
        }
        archive.into_inner().unwrap()
    }

    #[test]
    fn a_map_that_does_not_fit_is_refused() {
        let sparse = |version: (&str, &str), size: &str, map: &str, data: &[u8]| {
            let mut extensions = vec![("GNU.sparse.size", size), ("GNU.sparse.map", map)];
            if version != ("0", "1") {
                extensions.pop();
                extensions.extend([
                    ("GNU.sparse.major", version.0),
                    ("GNU.sparse.minor", version.1),
                ]);
            }
            match merged(&archive(&extensions, data)) {
                Ok(tree) => {
                    assert_eq!(read(&tree, "b"), b"next");
                    Ok(read(&tree, "a"))
                }
                Err(error) => Err(format!("{error:#}")),
            }
        };
        let by_map = |size: &str, map: &str, data: &[u8]| sparse(("0", "1"), size, map, data);
        assert_eq!(by_map("5", "1,2,5,0", b"xy").unwrap(), b"\0xy\0\0");
        assert_eq!(by_map("3", "", b"").unwrap(), [0; 3]);
        for (size, map, data, why) in [
            ("5", "1,2,4", &b"xy"[..], "within a piece"),
            ("5", "1,-2", b"xy", "in the map"),
            ("5", "4,2", b"xy", "beyond the end"),
            ("5", "18446744073709551615,2", b"xy", "beyond the end"),
            ("9", "2,2,1,2", &[0; 514], "within a block"),
            ("2000", "2,512,1,2", &[0; 514], "does not fit"),
            ("5", "1,3", b"xy", "does not fit"),
            ("5", "1,2", &[0; 514], "more than its map"),
            ("18446744073709551615", "", b"", "storing"),
        ] {
            let told = by_map(size, map, data).unwrap_err();
            assert!(told.contains(why), "{map}: {told}");
        }

        let in_data = |map: &str| {
            let mut data = map.as_bytes().to_vec();
            data.resize(512, 0);
            data.extend(b"xy");
            sparse(("1", "0"), "5", "", &data)
        };
        assert_eq!(in_data("2\n1\n2\n5\n0\n").unwrap(), b"\0xy\0\0");
        for (map, why) in [
            ("2\n1\n2\n", "no number"),
            ("x\n", "\"x\" in the map"),
            ("18446744073709551615\n", "pieces"),
        ] {
            let told = in_data(map).unwrap_err();
            assert!(told.contains(why), "{map}: {told}");
        }
        // More numbers than the entry has room for.
        assert!(in_data(&format!("999\n{}", "1\n".repeat(254))).is_err());
        let told = sparse(("2", "0"), "5", "", b"").unwrap_err();
        assert!(told.contains("format 2.0"), "{told}");
        let told = format!(
            "{:#}",
            merged(&archive(&[("SUN.holesdata", " 0 5")], b""))
                .err()
                .unwrap()
        );
        assert!(told.contains("star"), "{told}");
    }
}
