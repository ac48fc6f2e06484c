// SPDX-License-Identifier: GPL-2.0-only

//! What a process wants of a range of its memory: where it shall be, and which GPUs see it.
//!
//! Core-only.

use crate::bits::set_bits;

/// GPUs of a process at most (`MAX_GPU_INSTANCE` in C).
pub(crate) const MAX_GPUS: usize = 64;

/// `enum kfd_ioctl_svm_attr_type` (linux/kfd_ioctl.h): `KFD_IOCTL_SVM_ATTR_*`.
mod kind {
    pub(super) const PREFERRED_LOC: u32 = 0;
    pub(super) const PREFETCH_LOC: u32 = 1;
    pub(super) const ACCESS: u32 = 2;
    pub(super) const ACCESS_IN_PLACE: u32 = 3;
    pub(super) const NO_ACCESS: u32 = 4;
    pub(super) const SET_FLAGS: u32 = 5;
    pub(super) const CLR_FLAGS: u32 = 6;
    pub(super) const GRANULARITY: u32 = 7;
}

/// `KFD_IOCTL_SVM_FLAG_*` (linux/kfd_ioctl.h).
mod flag {
    pub(super) const HOST_ACCESS: u32 = 1 << 0;
    pub(super) const COHERENT: u32 = 1 << 1;
}

/// `enum kfd_ioctl_svm_location` (linux/kfd_ioctl.h): `KFD_IOCTL_SVM_LOCATION_*`. Other values are
/// GPUs' ids.
mod location {
    pub(super) const SYSMEM: u32 = 0;
    pub(super) const UNDEFINED: u32 = u32::MAX;
}

/// The largest granularity that a range has; larger ones are taken for it.
const LARGEST_GRANULARITY: u8 = 0x3f;

/// A set of a process's GPUs, by their place in its list. Places from [`MAX_GPUS`] on are in none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GpuSet(u64);

impl GpuSet {
    /// No GPU.
    pub(crate) const EMPTY: Self = Self(0);

    const fn bit(place: usize) -> u64 {
        if place < MAX_GPUS {
            1 << place
        } else {
            0
        }
    }

    /// That many, from the list's start.
    pub(crate) const fn first(count: usize) -> Self {
        if count < MAX_GPUS {
            Self((1 << count) - 1)
        } else {
            Self(u64::MAX)
        }
    }

    /// Whether the GPU at a place is one of them.
    pub(crate) const fn contains(self, place: usize) -> bool {
        self.0 & Self::bit(place) != 0
    }

    /// These and one more.
    pub(crate) const fn with(self, place: usize) -> Self {
        Self(self.0 | Self::bit(place))
    }

    /// These but one.
    pub(crate) const fn without(self, place: usize) -> Self {
        Self(self.0 & !Self::bit(place))
    }

    /// Those of either.
    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those of both.
    pub(crate) const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether there is none.
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Their places.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        // CAST: a bit's number.
        set_bits(self.0).map(|place| place as usize)
    }
}

/// Where memory is, or shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// Anywhere.
    Undefined,
    /// In system memory.
    System,
    /// In the VRAM of the GPU at that place.
    Gpu(u8),
}

impl Location {
    /// As a user passes it. `None`: no such GPU.
    fn parse(value: u32, gpu: impl Fn(u32) -> Option<usize>) -> Option<Self> {
        match value {
            location::SYSMEM => Some(Self::System),
            location::UNDEFINED => Some(Self::Undefined),
            id => u8::try_from(known(id, gpu)?).ok().map(Self::Gpu),
        }
    }

    /// As a user gets it. `id`: the id of the GPU at a place.
    pub(super) fn value(self, id: impl Fn(usize) -> Option<u32>) -> u32 {
        match self {
            Self::Undefined => location::UNDEFINED,
            Self::System => location::SYSMEM,
            Self::Gpu(place) => id(place.into()).unwrap_or(location::UNDEFINED),
        }
    }

    /// What two have in common.
    fn common(self, other: Self) -> Self {
        if self == other {
            self
        } else {
            Self::Undefined
        }
    }
}

