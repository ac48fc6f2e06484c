// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A directory in the layout of the OCI image specification: index.json names images, and what they
//! are made of lies in blobs/, each by its digest. Every blob is checked against that before use.

use super::tree::{Tree, Until};
use super::{decompressed, Settings};
use crate::interrupt::Interrupt;
use anyhow::{anyhow, bail, Context, Result};
use oci_spec::image::{
    Arch, Descriptor, DigestAlgorithm, ImageConfiguration, ImageIndex, ImageManifest, MediaType, Os,
};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Which of a layout's images an entry of its index is.
const TAG: &str = "org.opencontainers.image.ref.name";
/// Docker's names of what OCI has names for as well.
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// An index in an index is for several machines; one in that is nobody's.
const DEEPEST: usize = 3;
/// A manifest or a configuration is some KiB.
const LONGEST_TEXT: u64 = 16 << 20;

/// An image whose manifest and configuration were read.
#[derive(Debug)]
pub struct Found {
    layout: PathBuf,
    digest: String,
    layers: Vec<Descriptor>,
    settings: Settings,
}

impl Found {
    /// The manifest's: all that is in the image depends on it.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn lay(&self, tree: &mut Tree) -> Result<()> {
        for layer in &self.layers {
            let context = || format!("the layer {}", layer.digest());
            let blob = open(&self.layout, layer, &tree.interrupt).with_context(context)?;
            tree.lay(decompressed(blob)?, true).with_context(context)?;
        }
        Ok(())
    }
}

/// The image of that tag, or the only one there is.
pub fn find(layout: &Path, tag: Option<&str>) -> Result<Found> {
    let path = layout.join("index.json");
    let index = fs::read(&path).with_context(|| path.display().to_string())?;
    let index = ImageIndex::from_reader(&index[..]).context("index.json")?;
    let manifest = choose(layout, &index, tag, DEEPEST)?;
    let digest = manifest.digest().to_string();
    let manifest = ImageManifest::from_reader(&text(layout, &manifest)?[..])?;
    let config = text(layout, manifest.config())?;
    let config = ImageConfiguration::from_reader(&config[..]).context("the configuration")?;
    if config.architecture() != &Arch::Amd64 || config.os() != &Os::Linux {
        bail!("it is for {} and {}", config.os(), config.architecture());
    }
    let config = config.config().as_ref();
    let env = config.and_then(|config| config.env().as_ref());
    let split = |word: &String| {
        let (name, value) = word.split_once('=')?;
        Some((name.to_string(), value.to_string()))
    };
    let cwd = config.and_then(|config| config.working_dir().clone());
    let usual = Settings::of_any_root();
    Ok(Found {
        layout: layout.to_path_buf(),
        digest,
        layers: manifest.layers().clone(),
        settings: Settings {
            env: env.into_iter().flatten().filter_map(split).collect(),
            cwd: cwd.filter(|cwd| !cwd.is_empty()).or(usual.cwd),
        },
    })
}

fn choose(
    layout: &Path,
    index: &ImageIndex,
    tag: Option<&str>,
    deepest: usize,
) -> Result<Descriptor> {
    let tag_of = |entry: &Descriptor| entry.annotations().as_ref()?.get(TAG).cloned();
    // Without a platform it is taken for ours: the configuration says it again.
    let is_ours = |entry: &&Descriptor| match entry.platform() {
        Some(platform) => platform.architecture() == &Arch::Amd64 && platform.os() == &Os::Linux,
        None => true,
    };
    let fits = |entry: &&Descriptor| tag.is_none() || tag_of(entry).as_deref() == tag;
    let fitting: Vec<_> = index
        .manifests()
        .iter()
        .filter(is_ours)
        .filter(fits)
        .collect();
    let [entry] = fitting[..] else {
        let tags: Vec<_> = index.manifests().iter().filter_map(tag_of).collect();
        bail!(
            "{} images fit; the layout has the tags: {}",
            fitting.len(),
            tags.join(" ")
        );
    };
    match entry.media_type() {
        MediaType::ImageManifest => Ok(entry.clone()),
        MediaType::Other(kind) if kind == DOCKER_MANIFEST => Ok(entry.clone()),
        kind if *kind == MediaType::ImageIndex
            || *kind == MediaType::Other(DOCKER_INDEX.into()) =>
        {
            let deepest = deepest.checked_sub(1);
            let deepest = deepest.ok_or_else(|| anyhow!("an index in an index in an index"))?;
            let index = ImageIndex::from_reader(&text(layout, entry)?[..])?;
            choose(layout, &index, None, deepest)
        }
        other => bail!("{other} is no image"),
    }
}

