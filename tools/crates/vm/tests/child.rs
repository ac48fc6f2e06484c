// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! How kfd-vm's children bind themselves to it, and that process number 1 is a parent like others:
//! a container has kfd-vm there.

use std::process::Command;

const KFD_VM: &str = env!("CARGO_BIN_EXE_kfd-vm");

fn output(mut command: Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn a_child_of_another_parent_does_not_start() {
    let child = |parent: u32| {
        let mut command = Command::new(KFD_VM);
        command.args(["exec-child", &parent.to_string(), "echo", "-n", "started"]);
        output(command)
    };
    assert_eq!(child(std::process::id()), (Some(0), "started".into()));
    let (status, said) = child(std::process::id() + 1);
    assert_eq!(status, Some(125));
    assert!(said.contains("the parent is gone"), "{said}");
}

#[test]
fn process_number_1_is_a_parent() {
    let mut command = Command::new("unshare");
    // As any user: a user namespace, where this one is nobody.
    command.args(["--map-root-user", "--pid", "--fork", "sh", "-c"]);
    command.arg(format!(
        "[ $$ = 1 ] && {KFD_VM} exec-child 1 echo started; exit $?"
    ));
    assert_eq!(output(command), (Some(0), "started\n".into()));
}
