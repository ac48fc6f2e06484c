// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`CodeObject`]: an ELF file for an AMD GPU, loaded; [`Kernel`]: one entry of it.
//!
//! The format is LLVM's "User Guide for AMDGPU Backend", code object V4 and V5.

mod relocations;

use self::relocations::relocations;
use crate::builder::LaunchBuilder;
use crate::bundle::{bundles, Entry};
use crate::pool::Pool;
use crate::print::Format;
use crate::{Error, Result};
use kfd::{Device, Memory};
use object::elf;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{LittleEndian, Object, ObjectSymbol};
use rmpv::Value;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

type Elf<'a> = ElfFile64<'a, LittleEndian>;

/// The note with the kernels' metadata, in MessagePack: `NT_AMDGPU_METADATA`.
const NT_AMDGPU_METADATA: u32 = 32;
const DESCRIPTOR_SIZE: u64 = 64;

/// A code object in a GPU's memory. Its kernels keep it there.
#[derive(Debug)]
pub struct CodeObject {
    memory: Memory,
    kernels: Vec<Kernel>,
    formats: Option<Vec<Format>>,
    arguments: Pool,
    /// Of what instruction caches must have forgotten before it runs: see [`Past`].
    generation: u64,
}

/// What a code object says of one of its kernels.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Kernel {
    /// Its name in the source.
    pub name: String,
    /// The GPU address of its descriptor.
    pub descriptor: u64,
    /// Bytes of arguments.
    pub kernarg_size: usize,
    /// Bytes of local data share that it always uses.
    pub group_segment: u32,
    /// Bytes of scratch for each work-item; the least, where the stack is dynamic.
    pub private_segment: u32,
    /// Whether it may need more scratch than that, and the compiler does not know how much: it
    /// recurses, calls by pointer, or has arrays of a size known at run time.
    pub dynamic_stack: bool,
    /// The most work-items in a work-group.
    pub max_workgroup: u32,
    /// The only work-group that it is compiled for, where there is only one.
    pub required_workgroup: Option<[u32; 3]>,
    /// Its arguments, hidden ones included.
    pub arguments: Vec<Argument>,
}

/// One argument of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Argument {
    /// Where it lies among the arguments, in bytes.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
    /// Such as `global_buffer`, `by_value`, `hidden_block_count_x`.
    pub kind: String,
}

impl Argument {
    /// Whether the runtime gives it, and not who launches the kernel.
    pub fn is_hidden(&self) -> bool {
        self.kind.starts_with("hidden_")
    }
}

/// Where this process has had code. GPUs keep instructions in caches that no packet's fence
/// empties: code that lies where other code was needs an invalidation before it runs.
#[derive(Debug)]
struct Past {
    ranges: Mutex<Vec<(u64, u64)>>,
    generations: AtomicU64,
}

impl Past {
    /// A new place of code. Its generation: 0 where none was before; else a number larger than all
    /// before, and every queue must have invalidated as much.
    fn place(&self, from: u64, to: u64) -> u64 {
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = ranges.iter().all(|had| to <= had.0 || had.1 <= from);
        if !ranges.contains(&(from, to)) {
            ranges.push((from, to));
        }
        match is_new {
            true => 0,
            false => self.generations.fetch_add(1, Ordering::Relaxed) + 1,
        }
    }
}

static PAST: Past = Past {
    ranges: Mutex::new(Vec::new()),
    generations: AtomicU64::new(0),
};

impl CodeObject {
    /// Loads `file` for `device`, if it is made for that GPU.
    pub fn load(device: &Arc<Device>, file: &[u8]) -> Result<Arc<Self>> {
        let elf = parse(file)?;
        let metadata = metadata(&elf, file)?;
        let version = device.node().property("gfx_target_version");
        Target::of(&metadata)?.check(version, || Ok(device.kfd().xnack()?))?;
        let size = span(&elf, file)?;
        let memory = Memory::vram(device, size)?;
        copy_segments(&elf, file, &memory)?;
        relocate(&elf, &memory)?;
        let kernels = kernels(&elf, &metadata, memory.address(), size as u64)?;
        let formats = Format::all(&metadata)?;
        let (from, size) = (memory.address(), memory.size() as u64);
        Ok(Arc::new(Self {
            arguments: Pool::new(device),
            generation: PAST.place(from, from + size),
            memory,
            kernels,
            formats,
        }))
    }

