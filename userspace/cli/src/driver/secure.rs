// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Secure Boot: whether the kernel wants modules signed, and by whom.

use super::machine::Machine;
use super::module::{tool, Module};
use serde::Serialize;
use std::fmt;
use std::fs;
use std::path::Path;

/// The certificate with which DKMS signs modules; its own if no other is set.
pub const DKMS_KEY: &str = "/var/lib/dkms/mok.pub";

/// The EFI variable, with the GUID of `EFI_GLOBAL_VARIABLE`.
const SECURE_BOOT: &str =
    "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";

/// What the firmware and the kernel enforce.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Secure {
    /// Secure Boot; `None` on a machine whose firmware does not tell.
    pub secure_boot: Option<bool>,
    /// The kernel's lockdown: none, integrity or confidentiality; `None` in a kernel without it.
    pub lockdown: Option<String>,
    /// Whether the kernel was told to want signatures (`module.sig_enforce`).
    pub sig_enforce: bool,
}

impl Secure {
    /// Asks the machine.
    pub fn of(machine: &Machine) -> Self {
        let lockdown = machine.text("/sys/kernel/security/lockdown");
        let enforce = machine.text("/sys/module/module/parameters/sig_enforce");
        Self {
            secure_boot: fs::read(machine.path(SECURE_BOOT))
                .ok()
                .and_then(|it| enabled(&it)),
            lockdown: lockdown.and_then(|text| chosen(&text)),
            sig_enforce: enforce.as_deref() == Some("Y"),
        }
    }

    /// Whether the kernel refuses a module that no key it trusts has signed.
    pub fn wants_signatures(&self) -> bool {
        self.sig_enforce || self.lockdown.as_ref().is_some_and(|level| level != "none")
    }
}

impl fmt::Display for Secure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let boot = match self.secure_boot {
            Some(true) => "Secure Boot is on",
            Some(false) => "Secure Boot is off",
            None => "no Secure Boot",
        };
        let lockdown = self.lockdown.as_deref().unwrap_or("not known");
        write!(f, "{boot}, lockdown: {lockdown}")?;
        match self.sig_enforce {
            true => write!(f, ", module.sig_enforce is on"),
            false => Ok(()),
        }
    }
}

/// The value of an EFI boolean, which has four bytes of attributes before it.
fn enabled(variable: &[u8]) -> Option<bool> {
    match variable {
        [_, _, _, _, value] => Some(*value == 1),
        _ => None,
    }
}

/// The word in brackets.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// What the machine's owner has to do before the kernel takes a module, as far as it can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Nothing.
    Enough(String),
    /// The kernel will refuse the module: why, and what to type.
    Refused(String, String),
    /// The kernel may refuse it: what to look at.
    Unknown(String, String),
}

/// Whether the kernel takes `module`.
pub fn trust(machine: &Machine, module: &Module) -> Trust {
    let secure = Secure::of(machine);
    if !secure.wants_signatures() {
        return Trust::Enough(format!("{secure}: modules need no signature"));
    }
    let Some(signature) = &module.signature else {
        return Trust::Refused(
            format!("{secure}, and {} is not signed", module.file),
            format!("install amdkfd-rs-dkms, which signs; then {}", enrol()),
        );
    };
    let signer = &signature.signer;
    match is_enrolled(Path::new(DKMS_KEY)) {
        Some(false) if signer.contains("DKMS") => Trust::Refused(
            format!(
                "{secure}, and the key of DKMS, which signed {}, is not enrolled",
                module.file
            ),
            enrol(),
        ),
        Some(true) if signer.contains("DKMS") => Trust::Enough(format!(
            "{secure}; {} is signed with the key of DKMS, which is enrolled",
            module.file
        )),
        _ => Trust::Unknown(
            format!("{secure}; {} is signed by \"{signer}\"", module.file),
            format!("if the kernel does not trust that key: {}", enrol()),
        ),
    }
}

