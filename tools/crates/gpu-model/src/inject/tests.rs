// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Each verb of the fault injection on a whole GPU without a guest. Queues have theirs in
//! `cp/tests/inject.rs`.

use std::time::{Duration, Instant};

use super::window::{ARGUMENT, COUNT, END, FLAGS, SEED, TRAFFIC};
use crate::gmc::{Access, FaultReason, Hub};
use crate::ih::Interrupt;
use crate::rig::{Rig, FB};

/// MP1_SMN_C2PMSG_66, _82, _90.
const MESSAGE: u64 = 0x1_6282;
const ARGUMENT_82: u64 = 0x1_6292;
const RESPONSE: u64 = 0x1_629a;
/// IH_RB_CNTL, _BASE, _WPTR.
const IH_CNTL: u64 = 0x1120;
const IH_BASE: u64 = 0x1121;
const IH_WPTR: u64 = 0x1124;

fn rig(script: &str) -> Rig {
    let rig = Rig::new();
    rig.chip().inject.load(rig.chip(), script).unwrap();
    rig
}

fn config(rig: &Rig, at: usize) -> u32 {
    let mut bytes = [0; 4];
    rig.model.config_read(at as u64, &mut bytes);
    u32::from_le_bytes(bytes)
}

fn set_config(rig: &Rig, at: usize, value: u32) {
    rig.model.config_write(at as u64, &value.to_le_bytes());
}

/// TestMessage: answers with its argument plus one.
fn send_test(rig: &Rig) -> u32 {
    rig.write(RESPONSE, 0);
    rig.write(ARGUMENT_82, 41);
    rig.write(MESSAGE, 1);
    rig.read(RESPONSE)
}

#[test]
fn the_smu_can_be_late_silent_or_unwilling() {
    let rig = rig("smu message=1 delay=500ms times=1\nsmu fail=0xfd times=1\nsmu silent times=1");
    let start = Instant::now();
    assert_eq!(send_test(&rig), 0);
    while rig.read(RESPONSE) == 0 && start.elapsed() < Duration::from_secs(10) {}
    assert!(start.elapsed() >= Duration::from_millis(500));
    assert_eq!((rig.read(RESPONSE), rig.read(ARGUMENT_82)), (1, 42));
    assert_eq!(send_test(&rig), 0xfd);
    assert_eq!(send_test(&rig), 0);
    assert_eq!(send_test(&rig), 1, "all rules are used up");
    assert_eq!(config(&rig, COUNT), 3);
    assert!(rig.model.report().contains("\n2 3 1\n"));
}

#[test]
fn a_late_reset_happens_when_the_answer_is_looked_for() {
    let rig = rig("smu message=3 delay=300ms");
    // SCRATCH_REG0 is lost in a reset.
    rig.write(0xc040, 7);
    rig.write(ARGUMENT_82, 1);
    rig.write(RESPONSE, 0);
    rig.write(MESSAGE, 3);
    assert_eq!((rig.read(0xc040), rig.read(RESPONSE)), (7, 0));
    std::thread::sleep(Duration::from_millis(400));
    rig.read(RESPONSE);
    assert_eq!(rig.read(0xc040), 0);
}

#[test]
fn flags_turn_rules_on_and_off() {
    let rig = rig("smu fail=0xff flag=3");
    assert_eq!(send_test(&rig), 1);
    set_config(&rig, FLAGS, 1 << 3);
    assert_eq!((config(&rig, FLAGS), send_test(&rig)), (8, 0xff));
    rig.model.config_write(FLAGS as u64, &[0]);
    assert_eq!(send_test(&rig), 1);
}

/// With a ring of 64 entries.
fn with_ring(script: &str) -> Rig {
    let rig = rig(script);
    rig.write(IH_BASE, 0x10_0000 >> 8);
    rig.write(IH_CNTL, 1 | 9 << 1 | 1 << 17);
    rig
}

fn push(rig: &Rig, client: u8) {
    let interrupt = Interrupt {
        client,
        source: 5,
        ring_id: 0,
        vmid: 0,
        from_mm: false,
        pasid: None,
        node: 0,
        data: [0; 4],
    };
    rig.chip().ih.push(rig.chip(), interrupt);
}