    /// Loads the code objects for this GPU out of a fat binary, which is a bundle of clang's, or a
    /// program that hipcc has linked: one of each source file that has code for it.
    ///
    /// `CodeObject`: it is no such file, or has none for this GPU in this mode; then the error says
    /// what it has.
    pub fn load_fat(device: &Arc<Device>, file: &[u8]) -> Result<Vec<Arc<Self>>> {
        let version = device.node().property("gfx_target_version");
        let bundles = bundles(file)?;
        let mut loaded = Vec::new();
        for bundle in &bundles {
            if let Some(entry) = choose(bundle, version, || Ok(device.kfd().xnack()?))? {
                loaded.push(Self::load(device, entry.code)?);
            }
        }
        if loaded.is_empty() {
            let targets = bundles.iter().flatten().map(|entry| entry.target);
            let targets: Vec<_> = targets.collect();
            let (gpu, targets) = (processor(version), targets.join(", "));
            return Err(bad(format!("nothing for {gpu} in it: there is {targets}")));
        }
        Ok(loaded)
    }

    /// Begins a launch of the kernel called `name`.
    ///
    /// `CodeObject`: there is none of that name.
    pub fn launch(self: &Arc<Self>, name: &str) -> Result<LaunchBuilder> {
        LaunchBuilder::new(self, name)
    }

    /// Where launches have their arguments.
    pub(crate) fn arguments(&self) -> &Pool {
        &self.arguments
    }

    /// What its kernels print; None if they do so as HIP's, which nobody here reads.
    pub(crate) fn formats(&self) -> Option<&[Format]> {
        self.formats.as_deref()
    }

    /// What a queue must have invalidated before it runs this code.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Loads that one of several, of the same kernels for different GPUs, which is made for this
    /// one. Empty files are left out.
    pub fn load_one_of(device: &Arc<Device>, files: &[&[u8]]) -> Result<Arc<Self>> {
        let version = device.node().property("gfx_target_version");
        let fits = |file: &&&[u8]| {
            let elf = parse(file).ok();
            let metadata = elf.and_then(|elf| metadata(&elf, file).ok());
            let target = metadata.as_ref().and_then(|it| Target::of(it).ok());
            target.is_some_and(|target| target.is_of(version))
        };
        let found = files.iter().find(fits);
        let file = found.ok_or_else(|| bad(format!("none is made for {}", processor(version))))?;
        Self::load(device, file)
    }

    /// The kernel called `name`.
    pub fn kernel(&self, name: &str) -> Result<&Kernel> {
        let found = self.kernels.iter().find(|kernel| kernel.name == name);
        found.ok_or_else(|| {
            let known: Vec<_> = self
                .kernels
                .iter()
                .map(|kernel| kernel.name.as_str())
                .collect();
            bad(format!("no kernel {name}; there are: {}", known.join(", ")))
        })
    }

    /// All kernels.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// Where it lies.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }
}

/// The entry for this GPU: one that says how accesses that miss are treated before one that runs
/// either way.
fn choose<'a>(
    bundle: &[Entry<'a>],
    version: u64,
    xnack: impl Fn() -> Result<bool>,
) -> Result<Option<Entry<'a>>> {
    let mut chosen = None;
    for entry in bundle {
        // "hipv4-amdgcn-amd-amdhsa--gfx942": the kind of program is before the target.
        let target = entry.target.split_once('-').map(|(_, target)| target);
        let Some(target) = target.and_then(Target::parse) else {
            continue;
        };
        match target.xnack {
            _ if !target.is_of(version) => {}
            Some(wanted) if wanted == xnack()? => return Ok(Some(*entry)),
            Some(_) => {}
            None => chosen = chosen.or(Some(*entry)),
        }
    }
    Ok(chosen)
}

