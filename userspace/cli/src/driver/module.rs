// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! What an amdkfd.ko says of itself. `modinfo` reads it, since modules may be compressed.

use super::Source;
use anyhow::{anyhow, Context, Result};
use serde::Serialize;
use std::path::Path;
use std::process::Command;

/// A module's information.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Module {
    /// Where it lies.
    pub file: String,
    /// Its version, where it has one.
    pub version: Option<String>,
    /// The kernel that it was built for.
    pub kernel: String,
    /// The build id of the amdgpu.ko that it was built for; `None` in one of ours that is too old
    /// to tell.
    pub amdgpu_build_id: Option<String>,
    /// The graphics cores that it drives, such as `9.4.3`; none in one that is too old to tell.
    pub graphics_cores: Vec<String>,
    /// Its signature.
    pub signature: Option<Signature>,
}

/// Who signed a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Signature {
    /// The name in the certificate.
    pub signer: String,
    /// The certificate's number.
    pub key: String,
}

impl Module {
    /// Reads the module that `source` names: for the running kernel, if it is an installed one.
    pub fn read(source: &Source) -> Result<Self> {
        let mut command = tool("modinfo");
        command.arg("-0");
        match source {
            // Else modinfo takes a name without a slash for that of an installed module.
            Source::File(file) => command.arg(std::path::absolute(file)?),
            Source::Installed => command.arg("amdkfd"),
        };
        let output = command.output().context("modinfo, of the package kmod")?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(anyhow!(
                "{}",
                text.lines().last().unwrap_or("modinfo failed").trim()
            ));
        }
        Ok(parse(&String::from_utf8_lossy(&output.stdout)))
    }
}

/// A program of the administrator's, which an ordinary user's PATH need not lead to.
pub fn tool(name: &str) -> Command {
    let directories = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    let mut paths = directories.iter().map(|dir| Path::new(dir).join(name));
    let found = paths.find(|path| path.exists());
    Command::new(found.unwrap_or_else(|| name.into()))
}

/// The answer of `modinfo -0`: `NAME=VALUE`, or `NAME: VALUE` for what is not in the module's own
/// table, each ended by a zero.
fn parse(text: &str) -> Module {
    let fields: Vec<(&str, &str)> = text
        .split('\0')
        .filter_map(|field| field.split_once(['=', ':']))
        .map(|(name, value)| (name.trim(), value.trim()))
        .collect();
    let field = |wanted: &str| {
        let mut same = fields.iter().filter(|(name, _)| *name == wanted);
        same.next().map(|(_, value)| (*value).to_owned())
    };
    let first_word = |text: String| text.split_whitespace().next().map(str::to_owned);
    Module {
        file: field("filename").unwrap_or_default(),
        version: field("version"),
        kernel: field("vermagic").and_then(first_word).unwrap_or_default(),
        amdgpu_build_id: field("amdgpu_build_id"),
        graphics_cores: field("graphics_cores")
            .map(|cores| {
                cores
                    .split(',')
                    .map(|core| core.trim().to_owned())
                    .collect()
            })
            .unwrap_or_default(),
        signature: field("sig_id").map(|_| Signature {
            signer: field("signer").unwrap_or_default(),
            key: field("sig_key").unwrap_or_default(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNSIGNED: &str = "filename:       /lib/modules/a=b/updates/dkms/amdkfd.ko.xz\0\
        version=0.1.0\0\
        graphics_cores=9.4.3, 9.5.0\0\
        amdgpu_build_id=00ff\0\
        depends=\0\
        vermagic=7.2.12+deb13-amd64 SMP preempt mod_unload \0\
        parm:           state:what the module does\0";

    #[test]
    fn a_module_says_what_it_is_for() {
        let module = parse(UNSIGNED);
        assert_eq!(module.file, "/lib/modules/a=b/updates/dkms/amdkfd.ko.xz");
        assert_eq!(module.kernel, "7.2.12+deb13-amd64");
        assert_eq!(module.amdgpu_build_id.as_deref(), Some("00ff"));
        assert_eq!(module.graphics_cores, ["9.4.3", "9.5.0"]);
        assert_eq!(module.signature, None);
    }

    #[test]
    fn a_signature_has_a_name_and_a_number() {
        let text = format!(
            "{UNSIGNED}sig_id=PKCS#7\0signer=DKMS module signing key\0\
            sig_key=5A:01:FF\0sig_hashalgo=sha256\0signature=00:11\n\t\t22\0"
        );
        let signature = parse(&text).signature.expect("it is signed");
        assert_eq!(signature.signer, "DKMS module signing key");
        assert_eq!(signature.key, "5A:01:FF");
    }

    #[test]
    fn a_module_that_tells_nothing_claims_nothing() {
        assert_eq!(parse(""), Module::default());
        assert_eq!(parse("sig_id\0vermagic=\0").kernel, "");
    }
}
