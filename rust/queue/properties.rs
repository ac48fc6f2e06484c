// SPDX-License-Identifier: GPL-2.0-only

//! What user space asked a queue to be, checked.
//!
//! One `QueueProperties` per queue, part of it from CREATE_QUEUE on; UPDATE_QUEUE replaces its
//! [`QueueSettings`]. The checks here need nothing but the arguments. Those that need the process's
//! address space or the node come after them, in this order: buffers (`QueueProperties::buffers`),
//! then slots.

use crate::gfx::{
    ComputeFormat,
    ContextSaveSizes,
    SaveArea,
    SdmaChoice,
    PAGE_BYTES, //
};
use crate::ids::{
    GpuVa,
    UserVa, //
};

/// Why a request for a queue is refused before anything is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Percentage,
    Priority,
    RingAddress,
    RingSize,
    MetadataSize,
    ReadPointer,
    WritePointer,
    EopAddress,
    SaveAreaAddress,
    Type,
}

impl Refusal {
    /// The errno's number, as the user ABI has it (`errno-base.h`; ENOTSUPP is `errno.h`'s).
    pub(crate) const fn errno(self) -> i32 {
        const EFAULT: i32 = 14;
        const EINVAL: i32 = 22;
        const ENOTSUPP: i32 = 524;
        match self {
            Self::Percentage | Self::Priority | Self::RingSize | Self::MetadataSize => EINVAL,
            Self::RingAddress
            | Self::ReadPointer
            | Self::WritePointer
            | Self::EopAddress
            | Self::SaveAreaAddress => EFAULT,
            // Not an errno of user space's at all, but what it has always seen.
            Self::Type => ENOTSUPP,
        }
    }

    /// What is wrong, for the log.
    pub(crate) const fn message(self) -> &'static str {
        match self {
            Self::Percentage => "queue percentage is not between 0 and 100",
            Self::Priority => "queue priority is not between 0 and 15",
            Self::RingAddress => "ring address is not a user address",
            Self::RingSize => "ring size is neither 0 nor a power of two",
            Self::MetadataSize => "metadata ring size is neither 0 nor a power of two",
            Self::ReadPointer => "read pointer is not at a user address",
            Self::WritePointer => "write pointer is not at a user address",
            Self::EopAddress => "end-of-pipe buffer is not at a user address",
            Self::SaveAreaAddress => "context-save area is not at a user address",
            Self::Type => "unknown queue type",
        }
    }
}

/// The arguments of CREATE_QUEUE, as they came.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueRequest {
    pub(crate) ring_base_address: u64,
    pub(crate) write_pointer_address: u64,
    pub(crate) read_pointer_address: u64,
    pub(crate) ring_size: u32,
    pub(crate) queue_type: u32,
    pub(crate) queue_percentage: u32,
    pub(crate) queue_priority: u32,
    pub(crate) eop_buffer_address: u64,
    pub(crate) eop_buffer_size: u64,
    pub(crate) ctx_save_restore_address: u64,
    pub(crate) ctx_save_restore_size: u32,
    pub(crate) ctl_stack_size: u32,
    pub(crate) sdma_engine_id: u32,
    pub(crate) metadata_ring_size: u32,
}

/// `KFD_MAX_QUEUE_PERCENTAGE`.
const MAX_PERCENTAGE: u32 = 100;
/// `KFD_MAX_QUEUE_PRIORITY`.
const MAX_PRIORITY: u32 = 15;
/// `KFD_MIN_QUEUE_RING_SIZE`.
const MIN_RING_BYTES: u32 = 1024;

/// `KFD_IOC_QUEUE_TYPE_*`.
mod queue_type {
    pub(super) const COMPUTE: u32 = 0;
    pub(super) const SDMA: u32 = 1;
    pub(super) const COMPUTE_AQL: u32 = 2;
    pub(super) const SDMA_XGMI: u32 = 3;
    pub(super) const SDMA_BY_ENG_ID: u32 = 4;
}