fn bad(reason: impl Into<String>) -> Error {
    Error::CodeObject(reason.into())
}

fn parse(file: &[u8]) -> Result<Elf<'_>> {
    let elf = Elf::parse(file).map_err(|error| bad(error.to_string()))?;
    let machine = elf.elf_header().e_machine(LittleEndian);
    if machine != elf::EM_AMDGPU {
        return Err(bad(format!(
            "made for machine {machine}, not for an AMD GPU ({})",
            elf::EM_AMDGPU
        )));
    }
    Ok(elf)
}

/// Where one PT_LOAD segment lies in the file and in memory.
struct Segment<'a> {
    address: usize,
    data: &'a [u8],
    size: usize,
}

fn segments<'a>(elf: &Elf<'a>, file: &'a [u8]) -> Result<Vec<Segment<'a>>> {
    let endian = LittleEndian;
    let loads = elf
        .elf_program_headers()
        .iter()
        .filter(|header| header.p_type(endian) == elf::PT_LOAD);
    loads
        .map(|header| {
            let data = header
                .data(endian, file)
                .map_err(|()| bad("a segment lies beyond the file"))?;
            let (address, size) = (
                header.p_vaddr(endian) as usize,
                header.p_memsz(endian) as usize,
            );
            Ok(Segment {
                address,
                data,
                size: size.max(data.len()),
            })
        })
        .collect()
}

/// The largest object that is loaded: code objects of whole libraries stay far below.
const LIMIT: usize = 1 << 30;

fn span(elf: &Elf<'_>, file: &[u8]) -> Result<usize> {
    let ends = segments(elf, file)?
        .iter()
        .map(|segment| segment.address.checked_add(segment.size))
        .collect::<Option<Vec<_>>>();
    let end = ends
        .and_then(|ends| ends.into_iter().max())
        .filter(|end| *end <= LIMIT);
    end.ok_or_else(|| bad("it has no segments to load, or segments that can't be in memory"))
}

fn copy_segments(elf: &Elf<'_>, file: &[u8], memory: &Memory) -> Result<()> {
    for segment in segments(elf, file)? {
        memory.write(segment.address, segment.data);
        memory.write(
            segment.address + segment.data.len(),
            &vec![0u8; segment.size - segment.data.len()],
        );
    }
    Ok(())
}

/// Applies the dynamic relocations, which linkers emit for addresses in memory: tables of them, and
/// those of variables that another object might have replaced.
fn relocate(elf: &Elf<'_>, memory: &Memory) -> Result<()> {
    for (offset, value) in relocations(elf, memory.address())? {
        let offset = usize::try_from(offset)
            .ok()
            .filter(|at| at % 8 == 0 && at.checked_add(8).is_some_and(|to| to <= memory.size()));
        memory.write(
            offset.ok_or_else(|| bad("a relocation lies beyond the segments"))?,
            &[value],
        );
    }
    Ok(())
}

/// What a code object is made for: its target id, such as
/// `amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-`.
#[derive(Debug, PartialEq, Eq)]
struct Target<'a> {
    processor: &'a str,
    /// Whether it runs only where accesses are retried, or only where they are not.
    xnack: Option<bool>,
}

impl<'a> Target<'a> {
    fn of(metadata: &'a Value) -> Result<Self> {
        let name = field(metadata, "amdhsa.target").and_then(Value::as_str);
        let name = name.ok_or_else(|| bad("it does not say for which GPU it is made"))?;
        Self::parse(name).ok_or_else(|| bad(format!("made for {name}, not for an AMD GPU")))
    }

