// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Opening, mapping, and the ioctls about a process and its events.

use super::{plain, Operation};
use crate::faults::stage::{Call, Needs, Stage};
use anyhow::{Context, Result};
use kfd_uapi as uapi;
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::io::Errno;

const DOORBELLS: u64 = 3 << 62;

pub(super) fn operations() -> Vec<Operation> {
    let mut all = files();
    all.extend(settings());
    all.extend(smi_events());
    all.extend(profiling());
    all.extend(retired());
    all.extend(events());
    all
}

fn files() -> Vec<Operation> {
    vec![
        plain("open, the first of a process", |_| Ok(Call::Open))
            .needs(Needs::Nothing)
            .once()
            .over(release),
        plain("open, another one", |_| Ok(Call::Open)).over(release),
        plain("mmap of doorbells", |stage| {
            stage.mapping(DOORBELLS | gpu(stage) << 46, 8192)
        })
        // remap_pfn_range()'s, when its account of memory types (pfnmap_track()) has no memory.
        .also(Errno::INVAL)
        .over(release),
        plain("mmap of registers", |stage| {
            stage.mapping(gpu(stage) << 46, 4096)
        })
        .also(Errno::INVAL)
        .over(release),
    ]
}

fn settings() -> Vec<Operation> {
    vec![
        plain("GET_VERSION", |stage| {
            stage.ioctl(
                uapi::IOC_GET_VERSION,
                uapi::kfd_ioctl_get_version_args::default(),
            )
        }),
        plain("SET_MEMORY_POLICY", |stage| {
            let args = uapi::kfd_ioctl_set_memory_policy_args {
                gpu_id: stage.gpu_id(),
                ..Default::default()
            };
            stage.ioctl(uapi::IOC_SET_MEMORY_POLICY, args)
        }),
        plain("GET_CLOCK_COUNTERS", |stage| {
            let args = uapi::kfd_ioctl_get_clock_counters_args {
                gpu_id: stage.gpu_id(),
                ..Default::default()
            };
            stage.ioctl(uapi::IOC_GET_CLOCK_COUNTERS, args)
        }),
        plain("GET_PROCESS_APERTURES", |stage| {
            stage.ioctl(
                uapi::IOC_GET_PROCESS_APERTURES,
                uapi::kfd_ioctl_get_process_apertures_args::default(),
            )
        }),
        plain("GET_PROCESS_APERTURES_NEW", |stage| {
            let args = uapi::kfd_ioctl_get_process_apertures_new_args {
                kfd_process_device_apertures_ptr: stage.memory,
                num_of_nodes: 1,
                pad: 0,
            };
            stage.ioctl(uapi::IOC_GET_PROCESS_APERTURES_NEW, args)
        }),
        plain("SET_SCRATCH_BACKING_VA", |stage| {
            let args = uapi::kfd_ioctl_set_scratch_backing_va_args {
                gpu_id: stage.gpu_id(),
                ..Default::default()
            };
            stage.ioctl(uapi::IOC_SET_SCRATCH_BACKING_VA, args)
        }),
        plain("GET_TILE_CONFIG", |stage| {
            let args = uapi::kfd_ioctl_get_tile_config_args {
                tile_config_ptr: stage.memory,
                macro_tile_config_ptr: stage.memory,
                num_tile_configs: 32,
                num_macro_tile_configs: 16,
                gpu_id: stage.gpu_id(),
                ..Default::default()
            };
            stage.ioctl(uapi::IOC_GET_TILE_CONFIG, args)
        }),
        plain("SET_TRAP_HANDLER", |stage| {
            let args = uapi::kfd_ioctl_set_trap_handler_args {
                gpu_id: stage.gpu_id(),
                ..Default::default()
            };
            stage.ioctl(uapi::IOC_SET_TRAP_HANDLER, args)
        }),
        plain("ACQUIRE_VM", |stage| {
            let drm_fd = stage.render.as_raw_fd() as u32;
            let gpu_id = stage.gpu_id();
            stage.ioctl(
                uapi::IOC_ACQUIRE_VM,
                uapi::kfd_ioctl_acquire_vm_args { drm_fd, gpu_id },
            )
        })
        .needs(Needs::File)
        .once(),
        plain("SET_XNACK_MODE", |stage| {
            stage.ioctl(
                uapi::IOC_SET_XNACK_MODE,
                uapi::kfd_ioctl_set_xnack_mode_args { xnack_enabled: 0 },
            )
        }),
        runtime(),
        plain("CREATE_PROCESS", |stage| {
            stage.ioctl(uapi::IOC_CREATE_PROCESS, [0u64; 2])
        })
        .needs(Needs::File)
        .once(),
    ]
}

