// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Fuzz targets: what a bad guest, or a bad QEMU, can say to the GPU model. Each takes any bytes
//! and must neither panic nor hang nor use more and more memory. `cargo fuzz` drives them
//! ([`TARGETS`], feature `libfuzzer`), and so does `gpu-fuzz`, with bytes of its own and for so
//! long only.

mod engines;
pub mod gpu;
pub mod input;
mod vfio;

pub use engines::engines;
use gpu::{Gpu, Queue, FB, VRAM};
use input::Input;
pub use vfio::vfio;

/// A target by its name.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: [Target; 8] = [
    ("vfio", vfio),
    ("mmio", mmio),
    ("pm4", pm4),
    ("sdma", sdma),
    ("aql", aql),
    ("instructions", instructions),
    ("engines", engines),
    ("firmware", firmware),
];

/// Registers that are worth a try: all that there are.
fn some_register(gpu: &Gpu, input: &mut Input<'_>) -> u64 {
    let blocks = gpu.model.chip().bus.blocks();
    let registers = blocks[usize::from(input.u8()) % blocks.len()].registers();
    match registers.len() {
        0 => 0,
        count => registers[usize::from(input.u16()) % count].dword,
    }
}

/// Registers, doorbells and configuration space in any order.
pub fn mmio(data: &[u8]) {
    let (gpu, mut input) = (Gpu::new(), Input::new(data));
    while !input.is_empty() {
        match input.u8() & 7 {
            0 => drop(gpu.read(u64::from(input.u32() & 0x7_ffff))),
            1 => gpu.write(u64::from(input.u32() & 0x7_ffff), input.word()),
            2 => drop(gpu.read(some_register(&gpu, &mut input))),
            3 | 4 => gpu.write(some_register(&gpu, &mut input), input.word()),
            5 => gpu.ring(u32::from(input.u16()) & 0xfff, input.word().into()),
            6 => gpu
                .model
                .config_write(u64::from(input.u16() & 0xfff), &input.bytes::<4>()),
            _ => {
                let at = u64::from(input.u16()) << 8;
                let dwords = [input.word(), input.word(), input.word(), input.word()];
                gpu.put(at, &dwords);
            }
        }
    }
    gpu.is_well();
}

/// Operations of the CP's packets (`soc15d.h`).
const PM4: [u8; 32] = [
    0x10, 0x12, 0x15, 0x16, 0x1e, 0x22, 0x23, 0x37, 0x3c, 0x3f, 0x40, 0x42, 0x46, 0x49, 0x50, 0x58,
    0x76, 0x79, 0x90, 0x93, 0x98, 0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xd0, 0x68, 0x33, 0x00,
];

fn pm4_packets(input: &mut Input<'_>, most: usize) -> Vec<u32> {
    let mut dwords = Vec::new();
    while !input.is_empty() && dwords.len() < most {
        let op = match input.u8() {
            op @ 0..0xf0 => PM4[usize::from(op) % PM4.len()],
            _ => input.u8(),
        };
        let body = 1 + u32::from(input.u8()) % 20;
        dwords.push(3 << 30 | (body - 1) << 16 | u32::from(op) << 8);
        dwords.extend((0..body).map(|_| input.word()));
    }
    dwords.truncate(most);
    dwords
}

const KIQ: Queue = Queue {
    vmid: 0,
    at: 0x10_0000,
    doorbell: 0,
    aql: false,
    kiq: true,
};
const USER: Queue = Queue {
    vmid: 8,
    at: 0x20_0000,
    doorbell: 0x101,
    aql: false,
    kiq: false,
};