    fn parse(name: &'a str) -> Option<Self> {
        let id = name.strip_prefix("amdgcn-amd-amdhsa-")?;
        let (_, id) = id.split_once('-')?;
        let mut parts = id.split(':');
        let processor = parts.next().filter(|name| !name.is_empty())?;
        let xnack = parts.find_map(|feature| match feature {
            "xnack+" => Some(true),
            "xnack-" => Some(false),
            _ => None,
        });
        Some(Self { processor, xnack })
    }

    /// Whether this GPU executes it.
    fn is_of(&self, version: u64) -> bool {
        self.processor == processor(version) || self.is_generic_of(version)
    }

    /// Refuses a GPU of another instruction set, and a process in the other mode.
    fn check(&self, version: u64, xnack: impl FnOnce() -> Result<bool>) -> Result<()> {
        let gpu = processor(version);
        if !self.is_of(version) {
            return Err(bad(format!(
                "made for {}: this GPU is {gpu}",
                self.processor
            )));
        }
        match self.xnack {
            Some(wanted) if wanted != xnack()? => {
                let (made, is) = if wanted {
                    ("xnack+", "off")
                } else {
                    ("xnack-", "on")
                };
                Err(bad(format!(
                    "made for {made}, and XNACK is {is} in this process"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Whether it is for all GPUs of a family (LLVM's generic processors), and this is one of them.
    fn is_generic_of(&self, version: u64) -> bool {
        let members: &[u64] = match self.processor {
            "gfx9-generic" => &[90000, 90002, 90004, 90006, 90009, 90012],
            "gfx9-4-generic" => &[90402, 90500],
            _ => &[],
        };
        members.contains(&version)
    }
}

/// The name of the processor of that `gfx_target_version`: 90402 is gfx942, 90010 gfx90a.
fn processor(version: u64) -> String {
    let (major, minor, step) = (version / 10000, version / 100 % 100, version % 100);
    format!("gfx{major}{minor:x}{step:x}")
}

fn kernels(elf: &Elf<'_>, metadata: &Value, base: u64, size: u64) -> Result<Vec<Kernel>> {
    let list = field(metadata, "amdhsa.kernels").and_then(Value::as_array);
    list.ok_or_else(|| bad("its metadata lists no kernels"))?
        .iter()
        .map(|entry| kernel(elf, entry, base, size))
        .collect()
}

fn metadata(elf: &Elf<'_>, file: &[u8]) -> Result<Value> {
    for header in elf.elf_program_headers() {
        let notes = header
            .notes(LittleEndian, file)
            .map_err(|error| bad(error.to_string()))?;
        let Some(mut notes) = notes else { continue };
        while let Some(note) = notes.next().map_err(|error| bad(error.to_string()))? {
            if note.name() == b"AMDGPU" && note.n_type(LittleEndian) == NT_AMDGPU_METADATA {
                return rmpv::decode::read_value(&mut note.desc())
                    .map_err(|error| bad(error.to_string()));
            }
        }
    }
    Err(bad(
        "it has no metadata note: is it older than code object V3?",
    ))
}

fn kernel(elf: &Elf<'_>, entry: &Value, base: u64, size: u64) -> Result<Kernel> {
    let name = text(entry, ".name")?;
    let symbol_name = text(entry, ".symbol")?;
    let symbol = elf
        .dynamic_symbols()
        .find(|symbol| symbol.name() == Ok(symbol_name.as_str()));
    let symbol = symbol.ok_or_else(|| bad(format!("no symbol {symbol_name}")))?;
    if symbol
        .address()
        .checked_add(DESCRIPTOR_SIZE)
        .is_none_or(|end| end > size)
    {
        return Err(bad(format!("{symbol_name} lies beyond the segments")));
    }
    let arguments = field(entry, ".args")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let kernarg_size = usize::try_from(number(entry, ".kernarg_segment_size")?)
        .ok()
        .filter(|size| *size <= MOST_ARGUMENTS)
        .ok_or_else(|| bad(format!("{name} has too many arguments")))?;
    let arguments = arguments
        .iter()
        .map(|entry| argument(entry, kernarg_size))
        .collect::<Result<_>>()?;
    Ok(Kernel {
        name,
        descriptor: base + symbol.address(),
        kernarg_size,
        required_workgroup: required_workgroup(entry),
        group_segment: number(entry, ".group_segment_fixed_size")? as u32,
        private_segment: number(entry, ".private_segment_fixed_size")? as u32,
        dynamic_stack: dynamic_stack(entry),
        max_workgroup: number(entry, ".max_flat_workgroup_size")? as u32,
        arguments,
    })
}

/// Bytes of arguments that a kernel can have, far beyond what compilers permit.
const MOST_ARGUMENTS: usize = 1 << 16;

/// An argument within the `kernarg_size` bytes of all.
fn argument(entry: &Value, kernarg_size: usize) -> Result<Argument> {
    let (offset, size) = (number(entry, ".offset")?, number(entry, ".size")?);
    if offset
        .checked_add(size)
        .is_none_or(|end| end > kernarg_size as u64)
    {
        return Err(bad(format!(
            "an argument of {size} bytes at {offset} of {kernarg_size}"
        )));
    }
    Ok(Argument {
        offset: offset as usize,
        size: size as usize,
        kind: text(entry, ".value_kind")?,
    })
}

/// Code object V5 and later says it; before, the fixed size has a guess of the stack's.
fn dynamic_stack(entry: &Value) -> bool {
    let said = field(entry, ".uses_dynamic_stack");
    said.and_then(Value::as_bool).unwrap_or(false)
}

fn required_workgroup(entry: &Value) -> Option<[u32; 3]> {
    let sizes = field(entry, ".reqd_workgroup_size")?.as_array()?;
    let sizes: Vec<_> = sizes
        .iter()
        .filter_map(|size| u32::try_from(size.as_u64()?).ok())
        .collect();
    sizes.try_into().ok()
}

pub(crate) fn field<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    map.as_map()?
        .iter()
        .find(|(key, _)| key.as_str() == Some(name))
        .map(|(_, value)| value)
}

fn text(map: &Value, name: &str) -> Result<String> {
    let value = field(map, name).and_then(Value::as_str);
    value
        .map(str::to_owned)
        .ok_or_else(|| bad(format!("its metadata has no {name}")))
}

fn number(map: &Value, name: &str) -> Result<u64> {
    field(map, name)
        .and_then(Value::as_u64)
        .ok_or_else(|| bad(format!("its metadata has no {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, version: u64, xnack: bool) -> Result<()> {
        let target = Target::parse(name).ok_or_else(|| bad("no target"))?;
        target.check(version, || Ok(xnack))
    }

    #[test]
    fn a_processor_is_named_as_llvm_does() {
        let named = [90402, 90010, 110_000, 120_001, 90000].map(processor);
        assert_eq!(named, ["gfx942", "gfx90a", "gfx1100", "gfx1201", "gfx900"]);
    }

    #[test]
    fn an_object_for_another_gpu_is_refused() {
        assert!(check("amdgcn-amd-amdhsa--gfx942", 90402, false).is_ok());
        assert!(check("amdgcn-amd-amdhsa-unknown-gfx942", 90402, false).is_ok());
        assert!(check("amdgcn-amd-amdhsa--gfx9-4-generic", 90402, false).is_ok());
        let error = check("amdgcn-amd-amdhsa--gfx1100", 90402, false).expect_err("another ISA");
        let said = error.to_string();
        assert!(
            said.contains("gfx1100") && said.contains("gfx942"),
            "{said}"
        );
        assert!(check("amdgcn-amd-amdhsa--gfx9-generic", 90402, false).is_err());
        assert!(check("amdgcn-amd-amdhsa--gfx94", 90402, false).is_err());
        assert!(check("x86_64-unknown-linux-gnu", 90402, false).is_err());
        assert!(check("amdgcn-amd-amdhsa--", 90402, false).is_err());
    }

    #[test]
    fn an_object_for_the_other_xnack_mode_is_refused() {
        let plus = "amdgcn-amd-amdhsa--gfx942:sramecc+:xnack+";
        let minus = "amdgcn-amd-amdhsa--gfx942:xnack-";
        assert!(check(plus, 90402, true).is_ok() && check(plus, 90402, false).is_err());
        assert!(check(minus, 90402, false).is_ok() && check(minus, 90402, true).is_err());
        let asked = || -> Result<bool> { panic!("it does not matter to this object") };
        let any = Target::parse("amdgcn-amd-amdhsa--gfx942:sramecc-").expect("a target");
        assert!(any.check(90402, asked).is_ok());
    }

    #[test]
    fn an_object_that_does_not_say_is_refused() {
        let metadata = Value::Map(vec![("amdhsa.kernels".into(), Value::Array(Vec::new()))]);
        assert!(Target::of(&metadata).is_err());
    }

    #[test]
    fn the_entry_that_says_most_is_chosen() {
        let all = [
            "host-x86_64-unknown-linux--",
            "hipv4-amdgcn-amd-amdhsa--gfx90a",
            "hipv4-amdgcn-amd-amdhsa--gfx942",
            "hipv4-amdgcn-amd-amdhsa--gfx942:xnack+",
            "hipv4-amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-",
        ];
        let chosen = |targets: &[&'static str], version, xnack| {
            let bundle: Vec<_> = targets
                .iter()
                .map(|target| Entry { target, code: b"" })
                .collect();
            let entry = choose(&bundle, version, || Ok(xnack)).expect("no error");
            entry.map(|entry| entry.target)
        };
        assert_eq!(chosen(&all, 90402, true), Some(all[3]));
        assert_eq!(chosen(&all, 90402, false), Some(all[4]));
        assert_eq!(chosen(&all[..4], 90402, false), Some(all[2]));
        assert_eq!(chosen(&all, 90010, false), Some(all[1]));
        assert_eq!(chosen(&all[3..4], 90402, false), None);
        assert_eq!(chosen(&all, 90500, false), None);
    }

    #[test]
    fn code_where_code_was_has_a_generation() {
        let past = Past {
            ranges: Mutex::default(),
            generations: AtomicU64::new(0),
        };
        assert_eq!(past.place(0x1000, 0x3000), 0);
        assert_eq!(past.place(0x3000, 0x4000), 0);
        assert_eq!(past.place(0x2000, 0x3000), 1);
        assert_eq!(past.place(0x1000, 0x3000), 2);
        assert_eq!(past.place(0x0, 0x1000), 0);
    }

    #[test]
    fn arguments_lie_within_the_kernels() {
        let of = |offset: u64, size: u64| {
            let entry = Value::Map(vec![
                (".offset".into(), offset.into()),
                (".size".into(), size.into()),
                (".value_kind".into(), "by_value".into()),
            ]);
            argument(&entry, 64).is_ok()
        };
        assert!(of(56, 8) && of(0, 64));
        assert!(!of(60, 8) && !of(1 << 40, 8) && !of(u64::MAX - 7, 8) && !of(8, u64::MAX));
        let sizes = Value::Array(vec![16.into(), 16.into(), 1.into()]);
        let entry = Value::Map(vec![(".reqd_workgroup_size".into(), sizes)]);
        assert_eq!(required_workgroup(&entry), Some([16, 16, 1]));
    }

    #[test]
    fn a_dynamic_stack_is_told() {
        let said = |value: Value| Value::Map(vec![(".uses_dynamic_stack".into(), value)]);
        assert!(dynamic_stack(&said(true.into())));
        assert!(!dynamic_stack(&said(false.into())));
        assert!(!dynamic_stack(&Value::Map(Vec::new())));
    }
}
