// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Where kfd-vm finds its parts: in the project's tree, where cargo builds them when it is called,
//! or where a package has put them, built.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Below the prefix of an installation.
const LIB: &str = "lib/amdkfd-rs";
const SHARE: &str = "share/amdkfd-rs";
const AGENT: &str = "kfd-vm-agent";

#[derive(Debug, PartialEq)]
pub enum Place {
    Tree(PathBuf),
    Installed {
        /// gpu-model-server and kfd-vm-agent.
        programs: PathBuf,
        /// tools/sysroot, below it.
        shared: PathBuf,
    },
}

impl Place {
    /// What the launcher script of a tree says; or where this program was installed; or what a
    /// package was built for; or the tree that this was built in.
    pub fn find() -> Self {
        Self::choose(
            std::env::var_os("KFD_VM_PROJECT"),
            std::env::current_exe().ok(),
            option_env!("KFD_VM_PROGRAMS").zip(option_env!("KFD_VM_SHARED")),
        )
    }

    fn choose(
        project: Option<OsString>,
        program: Option<PathBuf>,
        installed: Option<(&str, &str)>,
    ) -> Self {
        if let Some(project) = project {
            return Self::Tree(project.into());
        }
        // PREFIX/bin/kfd-vm has the others in PREFIX/lib and PREFIX/share, wherever PREFIX is.
        let prefix = program.as_deref().and_then(|path| path.ancestors().nth(2));
        if let Some(prefix) = prefix.filter(|prefix| prefix.join(LIB).join(AGENT).exists()) {
            return Self::Installed {
                programs: prefix.join(LIB),
                shared: prefix.join(SHARE),
            };
        }
        match installed {
            Some((programs, shared)) => Self::Installed {
                programs: programs.into(),
                shared: shared.into(),
            },
            None => {
                let built = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3);
                Self::Tree(built.unwrap_or(Path::new("/")).to_path_buf())
            }
        }
    }

    pub fn sysroot(&self) -> PathBuf {
        let (Self::Tree(dir) | Self::Installed { shared: dir, .. }) = self;
        dir.join("tools/sysroot/sysroot")
    }

    /// The tracer: the tree's own, or the one that was installed with `program`, which is this one.
    pub fn kfdctl(&self, program: PathBuf) -> PathBuf {
        match self {
            Self::Tree(project) => project.join("userspace/target/debug/kfdctl"),
            Self::Installed { .. } => program.with_file_name("kfdctl"),
        }
    }

    /// A file that says where everything is, as `sysroot env` does: in an image for containers it
    /// is there already, and nothing is ever fetched.
    pub fn fixed(&self) -> Option<PathBuf> {
        match self {
            Self::Tree(_) => None,
            Self::Installed { shared, .. } => Some(shared.join("assets.env")),
        }
        .filter(|file| file.exists())
    }

    /// The module for the stock kernel of that release by default: the tree's own in
    /// `built`, or the one that was installed, or the one that DKMS has built on this machine.
    pub fn module(&self, release: &OsStr, built: PathBuf) -> PathBuf {
        match self {
            Self::Tree(_) => built.join("amdkfd.ko"),
            Self::Installed { programs, .. } => {
                let installed = programs.join("modules").join(release).join("amdkfd.ko");
                if installed.exists() {
                    return installed;
                }
                Path::new("/lib/modules")
                    .join(release)
                    .join("updates/dkms/amdkfd.ko.xz")
            }
        }
    }

    /// The same for a kernel that `sysroot NAME-kernel` builds, which only a tree has modules for.
    pub fn checking_module(&self, name: &str) -> PathBuf {
        let (Self::Tree(dir) | Self::Installed { shared: dir, .. }) = self;
        dir.join("build").join(name).join("amdkfd.ko")
    }
}

/// Cargo's build of a package of a workspace, which lies in `target` there afterwards: wherever the
/// user's environment or configuration has cargo put what it builds.
pub fn cargo_build(workspace: &Path, package: &str) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--quiet", "--target-dir", "target"]);
    cargo.args(["--package", package]).current_dir(workspace);
    cargo.env_remove("CARGO_BUILD_TARGET");
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKAGE: (&str, &str) = ("/usr/lib/x", "/usr/share/x");

    #[test]
    fn a_tree_comes_before_the_package_and_the_package_before_where_it_was_built() {
        let tree = Place::choose(Some("/tree".into()), None, Some(PACKAGE));
        assert_eq!(tree, Place::Tree("/tree".into()));
        assert_eq!(tree.sysroot(), Path::new("/tree/tools/sysroot/sysroot"));
        let built = Path::new("/tree/userspace/target/debug/kfdctl");
        assert_eq!(tree.kfdctl("/elsewhere/kfd-vm".into()), built);
        let installed = Place::choose(None, None, Some(PACKAGE));
        assert_eq!(
            installed.sysroot(),
            Path::new("/usr/share/x/tools/sysroot/sysroot")
        );
        let built = Place::choose(None, None, None);
        assert!(built.sysroot().exists(), "{built:?}");
    }

    #[test]
    fn an_installation_is_found_from_its_program() {
        let prefix = tempfile::tempdir().unwrap();
        let at = |path: &str| prefix.path().join(path);
        std::fs::create_dir_all(at("lib/amdkfd-rs/modules/1.2.3-test")).unwrap();
        let find = || Place::choose(None, Some(at("bin/kfd-vm")), Some(PACKAGE));
        assert_eq!(find(), Place::choose(None, None, Some(PACKAGE)));
        std::fs::write(at("lib/amdkfd-rs/kfd-vm-agent"), "").unwrap();
        let place = find();
        assert_eq!(place.sysroot(), at("share/amdkfd-rs/tools/sysroot/sysroot"));
        assert_eq!(place.fixed(), None);
        assert_eq!(place.kfdctl(at("bin/kfd-vm")), at("bin/kfdctl"));
        let module = || place.module(OsStr::new("1.2.3-test"), "/tree/build".into());
        assert!(module().starts_with("/lib/modules"));
        let own = at("lib/amdkfd-rs/modules/1.2.3-test/amdkfd.ko");
        std::fs::write(&own, "").unwrap();
        assert_eq!(module(), own);
    }

    #[test]
    fn the_module_is_the_trees_or_that_of_dkms() {
        let module = |place: Place| place.module(OsStr::new("1.2.3-test"), "/tree/build".into());
        assert_eq!(
            module(Place::Tree("/tree".into())),
            Path::new("/tree/build/amdkfd.ko")
        );
        assert_eq!(
            module(Place::choose(None, None, Some(PACKAGE))),
            Path::new("/lib/modules/1.2.3-test/updates/dkms/amdkfd.ko.xz")
        );
    }

    #[test]
    fn what_cargo_builds_is_in_the_tree() {
        let cargo = cargo_build(Path::new("/tree/tools"), "x");
        let args: Vec<_> = cargo.get_args().filter_map(OsStr::to_str).collect();
        assert_eq!(
            args.join(" "),
            "build --quiet --target-dir target --package x"
        );
        assert_eq!(cargo.get_current_dir(), Some(Path::new("/tree/tools")));
        let removed = (OsStr::new("CARGO_BUILD_TARGET"), None);
        assert!(cargo.get_envs().any(|variable| variable == removed));
    }
}