/// What executes a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueKind {
    /// Shaders, by AQL packets.
    Aql,
    /// Shaders, by PM4 packets.
    Pm4,
    /// A copy engine.
    Sdma(SdmaChoice),
}

/// The part of the properties that UPDATE_QUEUE sets.
///
/// # Invariants
///
/// `ring_bytes` is a power of two and at least [`MIN_RING_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueSettings {
    /// Where the ring is; 0 stops the queue.
    ring: GpuVa,
    ring_bytes: u32,
    /// A share of 0 stops the queue; any other is the same.
    percentage: u8,
    priority: u8,
    /// For PM4 queues: which XCC executes them.
    target_xcc: u8,
}

/// A user address, or the refusal for this field.
fn user(address: u64, limit: UserVa, refusal: Refusal) -> Result<UserVa, Refusal> {
    match UserVa::new(address) {
        Some(va) if va <= limit => Ok(va),
        _ => Err(refusal),
    }
}

/// A user address that the GPU is to use as well.
fn shared(address: u64, limit: UserVa, refusal: Refusal) -> Result<GpuVa, Refusal> {
    let va = user(address, limit, refusal)?;
    GpuVa::new(va.raw()).ok_or(refusal)
}

impl QueueSettings {
    /// Checks what UPDATE_QUEUE and CREATE_QUEUE have in common. `percentage` holds the share in
    /// its low byte and the target XCC in the next. `limit` is the highest user address.
    pub(crate) fn new(
        ring: u64,
        ring_size: u32,
        percentage: u32,
        priority: u32,
        limit: UserVa,
    ) -> Result<Self, Refusal> {
        let [share, target_xcc, ..] = percentage.to_le_bytes();
        if u32::from(share) > MAX_PERCENTAGE {
            return Err(Refusal::Percentage);
        }
        if priority > MAX_PRIORITY {
            return Err(Refusal::Priority);
        }
        let ring = shared(ring, limit, Refusal::RingAddress)?;
        if ring_size != 0 && !ring_size.is_power_of_two() {
            return Err(Refusal::RingSize);
        }
        Ok(Self {
            ring,
            ring_bytes: ring_size.max(MIN_RING_BYTES),
            percentage: share,
            priority: priority as u8,
            target_xcc,
        })
    }

    pub(crate) fn ring(&self) -> GpuVa {
        self.ring
    }

    /// Bytes of the ring: the smallest ring there is, if user space asked for less.
    pub(crate) fn ring_bytes(&self) -> u32 {
        self.ring_bytes
    }

    pub(crate) fn priority(&self) -> u8 {
        self.priority
    }

    /// The share that user space has asked for, in percent.
    pub(crate) fn percentage(&self) -> u8 {
        self.percentage
    }

    /// Whether the hardware could not tell this from `other`.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let percentage = |share| if share == 0 { 0 } else { MAX_PERCENTAGE as u8 };
        let all_alike = |settings: &Self| Self {
            percentage: percentage(settings.percentage),
            ..*settings
        };
        all_alike(self) == all_alike(other)
    }

    /// Whether a descriptor of the one is one of the other: it says nothing of the share.
    pub(crate) fn is_described_like(&self, other: &Self) -> bool {
        let percentage = other.percentage;
        Self {
            percentage,
            ..*self
        } == *other
    }

    /// Whether the queue is to be on the hardware at all.
    pub(crate) fn runs(&self) -> bool {
        self.ring.raw() != 0 && self.percentage > 0
    }
}

/// The properties of one queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueProperties {
    kind: QueueKind,
    settings: QueueSettings,
    metadata_bytes: u32,
    read_pointer: UserVa,
    write_pointer: UserVa,
    eop: GpuVa,
    eop_bytes: u32,
    save_area: GpuVa,
    save_area_bytes: u32,
    control_stack_bytes: u32,
}

impl QueueRequest {
    /// Checks what comes before all else; `limit` is the highest address of user space.
    pub(crate) fn settings(&self, limit: UserVa) -> Result<QueueSettings, Refusal> {
        QueueSettings::new(
            self.ring_base_address,
            self.ring_size,
            self.queue_percentage,
            self.queue_priority,
            limit,
        )
    }
}

