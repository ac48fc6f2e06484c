// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A root of one's own: an archive of a root, or an image as containers have it. It becomes a disk
//! image in the cache, made once and named by what is in it.

mod oci;
mod sparse;
mod squashfs;
mod tree;

use crate::assets::Key;
use crate::interrupt::Interrupt;
use crate::snapshot::{keep, remove_unused, wait_for_turn};
use anyhow::{bail, Context, Result};
use flate2::read::MultiGzDecoder;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tree::Tree;

/// Changed when the same input becomes another disk image.
const VERSION: &str = "2";
/// The suffix of the disk images in the cache.
pub const SUFFIX: &str = "squashfs";

/// What `--image` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// An archive of a root.
    Archive(PathBuf),
    /// A directory in OCI's layout, and which of its images.
    Layout {
        directory: PathBuf,
        tag: Option<String>,
    },
}

impl FromStr for Source {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some(layout) = text.strip_prefix("oci:") else {
            return match text {
                "" => Err("the name is empty"),
                name => Ok(Self::Archive(name.into())),
            };
        };
        let (directory, tag) = match layout.rsplit_once(':') {
            // A directory's name may have one in it.
            Some((directory, tag)) if !tag.contains('/') => (directory, Some(tag.to_string())),
            _ => (layout, None),
        };
        if directory.is_empty() || tag.as_deref() == Some("") {
            return Err("oci:DIRECTORY[:TAG] is expected");
        }
        Ok(Self::Layout {
            directory: directory.into(),
            tag,
        })
    }
}

/// A root that can be booted.
#[derive(Debug, Clone)]
pub struct Image {
    pub disk: PathBuf,
    pub settings: Settings,
}

/// What an image says of the commands that run in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    pub env: Vec<(String, String)>,
    /// Where commands run; `None`: in root's home.
    pub cwd: Option<String>,
}

impl Settings {
    /// What is there in any root.
    fn of_any_root() -> Self {
        Self {
            env: Vec::new(),
            cwd: Some("/".into()),
        }
    }
}

/// The image's disk in the cache, made now if there is none.
pub fn obtain(source: &Source, cache: &Path, interrupt: &Interrupt) -> Result<Image> {
    match source {
        Source::Archive(path) => {
            let path = path.canonicalize();
            let path = path.with_context(|| format!("the image {source}"))?;
            if path.is_dir() {
                bail!(
                    "{} is a directory: oci:{0} for one in OCI's layout",
                    path.display()
                );
            }
            let key = Key::default().text(VERSION).large_file(&path)?.finish();
            in_cache(cache, &key, source, interrupt, |tree| {
                let file = File::open(&path)?;
                tree.lay(decompressed(file)?, false)?;
                is_root(tree)?;
                Ok(Settings::of_any_root())
            })
        }
        Source::Layout { directory, tag } => {
            let found = oci::find(directory, tag.as_deref())
                .with_context(|| format!("the image {source}"))?;
            let key = Key::default().text(VERSION).text(found.digest()).finish();
            in_cache(cache, &key, source, interrupt, |tree| {
                found.lay(tree)?;
                is_root(tree)?;
                Ok(found.settings().clone())
            })
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Archive(path) => write!(f, "{}", path.display()),
            Self::Layout { directory, tag } => {
                write!(f, "oci:{}", directory.display())?;
                tag.iter().try_for_each(|tag| write!(f, ":{tag}"))
            }
        }
    }
}

/// Made beside its place and renamed: whoever finds it finds a whole one. One maker at a time.
fn in_cache(
    cache: &Path,
    key: &str,
    source: &Source,
    interrupt: &Interrupt,
    fill: impl FnOnce(&mut Tree) -> Result<Settings>,
) -> Result<Image> {
    let disk = cache.join(format!("image-{key}.{SUFFIX}"));
    let notes = cache.join(format!("image-{key}.json"));
    let is_there = || disk.exists() && notes.exists();
    if !is_there() {
        let lock = disk.with_extension("lock");
        let lock = File::create(&lock).with_context(|| lock.display().to_string())?;
        wait_for_turn(&lock, interrupt)?;
        if !is_there() {
            remove_unused(cache);
            say!("kfd-vm: making a disk of {source} (once)");
            let mut tree = Tree::new(tempfile::tempfile_in(cache)?, interrupt.clone());
            let made = fill(&mut tree).and_then(|settings| {
                store(&notes, |file| Ok(serde_json::to_writer(file, &settings)?))?;
                store(&disk, |file| squashfs::write(&tree, file))
            });
            // Of a read that a signal ended it is told as of the signal.
            interrupt.check()?;
            made.with_context(|| format!("the image {source}"))?;
        }
    }
    keep(&disk);
    keep(&notes);
    let settings = serde_json::from_slice(&fs::read(&notes)?)?;
    Ok(Image { disk, settings })
}

