// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Where kfd-vm finds its parts: in the project's tree, where cargo builds them when it is called,
//! or where a package has put them, built.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

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
    /// What the launcher script of a tree says; or what a package was built for; or the tree that
    /// this was built in.
    pub fn find() -> Self {
        Self::choose(
            std::env::var_os("KFD_VM_PROJECT"),
            option_env!("KFD_VM_PROGRAMS").zip(option_env!("KFD_VM_SHARED")),
        )
    }

    fn choose(project: Option<OsString>, installed: Option<(&str, &str)>) -> Self {
        match (project, installed) {
            (Some(project), _) => Self::Tree(project.into()),
            (None, Some((programs, shared))) => Self::Installed {
                programs: programs.into(),
                shared: shared.into(),
            },
            (None, None) => {
                let built = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3);
                Self::Tree(built.unwrap_or(Path::new("/")).to_path_buf())
            }
        }
    }

    pub fn sysroot(&self) -> PathBuf {
        let (Self::Tree(dir) | Self::Installed { shared: dir, .. }) = self;
        dir.join("tools/sysroot/sysroot")
    }

    /// The module for the stock kernel of that release by default: the tree's own in
    /// `built`, or the one that DKMS has built on this machine.
    pub fn module(&self, release: &OsStr, built: PathBuf) -> PathBuf {
        match self {
            Self::Tree(_) => built.join("amdkfd.ko"),
            Self::Installed { .. } => Path::new("/lib/modules")
                .join(release)
                .join("updates/dkms/amdkfd.ko.xz"),
        }
    }

    /// The same for a kernel that `sysroot NAME-kernel` builds, which only a tree has modules for.
    pub fn checking_module(&self, name: &str) -> PathBuf {
        let (Self::Tree(dir) | Self::Installed { shared: dir, .. }) = self;
        dir.join("build").join(name).join("amdkfd.ko")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKAGE: (&str, &str) = ("/usr/lib/x", "/usr/share/x");

    #[test]
    fn a_tree_comes_before_the_package_and_the_package_before_where_it_was_built() {
        let tree = Place::choose(Some("/tree".into()), Some(PACKAGE));
        assert_eq!(tree, Place::Tree("/tree".into()));
        assert_eq!(tree.sysroot(), Path::new("/tree/tools/sysroot/sysroot"));
        let installed = Place::choose(None, Some(PACKAGE));
        assert_eq!(
            installed.sysroot(),
            Path::new("/usr/share/x/tools/sysroot/sysroot")
        );
        let built = Place::choose(None, None);
        assert!(built.sysroot().exists(), "{built:?}");
    }

    #[test]
    fn the_module_is_the_trees_or_that_of_dkms() {
        let module = |place: Place| place.module(OsStr::new("1.2.3-test"), "/tree/build".into());
        assert_eq!(
            module(Place::Tree("/tree".into())),
            Path::new("/tree/build/amdkfd.ko")
        );
        assert_eq!(
            module(Place::choose(None, Some(PACKAGE))),
            Path::new("/lib/modules/1.2.3-test/updates/dkms/amdkfd.ko.xz")
        );
    }
}