fn smi_events() -> Vec<Operation> {
    vec![
        smi(),
        plain("SMI_EVENTS, its mask", |stage| {
            let file = smi_file(stage)?;
            Ok(Call::Write(file, vec![0xff; 8]))
        })
        .over(close_files),
        plain("SMI_EVENTS, reading", |stage| {
            let file = smi_file(stage)?;
            Call::Write(file, vec![0xff; 8]).make()?;
            Ok(Call::Read(file, vec![0; 256]))
        })
        .over(close_files),
    ]
}

/// The profiler and checkpoints.
fn profiling() -> Vec<Operation> {
    vec![
        plain("PROFILER, its version", |stage| {
            stage.ioctl(
                uapi::IOC_PROFILER,
                profiler(uapi::KFD_IOC_PROFILER_VERSION, 0, 0),
            )
        }),
        plain("PROFILER, the counters", |stage| {
            let args = profiler(uapi::KFD_IOC_PROFILER_PMC, stage.gpu_id(), 1);
            stage.ioctl(uapi::IOC_PROFILER, args)
        })
        .again(Errno::ALREADY)
        .over(|stage, _, answer| match answer {
            Some(_) => stage
                .make(
                    uapi::IOC_PROFILER,
                    profiler(uapi::KFD_IOC_PROFILER_PMC, stage.gpu_id(), 0),
                )
                .map(drop),
            None => Ok(()),
        }),
        plain("CRIU_OP", |stage| {
            stage.ioctl(uapi::IOC_CRIU_OP, criu(uapi::KFD_CRIU_OP_PROCESS_INFO))
        })
        .over(|stage, _, answer| match answer {
            Some(_) => stage
                .make(uapi::IOC_CRIU_OP, criu(uapi::KFD_CRIU_OP_UNPAUSE))
                .map(drop),
            None => Ok(()),
        }),
    ]
}

fn criu(op: u32) -> uapi::kfd_ioctl_criu_args {
    uapi::kfd_ioctl_criu_args {
        op,
        ..Default::default()
    }
}

fn gpu(stage: &Stage) -> u64 {
    stage.gpu_id().into()
}

fn release(_: &mut Stage, call: &Call, answer: Option<u64>) -> Result<()> {
    if let Some(answer) = answer {
        call.release(answer);
    }
    Ok(())
}

fn close_files(stage: &mut Stage, _: &Call, _: Option<u64>) -> Result<()> {
    stage.files.clear();
    Ok(())
}

fn retired() -> [Operation; 4] {
    [
        plain("DBG_REGISTER_DEPRECATED", |stage| {
            stage.ioctl(
                uapi::IOC_DBG_REGISTER_DEPRECATED,
                uapi::kfd_ioctl_dbg_register_args::default(),
            )
        }),
        plain("DBG_UNREGISTER_DEPRECATED", |stage| {
            stage.ioctl(
                uapi::IOC_DBG_UNREGISTER_DEPRECATED,
                uapi::kfd_ioctl_dbg_unregister_args::default(),
            )
        }),
        plain("DBG_ADDRESS_WATCH_DEPRECATED", |stage| {
            stage.ioctl(
                uapi::IOC_DBG_ADDRESS_WATCH_DEPRECATED,
                uapi::kfd_ioctl_dbg_address_watch_args::default(),
            )
        }),
        plain("DBG_WAVE_CONTROL_DEPRECATED", |stage| {
            stage.ioctl(
                uapi::IOC_DBG_WAVE_CONTROL_DEPRECATED,
                uapi::kfd_ioctl_dbg_wave_control_args::default(),
            )
        }),
    ]
}

fn runtime() -> Operation {
    plain("RUNTIME_ENABLE", |stage| {
        let args = uapi::kfd_ioctl_runtime_enable_args {
            mode_mask: uapi::KFD_RUNTIME_ENABLE_MODE_ENABLE_MASK,
            ..Default::default()
        };
        stage.ioctl(uapi::IOC_RUNTIME_ENABLE, args)
    })
    .again(Errno::BUSY)
    .over(|stage, _, answer| match answer {
        Some(_) => {
            let off = uapi::kfd_ioctl_runtime_enable_args::default();
            stage.make(uapi::IOC_RUNTIME_ENABLE, off).map(drop)
        }
        None => Ok(()),
    })
}

fn profiler(op: u32, gpu_id: u32, lock: u32) -> uapi::kfd_ioctl_profiler_args {
    let mut args = uapi::kfd_ioctl_profiler_args {
        op,
        ..Default::default()
    };
    args.__bindgen_anon_1.pmc = uapi::kfd_ioctl_pmc_settings {
        gpu_id,
        lock,
        perfcount_enable: 0,
    };
    args
}

fn smi() -> Operation {
    plain("SMI_EVENTS", |stage| {
        let args = uapi::kfd_ioctl_smi_events_args {
            gpuid: stage.gpu_id(),
            anon_fd: 0,
        };
        stage.ioctl(uapi::IOC_SMI_EVENTS, args)
    })
    .over(|_, call, answer| {
        if answer.is_some() {
            let args: uapi::kfd_ioctl_smi_events_args = call.argument()?;
            // SAFETY: the kernel has just made it for this process.
            drop(unsafe { OwnedFd::from_raw_fd(args.anon_fd as i32) });
        }
        Ok(())
    })
}

