// SPDX-License-Identifier: GPL-2.0-only

//! The ioctls of queues: arguments in, one call, answer out.

use super::Call;
use crate::{
    ids::{
        QueueId,
        UserVa, //
    },
    mmap::MmapTarget,
    process::{
        queues,
        wave_state, //
    },
    queue::properties::{
        QueueProperties,
        QueueRequest, //
        QueueSettings,
        Refusal,
    },
    uapi::{
        kfd_ioctl_alloc_queue_gws_args,
        kfd_ioctl_create_queue_args,
        kfd_ioctl_destroy_queue_args,
        kfd_ioctl_get_queue_wave_state_args,
        kfd_ioctl_set_cu_mask_args,
        kfd_ioctl_update_queue_args,
        user_slice, //
    },
};
use kernel::prelude::*;

fn user_limit() -> Result<UserVa> {
    UserVa::new(QueueProperties::USER_LIMIT).ok_or(EINVAL)
}

fn refused(refusal: Refusal) -> Error {
    pr_debug!("{}\n", refusal.message());
    Error::from_errno(-refusal.errno())
}

/// CREATE_QUEUE.
pub(crate) fn create_queue(call: &Call<'_>, args: &mut kfd_ioctl_create_queue_args) -> Result {
    let request = QueueRequest {
        ring_base_address: args.ring_base_address,
        write_pointer_address: args.write_pointer_address,
        read_pointer_address: args.read_pointer_address,
        ring_size: args.ring_size,
        queue_type: args.queue_type,
        queue_percentage: args.queue_percentage,
        queue_priority: args.queue_priority,
        eop_buffer_address: args.eop_buffer_address,
        eop_buffer_size: args.eop_buffer_size,
        ctx_save_restore_address: args.ctx_save_restore_address,
        ctx_save_restore_size: args.ctx_save_restore_size,
        ctl_stack_size: args.ctl_stack_size,
        sdma_engine_id: args.sdma_engine_id,
        metadata_ring_size: args.metadata_ring_size,
    };
    let limit = user_limit()?;
    let settings = request.settings(limit).map_err(refused)?;
    // User space learns how large its ring really is, whatever comes of the rest.
    args.ring_size = settings.ring_bytes();
    let properties = QueueProperties::new(&request, limit).map_err(refused)?;
    let created = queues::create(call.process, args.gpu_id, &properties)?;
    let doorbells = MmapTarget::Doorbell(created.gpu).to_offset();
    args.queue_id = created.id.raw();
    args.doorbell_offset = doorbells | created.doorbell_offset;
    Ok(())
}

/// DESTROY_QUEUE.
pub(crate) fn destroy_queue(call: &Call<'_>, args: &mut kfd_ioctl_destroy_queue_args) -> Result {
    queues::destroy(call.process, args.queue_id)
}

/// UPDATE_QUEUE.
pub(crate) fn update_queue(call: &Call<'_>, args: &mut kfd_ioctl_update_queue_args) -> Result {
    let settings = QueueSettings::new(
        args.ring_base_address,
        args.ring_size,
        args.queue_percentage,
        args.queue_priority,
        user_limit()?,
    );
    queues::update(call.process, args.queue_id, settings.map_err(refused)?)
}

/// SET_CU_MASK.
pub(crate) fn set_cu_mask(call: &Call<'_>, args: &mut kfd_ioctl_set_cu_mask_args) -> Result {
    /// More bits than any GPU has compute units; those beyond are not looked at.
    const MAX_BITS: u32 = 1024;
    if args.num_cu_mask == 0 || args.num_cu_mask % u32::BITS != 0 {
        return Err(EINVAL);
    }
    let words = (args.num_cu_mask.min(MAX_BITS) / u32::BITS) as usize;
    let mut mask = [0u32; (MAX_BITS / u32::BITS) as usize];
    let mask = mask.get_mut(..words).ok_or(EINVAL)?;
    let mut reader = user_slice(args.cu_mask_ptr, size_of_val(mask)).reader();
    reader.read_slice(mask.as_mut_bytes())?;
    queues::set_cu_mask(call.process, args.queue_id, mask)
}

/// GET_QUEUE_WAVE_STATE.
pub(crate) fn get_queue_wave_state(
    call: &Call<'_>,
    args: &mut kfd_ioctl_get_queue_wave_state_args,
) -> Result {
    let state = wave_state::wave_state(call.process, args.queue_id, args.ctl_stack_address)?;
    args.ctl_stack_used_size = state.control_stack;
    args.save_area_used_size = state.save_area;
    Ok(())
}

/// ALLOC_QUEUE_GWS.
pub(crate) fn alloc_queue_gws(
    call: &Call<'_>,
    args: &mut kfd_ioctl_alloc_queue_gws_args,
) -> Result {
    let known = QueueId::new(args.queue_id).is_some_and(|id| call.process.has_queue(id));
    let result = wave_state::allocate_wave_sync(call.process, args.queue_id, args.num_gws);
    if known && result != Err(ENODEV) {
        // There is one range of slots, and it begins here.
        args.first_gws = 0;
    }
    result
}