impl QueueProperties {
    /// The highest address that `access_ok` lets pass (`TASK_SIZE_MAX` with four-level page tables;
    /// with five, a ring up there would be beyond the GPU's 48 bits).
    pub(crate) const USER_LIMIT: u64 = (1 << 47) - 4096;

    /// Checks `request`; `limit` is the highest address of user space.
    ///
    /// The order of the checks is part of the ABI: the first that fails chooses the errno.
    pub(crate) fn new(request: &QueueRequest, limit: UserVa) -> Result<Self, Refusal> {
        let settings = request.settings(limit)?;
        let metadata = request.metadata_ring_size;
        if metadata != 0 && !metadata.is_power_of_two() {
            return Err(Refusal::MetadataSize);
        }
        let read_pointer = user(request.read_pointer_address, limit, Refusal::ReadPointer)?;
        let write_pointer = user(request.write_pointer_address, limit, Refusal::WritePointer)?;
        let eop = shared(request.eop_buffer_address, limit, Refusal::EopAddress)?;
        let save_area = shared(
            request.ctx_save_restore_address,
            limit,
            Refusal::SaveAreaAddress,
        )?;
        let kind = QueueKind::new(request.queue_type, request.sdma_engine_id)?;

        Ok(Self {
            kind,
            settings,
            metadata_bytes: if kind == QueueKind::Aql { metadata } else { 0 },
            read_pointer,
            write_pointer,
            eop,
            // 32 bits count, in the ABI too.
            eop_bytes: request.eop_buffer_size as u32,
            save_area,
            save_area_bytes: request.ctx_save_restore_size,
            control_stack_bytes: request.ctl_stack_size,
        })
    }

    pub(crate) fn kind(&self) -> QueueKind {
        self.kind
    }

    pub(crate) fn settings(&self) -> &QueueSettings {
        &self.settings
    }

    /// Takes what UPDATE_QUEUE set.
    pub(crate) fn apply_settings(&mut self, settings: QueueSettings) {
        self.settings = settings;
    }

    pub(crate) fn read_pointer(&self) -> UserVa {
        self.read_pointer
    }

    pub(crate) fn write_pointer(&self) -> UserVa {
        self.write_pointer
    }

    pub(crate) fn eop(&self) -> (GpuVa, u32) {
        (self.eop, self.eop_bytes)
    }

    /// How the ring of a compute queue is read; `None` for a copy queue.
    pub(crate) fn compute_format(&self) -> Option<ComputeFormat> {
        match self.kind {
            QueueKind::Aql => Some(ComputeFormat::Aql),
            QueueKind::Pm4 => Some(ComputeFormat::Pm4 {
                target_xcc: self.settings.target_xcc,
            }),
            QueueKind::Sdma(_) => None,
        }
    }

    /// Bytes of the area where the waves of an XCC are saved, and its address; 0: there is none.
    pub(crate) fn saved_at(&self) -> (GpuVa, u32) {
        (self.save_area, self.save_area_bytes)
    }

    /// Where the waves of a compute queue are saved; `None` if it brought no area.
    pub(crate) fn save_area(&self) -> Option<SaveArea> {
        (self.save_area.raw() != 0).then_some(SaveArea {
            address: self.save_area,
            bytes: self.save_area_bytes,
            control_stack: self.control_stack_bytes,
        })
    }

    /// Where `settings`, of this queue, has its ring. UPDATE_QUEUE looks it up as it is: less than
    /// a page matches a mapping of any length.
    pub(crate) fn ring(&self, settings: &QueueSettings) -> Extent {
        let bytes = u64::from(settings.ring_bytes) + u64::from(self.metadata_bytes);
        Extent::new(settings.ring.raw(), bytes)
    }

