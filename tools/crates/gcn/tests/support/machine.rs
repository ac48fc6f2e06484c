// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A GPU for tests: a piece of memory, a loaded code object, and a loop over the work-groups of a
//! grid.
#![allow(dead_code, reason = "each test binary uses its part")]

use gcn::{
    Access, Apertures, CodeCache, Dispatch, Engine, Fault, Memory, Outcome, Scratch, Target,
};
use object::{Object, ObjectSegment, ObjectSymbol};
use std::collections::HashMap;

/// Where [`Ram`] begins.
pub const BASE: u64 = 0x7000_0000_0000;
/// The flat windows.
pub const APERTURES: Apertures = Apertures {
    shared: 0x1_0000_0000_0000,
    private: 0x2_0000_0000_0000,
};

/// Memory from [`BASE`] on.
pub struct Ram {
    /// Its bytes.
    pub bytes: Vec<u8>,
    ticks: u64,
    used: usize,
}

impl Ram {
    /// `size` bytes of zeros.
    pub fn new(size: usize) -> Ram {
        Ram {
            bytes: vec![0; size],
            ticks: 0,
            used: 0,
        }
    }

    /// Room for `size` bytes: its address.
    pub fn allocate(&mut self, size: usize) -> u64 {
        let at = self.used.next_multiple_of(4096);
        self.used = at + size;
        assert!(self.used <= self.bytes.len(), "test memory is large enough");
        BASE + at as u64
    }

    /// How much is used, for [`Ram::release`].
    pub fn mark(&self) -> usize {
        self.used
    }

    /// Gives back, zeroed, what was allocated since the mark.
    pub fn release(&mut self, mark: usize) {
        self.bytes[mark..self.used].fill(0);
        self.used = mark;
    }

    /// A copy of `values` in memory: its address.
    pub fn place<T: Value>(&mut self, values: &[T]) -> u64 {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.bytes()).collect();
        let address = self.allocate(bytes.len());
        self.write(address, &bytes).expect("it was just allocated");
        address
    }

    /// `count` values from `address` on.
    pub fn take<T: Value>(&self, address: u64, count: usize) -> Vec<T> {
        let at = (address - BASE) as usize;
        self.bytes[at..at + count * T::SIZE]
            .chunks_exact(T::SIZE)
            .map(T::from_bytes)
            .collect()
    }

    /// The same, with what is allocated.
    fn copy(&self) -> Ram {
        let mut bytes = vec![0; self.bytes.len()];
        bytes[..self.used].copy_from_slice(&self.bytes[..self.used]);
        Ram { bytes, ..*self }
    }

    fn range(&self, address: u64, length: usize, access: Access) -> Result<usize, Fault> {
        let at = address.wrapping_sub(BASE) as usize;
        match at.checked_add(length) {
            Some(end) if address >= BASE && end <= self.bytes.len() => Ok(at),
            _ => Err(Fault { address, access }),
        }
    }
}

impl Memory for Ram {
    fn fetch(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        assert!(
            address / 64 == (address + bytes.len() as u64 - 1) / 64,
            "a fetch stays in its line"
        );
        let at = self.range(address, bytes.len(), Access::Fetch)?;
        bytes.copy_from_slice(&self.bytes[at..at + bytes.len()]);
        Ok(())
    }

    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let at = self.range(address, bytes.len(), Access::Read)?;
        bytes.copy_from_slice(&self.bytes[at..at + bytes.len()]);
        Ok(())
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let at = self.range(address, bytes.len(), Access::Write)?;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn update32(&mut self, address: u64, update: &mut dyn FnMut(u32) -> u32) -> Result<u32, Fault> {
        let at = self.range(address, 4, Access::Atomic)?;
        let old = u32::from_bytes(&self.bytes[at..at + 4]);
        self.bytes[at..at + 4].copy_from_slice(&update(old).to_le_bytes());
        Ok(old)
    }

    fn update64(&mut self, address: u64, update: &mut dyn FnMut(u64) -> u64) -> Result<u64, Fault> {
        let at = self.range(address, 8, Access::Atomic)?;
        let old = u64::from_bytes(&self.bytes[at..at + 8]);
        self.bytes[at..at + 8].copy_from_slice(&update(old).to_le_bytes());
        Ok(old)
    }

