// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kfdctl driver`: how things are.

use super::boot;
use super::machine::{Machine, Serving};
use super::module::Module;
use super::secure::Secure;
use super::users::{users, User};
use super::{Choice, Source};
use anyhow::Result;
use serde::Serialize;
use std::process::ExitCode;

/// All that there is to say.
#[derive(Serialize)]
struct Status {
    serving: Serving,
    /// amdkfd.ko is loaded: it serves, or waits for amdgpu, or does not drive this machine's GPUs.
    loaded: bool,
    /// What it says of itself.
    state: Option<String>,
    version: Option<String>,
    module: Option<Module>,
    /// Why there is no module.
    no_module: Option<String>,
    amdgpu_build_id: Option<String>,
    /// Whether the module was built for the amdgpu that is loaded; `None` where either is not
    /// known.
    fits: Option<bool>,
    secure: Secure,
    users: Vec<User>,
    at_boot: Choice,
}

/// Prints it.
pub fn show(machine: &Machine, source: &Source, json: bool) -> Result<ExitCode> {
    let status = Status::of(machine, source);
    if json {
        outln!("{}", serde_json::to_string(&status)?);
    } else {
        out!("{}", status.text());
    }
    Ok(ExitCode::SUCCESS)
}

/// Who serves, in words.
pub fn serving(serving: Serving, version: Option<&str>) -> String {
    match serving {
        Serving::Nobody => "nobody serves /dev/kfd".into(),
        Serving::C => "the C driver in amdgpu serves /dev/kfd".into(),
        Serving::Rust => {
            let version = version.map_or(String::new(), |version| format!(" {version}"));
            format!("amdkfd.ko{version} (Rust) serves /dev/kfd")
        }
    }
}

/// What a choice for the next boot means.
pub fn at_boot(choice: Choice) -> String {
    match choice {
        Choice::Rust => format!(
            "rust: {} has amdkfd.ko take over from the C driver",
            boot::UNIT
        ),
        Choice::C => "c: the C driver in amdgpu".into(),
    }
}

impl Status {
    fn of(machine: &Machine, source: &Source) -> Self {
        let (module, no_module) = match Module::read(source) {
            Ok(module) => (Some(module), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let amdgpu_build_id = machine.amdgpu_build_id();
        let built_for = module
            .as_ref()
            .and_then(|module| module.amdgpu_build_id.as_ref());
        Self {
            serving: machine.serving(),
            loaded: machine.has_rust(),
            state: machine.rust_state(),
            version: machine.rust_version(),
            fits: amdgpu_build_id
                .as_ref()
                .zip(built_for)
                .map(|(loaded, built)| loaded == built),
            module,
            no_module,
            amdgpu_build_id,
            secure: Secure::of(machine),
            users: users(machine),
            at_boot: boot::at_boot(machine),
        }
    }

    fn text(&self) -> String {
        let mut text = serving(self.serving, self.version.as_deref()) + "\n";
        if self.loaded && self.serving != Serving::Rust {
            let state = self.state.as_deref().unwrap_or("not serving");
            text += &format!("amdkfd.ko is loaded: {state}\n");
        }
        for (name, lines) in [
            ("used by", self.users.iter().map(User::to_string).collect()),
            ("module", self.module_lines()),
            ("amdgpu", vec![self.amdgpu_line()]),
            ("security", vec![self.secure.to_string()]),
            ("at boot", vec![at_boot(self.at_boot)]),
        ] {
            for (index, line) in lines.iter().enumerate() {
                let name = if index == 0 { name } else { "" };
                text += &format!("  {name:<9} {line}\n");
            }
        }
        text
    }

    fn module_lines(&self) -> Vec<String> {
        let Some(module) = &self.module else {
            let reason = self
                .no_module
                .as_deref()
                .unwrap_or("nothing is known of it");
            return vec![format!("none: {reason}")];
        };
        let version = module
            .version
            .as_ref()
            .map_or(String::new(), |it| format!(", version {it}"));
        let signature = match &module.signature {
            Some(signature) => format!("signed by \"{}\"", signature.signer),
            None => "not signed".into(),
        };
        vec![
            module.file.clone(),
            format!("for kernel {}{version}, {signature}", module.kernel),
        ]
    }

    fn amdgpu_line(&self) -> String {
        let Some(id) = &self.amdgpu_build_id else {
            return "not loaded".into();
        };
        let fits = match self.fits {
            Some(true) => ": the one that the module was built for",
            Some(false) => ": not the one that the module was built for",
            None => "",
        };
        format!("build id {id}{fits}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> Status {
        Status {
            serving: Serving::C,
            loaded: false,
            state: None,
            version: None,
            module: Some(Module {
                file: "/lib/modules/7.3/amdkfd.ko".into(),
                version: Some("0.1.0".into()),
                kernel: "7.3".into(),
                ..Module::default()
            }),
            no_module: None,
            amdgpu_build_id: Some("01ff".into()),
            fits: Some(false),
            secure: Secure {
                secure_boot: None,
                lockdown: Some("none".into()),
                sig_enforce: false,
            },
            users: Vec::new(),
            at_boot: Choice::C,
        }
    }

    #[test]
    fn a_machine_with_another_amdgpu() {
        let expected = "\
the C driver in amdgpu serves /dev/kfd
  module    /lib/modules/7.3/amdkfd.ko
            for kernel 7.3, version 0.1.0, not signed
  amdgpu    build id 01ff: not the one that the module was built for
  security  no Secure Boot, lockdown: none
  at boot   c: the C driver in amdgpu
";
        assert_eq!(status().text(), expected);
    }

    #[test]
    fn a_module_that_waits_is_not_one_that_serves() {
        let waits = Status {
            serving: Serving::Nobody,
            loaded: true,
            state: Some("waiting".into()),
            ..status()
        };
        assert!(waits
            .text()
            .starts_with("nobody serves /dev/kfd\namdkfd.ko is loaded: waiting"));
        let serves = Status {
            serving: Serving::Rust,
            version: Some("1".into()),
            ..waits
        };
        assert!(serves
            .text()
            .starts_with("amdkfd.ko 1 (Rust) serves /dev/kfd\n  module"));
    }
}
