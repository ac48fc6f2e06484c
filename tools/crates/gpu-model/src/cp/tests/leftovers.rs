// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What a process finds in LDS and registers that another one has left there, in hostile mode.

use super::aql::{self, map_packet, send, signal, value};
use super::kernels::{dispatch, load, out};
use super::runlist::{self, process};
use crate::cp::packet::op;
use crate::flat::{pkt, Rig};
use crate::hostile::Hostile;

const S_ENDPGM: u32 = 0xbf81_0000;
/// Puts 42 into LDS and v3.
const LEAVE: &[u32] = &[
    0x2404_0082, // v_lshlrev_b32 v2, 2, v0
    0x7e06_02aa, // v_mov_b32 v3, 42
    0xd81a_0000,
    0x0000_0302, // ds_write_b32 v2, v3
    S_ENDPGM,
];
/// Stores the sum of both.
const LOOK: &[u32] = &[
    0xc006_0080,
    0,           // s_load_dwordx2 s[2:3], s[0:1], 0
    0x2404_0082, // v_lshlrev_b32 v2, 2, v0
    0xd86c_0000,
    0x0100_0002, // ds_read_b32 v1, v2
    0xbf8c_0000, // s_waitcnt 0
    0x6802_0701, // v_add_u32 v1, v1, v3
    0xdc70_8000,
    0x0002_0102, // global_store_dword v2, v1, s[2:3]
    0xbf8c_0000,
    S_ENDPGM,
];

fn run(rig: &Rig, code: &[u32], n: u32) {
    load(rig, code);
    let done = signal(rig, n, false);
    let mut packet = dispatch(1, done);
    packet[7] = 256;
    send(rig, packet);
    rig.wait("it ends", |rig| value(rig, done) == 0);
}

/// What a process finds whose MAP_PROCESS has these bits beside its PASID, if `clean` comes first.
fn found(hostile: bool, pasid: u32, clean: impl Fn(&Rig)) -> [u32; 2] {
    let rig = aql::rig();
    if hostile {
        assert!(rig.flat.hostile.set(Hostile::new(1).into()).is_ok());
    }
    run(&rig, LEAVE, 0);
    assert!(runlist::unmap(&rig, 2, 0, 0));
    clean(&rig);
    // The same memory, which lets one program look at what the other has left.
    let mut list = process(3, &[]);
    list[1] = pasid;
    list.extend(map_packet());
    runlist::run(&rig, &list);
    run(&rig, LOOK, 1);
    [out(&rig, 0), out(&rig, 63)]
}

#[test]
fn a_process_finds_what_another_has_left_unless_the_cleaner_shader_runs() {
    const CLEANS: u32 = 1 << 17;
    let nothing = |_: &Rig| ();
    assert_eq!(found(true, 4, nothing), [84, 84]);
    assert_eq!(found(true, 4 | CLEANS, nothing), [0, 0]);
    assert_eq!(found(true, 3 | CLEANS, nothing), [84, 84], "its own");
    let cleaner = |rig: &Rig| rig.kiq(0, &[pkt(op::RUN_CLEANER_SHADER.into(), 1), 0]);
    assert_eq!(found(true, 4, cleaner), [0, 0]);
    assert_eq!(found(false, 4, nothing), [0, 0]);
}