    fn realtime(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }
}

/// What can lie in memory.
pub trait Value: Copy {
    /// Its bytes' number.
    const SIZE: usize;
    /// Its bytes.
    fn bytes(self) -> Vec<u8>;
    /// From its bytes.
    fn from_bytes(bytes: &[u8]) -> Self;
}

macro_rules! values {
    ($($ty:ty)*) => {
        $(impl Value for $ty {
            const SIZE: usize = size_of::<$ty>();
            fn bytes(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
            fn from_bytes(bytes: &[u8]) -> Self {
                <$ty>::from_le_bytes(bytes.try_into().expect("as many bytes as it has"))
            }
        })*
    };
}
values! { u8 i8 u16 i16 u32 i32 u64 i64 f32 f64 }

/// A loaded code object.
pub struct Program {
    symbols: HashMap<String, u64>,
    target: Target,
}

/// One kernel's descriptor (LLVM's AMDGPU usage guide, "Kernel Descriptor").
struct Descriptor {
    lds: u32,
    scratch: u32,
    entry: u64,
    rsrc: [u32; 3],
    properties: u16,
}

impl Program {
    /// Loads the segments of a linked code object of gfx942.
    pub fn load(elf: &[u8], ram: &mut Ram) -> Program {
        Program::load_for(Target::Gfx942, elf, ram)
    }

    /// The same for another processor.
    pub fn load_for(target: Target, elf: &[u8], ram: &mut Ram) -> Program {
        let file = object::File::parse(elf).expect("the linker made an ELF file");
        let end = file
            .segments()
            .map(|segment| segment.address() + segment.size())
            .max();
        let base = ram.allocate(end.expect("it has segments") as usize);
        for segment in file.segments() {
            let data = segment.data().expect("segments are in the file");
            ram.write(base + segment.address(), data)
                .expect("there is room");
        }
        let symbols = file.dynamic_symbols().chain(file.symbols());
        let named =
            |symbol: object::Symbol| Some((symbol.name().ok()?.into(), base + symbol.address()));
        Program {
            symbols: symbols.filter_map(named).collect(),
            target,
        }
    }

    fn descriptor(&self, kernel: &str, ram: &Ram) -> Descriptor {
        let address = self.symbols[&format!("{kernel}.kd")];
        let word = |at: u64| ram.take::<u32>(address + at, 1)[0];
        let offset = i64::from(word(16)) | i64::from(word(20)) << 32;
        Descriptor {
            lds: word(0),
            scratch: word(4),
            entry: address.wrapping_add_signed(offset),
            rsrc: [word(48), word(52), word(44)],
            properties: word(56) as u16,
        }
    }

    /// Runs a kernel over a grid of work-items. `arguments` are the explicit ones, laid out. All
    /// engines have to leave the same memory, after as many instructions.
    pub fn run(
        &self,
        ram: &mut Ram,
        kernel: &str,
        arguments: &[u8],
        grid: [u32; 3],
        group: [u32; 3],
    ) -> u64 {
        let others: Vec<(Engine, Ram, u64)> = Engine::all()
            .into_iter()
            .filter(|engine| *engine != Engine::default())
            .map(|engine| {
                let mut ram = ram.copy();
                let work = (kernel, arguments, grid, group);
                let executed = self.run_on(engine, &mut ram, work);
                (engine, ram, executed)
            })
            .collect();
        let work = (kernel, arguments, grid, group);
        let executed = self.run_on(Engine::default(), ram, work);
        for (engine, other, count) in others {
            assert!(
                other.bytes[..other.used] == ram.bytes[..ram.used],
                "{kernel}: {engine:?} leaves other memory"
            );
            assert_eq!(count, executed, "{kernel}: {engine:?}");
        }
        executed
    }

    fn run_on(
        &self,
        engine: Engine,
        ram: &mut Ram,
        (kernel, arguments, grid, group): (&str, &[u8], [u32; 3], [u32; 3]),
    ) -> u64 {
        let descriptor = self.descriptor(kernel, ram);
        let kernarg = place_arguments(ram, arguments, grid, group);
        let packet = place_packet(ram, grid, group);
        let wave_bytes = u64::from(descriptor.scratch) * 64;
        let waves = u64::from(group.iter().product::<u32>().div_ceil(64));
        let scratch = ram.allocate((wave_bytes * waves) as usize);
        let mut dispatch = Dispatch {
            target: self.target,
            entry: descriptor.entry,
            pgm_rsrc1: descriptor.rsrc[0],
            pgm_rsrc2: descriptor.rsrc[1],
            pgm_rsrc3: descriptor.rsrc[2],
            user_sgprs: user_sgprs(descriptor.properties, packet, kernarg, scratch),
            workgroup_size: group,
            lds_bytes: descriptor.lds,
            apertures: APERTURES,
            tba: 0,
            tma: 0,
        };
        dispatch.user_sgprs.truncate(16);
        let mut code = CodeCache::with(self.target, engine);
        let mut executed = 0;
        let groups: Vec<u32> = (0..3)
            .map(|axis| grid[axis].div_ceil(group[axis]))
            .collect();
        for id in (0..groups[2]).flat_map(|z| {
            let groups = &groups;
            (0..groups[1]).flat_map(move |y| (0..groups[0]).map(move |x| [x, y, z]))
        }) {
            let size =
                std::array::from_fn(|axis| group[axis].min(grid[axis] - id[axis] * group[axis]));
            let scratch = Scratch {
                base: scratch,
                wave_bytes,
                ring: scratch,
            };
            let mut workgroup = dispatch.workgroup(id, size, scratch);
            // Small budgets: a kernel must survive being stopped and resumed anywhere.
            loop {
                match workgroup.run(ram, &mut code, 997) {
                    Outcome::Budget => {}
                    Outcome::Done => break,
                    other => panic!("{kernel}: {other:?}"),
                }
                assert!(workgroup.executed < 50_000_000, "{kernel} ends");
            }
            executed += workgroup.executed;
        }
        executed
    }
}

/// Explicit arguments, then the hidden ones of code object version 5: block counts, group sizes,
/// remainders.
fn place_arguments(ram: &mut Ram, arguments: &[u8], grid: [u32; 3], group: [u32; 3]) -> u64 {
    let mut bytes = arguments.to_vec();
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    for axis in 0..3 {
        bytes.extend((grid[axis] / group[axis]).to_le_bytes());
    }
    for size in group {
        bytes.extend((size as u16).to_le_bytes());
    }
    for axis in 0..3 {
        bytes.extend(((grid[axis] % group[axis]) as u16).to_le_bytes());
    }
    bytes.resize(bytes.len() + 256, 0);
    ram.place(&bytes)
}

/// The fields of an AQL dispatch packet that kernels read: sizes of work-group (at 4) and grid (at
/// 12).
fn place_packet(ram: &mut Ram, grid: [u32; 3], group: [u32; 3]) -> u64 {
    let mut words = [0u32; 16];
    words[1] = group[0] | group[1] << 16;
    words[2] = group[2];
    words[3..6].copy_from_slice(&grid);
    ram.place(&words)
}

/// User SGPRs by KERNEL_CODE_PROPERTIES: a buffer and the address of scratch, packet, arguments;
/// queue pointer and dispatch id are zero here.
fn user_sgprs(properties: u16, packet: u64, kernarg: u64, scratch: u64) -> Vec<u32> {
    let low_high = |value: u64| vec![value as u32, (value >> 32) as u32];
    // Swizzled by dwords of 64 lanes.
    let mut buffer = low_high(scratch | 1 << 63);
    buffer.extend([u32::MAX, 1 << 19 | 3 << 21 | 1 << 23]);
    let values = [
        buffer,
        low_high(packet),
        low_high(0),
        low_high(kernarg),
        low_high(0),
        low_high(scratch),
        vec![0],
    ];
    let wanted = (0..).zip(values);
    wanted
        .filter(|(bit, _)| properties >> bit & 1 != 0)
        .flat_map(|(_, value)| value)
        .collect()
}

/// Lays out arguments in order, each at a multiple of its size.
#[derive(Default)]
pub struct Arguments(Vec<u8>);

impl Arguments {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more.
    pub fn with<T: Value>(mut self, value: T) -> Self {
        self.0.resize(self.0.len().next_multiple_of(T::SIZE), 0);
        self.0.extend(value.bytes());
        self
    }

    /// All of them.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}