#[test]
fn interrupts_can_be_lost_repeated_late_or_raised() {
    let rig = with_ring(
        "irq client=1 drop\nirq client=2 repeat=3\nirq client=3 source=5 delay=500ms\n\
         raise client=9 source=8 data=7 count=2 flag=0",
    );
    let entries = || rig.read(IH_WPTR) / 32;
    push(&rig, 1);
    assert_eq!(entries(), 0);
    push(&rig, 2);
    assert_eq!((entries(), rig.interrupts()), (4, 4));
    let start = Instant::now();
    push(&rig, 3);
    assert_eq!(entries(), 4);
    while entries() == 4 && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(entries(), 5);
    assert!(start.elapsed() >= Duration::from_millis(500));
    set_config(&rig, FLAGS, 1);
    set_config(&rig, FLAGS, 3);
    assert_eq!(entries(), 7, "only when the flag rises");
    assert_eq!(rig.system().read_u32(0x10_0000 + 6 * 32), Ok(0x0809));
    push(&rig, 4);
    assert_eq!(entries(), 8);
}

#[test]
fn addresses_can_be_taken_away() {
    let rig = rig("fault vmid=0 va=arg length=0x1000 access=write flag=0 times=1");
    let mut vm = rig.chip().vm(Hub::Gc(0), 0);
    let va = FB + 0x5000;
    vm.write_u32(va, 1).unwrap();
    set_config(&rig, ARGUMENT, va as u32);
    set_config(&rig, ARGUMENT + 4, (va >> 32) as u32);
    vm.write_u32(va, 2).unwrap();
    set_config(&rig, FLAGS, 1);
    vm.read_u32(va).unwrap();
    vm.write_u32(va + 0x1000, 2).unwrap();
    let fault = vm.write_u32(va + 4, 3).unwrap_err();
    assert_eq!(
        (fault.va, fault.access, fault.reason),
        (va + 4, Access::Write, FaultReason::Invalid)
    );
    vm.write_u32(va, 3).unwrap();
}

#[test]
fn registers_can_lie_and_the_device_can_go() {
    let rig = rig("register name=MP1.MP1_SMN_C2PMSG_90 value=0 for=300ms\nlost flag=1");
    assert_eq!(send_test(&rig), 0);
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(rig.read(RESPONSE), 1);
    set_config(&rig, FLAGS, 2);
    assert_eq!((rig.read(RESPONSE), config(&rig, 0)), (u32::MAX, u32::MAX));
    set_config(&rig, FLAGS, 0);
    assert_eq!((rig.read(RESPONSE), config(&rig, 0) & 0xffff), (1, 0x1002));
}

#[test]
fn a_wrong_script_leaves_the_old_one() {
    let rig = rig("smu fail=0xff");
    let error = rig.chip().inject.load(rig.chip(), "smu silent\nsmu sullen");
    assert_eq!(error.unwrap_err().line, 2);
    assert_eq!(send_test(&rig), 0xff);
}

#[test]
fn the_guest_can_read_how_often_it_came() {
    let rig = rig("");
    let counts = |rig: &Rig| [0, 4, 8].map(|at| config(rig, TRAFFIC + at));
    let [reads, writes, doorbells] = counts(&rig);
    rig.read(RESPONSE);
    rig.write(RESPONSE, 0);
    rig.write(RESPONSE, 0);
    rig.model.doorbell_write(0x800, &[0; 4]);
    assert_eq!(counts(&rig), [reads + 1, writes + 2, doorbells + 1]);
    // Read only, and what lies before and behind stays as it was.
    set_config(&rig, TRAFFIC, 0);
    set_config(&rig, ARGUMENT, 7);
    assert_eq!(counts(&rig), [reads + 1, writes + 2, doorbells + 1]);
    assert_eq!(config(&rig, ARGUMENT), 7);
    assert_eq!(config(&rig, END), 0);
    assert!(rig.model.report().starts_with("# the guest: "));
}

#[test]
fn the_guest_can_choose_a_seed() {
    let rig = Rig::hostile(0x1_0000_0007);
    let numbers = || [0; 3].map(|_| rig.chip().hostile.as_ref().unwrap().number());
    assert_eq!(config(&rig, SEED), 7);
    let first = numbers();
    set_config(&rig, SEED, 7);
    let second = numbers();
    set_config(&rig, SEED, 8);
    let third = numbers();
    // Written again, it begins anew; other registers leave it alone.
    set_config(&rig, SEED, 7);
    set_config(&rig, TRAFFIC + 8, 9);
    set_config(&rig, FLAGS, 1);
    assert_eq!((numbers(), config(&rig, SEED)), (second, 7));
    assert!(first != second && second != third);
    let rig = self::rig("");
    set_config(&rig, SEED, 7);
    assert_eq!(config(&rig, SEED), 0);
}
