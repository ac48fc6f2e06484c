// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Fat binaries: the code objects that a compiler has put together for several GPUs.
//!
//! A bundle is clang's ("Clang Offload Bundler", bundled binary file layout): a magic string, how
//! many there are, and for each its place, its size and the target that it is for. Programs that
//! hipcc links have one for each source file, in their section `.hip_fatbin`.

use crate::{Error, Result};
use object::{Object, ObjectSection};

const MAGIC: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
/// Of bundles that are compressed, which clang writes when asked to.
const COMPRESSED: &[u8] = b"CCOB";
const SECTION: &str = ".hip_fatbin";

/// A code object of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// What it is for, such as `hipv4-amdgcn-amd-amdhsa--gfx942`.
    pub(crate) target: &'a str,
    /// The file; empty for the host's entry.
    pub(crate) code: &'a [u8],
}

/// The bundles in `file`, in their order: itself, or those of the program that it is.
pub(crate) fn bundles(file: &[u8]) -> Result<Vec<Vec<Entry<'_>>>> {
    let mut found = Vec::new();
    if file.starts_with(MAGIC) || file.starts_with(COMPRESSED) {
        found.push(entries(file)?.0);
        return Ok(found);
    }
    let bad = |why: &str| Error::CodeObject(why.into());
    let elf = object::File::parse(file).map_err(|_| bad("it is neither ELF nor a bundle"))?;
    let section = elf
        .section_by_name(SECTION)
        .ok_or_else(|| bad("a program without code for a GPU"))?;
    let mut rest = section.data().map_err(|error| bad(&error.to_string()))?;
    // The linker aligns each; zeros are between them.
    while let Some(at) = rest.iter().position(|byte| *byte != 0) {
        let (these, end) = entries(&rest[at..])?;
        found.push(these);
        rest = &rest[at + end..];
    }
    Ok(found)
}

/// The entries of the bundle at the beginning of `bytes`, and where it ends.
fn entries(bytes: &[u8]) -> Result<(Vec<Entry<'_>>, usize)> {
    if bytes.starts_with(COMPRESSED) {
        let why = "the bundle is compressed: link without --offload-compress";
        return Err(Error::CodeObject(why.into()));
    }
    let read = || {
        let mut at = MAGIC.len();
        bytes.starts_with(MAGIC).then_some(())?;
        let count = take(bytes, &mut at)?;
        let (mut entries, mut end) = (Vec::new(), 0);
        for _ in 0..count {
            let (from, size) = (take(bytes, &mut at)?, take(bytes, &mut at)?);
            let length = take(bytes, &mut at)?;
            let target = bytes.get(at..at.checked_add(length)?)?;
            at += length;
            let to = from.checked_add(size)?;
            entries.push(Entry {
                target: std::str::from_utf8(target).ok()?,
                code: bytes.get(from..to)?,
            });
            end = end.max(to);
        }
        Some((entries, end.max(at)))
    };
    read().ok_or_else(|| Error::CodeObject("a bundle that is damaged or cut off".into()))
}

/// The number at `at`, which moves behind it.
fn take(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let number = bytes.get(*at..at.checked_add(8)?)?;
    *at += 8;
    usize::try_from(u64::from_le_bytes(number.try_into().ok()?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bundle as clang lays it out.
    fn bundle(of: &[(&str, &[u8])]) -> Vec<u8> {
        let head = MAGIC.len()
            + 8
            + of.iter()
                .map(|(target, _)| 24 + target.len())
                .sum::<usize>();
        let mut at = head.next_multiple_of(64);
        let mut bytes = MAGIC.to_vec();
        bytes.extend((of.len() as u64).to_le_bytes());
        for (target, code) in of {
            for number in [at, code.len(), target.len()] {
                bytes.extend((number as u64).to_le_bytes());
            }
            bytes.extend(target.as_bytes());
            at = (at + code.len()).next_multiple_of(64);
        }
        for (_, code) in of {
            bytes.resize(bytes.len().next_multiple_of(64), 0);
            bytes.extend(*code);
        }
        bytes
    }

    const HOST: (&str, &[u8]) = ("host-x86_64-unknown-linux--", b"");
    const GPU: (&str, &[u8]) = ("hipv4-amdgcn-amd-amdhsa--gfx942", b"\x7fELF one");
    const OTHER: (&str, &[u8]) = ("hipv4-amdgcn-amd-amdhsa--gfx90a:xnack+", b"\x7fELF other");

    #[test]
    fn a_bundle_has_its_entries() {
        let file = bundle(&[HOST, GPU, OTHER]);
        let found = bundles(&file).expect("whole");
        let found: Vec<_> = found[0].iter().map(|it| (it.target, it.code)).collect();
        assert_eq!(found, [HOST, GPU, OTHER]);
    }

    #[test]
    fn several_lie_one_behind_the_other() {
        let (one, mut two) = (bundle(&[HOST, GPU]), bundle(&[OTHER]));
        let (found, end) = entries(&one).expect("whole");
        assert_eq!((found.len(), end), (2, one.len()));
        two.extend(&one);
        assert_eq!(entries(&two).expect("whole").0[0].code, OTHER.1);
    }

    #[test]
    fn what_is_cut_off_or_damaged_is_refused() {
        let file = bundle(&[HOST, GPU]);
        for length in 0..file.len() {
            assert!(bundles(&file[..length]).is_err(), "{length} bytes");
        }
        for at in MAGIC.len()..120 {
            let mut damaged = file.clone();
            damaged[at] = 0xff;
            // Whatever it is, it does not read beyond the file.
            let _ = bundles(&damaged);
        }
        assert!(bundles(b"CCOB....").is_err_and(|why| why.to_string().contains("compressed")));
    }
}