    /// The buffers that a queue of these properties must find mapped, each at its very start, on a
    /// node whose context-save areas need `sizes` on each of `xccs` and whose end-of-pipe buffers
    /// need `eop_bytes`. `None`: a size is not the one that the hardware needs (EINVAL).
    pub(crate) fn buffers(
        &self,
        sizes: &ContextSaveSizes,
        xccs: u32,
        eop_bytes: u32,
    ) -> Option<QueueExtents> {
        let page = u64::from(PAGE_BYTES);
        let mut buffers = QueueExtents {
            write_pointer: Extent::new(self.write_pointer.raw(), page),
            read_pointer: Extent::new(self.read_pointer.raw(), page),
            ring: self.ring(&self.settings).whole_pages(),
            eop: None,
            save_area: None,
        };
        if let QueueKind::Sdma(_) = self.kind {
            return Some(buffers);
        }
        if self.eop.raw() != 0 {
            if self.eop_bytes < eop_bytes {
                return None;
            }
            let bytes = u64::from(self.eop_bytes).next_multiple_of(page);
            buffers.eop = Some(Extent::new(self.eop.raw(), bytes));
        }
        if self.control_stack_bytes != sizes.control_stack || self.save_area_bytes < sizes.area {
            return None;
        }
        let each = u64::from(self.save_area_bytes) + u64::from(sizes.debug);
        let all = each.checked_mul(xccs.into())?;
        buffers.save_area = Some(Extent::new(
            self.save_area.raw(),
            all.checked_next_multiple_of(page)?,
        ));
        Some(buffers)
    }
}

impl QueueKind {
    fn new(queue_type: u32, engine: u32) -> Result<Self, Refusal> {
        match queue_type {
            queue_type::COMPUTE => Ok(Self::Pm4),
            queue_type::COMPUTE_AQL => Ok(Self::Aql),
            queue_type::SDMA => Ok(Self::Sdma(SdmaChoice::Pcie)),
            queue_type::SDMA_XGMI => Ok(Self::Sdma(SdmaChoice::Xgmi)),
            queue_type::SDMA_BY_ENG_ID => Ok(Self::Sdma(SdmaChoice::Engine(engine))),
            _ => Err(Refusal::Type),
        }
    }
}

/// A piece of the process's GPU address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

impl Extent {
    const fn new(address: u64, bytes: u64) -> Self {
        Self { address, bytes }
    }

    /// The same, up to the end of its last page.
    fn whole_pages(self) -> Self {
        Self::new(self.address, self.bytes.next_multiple_of(PAGE_BYTES.into()))
    }
}

/// The buffers of a queue, in the order in which they are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueExtents {
    pub(crate) write_pointer: Extent,
    pub(crate) read_pointer: Extent,
    pub(crate) ring: Extent,
    pub(crate) eop: Option<Extent>,
    pub(crate) save_area: Option<Extent>,
}

#[cfg_attr(CONFIG_RUST, kernel::macros::kunit_tests(amdkfd_queue_properties))]
#[cfg_attr(not(CONFIG_RUST), cfg(test))]
mod tests {
    use super::*;
    use crate::gfx::testing::known;

    const PAGE: u64 = 4096;
    const SIZES: ContextSaveSizes = ContextSaveSizes {
        control_stack: 0x1000,
        area: 0x255000,
        debug: 0x1400,
    };

    fn limit() -> UserVa {
        known(UserVa::new((1 << 47) - 4096))
    }

    fn request() -> QueueRequest {
        QueueRequest {
            ring_base_address: 0x7f12_3450_0000,
            write_pointer_address: 0x7f12_3460_0038,
            read_pointer_address: 0x7f12_3460_0080,
            ring_size: 0x10000,
            queue_type: 2,
            queue_percentage: 100,
            queue_priority: 7,
            ctx_save_restore_address: 0x7f12_3500_0000,
            ctx_save_restore_size: 0x255000,
            ctl_stack_size: 0x1000,
            ..QueueRequest::default()
        }
    }

    /// The errno of a request that differs from a good one by `change`.
    fn errno(change: impl FnOnce(&mut QueueRequest)) -> Option<i32> {
        let mut request = request();
        change(&mut request);
        QueueProperties::new(&request, limit())
            .err()
            .map(Refusal::errno)
    }

