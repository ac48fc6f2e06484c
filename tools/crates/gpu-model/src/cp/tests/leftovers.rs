// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What a process finds in LDS and registers that another one has left there, in hostile mode.

use super::aql::{self, map_packet, send, signal, value, QUEUE};
use super::cwsr;
use super::kernels::{dispatch, load, out, STORE_42};
use super::runlist::{self, process};
use crate::cp::packet::op;
use crate::flat::{pkt, Rig};
use crate::hostile::Hostile;
use crate::processor::runner::Mode;

const S_ENDPGM: u32 = 0xbf81_0000;
/// EXEC_CLEANER_SHADER of MAP_PROCESS.
const CLEANS: u32 = 1 << 17;
/// Puts 42 into LDS and v3.
const LEAVE: &[u32] = &[
    0x2404_0082, // v_lshlrev_b32 v2, 2, v0
    0x7e06_02aa, // v_mov_b32 v3, 42
    0xd81a_0000,
    0x0000_0302, // ds_write_b32 v2, v3
    S_ENDPGM,
];
/// The same, says so at out + 2048, and never ends.
const LEAVE_AND_STAY: &[u32] = &[
    0xc006_0080,
    0,           // s_load_dwordx2 s[2:3], s[0:1], 0
    0x2404_0082, // v_lshlrev_b32 v2, 2, v0
    0x7e06_02aa, // v_mov_b32 v3, 42
    0xd81a_0000,
    0x0000_0302, // ds_write_b32 v2, v3
    0xbf8c_0000, // s_waitcnt 0
    0xdc70_8800,
    0x0002_0302, // global_store_dword v2, v3, s[2:3] offset:2048
    0xbf82_ffff, // s_branch -1
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

/// Sends a kernel of one group with so much LDS; its signal.
fn start(rig: &Rig, code: &[u32], n: u32, lds: u32) -> u32 {
    load(rig, code);
    let done = signal(rig, n, false);
    let mut packet = dispatch(1, done);
    packet[7] = lds;
    send(rig, packet);
    done
}

fn run(rig: &Rig, code: &[u32], n: u32) {
    run_with(rig, code, n, 256);
}

fn run_with(rig: &Rig, code: &[u32], n: u32, lds: u32) {
    let done = start(rig, code, n, lds);
    rig.wait("it ends", |rig| value(rig, done) == 0);
}

/// Maps a process that has these bits beside its PASID, in the same memory: one program can look at
/// what another has left.
fn map(rig: &Rig, pasid: u32) {
    let mut list = process(3, &[]);
    list[1] = pasid;
    list.extend(map_packet());
    runlist::run(rig, &list);
}

fn hostile(rig: &Rig) {
    assert!(rig.flat.hostile.set(Hostile::new(1).into()).is_ok());
}

/// Makes the queue one that has run nothing.
fn renew(rig: &Rig) {
    rig.write_mqd(QUEUE);
    rig.write64(aql::BASE + QUEUE.wptr, 0);
}

/// What a process finds whose MAP_PROCESS has these bits beside its PASID, if `clean` comes first.
fn found(is_hostile: bool, pasid: u32, clean: impl Fn(&Rig)) -> [u32; 2] {
    let rig = aql::rig();
    if is_hostile {
        hostile(&rig);
    }
    run(&rig, LEAVE, 0);
    assert!(runlist::unmap(&rig, 2, 0, 0));
    clean(&rig);
    map(&rig, pasid);
    run(&rig, LOOK, 1);
    [out(&rig, 0), out(&rig, 63)]
}

#[test]
fn a_process_finds_what_another_has_left_unless_the_cleaner_shader_runs() {
    let nothing = |_: &Rig| ();
    assert_eq!(found(true, 4, nothing), [84, 84]);
    assert_eq!(found(true, 4 | CLEANS, nothing), [0, 0]);
    assert_eq!(found(true, 3 | CLEANS, nothing), [84, 84], "its own");
    let cleaner = |rig: &Rig| rig.kiq(0, &[pkt(op::RUN_CLEANER_SHADER.into(), 1), 0]);
    assert_eq!(found(true, 4, cleaner), [0, 0]);
    assert_eq!(found(false, 4, nothing), [0, 0]);
}

/// As isolation of processes is for: the waves of one go because the other one's turn comes.
#[test]
fn waves_that_are_preempted_or_killed_leave_what_they_had() {
    const RESETS: u32 = 1;
    for action in [0, RESETS] {
        for (pasid, left) in [(4, 84), (4 | CLEANS, 0)] {
            let rig = aql::rig_in(Mode::Threads(1));
            hostile(&rig);
            start(&rig, LEAVE_AND_STAY, 0, 256);
            rig.wait("it has stored", |rig| {
                [512, 575].map(|at| out(rig, at)) == [42, 42]
            });
            assert!(runlist::unmap(&rig, 2, action, 0));
            renew(&rig);
            map(&rig, pasid);
            run(&rig, LOOK, 1);
            assert_eq!(
                [out(&rig, 0), out(&rig, 63)],
                [left, left],
                "{action} {pasid:#x}"
            );
        }
    }
}

#[test]
fn waves_that_save_themselves_leave_their_lds() {
    let rig = cwsr::rig(Mode::Sync);
    hostile(&rig);
    cwsr::map_with_handler(&rig);
    cwsr::start(&rig);
    cwsr::preempt(&rig);
    assert_eq!(rig.stats.done("waves saved"), 8);
    renew(&rig);
    map(&rig, 4);
    let mut code = LOOK.to_vec();
    // s_nop for the sum with v3, which the handler uses.
    assert_eq!(std::mem::replace(&mut code[6], 0xbf80_0000), 0x6802_0701);
    run(&rig, &code, 1);
    assert_eq!([out(&rig, 1), out(&rig, 63)], [7, 7 * 63]);
}

#[test]
fn groups_without_lds_leave_that_of_others() {
    for (pasid, left) in [(4, 84), (4 | CLEANS, 0)] {
        let rig = aql::rig();
        hostile(&rig);
        run(&rig, LEAVE, 0);
        run_with(&rig, STORE_42, 1, 0);
        assert!(runlist::unmap(&rig, 2, 0, 0));
        map(&rig, pasid);
        run(&rig, LOOK, 2);
        assert_eq!([out(&rig, 0), out(&rig, 63)], [left, left], "{pasid:#x}");
    }
    // The last one that ran owns its registers, and no LDS.
    let rig = aql::rig();
    hostile(&rig);
    run(&rig, LEAVE, 0);
    assert!(runlist::unmap(&rig, 2, 0, 0));
    map(&rig, 4);
    run_with(&rig, STORE_42, 1, 0);
    assert!(runlist::unmap(&rig, 2, 0, 0));
    map(&rig, 4 | CLEANS);
    run(&rig, LOOK, 2);
    assert_eq!([out(&rig, 0), out(&rig, 63)], [42, 42]);
}
