// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A root file system as a tree in memory, into which layers are laid. Nothing of a layer becomes a
//! file of this machine's, so no name and no link in one leads out: a link leads to where the guest
//! will see it lead. What files hold is kept in one spool, a file without a name.

use super::sparse::Sparse;
use crate::interrupt::Interrupt;
use anyhow::{anyhow, bail, Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use tar::{Archive, Entry, EntryType};

/// How often a path may go through a link, as for the kernel.
const MOST_LINKS: usize = 40;
/// No path is longer for the kernel either (`PATH_MAX`, with the zero that ends it).
const LONGEST: usize = 4095;
/// What a layer deletes of those below is named by a file of this prefix and the name...
const WHITEOUT: &[u8] = b".wh.";
/// ...or, if it is all of a directory, by this one in it.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// What one layered file system keeps for itself; there is no such file.
const RESERVED: &[u8] = b".wh..wh.";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Directory,
    /// In the spool.
    File {
        start: u64,
        length: u64,
    },
    Link(PathBuf),
    Character(u32),
    Block(u32),
    Fifo,
}

#[derive(Debug, Clone)]
pub struct Node {
    pub kind: Kind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub mtime: u32,
    /// The layer that it is of.
    layer: usize,
}

pub struct Tree {
    /// By the path from the root, which is the empty one.
    pub nodes: BTreeMap<PathBuf, Node>,
    pub spool: File,
    /// Ends the reading of layers and of the spool.
    pub interrupt: Interrupt,
    length: u64,
    layers: usize,
    /// What this layer has whiteouts for. Nothing that was below is there any more, so another of
    /// the same name has nothing to do.
    deleted: BTreeSet<(PathBuf, bool)>,
}

/// What is read until a signal comes.
pub struct Until<R> {
    pub reader: R,
    pub interrupt: Interrupt,
}

impl<R: Read> Read for Until<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.interrupt.check().map_err(io::Error::other)?;
        self.reader.read(buffer)
    }
}

impl Tree {
    /// An empty root, with an empty spool.
    pub fn new(spool: File, interrupt: Interrupt) -> Self {
        let root = Node {
            kind: Kind::Directory,
            mode: 0o755,
            uid: 0,
            gid: 0,
            mtime: 0,
            layer: 0,
        };
        Self {
            nodes: [(PathBuf::new(), root)].into(),
            spool,
            interrupt,
            length: 0,
            layers: 0,
            deleted: BTreeSet::new(),
        }
    }

    /// Lays a layer over what is there. One of an image deletes what it has whiteouts for; in an
    /// archive of a whole root a file may have such a name.
    pub fn lay(&mut self, layer: impl Read, whiteouts: bool) -> Result<()> {
        self.layers += 1;
        self.deleted.clear();
        let layer = Until {
            reader: layer,
            interrupt: self.interrupt.clone(),
        };
        for entry in Archive::new(layer).entries()? {
            let mut entry = entry.context("reading the archive")?;
            let mut name = entry.path_bytes().into_owned();
            let shown = || String::from_utf8_lossy(&name).into_owned();
            let mut sparse = Sparse::of(&mut entry).with_context(shown)?;
            if let Some(real) = sparse.as_mut().and_then(|sparse| sparse.name.take()) {
                name = real;
            }
            let shown = || String::from_utf8_lossy(&name).into_owned();
            self.take(&mut entry, &name, sparse, whiteouts)
                .with_context(shown)?;
        }
        Ok(())
    }

