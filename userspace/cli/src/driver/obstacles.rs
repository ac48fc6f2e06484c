// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What stands in the way of a change of drivers. The kernel refuses all of it too, but with an
//! errno.

use super::machine::Machine;
use super::module::Module;
use super::secure::{trust, Trust};
use super::users::users;
use super::Source;
use serde::Serialize;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Obstacle {
    /// What it is.
    pub what: String,
    /// What to type, or to look at.
    pub remedy: String,
}

fn obstacle(what: impl Into<String>, remedy: impl Into<String>) -> Obstacle {
    Obstacle {
        what: what.into(),
        remedy: remedy.into(),
    }
}

/// What stands in the way of amdkfd.ko from `source`.
pub fn to_rust(machine: &Machine, source: &Source) -> Vec<Obstacle> {
    let mut found = match Module::read(source) {
        Ok(module) => of_module(machine, &module),
        Err(error) => vec![obstacle(
            format!("there is no amdkfd.ko to load: {error}"),
            "install amdkfd-rs-dkms and look at \"dkms status\", or name a file with --module",
        )],
    };
    found.extend(of_users(machine));
    found
}

/// What stands in the way of the C driver.
pub fn to_c(machine: &Machine) -> Vec<Obstacle> {
    of_users(machine)
}

/// Each process with `/dev/kfd`: neither driver is taken from under one.
fn of_users(machine: &Machine) -> Vec<Obstacle> {
    let users = users(machine).into_iter();
    users
        .map(|user| obstacle(user.to_string(), format!("end it: kill {}", user.pid)))
        .collect()
}

/// What is wrong with the module, for this kernel, this amdgpu and these GPUs.
fn of_module(machine: &Machine, module: &Module) -> Vec<Obstacle> {
    let mut found = Vec::new();
    found.extend(other_kernel(machine, module));
    found.extend(other_amdgpu(machine, module));
    found.extend(other_gpus(machine, module));
    if let Trust::Refused(what, remedy) = trust(machine, module) {
        found.push(obstacle(what, remedy));
    }
    found
}

fn other_kernel(machine: &Machine, module: &Module) -> Option<Obstacle> {
    let running = machine.text("/proc/sys/kernel/osrelease")?;
    (!module.kernel.is_empty() && module.kernel != running).then(|| {
        obstacle(
            format!(
                "{} is for kernel {}, and {running} runs",
                module.file, module.kernel
            ),
            format!("dkms autoinstall -k {running}, or build the module for that kernel"),
        )
    })
}

/// Whether the amdgpu that is loaded is another one than the module was built for. A module that
/// does not say is left to the kernel.
fn other_amdgpu(machine: &Machine, module: &Module) -> Option<Obstacle> {
    let (loaded, built_for) = (machine.amdgpu_build_id()?, module.amdgpu_build_id.as_ref()?);
    (loaded != *built_for).then(|| {
        obstacle(
            format!(
                "{} was built for another amdgpu.ko (build id {built_for}) \
                 than is loaded ({loaded})",
                module.file
            ),
            "build the module again; only the amdgpu.ko of the kernel's package is supported",
        )
    })
}

fn other_gpus(machine: &Machine, module: &Module) -> Vec<Obstacle> {
    let known = &module.graphics_cores;
    if known.is_empty() {
        return Vec::new();
    }
    let unknown = |core: &Option<String>| core.as_ref().is_none_or(|core| !known.contains(core));
    let gpus = machine.graphics_cores().into_iter();
    gpus.filter(|(_, core)| unknown(core))
        .map(|(gpu, core)| {
            let core = core.unwrap_or_else(|| "of an unknown kind".into());
            obstacle(
                format!(
                    "GPU {gpu} has graphics core {core}; {} knows {}",
                    module.file,
                    known.join(", ")
                ),
                "nothing: the C driver serves all GPUs as long as one of them is not supported",
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::write;
    use super::*;
    use kfd::topology;

    const RELEASE: &str = "7.3.4+deb13-amd64";

    /// A machine with one GPU of core 9.4.REVISION, whose amdgpu has the build id 01020304.
    fn machine(revision: u32) -> (tempfile::TempDir, Machine) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let root = dir.path();
        write(root, "/proc/sys/kernel/osrelease", format!("{RELEASE}\n"));
        let mut note = Vec::new();
        for word in [4u32, 4, 3] {
            note.extend(word.to_ne_bytes());
        }
        note.extend(b"GNU\0\x01\x02\x03\x04");
        write(root, "/sys/module/amdgpu/notes/.note.gnu.build-id", note);
        let gpu = format!("{}/nodes/1", topology::ROOT);
        write(root, &format!("{gpu}/gpu_id"), "35281\n");
        write(
            root,
            &format!("{gpu}/properties"),
            "location_id 768\ndomain 0\n",
        );
        let core = "/sys/bus/pci/drivers/amdgpu/0000:03:00.0/ip_discovery/die/0/GC/0";
        for (name, number) in [("major", 9), ("minor", 4), ("revision", revision)] {
            write(root, &format!("{core}/{name}"), format!("{number}\n"));
        }
        let machine = Machine::at(root);
        (dir, machine)
    }

    fn module() -> Module {
        Module {
            file: "amdkfd.ko".into(),
            kernel: RELEASE.into(),
            amdgpu_build_id: Some("01020304".into()),
            graphics_cores: vec!["9.4.3".into()],
            ..Module::default()
        }
    }

    fn told(revision: u32, module: &Module) -> Vec<String> {
        let (_dir, machine) = machine(revision);
        let found = of_module(&machine, module).into_iter();
        found.map(|obstacle| obstacle.what).collect()
    }

    #[test]
    fn nothing_stands_in_the_way_of_the_right_module() {
        assert_eq!(told(3, &module()), Vec::<String>::new());
    }

    #[test]
    fn another_kernel_amdgpu_and_gpu_are_all_told() {
        let other = Module {
            kernel: "7.2.12+deb13-amd64".into(),
            amdgpu_build_id: Some("01020305".into()),
            ..module()
        };
        let told = told(4, &other);
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(
            told[0].contains("is for kernel 7.2.12+deb13-amd64, and 7.3.4"),
            "{told:?}"
        );
        assert!(
            told[1].contains("(build id 01020305) than is loaded (01020304)"),
            "{told:?}"
        );
        assert!(
            told[2].contains("0000:03:00.0 has graphics core 9.4.4"),
            "{told:?}"
        );
    }

    #[test]
    fn what_a_module_does_not_tell_is_left_to_the_kernel() {
        let old = Module {
            amdgpu_build_id: None,
            graphics_cores: Vec::new(),
            ..module()
        };
        assert_eq!(told(4, &old), Vec::<String>::new());
    }
}
