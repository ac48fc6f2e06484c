// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The virtual machine as QEMU's command line: one q35 board that is the same for every run, so
//! that a snapshot of it fits, and a free PCI Express port for each GPU that may come.

use crate::args::{Kernel, MachineArgs, Share};
use crate::assets::{Assets, Key};
use crate::net;
use anyhow::Result;
use kfd_vm_protocol::{MODULES_DISK, PORT, ROOT_DISK, SHARE_TAG};
use serde_json::{json, Value};
use std::path::Path;

pub const MAX_GPUS: u8 = 8;
/// Address space that each port keeps free for a GPU's VRAM and doorbells, and for its registers.
/// The first has room for the largest card; all of them for it would be more than SeaBIOS places.
const PREFETCHABLE_RESERVE: &str = "64G";
const FIRST_PREFETCHABLE_RESERVE: &str = "512G";
const MEMORY_RESERVE: &str = "16M";
/// `rep` string instructions count once for each iteration; without these the kernel avoids them.
const CPU_ICOUNT: &str = "max,phys-bits=48,erms=off,fsrm=off,fsrs=off,fzrm=off,fsrc=off";
/// At 40 bits, the default, a large BAR falls into a hole that the address map reserves.
const CPU: &str = "max,phys-bits=48";
/// The clock runs on the host's, whatever the kernel's watchdog thinks of it when the host is busy.
/// The kernel's own 128 KiB of log are less than some tests make it say, and what it reports must
/// not be lost.
const APPEND: &str = "console=ttyS0 loglevel=5 panic=-1 oops=panic sysrq_always_enabled \
                      random.trust_cpu=on tsc=reliable log_buf_len=32M";
const APPEND_ICOUNT: &str = "iomem=relaxed nokaslr";
/// Without the first KASAN says nothing after its first report. With five levels of page tables an
/// interrupt that comes while the kernel identifies its CPU, whose features are unknown for a
/// moment, is such a report: what it touches seems to lie outside of what has a shadow.
const APPEND_KASAN: &str = "kasan_multi_shot no5lvl";

/// What differs from run to run of the same machine.
#[derive(Debug, Clone)]
pub struct Wiring {
    /// File descriptors of connected sockets.
    pub agent: i32,
    pub monitor: i32,
    pub console: i32,
    /// The shared directory; an empty one stands for none, the device is there all the same.
    pub share: Share,
    /// What answers the network card, if there is to be one.
    pub network: Option<String>,
    /// A plugin for the translator.
    pub plugin: Option<String>,
}

pub struct Machine<'a> {
    pub args: &'a MachineArgs,
    /// By the processor, or translated: see [`MachineArgs::kvm`].
    pub kvm: bool,
    /// Whether the guest does not see that it is a virtual machine.
    pub bare: bool,
    pub assets: &'a Assets,
    pub initramfs: &'a Path,
}

impl Machine<'_> {
    pub fn arguments(&self, wiring: &Wiring) -> Vec<String> {
        let mut arguments = self.board();
        arguments.extend(self.disks());
        arguments.extend(channels(wiring));
        arguments.extend(ports());
        let network = wiring.network.iter();
        arguments.extend(network.flat_map(|network| ["-netdev".into(), network.clone()]));
        arguments.extend(words(&self.args.qemu_args));
        let plugin = wiring.plugin.iter();
        arguments.extend(plugin.flat_map(|plugin| ["-plugin".into(), plugin.clone()]));
        arguments
    }

    /// Names everything that a snapshot of this machine depends on.
    pub fn key(&self) -> Result<String> {
        let wiring = Wiring {
            agent: 0,
            monitor: 0,
            console: 0,
            share: Share {
                directory: "share".into(),
                read_only: false,
            },
            network: None,
            plugin: None,
        };
        let key = self
            .arguments(&wiring)
            .iter()
            .fold(Key::default(), |key, word| key.text(word));
        let key = key
            .large_file(&self.assets.qemu.binary())?
            .large_file(&self.assets.kernel.vmlinuz)?
            .large_file(&self.assets.kernel.modules_image)?;
        let key = match &self.args.image {
            // A disk of the cache is named by what is in it, and its time is that of its last use.
            Some(_) => key,
            None => key.large_file(&self.assets.guest_image)?,
        };
        Ok(key.finish())
    }

    fn board(&self) -> Vec<String> {
        let (args, icount) = (self.args, self.args.icount);
        let smp = if icount { 1 } else { args.smp };
        let mut words = words(
            "-nodefaults -no-user-config -display none -no-reboot -run-with exit-with-parent=on",
        );
        words.extend(words_of(&[
            ("-M", "q35,memory-backend=mem,usb=off,smbus=off"),
            (
                "-object",
                &format!("memory-backend-memfd,id=mem,size={},share=on", args.mem),
            ),
            ("-m", &args.mem),
            ("-smp", &smp.to_string()),
            ("-cpu", &self.cpu()),
            (
                "-accel",
                match self.kvm {
                    true => "kvm",
                    false if icount || args.take_turns => "tcg,thread=single",
                    false => "tcg,thread=multi",
                },
            ),
            ("-kernel", &self.assets.kernel.vmlinuz.display().to_string()),
            ("-initrd", &self.initramfs.display().to_string()),
            ("-append", &self.kernel_command_line()),
            ("-device", "vmgenid"),
            ("-device", "virtio-rng-pci,addr=0x2"),
        ]));
        if icount {
            words.extend(words_of(&[
                ("-icount", "shift=0,sleep=off"),
                ("-rtc", "clock=vm"),
            ]));
        }
        words
    }

    fn cpu(&self) -> String {
        let cpu = if self.args.icount { CPU_ICOUNT } else { CPU };
        if self.bare {
            return format!("{cpu},hypervisor=off");
        }
        cpu.to_owned()
    }

    fn kernel_command_line(&self) -> String {
        let icount = if self.args.icount { APPEND_ICOUNT } else { "" };
        let kasan = match self.args.kernel {
            Kernel::Kasan => APPEND_KASAN,
            _ => "",
        };
        let words = [APPEND, icount, kasan, &self.args.append];
        let words = words.into_iter().filter(|words| !words.is_empty());
        words.collect::<Vec<_>>().join(" ")
    }

    fn disks(&self) -> Vec<String> {
        let kernel = &self.assets.kernel;
        let disk = |id: &str, file: &Path, slot: u8| {
            let file = file.display().to_string().replace(',', ",,");
            let drive = format!("if=none,id={id},format=raw,readonly=on,file={file}");
            let device = format!("virtio-blk-pci,drive={id},serial={id},addr={slot:#x}");
            words_of(&[("-drive", &drive), ("-device", &device)])
        };
        let mut words = disk(ROOT_DISK, &self.assets.guest_image, 3);
        words.extend(disk(MODULES_DISK, &kernel.modules_image, 4));
        words
    }
}

