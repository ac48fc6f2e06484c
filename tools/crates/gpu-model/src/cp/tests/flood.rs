// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What a program can be wrong about as often as it likes fills no disk.

use super::aql::{self, send, signal, value};
use super::kernels::{dispatch, load};
use super::runlist;
use crate::cp::packet::op;
use crate::flat::{pkt, Rig};
use crate::limited::told::lines;

#[test]
fn messages_of_a_wave_in_a_loop() {
    let rig = aql::rig();
    load(
        &rig,
        &[
            0xb004_2710, // s_movk_i32 s4, 10000
            0xbf90_0003, // s_sendmsg 3
            0x8084_8104, // s_sub_u32 s4, s4, 1
            0xbf07_8004, // s_cmp_lg_u32 s4, 0
            0xbf85_fffc, // s_cbranch_scc1 back to the message
            0xbf81_0000, // s_endpgm
        ],
    );
    let done = signal(&rig, 0, false);
    let said = lines(|| {
        send(&rig, dispatch(1, done));
    });
    assert_eq!(value(&rig, done), 0);
    assert_eq!(rig.stats.get("s_sendmsg"), 10_000);
    assert!((16..64).contains(&said), "{said} lines");
}

#[test]
fn registers_that_a_packet_may_not_write() {
    let rig = Rig::sync();
    runlist::start(&rig, 1);
    rig.write_mqd(runlist::setup(3, 0));
    runlist::run(&rig, &runlist::process(3, &[0]));
    // SET_UCONFIG_REG of registers behind the performance counters.
    let mut packet = vec![pkt(op::SET_UCONFIG_REG.into(), 201), 0x3000];
    packet.extend([0; 200]);
    let said = lines(|| runlist::submit(&rig, 3, 0, &packet));
    assert_eq!(rig.stats.get("CP_PRIV_REG_FAULT"), 200);
    assert!((16..64).contains(&said), "{said} lines");
}