    fn take(
        &mut self,
        entry: &mut Entry<impl Read>,
        name: &[u8],
        sparse: Option<Sparse>,
        whiteouts: bool,
    ) -> Result<()> {
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader) {
            return Ok(());
        }
        let path = self.place(&plain(name)?)?;
        let base = path.file_name().unwrap_or_default().as_bytes();
        if whiteouts && base.starts_with(WHITEOUT) {
            return self.white_out(&path, &base[WHITEOUT.len()..]);
        }
        let header = entry.header();
        let kind = match kind {
            EntryType::Directory => Kind::Directory,
            EntryType::Symlink => Kind::Link(link_of(entry)?),
            EntryType::Link => {
                let target = plain(link_of(entry)?.as_os_str().as_bytes())?;
                return self.link(path, &self.place(&target)?);
            }
            EntryType::Char => Kind::Character(device(header)?),
            EntryType::Block => Kind::Block(device(header)?),
            EntryType::Fifo => Kind::Fifo,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => Kind::File {
                start: self.length,
                length: 0,
            },
            other => bail!("an entry of a kind that is not known: {other:?}"),
        };
        let mut node = Node {
            kind,
            mode: (header.mode()? & 0o7777) as u16,
            uid: u32::try_from(header.uid()?)?,
            gid: u32::try_from(header.gid()?)?,
            mtime: u32::try_from(header.mtime()?).unwrap_or(u32::MAX),
            layer: self.layers,
        };
        if let Kind::File { length, .. } = &mut node.kind {
            *length = match sparse {
                Some(mut sparse) => {
                    let size = entry.size();
                    sparse.store(entry, size, &mut self.spool, self.length)?
                }
                None => io::copy(entry, &mut self.spool).context("storing what it holds")?,
            };
            self.length += *length;
        }
        self.put(path, node)
    }

    /// Where a path leads that is as it stands in a layer: through the links in it, but for a last
    /// one, and never out of the root.
    fn place(&self, path: &Path) -> Result<PathBuf> {
        let Some(base) = path.file_name() else {
            return Ok(PathBuf::new());
        };
        let mut left: Vec<_> = names(path.parent().unwrap_or(Path::new("")));
        left.reverse();
        let (mut here, mut links) = (PathBuf::new(), 0);
        while let Some(name) = left.pop() {
            if name == ".." {
                here.pop();
                continue;
            }
            let next = here.join(&name);
            match self.nodes.get(&next).map(|node| &node.kind) {
                Some(Kind::Link(target)) => {
                    links += 1;
                    if links > MOST_LINKS {
                        bail!("too many links");
                    }
                    if target.is_absolute() {
                        here = PathBuf::new();
                    }
                    left.extend(names(target).into_iter().rev());
                }
                Some(Kind::Directory) | None => here = next,
                Some(_) => bail!("{} is no directory", next.display()),
            }
        }
        Ok(here.join(base))
    }

    fn put(&mut self, path: PathBuf, node: Node) -> Result<()> {
        let stays = match self.nodes.get(&path) {
            Some(there) => there.kind == Kind::Directory && node.kind == Kind::Directory,
            None => true,
        };
        if path.as_os_str().is_empty() && node.kind != Kind::Directory {
            bail!("the root is no directory");
        }
        if !stays {
            for there in self.from(&path) {
                self.nodes.remove(&there);
            }
        }
        // Those above that no layer names are as one makes them.
        let above: Vec<_> = path.ancestors().skip(1).map(Path::to_path_buf).collect();
        for directory in above {
            self.nodes.entry(directory).or_insert(Node {
                kind: Kind::Directory,
                mode: 0o755,
                uid: 0,
                gid: 0,
                ..node
            });
        }
        self.nodes.insert(path, node);
        Ok(())
    }

    /// Another name of a file that is there.
    fn link(&mut self, path: PathBuf, target: &Path) -> Result<()> {
        let there = self.nodes.get(target);
        let there = there.filter(|node| node.kind != Kind::Directory);
        let node = there
            .cloned()
            .ok_or_else(|| anyhow!("a link to {}, which is no file here", target.display()))?;
        if path == target {
            return Ok(());
        }
        let layer = self.layers;
        self.put(path, Node { layer, ..node })
    }

    /// Deletes what the layers below have of a name, or of all names.
    fn white_out(&mut self, path: &Path, name: &[u8]) -> Result<()> {
        let directory = path.parent().unwrap_or(Path::new(""));
        let (deleted, itself) = match path.file_name().map(OsStr::as_bytes) {
            Some(OPAQUE) => (directory.to_path_buf(), false),
            Some(word) if word.starts_with(RESERVED) => return Ok(()),
            _ if name.is_empty() || name == b"." || name == b".." => {
                bail!("a whiteout of nothing")
            }
            _ => (directory.join(OsStr::from_bytes(name)), true),
        };
        if !self.deleted.insert((deleted.clone(), itself)) {
            return Ok(());
        }
        // From the last on: a directory comes before all that is in it, and stays with what this
        // layer has put there.
        let mut kept: Option<PathBuf> = None;
        for path in self.from(&deleted).into_iter().rev() {
            let stays = self.nodes[&path].layer == self.layers
                || kept.as_ref().is_some_and(|kept| kept.starts_with(&path))
                || (!itself && path == deleted);
            if stays {
                kept = Some(path);
            } else {
                self.nodes.remove(&path);
            }
        }
        Ok(())
    }

    /// A path and all below it, which are neighbours in the order of paths.
    fn from(&self, path: &Path) -> Vec<PathBuf> {
        let range = (Bound::Included(path), Bound::Unbounded);
        let from = self.nodes.range::<Path, _>(range);
        let here = from.take_while(|(there, _)| there.starts_with(path));
        here.map(|(there, _)| there.clone()).collect()
    }
}