/// PM4 packets in the kernel's and in a user's ring, and in indirect buffers and run lists that
/// they name.
pub fn pm4(data: &[u8]) {
    let (gpu, mut input) = (Gpu::new(), Input::new(data));
    let queue = input.of(&[KIQ, USER]);
    gpu.start(queue);
    if queue.kiq {
        gpu.start(USER);
        // MAP_QUEUES of an HIQ: its MQD is the KIQ's at another place.
        let hiq = 0x30_0000;
        let mut mqd = [0; 256];
        for (at, dword) in (0..).zip(&mut mqd) {
            *dword = gpu.model.chip().vram.read_u32(KIQ.at + at * 4).unwrap_or(0);
        }
        mqd[136] = ((FB + hiq + Queue::RING) >> 8) as u32;
        gpu.put(hiq, &mqd);
        let map = [
            3 << 30 | 5 << 16 | 0xa2 << 8,
            1 << 26 | 1 << 29,
            0x200 << 2,
            hiq as u32,
            0x80,
            0,
            0,
        ];
        gpu.put(KIQ.at + Queue::RING, &map);
        gpu.ring(KIQ.doorbell, map.len() as u64);
    }
    // What addresses that packets name hold.
    let ib = pm4_packets(&mut input, 64);
    (0..16).for_each(|at| gpu.put(at << 12, &ib));
    let packets = pm4_packets(&mut input, 512);
    for (at, doorbell, from) in [(queue.at, queue.doorbell, 7), (0x30_0000, 0x200, 0)] {
        gpu.put(at + Queue::RING + from * 4, &packets);
        gpu.ring(doorbell, from + packets.len() as u64);
    }
    gpu.is_well();
}

/// Operations of SDMA packets (`vega10_sdma_pkt_open.h`).
fn sdma_packets(input: &mut Input<'_>, most: usize) -> Vec<u32> {
    let mut dwords = Vec::new();
    while !input.is_empty() && dwords.len() < most {
        let header = u32::from(input.u8() % 18) | u32::from(input.u8() & 7) << 8;
        dwords.push(header | u32::from(input.u16()) << 16);
        let body = usize::from(input.u8()) % 13;
        dwords.extend((0..body).map(|_| input.word()));
    }
    dwords.truncate(most);
    dwords
}

/// SDMA packets in the kernel's ring and in a user's, and in indirect buffers.
pub fn sdma(data: &[u8]) {
    let (gpu, mut input) = (Gpu::new(), Input::new(data));
    const ENGINE: u64 = 0x1260;
    const RING: u64 = 0x10_0000;
    let (first, vmid, base) = input.of(&[(0x80, 0, FB + RING), (0x130, 8, RING)]);
    let register = |offset: u64, value| gpu.write(ENGINE + first + offset, value);
    let packets = {
        let ib = sdma_packets(&mut input, 64);
        (0..16).for_each(|at| gpu.put(at << 12, &ib));
        sdma_packets(&mut input, 1024)
    };
    gpu.put(RING, &packets);
    gpu.write(ENGINE + 0x6d, 1);
    register(0x01, (base >> 8) as u32);
    register(0x02, (base >> 40) as u32);
    register(0x12, 1 << 28);
    register(0x2b, 0x300 << 2);
    register(0x00, 1 | 12 << 1 | vmid << 24);
    gpu.ring(0x300, packets.len() as u64 * 4);
    gpu.is_well();
}

/// A queue of AQL packets.
const AQL: Queue = Queue {
    vmid: 8,
    at: 0x20_0000,
    doorbell: 0x101,
    aql: true,
    kiq: false,
};
const KERNEL: u64 = 0x40_0000;
const CODE: u64 = 0x41_0000;

/// A kernel descriptor (amdhsa): LDS, scratch, where the code is, RSRC3, RSRC1, RSRC2, properties.
fn descriptor(gpu: &Gpu, words: [u32; 6]) {
    let [lds, scratch, rsrc3, rsrc1, rsrc2, properties] = words;
    let mut dwords = [0; 16];
    (dwords[0], dwords[1]) = (lds, scratch);
    dwords[4] = (CODE - KERNEL) as u32;
    (dwords[11], dwords[12], dwords[13], dwords[14]) = (rsrc3, rsrc1, rsrc2, properties);
    gpu.put(KERNEL, &dwords);
}