/// The place of the GPU of that id, if a set can hold it.
fn known(id: u32, gpu: impl Fn(u32) -> Option<usize>) -> Option<usize> {
    gpu(id).filter(|place| *place < MAX_GPUS)
}

/// What a process wants of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// Where it shall be, when GPUs use it.
    pub(crate) preferred: Location,
    /// Where it was last asked to go.
    pub(crate) prefetch: Location,
    /// `KFD_IOCTL_SVM_FLAG_*`.
    pub(crate) flags: u32,
    /// So much moves at a time: pages, as a power of two.
    pub(crate) granularity: u8,
    /// GPUs that see it, and may have it moved to where they see it best.
    pub(crate) access: GpuSet,
    /// GPUs that see it where it is. None of them is in `access`.
    pub(crate) in_place: GpuSet,
}

impl Attributes {
    /// Those of a range of which nothing was said. `access`: with XNACK all GPUs.
    pub(crate) fn new(granularity: u8, access: GpuSet) -> Self {
        Self {
            preferred: Location::Undefined,
            prefetch: Location::Undefined,
            flags: flag::HOST_ACCESS | flag::COHERENT,
            granularity,
            access,
            in_place: GpuSet::EMPTY,
        }
    }

    /// Changes them, one after the other.
    pub(crate) fn apply(&mut self, change: &[Attribute]) {
        for attribute in change {
            match *attribute {
                Attribute::Preferred(location) => self.preferred = location,
                Attribute::Prefetch(location) => self.prefetch = location,
                Attribute::Access(gpu) => {
                    self.access = self.access.with(gpu);
                    self.in_place = self.in_place.without(gpu);
                }
                Attribute::InPlace(gpu) => {
                    self.access = self.access.without(gpu);
                    self.in_place = self.in_place.with(gpu);
                }
                Attribute::NoAccess(gpu) => {
                    self.access = self.access.without(gpu);
                    self.in_place = self.in_place.without(gpu);
                }
                Attribute::SetFlags(flags) => self.flags |= flags,
                Attribute::ClearFlags(flags) => self.flags &= !flags,
                Attribute::Granularity(size) => self.granularity = size.min(LARGEST_GRANULARITY),
            }
        }
    }
}

/// One attribute as a user passes it, checked: its GPU is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attribute {
    /// Where the range shall be.
    Preferred(Location),
    /// Where it shall go now; never undefined.
    Prefetch(Location),
    /// The GPU sees it.
    Access(usize),
    /// The GPU sees it where it is.
    InPlace(usize),
    /// The GPU does not see it.
    NoAccess(usize),
    /// It has these flags.
    SetFlags(u32),
    /// It has none of these flags.
    ClearFlags(u32),
    /// How much moves at a time, as a power of two.
    Granularity(u8),
}

impl Attribute {
    /// `gpu`: the place of the GPU of that id in the process's list, if it can do it. `None`: not
    /// valid (`EINVAL`).
    pub(crate) fn parse(kind: u32, value: u32, gpu: impl Fn(u32) -> Option<usize>) -> Option<Self> {
        Some(match kind {
            kind::PREFERRED_LOC => Self::Preferred(Location::parse(value, gpu)?),
            kind::PREFETCH_LOC => match Location::parse(value, gpu)? {
                Location::Undefined => return None,
                location => Self::Prefetch(location),
            },
            kind::ACCESS => Self::Access(known(value, gpu)?),
            kind::ACCESS_IN_PLACE => Self::InPlace(known(value, gpu)?),
            kind::NO_ACCESS => Self::NoAccess(known(value, gpu)?),
            kind::SET_FLAGS => Self::SetFlags(value),
            kind::CLR_FLAGS => Self::ClearFlags(value),
            kind::GRANULARITY => Self::Granularity(u8::try_from(value).unwrap_or(u8::MAX)),
            _ => return None,
        })
    }
}

/// What GET_ATTR answers: what all ranges of an area have in common. Pages without a range do not
/// count, unless there is no range at all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Common {
    /// Flags are those of all ranges.
    attributes: Attributes,
    /// Flags that any of them has.
    any_flags: u32,
    /// There was one.
    found: bool,
}

