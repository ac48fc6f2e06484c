// SPDX-License-Identifier: GPL-2.0-only

//! The ioctl of checkpoints: 0x22.

use super::Call;
use crate::{
    process::checkpoint::{
        self,
        Places,
        Sizes, //
    },
    uapi::{
        kfd_criu_op_KFD_CRIU_OP_CHECKPOINT,
        kfd_criu_op_KFD_CRIU_OP_PROCESS_INFO,
        kfd_criu_op_KFD_CRIU_OP_RESTORE,
        kfd_criu_op_KFD_CRIU_OP_RESUME,
        kfd_criu_op_KFD_CRIU_OP_UNPAUSE,
        kfd_ioctl_criu_args, //
    },
};
use kernel::prelude::*;

/// CRIU_OP: saves a process, or makes one of what was saved.
pub(super) fn criu_op(call: &Call<'_>, args: &mut kfd_ioctl_criu_args) -> Result {
    const PROCESS_INFO: u32 = kfd_criu_op_KFD_CRIU_OP_PROCESS_INFO;
    const CHECKPOINT: u32 = kfd_criu_op_KFD_CRIU_OP_CHECKPOINT;
    const UNPAUSE: u32 = kfd_criu_op_KFD_CRIU_OP_UNPAUSE;
    const RESTORE: u32 = kfd_criu_op_KFD_CRIU_OP_RESTORE;
    const RESUME: u32 = kfd_criu_op_KFD_CRIU_OP_RESUME;
    let places = Places {
        devices: args.devices,
        buffers: args.bos,
        private: args.priv_data,
    };
    let sizes = Sizes {
        devices: args.num_devices,
        buffers: args.num_bos,
        objects: args.num_objects,
        private: args.priv_data_size,
    };
    match args.op {
        PROCESS_INFO => process_info(call, args),
        CHECKPOINT => {
            if [args.devices, args.bos, args.priv_data].contains(&0) {
                return Err(EINVAL);
            }
            checkpoint::save(call.process, places, sizes)
        }
        UNPAUSE => checkpoint::unpause(call.process),
        RESTORE => {
            let nowhere = args.num_bos != 0 && args.bos == 0;
            let none = [args.devices, args.priv_data, args.priv_data_size].contains(&0);
            if nowhere || none || args.num_devices == 0 {
                return Err(EINVAL);
            }
            checkpoint::restore(call.process, places, sizes)
        }
        RESUME => checkpoint::resume(args.pid),
        _ => Err(EINVAL),
    }
}

fn process_info(call: &Call<'_>, args: &mut kfd_ioctl_criu_args) -> Result {
    // CAST: the number of a process is positive.
    args.pid = call.process.pid() as u32;
    let sizes = checkpoint::pause(call.process)?;
    args.num_devices = sizes.devices;
    args.num_bos = sizes.buffers;
    args.num_objects = sizes.objects;
    args.priv_data_size = sizes.private;
    Ok(())
}