/// AQL packets of all kinds, with kernels that end at once.
pub fn aql(data: &[u8]) {
    let (gpu, mut input) = (Gpu::new(), Input::new(data));
    gpu.start(AQL);
    descriptor(&gpu, std::array::from_fn(|_| input.word()));
    gpu.put(CODE, &[0xbf81_0000]);
    // amd_queue_t around the read index, and signals where addresses point.
    let pointers = AQL.at + Queue::POINTERS;
    let queue: [u32; 64] = std::array::from_fn(|_| input.word());
    gpu.put(pointers, &queue);
    gpu.put(pointers + 128, &[0, 0, 128]);
    let mut count = 0;
    while !input.is_empty() && count < 64 {
        let mut packet: [u32; 16] = std::array::from_fn(|_| input.word());
        packet[0] = u32::from(input.u8() % 7) | u32::from(input.u16()) << 8;
        if input.u8() & 3 != 0 {
            (packet[8], packet[9]) = (KERNEL as u32, 0);
        }
        gpu.put(AQL.at + Queue::RING + count * 64, &packet);
        count += 1;
    }
    gpu.ring(AQL.doorbell, count.wrapping_sub(1));
    gpu.is_well();
}

/// Any bytes as a kernel's code; also decoded and disassembled one by one.
pub fn instructions(data: &[u8]) {
    let (gpu, mut input) = (Gpu::new(), Input::new(data));
    // VM_CONTEXT8_PAGE_TABLE_END_ADDR: 16 MiB, so that a wave which runs away is soon at the end of
    // memory.
    gpu.write(0x2000 + 0x91b, 0xfff);
    gpu.write(0x2000 + 0x91c, 0);
    gpu.start(AQL);
    let rsrc = [
        input.word() & 0xffff,
        input.u32() & 0x1fff,
        input.word() & 0x1_ffff,
        0xf_ffff,
        0x1fff,
        0x3f,
    ];
    descriptor(&gpu, rsrc);
    let mut code = Vec::new();
    while !input.is_empty() && code.len() < 1024 {
        code.push(input.u32());
    }
    // The scaled MFMA has four dwords; of the last ones fewer are left.
    for (at, words) in (0..).zip((0..code.len()).map(|at| &code[at..code.len().min(at + 4)])) {
        if let Ok(inst) = gcn::decode::decode(at * 4, words) {
            assert!(inst.to_string().len() < 1024);
        }
    }
    code.push(0xbf81_0000);
    gpu.put(CODE, &code);
    let dispatch = [
        2 | 1 << 8 | 1 << 16, // kernel dispatch, barrier; one dimension
        64 | 1 << 16,
        1,
        64,
        1,
        1,
        0,
        0x1000,
        KERNEL as u32,
        0,
        0x50_0000,
        0,
        0,
        0,
        0,
        0,
    ];
    gpu.put(AQL.at + Queue::RING, &dispatch);
    gpu.ring(AQL.doorbell, 0);
    gpu.is_well();
}

/// What is said to the PSP and the SMU: mailboxes, and ring commands with what they point to.
pub fn firmware(data: &[u8]) {
    let (gpu, mut input) = (Gpu::new(), Input::new(data));
    // C2PMSG_35, _36, _64, _67, _69, _70, _71, _81 of the PSP; _66, _82, _90 of the SMU.
    const MAILBOX: [u64; 11] = [
        0x1_6063, 0x1_6064, 0x1_6080, 0x1_6083, 0x1_6085, 0x1_6086, 0x1_6087, 0x1_6091, 0x1_6282,
        0x1_6292, 0x1_629a,
    ];
    // A ring at local memory's start whose frames name commands behind it.
    for (register, value) in [
        (0x1_6085, 0u32),
        (0x1_6086, 0x80),
        (0x1_6087, 0x1000),
        (0x1_6080, 0x2_0000),
    ] {
        gpu.write(register, value);
    }
    while !input.is_empty() {
        match input.u8() & 3 {
            0 => gpu.write(input.of(&MAILBOX), input.word()),
            1 => drop(gpu.read(input.of(&MAILBOX))),
            2 => {
                let at = u64::from(input.u16()) << 4;
                let dwords: [u32; 16] = std::array::from_fn(|_| input.word());
                gpu.put(at.min(VRAM - 64), &dwords);
            }
            _ => gpu.write(0x1_6282, u32::from(input.u8() & 0x7f)),
        }
    }
    gpu.is_well();
}
