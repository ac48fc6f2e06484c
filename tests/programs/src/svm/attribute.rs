// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Attributes as the scripts write them: `pref=G0`, `fetch=cpu`, `access=G0`, `inplace=G1`,
//! `noaccess=G0`, `set=0x8`, `clear=0x1`, `gran=9`; `type0x63=0` is one that does not exist.
//! A location is a GPU, `cpu`, `none` (undefined) or a number.

use anyhow::{Context, Result};
use kfd::SvmAttribute;
use kfd_uapi as uapi;

const TYPES: [(&str, u32); 8] = [
    ("pref", uapi::KFD_IOCTL_SVM_ATTR_PREFERRED_LOC),
    ("fetch", uapi::KFD_IOCTL_SVM_ATTR_PREFETCH_LOC),
    ("access", uapi::KFD_IOCTL_SVM_ATTR_ACCESS),
    ("inplace", uapi::KFD_IOCTL_SVM_ATTR_ACCESS_IN_PLACE),
    ("noaccess", uapi::KFD_IOCTL_SVM_ATTR_NO_ACCESS),
    ("set", uapi::KFD_IOCTL_SVM_ATTR_SET_FLAGS),
    ("clear", uapi::KFD_IOCTL_SVM_ATTR_CLR_FLAGS),
    ("gran", uapi::KFD_IOCTL_SVM_ATTR_GRANULARITY),
];

/// The number that a script writes, in tens or with 0x.
pub fn number(text: &str) -> Result<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
    .with_context(|| format!("{text} is no number"))
}

/// The attribute that `text` says; without a value, as GET_ATTR is asked, it is 0.
pub fn parse(text: &str, gpus: &[u32]) -> Result<SvmAttribute> {
    let (name, value) = text.split_once('=').unwrap_or((text, "0"));
    let known = TYPES.iter().find(|(known, _)| *known == name);
    let type_ = match known {
        Some((_, type_)) => *type_,
        None => {
            let digits = name.strip_prefix("type");
            number(digits.with_context(|| format!("{name} is no attribute"))?)? as u32
        }
    };
    let value = match value {
        "cpu" => uapi::KFD_IOCTL_SVM_LOCATION_SYSMEM,
        "none" => uapi::KFD_IOCTL_SVM_LOCATION_UNDEFINED,
        _ => match value.strip_prefix('G') {
            Some(gpu) => *gpus.get(gpu.parse::<usize>()?).context("no such GPU")?,
            None => number(value)? as u32,
        },
    };
    Ok(SvmAttribute { type_, value })
}

/// As the scripts write it.
pub fn show(attribute: &SvmAttribute, gpus: &[u32]) -> String {
    let known = TYPES.iter().find(|(_, type_)| *type_ == attribute.type_);
    let Some((name, type_)) = known else {
        return format!("type{:#x}={:#x}", attribute.type_, attribute.value);
    };
    let value = attribute.value;
    let is_location = *type_ <= uapi::KFD_IOCTL_SVM_ATTR_PREFETCH_LOC;
    let is_place = *type_ <= uapi::KFD_IOCTL_SVM_ATTR_NO_ACCESS;
    let gpu = gpus.iter().position(|&gpu| gpu == value);
    match (gpu, value) {
        (Some(gpu), _) if is_place => format!("{name}=G{gpu}"),
        (_, uapi::KFD_IOCTL_SVM_LOCATION_SYSMEM) if is_location => format!("{name}=cpu"),
        (_, uapi::KFD_IOCTL_SVM_LOCATION_UNDEFINED) if is_location => format!("{name}=none"),
        _ if *type_ == uapi::KFD_IOCTL_SVM_ATTR_GRANULARITY => format!("{name}={value}"),
        _ => format!("{name}={value:#x}"),
    }
}

/// What GET_ATTR can be asked for, with the access of each GPU.
pub fn everything(gpus: &[u32]) -> Vec<SvmAttribute> {
    let of = |type_| SvmAttribute { type_, value: 0 };
    let mut all = vec![
        of(uapi::KFD_IOCTL_SVM_ATTR_PREFERRED_LOC),
        of(uapi::KFD_IOCTL_SVM_ATTR_PREFETCH_LOC),
    ];
    all.extend(gpus.iter().map(|&value| SvmAttribute {
        type_: uapi::KFD_IOCTL_SVM_ATTR_ACCESS,
        value,
    }));
    all.extend([
        of(uapi::KFD_IOCTL_SVM_ATTR_SET_FLAGS),
        of(uapi::KFD_IOCTL_SVM_ATTR_CLR_FLAGS),
        of(uapi::KFD_IOCTL_SVM_ATTR_GRANULARITY),
    ]);
    all
}