/// A path in a layer as one from the root. One with `..` in it is nobody's honest name.
fn plain(name: &[u8]) -> Result<PathBuf> {
    if name.len() > LONGEST {
        bail!("a name of {} bytes", name.len());
    }
    let mut path = PathBuf::new();
    for component in Path::new(OsStr::from_bytes(name)).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => bail!("a name that leads upward"),
        }
    }
    Ok(path)
}

fn names(path: &Path) -> Vec<std::ffi::OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_os_string()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    names.collect()
}

fn link_of(entry: &Entry<impl Read>) -> Result<PathBuf> {
    let name = entry.link_name_bytes();
    let name = name.ok_or_else(|| anyhow!("a link to nothing"))?;
    if name.len() > LONGEST {
        bail!("a link of {} bytes", name.len());
    }
    Ok(PathBuf::from(OsStr::from_bytes(&name)))
}

/// As the kernel writes a device's numbers into 32 bits.
fn device(header: &tar::Header) -> Result<u32> {
    let (major, minor) = (header.device_major()?, header.device_minor()?);
    let (major, minor) = (major.unwrap_or(0), minor.unwrap_or(0));
    Ok((minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use tar::{Builder, Header};

    /// A layer: "name=text" is a file, "name->target" a link, "name=>target" another name, and
    /// "name/" a directory.
    fn layer(entries: &[&str]) -> Vec<u8> {
        let mut archive = Builder::new(Vec::new());
        for entry in entries {
            let (kind, name, rest) = if let Some((name, target)) = entry.split_once("->") {
                (EntryType::Symlink, name, target)
            } else if let Some((name, target)) = entry.split_once("=>") {
                (EntryType::Link, name, target)
            } else if let Some((name, text)) = entry.split_once('=') {
                (EntryType::Regular, name, text)
            } else {
                (EntryType::Directory, *entry, "")
            };
            let mut header = Header::new_gnu();
            // As hostile names are written, which `Builder` refuses.
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(kind);
            header.set_mode(0o640);
            header.set_uid(7);
            header.set_gid(8);
            header.set_mtime(9);
            let data = match kind {
                EntryType::Regular => rest,
                _ => {
                    let field = &mut header.as_gnu_mut().unwrap().linkname;
                    field[..rest.len()].copy_from_slice(rest.as_bytes());
                    ""
                }
            };
            header.set_size(data.len() as u64);
            header.set_cksum();
            archive.append(&header, data.as_bytes()).unwrap();
        }
        archive.into_inner().unwrap()
    }

    fn merge(layers: &[&[&str]]) -> Result<Tree> {
        let mut tree = Tree::new(tempfile::tempfile().unwrap(), Interrupt::default());
        for entries in layers {
            tree.lay(&layer(entries)[..], true)?;
        }
        Ok(tree)
    }

    /// All but the root, as they are written for `layer`.
    fn listed(layers: &[&[&str]]) -> Vec<String> {
        let tree = merge(layers).unwrap();
        let line = |(path, node): (&PathBuf, &Node)| match &node.kind {
            Kind::File { start, length } => {
                let mut text = vec![0; *length as usize];
                tree.spool.read_exact_at(&mut text, *start).unwrap();
                format!("{}={}", path.display(), String::from_utf8(text).unwrap())
            }
            Kind::Link(target) => format!("{}->{}", path.display(), target.display()),
            _ => format!("{}/", path.display()),
        };
        tree.nodes.iter().skip(1).map(line).collect()
    }

    fn refused(layers: &[&[&str]]) -> String {
        format!("{:#}", merge(layers).map(drop).unwrap_err())
    }

    #[test]
    fn a_later_layer_wins_and_deletes() {
        let below: &[&str] = &["a/", "a/b=1", "a/c=2", "d/", "d/e/", "d/e/f=3", "g=4"];
        assert_eq!(
            listed(&[
                below,
                &["a/.wh.b=", "d/.wh..wh..opq=", "d/new=5", "g/", "g/h=6"]
            ]),
            ["a/", "a/c=2", "d/", "d/new=5", "g/", "g/h=6"]
        );
        // Of this layer nothing is deleted, in whatever order it comes.
        assert_eq!(
            listed(&[
                below,
                &[
                    "d/e/new=5",
                    "d/.wh.e=",
                    "d/.wh..wh.plnk=",
                    ".wh.a=",
                    ".wh.g="
                ]
            ]),
            ["d/", "d/e/", "d/e/new=5"]
        );
    }

    #[test]
    fn links_lead_where_the_guest_sees_them_lead() {
        let usr: &[&str] = &[
            "usr/lib/",
            "lib->usr/lib",
            "deep/x->../../../usr",
            "abs->/usr",
        ];
        assert_eq!(
            listed(&[usr, &["lib/l=1", "deep/x/m=2", "abs/n=3", "also=>lib/l"]]),
            [
                "abs->/usr",
                "also=1",
                "deep/",
                "deep/x->../../../usr",
                "lib->usr/lib",
                "usr/",
                "usr/lib/",
                "usr/lib/l=1",
                "usr/m=2",
                "usr/n=3"
            ]
        );
        assert!(refused(&[&["a->b", "b->a", "a/c=1"]]).contains("too many links"));
    }

    #[test]
    fn no_name_leads_out() {
        for name in ["../x=1", "a/../../x=1", "/../x=1", "..=1", "l=>../x"] {
            assert!(refused(&[&[name]]).contains("upward"), "{name}");
        }
        // Of this machine they say nothing.
        assert!(refused(&[&["l=>/etc/passwd"]]).contains("no file here"));
        assert_eq!(listed(&[&["/etc/x=1"]]), ["etc/", "etc/x=1"]);
        for name in [".wh.=", "a/.wh...=", ".wh..="] {
            assert!(
                refused(&[&["a/b=1"], &[name]]).contains("nothing"),
                "{name}"
            );
        }
        assert!(refused(&[&["a=1", "a/b=2"]]).contains("no directory"));
        assert!(refused(&[&["./->x"]]).contains("the root"));
    }

    #[test]
    fn names_that_no_kernel_takes_are_refused() {
        let long = "d/".repeat(2048);
        for (name, target, why) in [(&long[..], "x", "a name"), ("l", &long, "a link")] {
            let mut archive = Builder::new(Vec::new());
            let mut header = Header::new_gnu();
            header.set_entry_type(EntryType::Symlink);
            header.set_size(0);
            archive.append_link(&mut header, name, target).unwrap();
            let mut tree = Tree::new(tempfile::tempfile().unwrap(), Interrupt::default());
            let told = tree.lay(&archive.into_inner().unwrap()[..], true);
            let told = format!("{:#}", told.unwrap_err());
            assert!(told.contains(&format!("{why} of 4096 bytes")), "{told}");
        }
    }

    /// It takes seconds where each entry looks at a few, and hours where each looks at all.
    #[test]
    fn entries_do_not_look_at_all_others() {
        const MANY: usize = 100_000;
        let each =
            |entry: &dyn Fn(usize) -> String| -> Vec<String> { (0..MANY).map(entry).collect() };
        let below = each(&|n| format!("d{}/f{n}=", n % 100));
        // Files become links, links are replaced, half is deleted by name and the rest at once, and
        // what is deleted already is deleted once more.
        let replaced = each(&|n| format!("d{}/f{n}->x", n % 100));
        let mut last = each(&|n| match n % 2 {
            0 => format!("d{}/.wh.f{n}=", n % 100),
            _ => format!("d{}/g{n}->x", n % 100),
        });
        last.extend(each(&|n| match n % 2 {
            0 => format!("d{}/.wh..wh..opq=", n % 100),
            _ => ".wh.d1=".into(),
        }));
        let layers = [below, replaced, last];
        let layers = layers.each_ref().map(|layer| {
            let entries: Vec<_> = layer.iter().map(|entry| &entry[..]).collect();
            self::layer(&entries)
        });
        let begun = std::time::Instant::now();
        let mut tree = Tree::new(tempfile::tempfile().unwrap(), Interrupt::default());
        for layer in &layers {
            tree.lay(&layer[..], true).unwrap();
        }
        let took = begun.elapsed();
        // In d1 the new ones, and both in the others of odd numbers.
        let links = tree.nodes.values();
        let links = links.filter(|node| matches!(node.kind, Kind::Link(_)));
        assert_eq!(links.count(), 99 * MANY / 100);
        assert!(!tree.nodes.contains_key(Path::new("d1/f1")));
        assert!(tree.nodes.contains_key(Path::new("d1/g1")));
        assert!(took.as_secs() < 120, "{took:?}");
    }

    #[test]
    fn owners_and_modes_are_kept() {
        let tree = merge(&[&["a=1", "b/c=2"]]).unwrap();
        let of = |path: &str| {
            let node = &tree.nodes[Path::new(path)];
            (node.mode, node.uid, node.gid, node.mtime)
        };
        assert_eq!(of("a"), (0o640, 7, 8, 9));
        assert_eq!(of("b"), (0o755, 0, 0, 9));
    }
}