impl Common {
    /// Of no range as yet. `default`: those of a range of which nothing was said.
    pub(crate) fn new(default: Attributes) -> Self {
        Self {
            attributes: default,
            any_flags: default.flags,
            found: false,
        }
    }

    /// Another range.
    pub(crate) fn add(&mut self, range: &Attributes) {
        if !self.found {
            *self = Self {
                found: true,
                ..Self::new(*range)
            };
            return;
        }
        let common = &mut self.attributes;
        if common == range {
            return;
        }
        *common = Attributes {
            preferred: common.preferred.common(range.preferred),
            prefetch: common.prefetch.common(range.prefetch),
            flags: common.flags & range.flags,
            granularity: common.granularity.min(range.granularity),
            access: common.access.intersection(range.access),
            in_place: common.in_place.intersection(range.in_place),
        };
        self.any_flags |= range.flags;
    }

    /// Whether this kind can be asked for. `EINVAL` for all that is asked, before any is answered,
    /// if one cannot.
    pub(crate) const fn can_tell(kind: u32) -> bool {
        matches!(
            kind,
            kind::PREFERRED_LOC
                | kind::PREFETCH_LOC
                | kind::ACCESS
                | kind::SET_FLAGS
                | kind::CLR_FLAGS
                | kind::GRANULARITY
        )
    }

    /// The kind and value to answer to `kind` asked for with `value`: of access the kind tells,
    /// of others the value. `gpu`: the place of the GPU of that id, and `id` the way back. `None`:
    /// no such GPU or kind (`EINVAL`; what was answered before stays so).
    pub(crate) fn answer(
        &self,
        kind: u32,
        value: u32,
        gpu: impl Fn(u32) -> Option<usize>,
        id: impl Fn(usize) -> Option<u32>,
    ) -> Option<(u32, u32)> {
        let common = &self.attributes;
        Some(match kind {
            kind::PREFERRED_LOC => (kind, common.preferred.value(id)),
            kind::PREFETCH_LOC => (kind, common.prefetch.value(id)),
            kind::ACCESS => (self.access_of(known(value, gpu)?), value),
            kind::SET_FLAGS => (kind, common.flags),
            kind::CLR_FLAGS => (kind, !self.any_flags),
            kind::GRANULARITY => (kind, common.granularity.into()),
            _ => return None,
        })
    }

    /// How the GPU at a place sees all of it, as a kind of attribute.
    fn access_of(&self, gpu: usize) -> u32 {
        if self.attributes.access.contains(gpu) {
            kind::ACCESS
        } else if self.attributes.in_place.contains(gpu) {
            kind::ACCESS_IN_PLACE
        } else {
            kind::NO_ACCESS
        }
    }
}