/// Makes a file of the cache beside its place; what a killed maker leaves, [`remove_unused`]
/// removes.
pub fn store(path: &Path, fill: impl FnOnce(&File) -> Result<()>) -> Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let part = tempfile::Builder::new()
        .suffix(".part")
        .tempfile_in(directory)?;
    fill(part.as_file()).with_context(|| path.display().to_string())?;
    part.persist(path)
        .with_context(|| path.display().to_string())?;
    Ok(())
}

/// That it is a root at all is told now and not by a guest that does not start anything.
fn is_root(tree: &Tree) -> Result<()> {
    let has = |path: &str| tree.nodes.contains_key(Path::new(path));
    if has("oci-layout") || has("manifest.json") {
        bail!("an archive of an image and not of a root: unpack it, and say oci:DIRECTORY");
    }
    if !has("bin") && !has("usr/bin") {
        bail!("no root of a system: it has no /bin");
    }
    Ok(())
}

/// What a layer's or an archive's file holds, whatever its name says of that.
fn decompressed(mut file: File) -> Result<Box<dyn Read>> {
    let mut magic = [0; 6];
    let mut head = file.try_clone()?.take(magic.len() as u64);
    let mut length = 0;
    while length < magic.len() {
        match head.read(&mut magic[length..])? {
            0 => break,
            count => length += count,
        }
    }
    file.rewind()?;
    Ok(match magic {
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(BufReader::new(file))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(zstd::Decoder::new(file)?),
        [0xfd, b'7', b'z', b'X', b'Z', 0] | [b'B', b'Z', b'h', ..] => {
            bail!("compressed by xz or bzip2; gzip, zstd or nothing is known here")
        }
        _ => Box::new(io::BufReader::new(file)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use backhand::{FilesystemReader, InnerNode};
    use std::io::Write;

    #[test]
    fn an_archive_or_a_layout_with_a_tag() {
        let parse = |text: &str| text.parse::<Source>();
        let layout = |directory: &str, tag: Option<&str>| Source::Layout {
            directory: directory.into(),
            tag: tag.map(String::from),
        };
        assert_eq!(parse("a.tar"), Ok(Source::Archive("a.tar".into())));
        assert_eq!(parse("oci:d"), Ok(layout("d", None)));
        assert_eq!(parse("oci:d:1.2"), Ok(layout("d", Some("1.2"))));
        assert_eq!(parse("oci:a:b/c"), Ok(layout("a:b/c", None)));
        for wrong in ["", "oci:", "oci:d:", "oci::t"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse("oci:d:1.2").unwrap().to_string(), "oci:d:1.2");
    }

    fn archive() -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        let mut add = |name: &str, kind, data: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(0o4755);
            header.set_uid(1000);
            header.set_gid(100);
            header.set_mtime(1);
            header.set_size(data.len() as u64);
            archive.append_data(&mut header, name, data).unwrap();
        };
        add("bin/", tar::EntryType::Directory, b"");
        add("bin/big", tar::EntryType::Regular, &[7; 300_000]);
        add("bin/small", tar::EntryType::Regular, b"hello");
        archive.into_inner().unwrap()
    }

    #[test]
    fn what_a_killed_maker_leaves_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let left = || fs::read_dir(directory.path()).unwrap().count();
        let stored = store(&directory.path().join("initramfs-x.cpio"), |file| {
            file.set_modified(std::time::UNIX_EPOCH)?;
            assert_eq!(left(), 1);
            remove_unused(directory.path());
            assert_eq!(left(), 0);
            Ok(())
        });
        assert!(stored.is_err());
    }

    #[test]
    fn a_disk_has_what_the_archive_has_and_is_made_once() {
        let directory = tempfile::tempdir().unwrap();
        let plain = archive();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&plain).unwrap();
        let gzip = gzip.finish().unwrap();
        let zstd = zstd::encode_all(&plain[..], 1).unwrap();
        for (name, bytes) in [("plain", plain), ("gzip", gzip), ("zstd", zstd)] {
            let path = directory.path().join(name);
            fs::write(&path, bytes).unwrap();
            let source = Source::Archive(path);
            let image = obtain(&source, directory.path(), &Interrupt::default()).unwrap();
            let made = fs::metadata(&image.disk).unwrap().len();
            assert_eq!(
                obtain(&source, directory.path(), &Interrupt::default())
                    .unwrap()
                    .disk,
                image.disk
            );
            assert_eq!(fs::metadata(&image.disk).unwrap().len(), made);
            let file = BufReader::new(File::open(&image.disk).unwrap());
            let disk = FilesystemReader::from_reader(file).unwrap();
            let node = |path: &str| {
                let found = disk.files().find(|node| node.fullpath == Path::new(path));
                found.unwrap()
            };
            for (path, wanted) in [
                ("/bin/big", vec![7; 300_000]),
                ("/bin/small", b"hello".into()),
            ] {
                let node = node(path);
                let header = node.header;
                assert_eq!(
                    (header.permissions, header.uid, header.gid),
                    (0o4755, 1000, 100)
                );
                let InnerNode::File(file) = &node.inner else {
                    panic!("{path}")
                };
                let mut bytes = Vec::new();
                disk.file(file).reader().read_to_end(&mut bytes).unwrap();
                assert!(bytes == wanted, "{name}: {path}");
            }
        }
    }

    #[test]
    fn what_is_no_root_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            fs::write(&path, bytes).unwrap();
            format!(
                "{:#}",
                obtain(
                    &Source::Archive(path),
                    directory.path(),
                    &Interrupt::default()
                )
                .unwrap_err()
            )
        };
        assert!(of("text", b"no archive, and not a short one either").contains("text"));
        assert!(of("empty", b"").contains("no /bin"));
        assert!(of("xz", b"\xfd7zXZ\0......").contains("xz"));
        let here = Source::Archive(directory.path().into());
        assert!(obtain(&here, directory.path(), &Interrupt::default())
            .unwrap_err()
            .to_string()
            .contains("oci:"));
        let left = fs::read_dir(directory.path()).unwrap().flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        assert!(
            !left
                .iter()
                .any(|name| name.to_string_lossy().ends_with("part")),
            "{left:?}"
        );
    }

    #[test]
    fn a_signal_ends_the_making_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("root.tar");
        fs::write(&path, archive()).unwrap();
        let cache = directory.path().join("cache");
        fs::create_dir(&cache).unwrap();
        let interrupt = Interrupt::default();
        let of = |interrupt: &Interrupt, merge: bool| {
            in_cache(
                &cache,
                "key",
                &Source::Archive(path.clone()),
                interrupt,
                |tree| {
                    if merge {
                        interrupt.set(15);
                    }
                    tree.lay(File::open(&path)?, false)?;
                    interrupt.set(15);
                    Ok(Settings::default())
                },
            )
        };
        for merge in [true, false] {
            let interrupt = Interrupt::default();
            let error = of(&interrupt, merge).unwrap_err();
            let failure = error.downcast_ref::<crate::session::Failure>();
            assert!(
                matches!(failure, Some(crate::session::Failure::Signal(15))),
                "{error:#}"
            );
        }
        interrupt.set(15);
        assert!(of(&interrupt, false).is_err());
        let left = fs::read_dir(&cache).unwrap().flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        assert!(
            !left
                .iter()
                .any(|name| name.to_string_lossy().contains("squashfs")),
            "{left:?}"
        );
        assert!(
            !left
                .iter()
                .any(|name| name.to_string_lossy().contains("part")),
            "{left:?}"
        );
    }
}
