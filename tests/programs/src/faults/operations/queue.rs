// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The ioctls about queues.

use super::{plain, Operation};
use crate::faults::stage::{Call, Stage};
use anyhow::Result;
use kfd_uapi as uapi;
use rustix::io::Errno;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        plain("CREATE_QUEUE AQL", |stage| {
            stage.ioctl(
                uapi::IOC_CREATE_QUEUE,
                queue(stage, uapi::KFD_IOC_QUEUE_TYPE_COMPUTE_AQL)?,
            )
        })
        .over(destroy_created),
        plain("CREATE_QUEUE PM4", |stage| {
            stage.ioctl(
                uapi::IOC_CREATE_QUEUE,
                queue(stage, uapi::KFD_IOC_QUEUE_TYPE_COMPUTE)?,
            )
        })
        .over(destroy_created),
        plain("CREATE_QUEUE SDMA", |stage| {
            stage.ioctl(
                uapi::IOC_CREATE_QUEUE,
                queue(stage, uapi::KFD_IOC_QUEUE_TYPE_SDMA)?,
            )
        })
        .over(destroy_created),
        plain("DESTROY_QUEUE", |stage| {
            create(stage)?;
            let queue_id = stage.made as u32;
            stage.ioctl(
                uapi::IOC_DESTROY_QUEUE,
                uapi::kfd_ioctl_destroy_queue_args { queue_id, pad: 0 },
            )
        })
        .again(Errno::INVAL),
        plain("UPDATE_QUEUE", |stage| {
            create(stage)?;
            let queue = queue(stage, uapi::KFD_IOC_QUEUE_TYPE_COMPUTE_AQL)?;
            let args = uapi::kfd_ioctl_update_queue_args {
                ring_base_address: queue.ring_base_address,
                queue_id: stage.made as u32,
                ring_size: 4096,
                queue_percentage: 50,
                queue_priority: 9,
            };
            stage.ioctl(uapi::IOC_UPDATE_QUEUE, args)
        })
        .over(|stage, _, _| destroy(stage)),
        plain("UPDATE_QUEUE to 0 %", |stage| {
            create(stage)?;
            stage.ioctl(uapi::IOC_UPDATE_QUEUE, stopped(stage)?)
        })
        .over(|stage, _, _| destroy(stage)),
        plain("SET_CU_MASK", |stage| {
            create(stage)?;
            let args = uapi::kfd_ioctl_set_cu_mask_args {
                queue_id: stage.made as u32,
                num_cu_mask: 64,
                cu_mask_ptr: stage.memory,
            };
            stage.ioctl(uapi::IOC_SET_CU_MASK, args)
        })
        .over(|stage, _, _| destroy(stage)),
        plain("GET_QUEUE_WAVE_STATE", |stage| {
            create(stage)?;
            stage.make(uapi::IOC_UPDATE_QUEUE, stopped(stage)?)?;
            let args = uapi::kfd_ioctl_get_queue_wave_state_args {
                ctl_stack_address: stage.memory,
                queue_id: stage.made as u32,
                ..Default::default()
            };
            stage.ioctl(uapi::IOC_GET_QUEUE_WAVE_STATE, args)
        })
        .over(|stage, _, _| destroy(stage)),
        plain("ALLOC_QUEUE_GWS", |stage| {
            create(stage)?;
            let args = uapi::kfd_ioctl_alloc_queue_gws_args {
                queue_id: stage.made as u32,
                num_gws: 64,
                ..Default::default()
            };
            stage.ioctl(uapi::IOC_ALLOC_QUEUE_GWS, args)
        })
        .again(Errno::BUSY)
        .over(|stage, _, _| destroy(stage)),
    ]
}

fn queue(stage: &Stage, queue_type: u32) -> Result<uapi::kfd_ioctl_create_queue_args> {
    let mut args = stage.bench()?.queue();
    args.queue_type = queue_type;
    Ok(args)
}

fn create(stage: &mut Stage) -> Result<()> {
    let args = queue(stage, uapi::KFD_IOC_QUEUE_TYPE_COMPUTE_AQL)?;
    stage.made = stage.make(uapi::IOC_CREATE_QUEUE, args)?.queue_id.into();
    Ok(())
}

fn destroy(stage: &mut Stage) -> Result<()> {
    let queue_id = stage.made as u32;
    let args = uapi::kfd_ioctl_destroy_queue_args { queue_id, pad: 0 };
    stage.make(uapi::IOC_DESTROY_QUEUE, args).map(drop)
}

fn destroy_created(stage: &mut Stage, call: &Call, answer: Option<u64>) -> Result<()> {
    if answer.is_none() {
        return Ok(());
    }
    stage.made = call
        .argument::<uapi::kfd_ioctl_create_queue_args>()?
        .queue_id
        .into();
    destroy(stage)
}

/// The queue that was made, with nothing to do.
fn stopped(stage: &Stage) -> Result<uapi::kfd_ioctl_update_queue_args> {
    let queue = queue(stage, uapi::KFD_IOC_QUEUE_TYPE_COMPUTE_AQL)?;
    Ok(uapi::kfd_ioctl_update_queue_args {
        ring_base_address: queue.ring_base_address,
        queue_id: stage.made as u32,
        ring_size: queue.ring_size,
        queue_percentage: 0,
        queue_priority: queue.queue_priority,
    })
}