/// The agent's port, the monitor, the console and the share.
fn channels(wiring: &Wiring) -> Vec<String> {
    let share = wiring
        .share
        .directory
        .display()
        .to_string()
        .replace(',', ",,");
    // The guest's device is the same, so the snapshot is, too.
    let access = if wiring.share.read_only {
        ",readonly=on"
    } else {
        ""
    };
    words_of(&[
        (
            "-chardev",
            &format!("socket,id=monitor,fd={}", wiring.monitor),
        ),
        ("-mon", "chardev=monitor,mode=control"),
        (
            "-chardev",
            &format!("socket,id=console,fd={}", wiring.console),
        ),
        ("-serial", "chardev:console"),
        ("-chardev", &format!("socket,id=agent,fd={}", wiring.agent)),
        ("-device", "virtio-serial-pci,max_ports=2,addr=0x5"),
        (
            "-device",
            &format!("virtserialport,chardev=agent,name={PORT}"),
        ),
        (
            "-fsdev",
            &format!("local,id=share,path={share},security_model=none,multidevs=remap{access}"),
        ),
        (
            "-device",
            &format!("virtio-9p-pci,fsdev=share,mount_tag={SHARE_TAG},addr=0x6"),
        ),
    ])
}

fn ports() -> Vec<String> {
    let port = |number: u8| {
        let prefetchable = match number {
            0 => FIRST_PREFETCHABLE_RESERVE,
            _ => PREFETCHABLE_RESERVE,
        };
        format!(
            "pcie-root-port,id={},slot={},chassis={},addr={:#x},\
             pref64-reserve={prefetchable},mem-reserve={MEMORY_RESERVE},io-reserve=0",
            port_name(number),
            number + 1,
            number + 1,
            number + 8
        )
    };
    let network = format!(
        "pcie-root-port,id={},slot={slot},chassis={slot},addr={:#x},io-reserve=0",
        net::PORT,
        MAX_GPUS + 8,
        slot = MAX_GPUS + 1,
    );
    (0..MAX_GPUS)
        .map(port)
        .chain([network])
        .flat_map(|port| ["-device".to_string(), port])
        .collect()
}

fn port_name(number: u8) -> String {
    format!("gpu-port{number}")
}

/// The arguments of QMP's `device_add` that plug a model's GPU into its port; `-device` takes the
/// same as JSON.
pub fn gpu_device(number: u8, socket: &Path, icount: bool) -> Value {
    let mut device = json!({
        "driver": "vfio-user-pci",
        "id": format!("gpu{number}"),
        "bus": port_name(number),
        "socket": { "type": "unix", "path": socket },
    });
    if icount {
        // A posted write would take effect at a time of its own.
        device["x-no-posted-writes"] = true.into();
    }
    device
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(String::from).collect()
}