/// How a machine's owner has the kernel trust DKMS's key.
pub fn enrol() -> String {
    format!(
        "mokutil --import {DKMS_KEY}, choose a password, reboot, and choose \"Enroll MOK\" in the \
         firmware's blue screen"
    )
}

/// Whether the firmware has been given this certificate; `None` where mokutil cannot tell.
fn is_enrolled(certificate: &Path) -> Option<bool> {
    let output = tool("mokutil")
        .arg("--test-key")
        .arg(certificate)
        .output()
        .ok()?;
    answer(&String::from_utf8_lossy(&output.stdout))
}

/// mokutil's answer. Its exit status has another meaning in other versions; its words are the same.
fn answer(text: &str) -> Option<bool> {
    if text.contains("is not enrolled") {
        Some(false)
    } else {
        text.contains("is already enrolled").then_some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::write;
    use super::super::module::Signature;
    use super::*;

    fn machine(lockdown: &str, enforce: &str) -> (tempfile::TempDir, Machine) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        write(dir.path(), "/sys/kernel/security/lockdown", lockdown);
        write(
            dir.path(),
            "/sys/module/module/parameters/sig_enforce",
            enforce,
        );
        write(dir.path(), SECURE_BOOT, [6, 0, 0, 0, 1]);
        let machine = Machine::at(dir.path());
        (dir, machine)
    }

    fn signed(by: Option<&str>) -> Module {
        Module {
            file: "amdkfd.ko".into(),
            signature: by.map(|signer| Signature {
                signer: signer.into(),
                key: "1".into(),
            }),
            ..Module::default()
        }
    }

    #[test]
    fn the_machine_is_read() {
        let (_dir, machine) = machine("none [integrity] confidentiality\n", "N\n");
        let secure = Secure::of(&machine);
        assert_eq!(secure.secure_boot, Some(true));
        assert_eq!(secure.lockdown.as_deref(), Some("integrity"));
        assert!(secure.wants_signatures());
        assert_eq!(secure.to_string(), "Secure Boot is on, lockdown: integrity");
    }

    #[test]
    fn a_machine_that_shows_nothing_wants_nothing() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let machine = Machine::at(dir.path());
        assert!(!Secure::of(&machine).wants_signatures());
        assert!(matches!(trust(&machine, &signed(None)), Trust::Enough(_)));
    }

    #[test]
    fn an_unsigned_module_is_refused_only_where_signatures_are_wanted() {
        for (lockdown, enforce, wanted) in [
            ("[none] integrity confidentiality", "N", false),
            ("none [integrity] confidentiality", "N", true),
            ("none integrity [confidentiality]", "N", true),
            ("[none] integrity confidentiality", "Y", true),
        ] {
            let (_dir, machine) = machine(lockdown, enforce);
            let refused = matches!(trust(&machine, &signed(None)), Trust::Refused(_, _));
            assert_eq!(refused, wanted, "{lockdown} {enforce}");
        }
    }

    #[test]
    fn nobody_vouches_for_a_foreign_key() {
        let (_dir, machine) = machine("none [integrity] confidentiality", "N");
        let trust = trust(&machine, &signed(Some("somebody")));
        let Trust::Unknown(what, remedy) = trust else {
            panic!("{trust:?}")
        };
        assert!(what.contains("signed by \"somebody\""), "{what}");
        assert!(
            remedy.contains("mokutil --import /var/lib/dkms/mok.pub"),
            "{remedy}"
        );
    }

    #[test]
    fn variables_of_a_wrong_size_say_nothing() {
        assert_eq!(
            [enabled(&[0, 0, 0, 0, 0]), enabled(&[1]), enabled(&[])],
            [Some(false), None, None]
        );
        assert_eq!(chosen("none integrity"), None);
    }

    #[test]
    fn mokutil_answers_in_words() {
        assert_eq!(answer("/x is already enrolled\n"), Some(true));
        assert_eq!(answer("/x is not enrolled\n"), Some(false));
        assert_eq!(
            answer("EFI variables are not supported on this system\n"),
            None
        );
    }
}
