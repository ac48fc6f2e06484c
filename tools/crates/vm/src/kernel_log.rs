// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! What in the guest's kernel log is a finding: for tests that must leave the kernel in peace.

/// Beginnings and parts of messages by which the kernel says that something is wrong with it.
const SIGNS: &[&str] = &[
    "WARNING: ",
    "BUG: ",
    "INFO: task ",
    "INFO: possible ",
    "INFO: rcu",
    "INFO: trying to register non-static key",
    "Oops: ",
    "general protection fault",
    "kernel BUG at",
    "UBSAN: ",
    "ODEBUG: ",
    "refcount_t: ",
    "list_add corruption",
    "list_del corruption",
    "sysfs: cannot create duplicate",
    "kobject_add_internal failed",
    "new suspected memory leaks",
    "DEBUG_LOCKS_WARN_ON",
    "held lock freed",
    "lock held when returning to user space",
    "bad unlock balance",
    "scheduling while atomic",
];

/// The lines that tell of a finding, in order.
pub fn findings(log: &str) -> Vec<&str> {
    log.lines()
        .filter(|line| SIGNS.iter().any(|sign| line.contains(sign)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_splat_is_found_and_news_are_not() {
        let log = "\
[    1.0] amdgpu 0000:01:00.0: amdgpu: PCIE atomic ops is not supported
[    2.0] WARNING: possible circular locking dependency detected
[    2.1] BUG: sleeping function called from invalid context at kernel/locking/mutex.c:1
[    2.2] INFO: lockdep is turned off.
[    3.0] kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)";
        let found = findings(log);
        assert_eq!(found.len(), 3);
        assert!(found[0].contains("circular") && found[2].contains("kmemleak"));
    }
}