/// Opens a file of SMI events, which `close_files` closes.
fn smi_file(stage: &mut Stage) -> Result<i32> {
    let args = uapi::kfd_ioctl_smi_events_args {
        gpuid: stage.gpu_id(),
        anon_fd: 0,
    };
    let args = stage.make(uapi::IOC_SMI_EVENTS, args)?;
    // SAFETY: the kernel has just made it for this process.
    stage
        .files
        .push(unsafe { OwnedFd::from_raw_fd(args.anon_fd as i32) });
    Ok(args.anon_fd as i32)
}

fn create_event(stage: &mut Stage) -> Result<()> {
    let args = stage.make(
        uapi::IOC_CREATE_EVENT,
        uapi::kfd_ioctl_create_event_args::default(),
    )?;
    stage.made = args.event_id.into();
    Ok(())
}

fn destroy_event(stage: &mut Stage) -> Result<()> {
    let args = uapi::kfd_ioctl_destroy_event_args {
        event_id: stage.made as u32,
        ..Default::default()
    };
    stage.make(uapi::IOC_DESTROY_EVENT, args).map(drop)
}

fn events() -> Vec<Operation> {
    vec![
        plain("CREATE_EVENT, with the process's page of them", |stage| {
            let page = kfd::Memory::gtt(
                stage.device.as_ref().context("the operation needs a VM")?,
                uapi::KFD_SIGNAL_EVENT_LIMIT as usize * 8,
            )?;
            let args = uapi::kfd_ioctl_create_event_args {
                event_page_offset: page.handle(),
                ..Default::default()
            };
            // It goes with the process.
            std::mem::forget(page);
            stage.ioctl(uapi::IOC_CREATE_EVENT, args)
        })
        // The page stays the process's when there is no memory for the event.
        .again(Errno::INVAL)
        .keeps()
        .needs(Needs::Device)
        .once(),
        plain("CREATE_EVENT", |stage| {
            stage.ioctl(
                uapi::IOC_CREATE_EVENT,
                uapi::kfd_ioctl_create_event_args::default(),
            )
        })
        .over(|stage, call, answer| {
            if answer.is_none() {
                return Ok(());
            }
            stage.made = call
                .argument::<uapi::kfd_ioctl_create_event_args>()?
                .event_id
                .into();
            destroy_event(stage)
        }),
        plain("DESTROY_EVENT", |stage| {
            create_event(stage)?;
            let args = uapi::kfd_ioctl_destroy_event_args {
                event_id: stage.made as u32,
                ..Default::default()
            };
            stage.ioctl(uapi::IOC_DESTROY_EVENT, args)
        }),
        plain("SET_EVENT", |stage| {
            create_event(stage)?;
            let args = uapi::kfd_ioctl_set_event_args {
                event_id: stage.made as u32,
                ..Default::default()
            };
            stage.ioctl(uapi::IOC_SET_EVENT, args)
        })
        .over(|stage, _, _| destroy_event(stage)),
        plain("RESET_EVENT", |stage| {
            create_event(stage)?;
            let args = uapi::kfd_ioctl_reset_event_args {
                event_id: stage.made as u32,
                ..Default::default()
            };
            stage.ioctl(uapi::IOC_RESET_EVENT, args)
        })
        .over(|stage, _, _| destroy_event(stage)),
        plain("WAIT_EVENTS for one that is set", |stage| {
            create_event(stage)?;
            let set = uapi::kfd_ioctl_set_event_args {
                event_id: stage.made as u32,
                ..Default::default()
            };
            stage.make(uapi::IOC_SET_EVENT, set)?;
            wait(stage, 1, 0)
        })
        .over(|stage, _, _| destroy_event(stage)),
        plain("WAIT_EVENTS for 64 entries, some milliseconds", |stage| {
            create_event(stage)?;
            wait(stage, 64, 5)
        })
        .over(|stage, _, _| destroy_event(stage)),
    ]
}

/// A wait for `count` times the event that was made.
fn wait(stage: &Stage, count: u32, timeout: u32) -> Result<Call> {
    let entry = uapi::kfd_event_data {
        event_id: stage.made as u32,
        ..Default::default()
    };
    for index in 0..count as usize {
        // SAFETY: the memory has room for thousands.
        unsafe {
            (stage.memory as *mut uapi::kfd_event_data)
                .add(index)
                .write(entry)
        };
    }
    let args = uapi::kfd_ioctl_wait_events_args {
        events_ptr: stage.memory,
        num_events: count,
        timeout,
        ..Default::default()
    };
    stage.ioctl(uapi::IOC_WAIT_EVENTS, args)
}