    /// The buffers of a request that differs from a good one by `change`, on two XCCs.
    fn buffers(change: impl FnOnce(&mut QueueRequest)) -> Option<QueueExtents> {
        let mut request = request();
        change(&mut request);
        let properties = QueueProperties::new(&request, limit()).ok()?;
        properties.buffers(&SIZES, 2, 4096)
    }

    #[test]
    fn a_good_request_is_taken() {
        assert_eq!(errno(|_| ()), None);
        let properties = known(QueueProperties::new(&request(), limit()).ok());
        assert_eq!(properties.kind(), QueueKind::Aql);
        assert!(properties.settings().runs());
        assert_eq!(properties.settings().priority(), 7);
    }

    #[test]
    fn percentage_is_checked_in_its_byte() {
        assert_eq!(errno(|r| r.queue_percentage = 101), Some(22));
        assert_eq!(errno(|r| r.queue_percentage = 0x0364), None);
        assert_eq!(errno(|r| r.queue_percentage = 0xff00_0000), None);
    }

    #[test]
    fn the_next_byte_is_the_target() {
        let request = QueueRequest {
            queue_type: 0,
            queue_percentage: 0x0364,
            ..request()
        };
        let properties = known(QueueProperties::new(&request, limit()).ok());
        let expected = Some(ComputeFormat::Pm4 { target_xcc: 3 });
        assert_eq!(properties.compute_format(), expected);
    }

    #[test]
    fn priority_ends_at_fifteen() {
        assert_eq!(errno(|r| r.queue_priority = 15), None);
        assert_eq!(errno(|r| r.queue_priority = 16), Some(22));
    }

    #[test]
    fn ring_sizes() {
        assert_eq!(errno(|r| r.ring_size = 0), None);
        assert_eq!(errno(|r| r.ring_size = 4097), Some(22));
        assert_eq!(errno(|r| r.ring_size = u32::MAX), Some(22));
        assert_eq!(errno(|r| r.ring_size = 1 << 31), None);
        assert_eq!(errno(|r| r.metadata_ring_size = 3), Some(22));
    }

    #[test]
    fn a_small_ring_becomes_the_smallest() {
        for size in [0, 1, 512, 1024] {
            let request = QueueRequest {
                ring_size: size,
                ..request()
            };
            let properties = known(QueueProperties::new(&request, limit()).ok());
            assert_eq!(properties.settings().ring_bytes(), 1024);
        }
    }

    #[test]
    fn kernel_addresses_are_faults() {
        const KERNEL: u64 = 0xffff_8880_0000_0000;
        const BEYOND: u64 = 1 << 47;
        for bad in [KERNEL, BEYOND] {
            assert_eq!(errno(|r| r.ring_base_address = bad), Some(14));
            assert_eq!(errno(|r| r.read_pointer_address = bad), Some(14));
            assert_eq!(errno(|r| r.write_pointer_address = bad), Some(14));
            assert_eq!(errno(|r| r.eop_buffer_address = bad), Some(14));
            assert_eq!(errno(|r| r.ctx_save_restore_address = bad), Some(14));
        }
    }

    #[test]
    fn unknown_types_have_the_kernels_own_errno() {
        assert_eq!(errno(|r| r.queue_type = 5), Some(524));
        assert_eq!(errno(|r| r.queue_type = u32::MAX), Some(524));
    }

    #[test]
    fn the_first_mistake_chooses_the_errno() {
        assert_eq!(
            errno(|r| (r.queue_type, r.queue_priority) = (9, 16)),
            Some(22)
        );
        assert_eq!(
            errno(|r| (r.ring_base_address, r.ring_size) = (1 << 47, 3)),
            Some(14)
        );
        assert_eq!(
            errno(|r| (r.read_pointer_address, r.ring_size) = (1 << 47, 3)),
            Some(22)
        );
    }