fn text(layout: &Path, descriptor: &Descriptor) -> Result<Vec<u8>> {
    if descriptor.size() > LONGEST_TEXT {
        bail!("{} is too long", descriptor.digest());
    }
    let mut bytes = Vec::new();
    open(layout, descriptor, &Interrupt::default())?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A blob that is what its digest says. The digest's characters were checked when it was parsed: it
/// leads nowhere else than into blobs/.
fn open(layout: &Path, descriptor: &Descriptor, interrupt: &Interrupt) -> Result<File> {
    let digest = descriptor.digest();
    if digest.algorithm() != &DigestAlgorithm::Sha256 {
        bail!("{digest}: only sha256 is known here");
    }
    let path = layout.join("blobs/sha256").join(digest.digest());
    let mut file = File::open(&path).with_context(|| path.display().to_string())?;
    let mut hash = Hashing(Sha256::new());
    let mut reader = Until {
        reader: &file,
        interrupt: interrupt.clone(),
    };
    let length = io::copy(&mut reader, &mut hash)?;
    let found: String = hash
        .0
        .finalize()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    if length != descriptor.size() || found != digest.digest() {
        bail!("{} is not what its digest says", path.display());
    }
    file.rewind()?;
    Ok(file)
}

struct Hashing(Sha256);

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, Value};

    struct Layout(tempfile::TempDir);

    impl Layout {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            fs::create_dir_all(directory.path().join("blobs/sha256")).unwrap();
            Self(directory)
        }

        fn blob(&self, kind: &str, bytes: &[u8]) -> Value {
            let mut hash = Hashing(Sha256::new());
            hash.write_all(bytes).unwrap();
            let name: String = hash
                .0
                .finalize()
                .iter()
                .map(|b| format!("{b:02x}"))
                .collect();
            fs::write(self.0.path().join("blobs/sha256").join(&name), bytes).unwrap();
            json!({ "mediaType": kind, "digest": format!("sha256:{name}"), "size": bytes.len() })
        }

        fn image(&self, arch: &str) -> Value {
            let config = json!({
                "architecture": arch, "os": "linux", "rootfs": { "type": "layers", "diff_ids": [] },
                "config": { "Env": ["PATH=/opt/bin", "A=b=c"], "WorkingDir": "/opt" },
            });
            let config = config.to_string();
            let config = self.blob(
                "application/vnd.oci.image.config.v1+json",
                config.as_bytes(),
            );
            let manifest = json!({ "schemaVersion": 2, "config": config, "layers": [] });
            self.blob(
                "application/vnd.oci.image.manifest.v1+json",
                manifest.to_string().as_bytes(),
            )
        }

        fn find(&self, manifests: Value, tag: Option<&str>) -> Result<Found> {
            let index = json!({ "schemaVersion": 2, "manifests": manifests }).to_string();
            fs::write(self.0.path().join("index.json"), index).unwrap();
            find(self.0.path(), tag)
        }
    }

    fn tagged(mut entry: Value, tag: &str) -> Value {
        entry["annotations"] = json!({ TAG: tag });
        entry
    }

    #[test]
    fn the_only_image_or_that_of_a_tag() {
        let layout = Layout::new();
        let image = layout.image("amd64");
        let found = layout.find(json!([image]), None).unwrap();
        assert_eq!(found.settings.cwd.as_deref(), Some("/opt"));
        let env = [("PATH", "/opt/bin"), ("A", "b=c")];
        assert_eq!(found.settings.env, env.map(|(a, b)| (a.into(), b.into())));
        let two = json!([tagged(image.clone(), "a"), tagged(image, "b")]);
        assert!(layout.find(two.clone(), Some("b")).is_ok());
        let error = layout.find(two.clone(), None).unwrap_err().to_string();
        assert!(error.contains("a b"), "{error}");
        assert!(layout.find(two, Some("c")).is_err());
    }

    #[test]
    fn of_several_machines_ours_is_taken() {
        let layout = Layout::new();
        let on = |arch: &str| {
            let mut image = layout.image(arch);
            image["platform"] = json!({ "architecture": arch, "os": "linux" });
            image
        };
        let index = json!({ "schemaVersion": 2, "manifests": [on("arm64"), on("amd64")] });
        let kind = "application/vnd.oci.image.index.v1+json";
        let inner = layout.blob(kind, index.to_string().as_bytes());
        assert!(layout.find(json!([inner]), None).is_ok());
        let error = layout
            .find(json!([layout.image("arm64")]), None)
            .unwrap_err();
        assert!(error.to_string().contains("arm64"), "{error}");
    }

    #[test]
    fn a_blob_is_what_its_digest_says_or_nothing() {
        let layout = Layout::new();
        let image = layout.image("amd64");
        let digest = image["digest"].as_str().unwrap().replace("sha256:", "");
        let mut longer = image.clone();
        longer["size"] = 7.into();
        assert!(layout.find(json!([longer]), None).is_err());
        for digest in ["sha256:../../secret", "sha256:0", "md5:../x", "../x"] {
            let mut other = image.clone();
            other["digest"] = digest.into();
            assert!(layout.find(json!([other]), None).is_err(), "{digest}");
        }
        fs::write(layout.0.path().join("blobs/sha256").join(digest), "{}").unwrap();
        let error = format!("{:#}", layout.find(json!([image]), None).unwrap_err());
        assert!(error.contains("not what its digest says"), "{error}");
    }
}