#[cfg_attr(CONFIG_RUST, kernel::prelude::kunit_tests(amdkfd_svm_attributes))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    #[cfg_attr(CONFIG_RUST, allow(unused_imports))]
    use super::*;
    // By themselves: in KUnit's assertions, Location is something else.
    use super::Location::{
        Gpu,
        System,
        Undefined, //
    };

    /// A process's GPUs have ids from 100 on.
    fn gpu(id: u32) -> Option<usize> {
        // CAST: a small number.
        (100..104).contains(&id).then(|| (id - 100) as usize)
    }

    fn id(place: usize) -> Option<u32> {
        u32::try_from(place).ok().map(|place| place + 100)
    }

    fn parse(kind: u32, value: u32) -> Option<Attribute> {
        Attribute::parse(kind, value, gpu)
    }

    fn default() -> Attributes {
        Attributes::new(9, GpuSet::EMPTY)
    }

    fn after(change: &[Attribute]) -> Attributes {
        let mut attributes = default();
        attributes.apply(change);
        attributes
    }

    fn of(ranges: &[Attributes]) -> Common {
        let mut common = Common::new(Attributes::new(9, GpuSet::first(4)));
        for range in ranges {
            common.add(range);
        }
        common
    }

    fn told(common: &Common, kind: u32) -> Option<u32> {
        common.answer(kind, 0, gpu, id).map(|answer| answer.1)
    }

    fn access(common: &Common, id_of: u32) -> Option<(u32, u32)> {
        common.answer(kind::ACCESS, id_of, gpu, id)
    }

    #[test]
    fn a_set_has_places_for_64() {
        let set = GpuSet::EMPTY.with(3).with(63).with(64);
        assert!(set.iter().eq([3, 63]) && !set.contains(64) && !set.contains(usize::MAX));
        assert_eq!(set.without(63).without(64), GpuSet::EMPTY.with(3));
        assert!(GpuSet::first(0).is_empty());
        assert!(GpuSet::first(2).iter().eq([0, 1]));
        assert_eq!(GpuSet::first(64), GpuSet::first(usize::MAX));
        assert_eq!(GpuSet::first(4).intersection(set), GpuSet::EMPTY.with(3));
        assert_eq!(GpuSet::first(3).union(set).iter().count(), 5);
    }

    #[test]
    fn a_location_is_a_known_gpu_or_system_memory() {
        let preferred = |value| parse(kind::PREFERRED_LOC, value);
        let prefetch = |value| parse(kind::PREFETCH_LOC, value);
        assert_eq!(preferred(102), Some(Attribute::Preferred(Gpu(2))));
        assert_eq!(preferred(0), Some(Attribute::Preferred(System)));
        assert_eq!(preferred(104), None);
        assert_eq!(prefetch(100), Some(Attribute::Prefetch(Gpu(0))));
        assert_eq!(prefetch(0), Some(Attribute::Prefetch(System)));
        assert_eq!(prefetch(1), None);
    }

    #[test]
    fn only_the_preferred_location_can_be_undefined() {
        let undefined = Some(Attribute::Preferred(Undefined));
        assert_eq!(parse(kind::PREFERRED_LOC, u32::MAX), undefined);
        assert_eq!(parse(kind::PREFETCH_LOC, u32::MAX), None);
    }

    #[test]
    fn an_unknown_gpu_or_kind_is_not_valid() {
        for kind in [kind::ACCESS, kind::ACCESS_IN_PLACE, kind::NO_ACCESS] {
            assert!(parse(kind, 103).is_some() && parse(kind, 104).is_none());
            assert!(parse(kind, 0).is_none());
            assert_eq!(Attribute::parse(kind, 0, |_| Some(64)), None);
        }
        assert_eq!(parse(8, 100), None);
        assert_eq!(parse(u32::MAX, 100), None);
    }

    #[test]
    fn flags_and_granularity_are_taken_as_they_are() {
        assert_eq!(
            parse(kind::SET_FLAGS, u32::MAX),
            Some(Attribute::SetFlags(u32::MAX))
        );
        assert_eq!(parse(kind::CLR_FLAGS, 0), Some(Attribute::ClearFlags(0)));
        assert_eq!(
            parse(kind::GRANULARITY, 256),
            Some(Attribute::Granularity(255))
        );
        assert_eq!(after(&[Attribute::Granularity(64)]).granularity, 63);
        assert_eq!(after(&[Attribute::Granularity(0)]).granularity, 0);
    }

    #[test]
    fn a_new_range_is_coherent_and_anywhere() {
        let with_xnack = Attributes::new(9, GpuSet::first(2));
        assert_eq!(with_xnack.flags, 3);
        assert_eq!(with_xnack.preferred, Undefined);
        assert_eq!(with_xnack.prefetch, Undefined);
        assert_eq!(with_xnack.access, GpuSet::first(2));
        assert!(with_xnack.in_place.is_empty() && default().access.is_empty());
    }

    #[test]
    fn a_gpu_has_one_kind_of_access() {
        let (access, in_place) = (Attribute::Access(1), Attribute::InPlace(1));
        let one = GpuSet::EMPTY.with(1);
        let both = |change: &[Attribute]| (after(change).access, after(change).in_place);
        assert_eq!(both(&[in_place, access]), (one, GpuSet::EMPTY));
        assert_eq!(both(&[access, in_place]), (GpuSet::EMPTY, one));
        let none = (GpuSet::EMPTY, GpuSet::EMPTY);
        assert_eq!(both(&[access, Attribute::NoAccess(1)]), none);
        assert_eq!(both(&[in_place, Attribute::NoAccess(1)]), none);
        assert_eq!(
            both(&[access, Attribute::NoAccess(0)]),
            (one, GpuSet::EMPTY)
        );
    }

    #[test]
    fn changes_take_effect_in_order() {
        let flags = [Attribute::SetFlags(8 | 16), Attribute::ClearFlags(1 | 8)];
        assert_eq!(after(&flags).flags, 2 | 16);
        let there = [Gpu(1), System].map(Attribute::Preferred);
        assert_eq!(after(&there).preferred, System);
    }

    #[test]
    fn without_ranges_the_default_is_told() {
        let common = of(&[]);
        assert_eq!(told(&common, kind::PREFERRED_LOC), Some(u32::MAX));
        assert_eq!(told(&common, kind::PREFETCH_LOC), Some(u32::MAX));
        assert_eq!(told(&common, kind::SET_FLAGS), Some(3));
        assert_eq!(told(&common, kind::CLR_FLAGS), Some(!3));
        assert_eq!(told(&common, kind::GRANULARITY), Some(9));
        assert_eq!(access(&common, 101), Some((kind::ACCESS, 101)));
        let common = Common::new(default());
        assert_eq!(access(&common, 101), Some((kind::NO_ACCESS, 101)));
    }

    #[test]
    fn what_differs_is_not_told() {
        let [here, there] = [System, Gpu(2)].map(|location| {
            after(&[
                Attribute::Preferred(location),
                Attribute::Prefetch(location),
            ])
        });
        let places = |ranges: &[Attributes]| {
            let common = of(ranges);
            let preferred = told(&common, kind::PREFERRED_LOC);
            assert_eq!(preferred, told(&common, kind::PREFETCH_LOC));
            preferred
        };
        assert_eq!(places(&[there, there]), Some(102));
        assert_eq!(places(&[here]), Some(0));
        assert_eq!(places(&[here, there, here]), Some(u32::MAX));
        assert_eq!(places(&[here, default(), here]), Some(u32::MAX));
        assert_eq!(places(&[default(), here]), Some(u32::MAX));
    }

    #[test]
    fn flags_are_told_if_all_ranges_have_them_or_none() {
        let common = of(&[after(&[Attribute::SetFlags(8)]), default()]);
        assert_eq!(told(&common, kind::SET_FLAGS), Some(3));
        assert_eq!(told(&common, kind::CLR_FLAGS), Some(!(3 | 8)));
    }

    #[test]
    fn the_smallest_granularity_is_told() {
        let [small, large] = [4, 12].map(|size| after(&[Attribute::Granularity(size)]));
        assert_eq!(
            told(&of(&[large, small, large]), kind::GRANULARITY),
            Some(4)
        );
        assert_eq!(told(&of(&[large]), kind::GRANULARITY), Some(12));
    }

    #[test]
    fn access_is_told_if_all_ranges_give_the_same() {
        let full = after(&[Attribute::Access(0), Attribute::Access(1)]);
        let mixed = after(&[Attribute::Access(0), Attribute::InPlace(1)]);
        let common = of(&[full, mixed]);
        assert_eq!(access(&common, 100), Some((kind::ACCESS, 100)));
        assert_eq!(access(&common, 101), Some((kind::NO_ACCESS, 101)));
        assert_eq!(
            access(&of(&[mixed]), 101),
            Some((kind::ACCESS_IN_PLACE, 101))
        );
        assert_eq!(access(&common, 99), None);
    }

    #[test]
    fn some_kinds_cannot_be_asked_for() {
        let common = of(&[]);
        for kind in 0..9 {
            let answer = common.answer(kind, 100, gpu, id);
            assert_eq!(answer.is_some(), Common::can_tell(kind));
        }
        assert!(!Common::can_tell(kind::ACCESS_IN_PLACE) && !Common::can_tell(kind::NO_ACCESS));
    }
}