    #[test]
    fn all_types_are_known() {
        let kind = |queue_type| {
            let request = QueueRequest {
                queue_type,
                sdma_engine_id: 3,
                ..request()
            };
            QueueProperties::new(&request, limit()).map(|properties| properties.kind())
        };
        assert_eq!(kind(0), Ok(QueueKind::Pm4));
        assert_eq!(kind(1), Ok(QueueKind::Sdma(SdmaChoice::Pcie)));
        assert_eq!(kind(2), Ok(QueueKind::Aql));
        assert_eq!(kind(3), Ok(QueueKind::Sdma(SdmaChoice::Xgmi)));
        assert_eq!(kind(4), Ok(QueueKind::Sdma(SdmaChoice::Engine(3))));
    }

    #[test]
    fn a_compute_queue_has_four_buffers_at_least() {
        let found = known(buffers(|_| ()));
        assert_eq!(found.write_pointer, Extent::new(0x7f12_3460_0038, PAGE));
        assert_eq!(found.ring, Extent::new(0x7f12_3450_0000, 0x10000));
        assert_eq!(found.eop, None);
        // Two areas, each with its debugger's part, in whole pages.
        let expected = Extent::new(0x7f12_3500_0000, 0x4ad000);
        assert_eq!(found.save_area, Some(expected));
    }

    #[test]
    fn metadata_counts_for_aql_only() {
        let ring = |queue_type| {
            let change = |r: &mut QueueRequest| {
                (r.queue_type, r.metadata_ring_size) = (queue_type, 0x1000);
            };
            known(buffers(change)).ring.bytes
        };
        assert_eq!(ring(2), 0x11000);
        assert_eq!(ring(0), 0x10000);
    }

    #[test]
    fn save_areas_must_match_the_node() {
        assert_eq!(buffers(|r| r.ctl_stack_size = 0x2000), None);
        assert_eq!(buffers(|r| r.ctx_save_restore_size = 0x254fff), None);
        assert!(buffers(|r| r.ctx_save_restore_size = 0x256000).is_some());
        assert!(buffers(|r| r.ctx_save_restore_size = u32::MAX).is_some());
    }

    #[test]
    fn an_end_of_pipe_buffer_is_large_enough_or_absent() {
        let eop = |bytes| {
            buffers(move |r| (r.eop_buffer_address, r.eop_buffer_size) = (0x10_0000, bytes))
        };
        assert_eq!(eop(4095), None);
        let expected = Some(Extent::new(0x10_0000, 0x2000));
        assert_eq!(eop(4097).map(|found| found.eop), Some(expected));
        // 32 bits of the size count.
        assert_eq!(eop(1 << 32), None);
    }

    #[test]
    fn a_copy_queue_has_neither_area_nor_stack() {
        let change = |r: &mut QueueRequest| (r.queue_type, r.ctl_stack_size) = (1, 7);
        let found = known(buffers(change));
        assert_eq!((found.eop, found.save_area), (None, None));
    }

    #[test]
    fn an_update_may_stop_a_queue() {
        let settings = |ring, percentage| QueueSettings::new(ring, 4096, percentage, 7, limit());
        assert_eq!(settings(0, 100).map(|settings| settings.runs()), Ok(false));
        assert_eq!(
            settings(0x1000, 0).map(|settings| settings.runs()),
            Ok(false)
        );
        assert_eq!(
            settings(0x1000, 1).map(|settings| settings.runs()),
            Ok(true)
        );
    }

    #[test]
    fn shares_but_zero_are_alike() {
        let settings =
            |percentage| known(QueueSettings::new(0x1000, 4096, percentage, 7, limit()).ok());
        assert!(settings(50).is_like(&settings(100)));
        assert!(!settings(0).is_like(&settings(1)));
        assert!(!settings(0x0164).is_like(&settings(0x0264)));
        assert!(settings(0).is_described_like(&settings(100)));
        assert!(!settings(0x0164).is_described_like(&settings(0x0264)));
    }

    #[test]
    fn an_update_looks_for_the_ring_as_it_is() {
        let properties = known(QueueProperties::new(&request(), limit()).ok());
        let settings = known(QueueSettings::new(0x20_0000, 0, 100, 7, limit()).ok());
        assert_eq!(properties.ring(&settings), Extent::new(0x20_0000, 1024));
    }
}