fn words_of(pairs: &[(&str, &str)]) -> Vec<String> {
    pairs
        .iter()
        .flat_map(|(option, value)| [option.to_string(), value.to_string()])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use crate::assets::{KernelFiles, Qemu};
    use clap::Parser;
    use std::fs;
    use std::time::Duration;

    fn machine_args(line: &str) -> MachineArgs {
        let line = format!("kfd-vm run {line} -- true");
        match Cli::try_parse_from(line.split_whitespace())
            .unwrap()
            .command
        {
            Command::Run(args) => args.options.machine,
            other => panic!("{other:?}"),
        }
    }

    fn assets(dir: &Path) -> Assets {
        let file = |name: &str| {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, name).unwrap();
            path
        };
        file("usr/bin/qemu-system-x86_64");
        let kernel = KernelFiles {
            vmlinuz: file("vmlinuz"),
            modules_image: file("modules.img"),
            modules: dir.into(),
        };
        let qemu = Qemu { root: dir.into() };
        Assets {
            cache: dir.into(),
            qemu,
            guest_image: file("guest,1.img"),
            settings: Default::default(),
            kernel,
            module: file("amdkfd.ko"),
        }
    }

    fn key(dir: &Path, line: &str) -> String {
        let (assets, args) = (assets(dir), machine_args(line));
        Machine {
            args: &args,
            kvm: false,
            bare: false,
            assets: &assets,
            initramfs: Path::new("i"),
        }
        .key()
        .unwrap()
    }

    #[test]
    fn the_key_follows_the_machine_and_not_the_run() {
        let dir = tempfile::tempdir().unwrap();
        assets(dir.path());
        let stamp = fs::metadata(dir.path().join("vmlinuz"))
            .unwrap()
            .modified()
            .unwrap();
        let key = |line: &str| {
            let key = key(dir.path(), line);
            key
        };
        // The files are rewritten for each key: give them one time.
        let used = |line: &str, later: Duration| {
            let (assets, args) = (assets(dir.path()), machine_args(line));
            for name in [
                "vmlinuz",
                "modules.img",
                "guest,1.img",
                "usr/bin/qemu-system-x86_64",
            ] {
                let file = fs::File::options()
                    .write(true)
                    .open(dir.path().join(name))
                    .unwrap();
                let later = if name.starts_with("guest") {
                    later
                } else {
                    Duration::ZERO
                };
                file.set_modified(stamp + later).unwrap();
            }
            Machine {
                args: &args,
                kvm: false,
                bare: false,
                assets: &assets,
                initramfs: Path::new("i"),
            }
            .key()
            .unwrap()
        };
        let fixed = |line: &str| used(line, Duration::ZERO);
        let base = fixed("");
        let later = Duration::from_secs(1);
        assert_ne!(base, used("", later), "another disk");
        let own = "--image root.tar";
        assert_eq!(fixed(own), used(own, later), "the same disk, used again");
        assert_eq!(base, fixed("--gpus 2 --kfd c --timeout 5 --share /tmp"));
        for line in ["--mem 3G", "--smp 1", "--append quiet", "--icount"] {
            assert_ne!(base, fixed(line), "{line}");
        }
        assert_ne!(base, key(""), "newer files, another snapshot");
        let (assets, args) = (assets(dir.path()), machine_args(""));
        let machine = |kvm| Machine {
            args: &args,
            kvm,
            bare: false,
            assets: &assets,
            initramfs: Path::new("i"),
        };
        let [kvm, tcg] = [machine(true), machine(false)].map(|machine| machine.key().unwrap());
        assert_ne!(kvm, tcg, "neither restores the other's snapshot");
    }

    #[test]
    fn a_bare_machine_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let (assets, args) = (assets(dir.path()), machine_args(""));
        let machine = |bare| Machine {
            args: &args,
            kvm: false,
            bare,
            assets: &assets,
            initramfs: Path::new("i"),
        };
        assert_eq!(machine(false).cpu(), CPU);
        assert_eq!(machine(true).cpu(), format!("{CPU},hypervisor=off"));
        assert_ne!(machine(true).key().unwrap(), machine(false).key().unwrap());
    }

    #[test]
    fn a_comma_in_a_path_is_escaped() {
        let dir = tempfile::tempdir().unwrap();
        let (assets, args) = (assets(dir.path()), machine_args(""));
        let machine = Machine {
            args: &args,
            kvm: false,
            bare: false,
            assets: &assets,
            initramfs: Path::new("i"),
        };
        let share = Share {
            directory: "/a,b".into(),
            read_only: true,
        };
        let words = machine.arguments(&Wiring {
            agent: 3,
            monitor: 4,
            console: 5,
            share,
            network: None,
            plugin: None,
        });
        assert!(words.iter().any(|word| word.contains("guest,,1.img")));
        let share = words.iter().find(|word| word.contains("path=/a,,b,"));
        assert!(share.unwrap().ends_with(",readonly=on"));
    }

    #[test]
    fn icount_is_one_processor_and_no_posted_writes() {
        let dir = tempfile::tempdir().unwrap();
        let (assets, args) = (assets(dir.path()), machine_args("--icount --smp 4"));
        let machine = Machine {
            args: &args,
            kvm: false,
            bare: false,
            assets: &assets,
            initramfs: Path::new("i"),
        };
        let line = machine.board().join(" ");
        assert!(line.contains("-smp 1 ") && line.contains("-icount shift=0,sleep=off"));
        assert!(line.contains("nokaslr"));
        assert_eq!(
            gpu_device(1, Path::new("s"), true)["x-no-posted-writes"],
            true
        );
        assert_eq!(gpu_device(1, Path::new("s"), false)["bus"], "gpu-port1");
    }
}
