// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Launch`]: a kernel with its sizes and arguments.

use crate::packet::dimensions;
use crate::pool::Piece;
use crate::signal::Deadline;
use crate::{Argument, CodeObject, Error, Kernel, KernelDispatch, Packet, Printer};
use crate::{Queue, Result, Signal};
use kfd::{Device, Plain};
use std::sync::Arc;

/// A kernel ready to run. It owns the memory of its arguments, a piece of what its code object has
/// for them, so it must live until the GPU is done: others get the piece then.
#[derive(Debug)]
pub struct Launch {
    code: Arc<CodeObject>,
    kernel: Kernel,
    arguments: Piece,
    /// The GPU has its address.
    printer: Option<Arc<Printer>>,
    dispatch: KernelDispatch,
}

impl Launch {
    /// `kernel` of `code` over `grid` work-items in groups of `workgroup`, with the bytes of its
    /// visible arguments.
    ///
    /// `Launch`: they don't fit the kernel, or it needs what this runtime does not have. One with a
    /// dynamic stack needs [`LaunchBuilder::stack`] or [`Launch::with_stack`].
    ///
    /// [`LaunchBuilder::stack`]: crate::LaunchBuilder::stack
    pub fn new(
        device: &Arc<Device>,
        code: &Arc<CodeObject>,
        kernel: &str,
        grid: [u32; 3],
        workgroup: [u16; 3],
        visible: &[u8],
    ) -> Result<Self> {
        Self::with_stack(device, code, kernel, grid, workgroup, visible, None)
    }

    /// The same with so many bytes of stack for each work-item, beyond the scratch that the kernel
    /// always uses.
    pub fn with_stack(
        device: &Arc<Device>,
        code: &Arc<CodeObject>,
        kernel: &str,
        grid: [u32; 3],
        workgroup: [u16; 3],
        visible: &[u8],
        stack: Option<u32>,
    ) -> Result<Self> {
        let own = code.memory().device();
        if own.gpu_id() != device.gpu_id() {
            return Err(Error::Launch {
                kernel: kernel.to_owned(),
                reason: format!("its code is in {own}, and it is to run on {device}"),
            });
        }
        Self::with(code, kernel, grid, workgroup, visible, stack, None)
    }

    /// The same with what takes the kernel's output.
    pub(crate) fn with(
        code: &Arc<CodeObject>,
        kernel: &str,
        grid: [u32; 3],
        workgroup: [u16; 3],
        visible: &[u8],
        stack: Option<u32>,
        printer: Option<Arc<Printer>>,
    ) -> Result<Self> {
        let kernel = code.kernel(kernel)?;
        let device = code.memory().device();
        let private_segment = private_memory(kernel, stack)?;
        check(kernel, grid, workgroup, visible)?;
        let own = printer.as_ref().map(|printer| printer.is_of(code));
        check_printer(kernel, own, code.formats().is_some())?;
        check_hidden(kernel)?;
        let arguments = code.arguments().take(kernel.kernarg_size)?;
        arguments.write(0, visible);
        for argument in &kernel.arguments {
            let prints = argument.kind == PRINTF_BUFFER;
            let buffer = printer.as_ref().filter(|_| prints);
            let value = hidden(argument, grid, workgroup)
                .or_else(|| aperture(argument, device))
                .or_else(|| buffer.map(|printer| printer.address()));
            if let Some(value) = value {
                arguments.write(
                    argument.offset,
                    &value.to_le_bytes()[..argument.size.min(8)],
                );
            }
        }
        let dispatch = KernelDispatch {
            workgroup,
            grid,
            private_segment,
            group_segment: kernel.group_segment,
            kernel: kernel.descriptor,
            arguments: arguments.address(),
            completion: 0,
            barrier: true,
        };
        Ok(Self {
            code: code.clone(),
            kernel: kernel.clone(),
            arguments,
            printer,
            dispatch,
        })
    }

    /// Gives each work-group `bytes` of local data share beyond what the kernel always uses.
    pub fn dynamic_lds(mut self, bytes: u32) -> Result<Self> {
        let device = self.code.memory().device();
        let limit = device.node().property("lds_size_in_kb") << 10;
        let name = &self.kernel.name;
        self.dispatch.group_segment = local_memory(name, self.kernel.group_segment, bytes, limit)?;
        let hidden = self.kernel.arguments.iter();
        for argument in hidden.filter(|argument| argument.kind == "hidden_dynamic_lds_size") {
            self.arguments.write(argument.offset, &bytes.to_le_bytes());
        }
        Ok(self)
    }

    /// Puts it into `queue`; `done` is decremented when it has run. Returns the packet's index.
    ///
    /// `Launch`: the kernel needs more scratch than the queue has. Where the ring is full, this
    /// waits as [`Queue::submit`] does, a minute for a GPU that takes nothing, with its errors.
    /// `Kfd`: what the CPU has written cannot be flushed now ([`Device::flush_writes`]).
    pub fn submit(&self, queue: &Queue, done: &Signal) -> Result<u64> {
        let completion = done.for_completion();
        self.put(queue, completion)
            .inspect_err(|_| done.not_completed())
    }

    /// Puts it into `queue` with the address of a signal, or 0.
    pub(crate) fn put(&self, queue: &Queue, completion: u64) -> Result<u64> {
        self.check(queue)?;
        self.flush()?;
        queue.forget_code(self.code.generation())?;
        queue.submit(self.packet(completion))
    }

    /// Puts it into `queue` behind `barriers`, for `done`: all of it or nothing, as
    /// [`Queue::submit_by`] does.
    pub(crate) fn put_by(
        &self,
        queue: &Queue,
        barriers: Vec<Packet>,
        done: &Signal,
        deadline: Deadline,
    ) -> Result<()> {
        self.check(queue)?;
        self.flush()?;
        let (mut packets, generation) = (barriers, self.code.generation());
        packets.extend(queue.forgetting(generation).map(Packet::from));
        packets.push(self.packet(done.for_completion()).into());
        let put = queue.submit_by(&packets, deadline);
        put.inspect_err(|_| done.not_completed())?;
        queue.has_forgotten(generation);
        Ok(())
    }

    fn packet(&self, completion: u64) -> KernelDispatch {
        KernelDispatch {
            completion,
            ..self.dispatch
        }
    }

    /// What the CPU has written, the code and what it works on, the waves must see.
    fn flush(&self) -> Result<()> {
        Ok(self.code.memory().device().flush_writes()?)
    }

    /// Whether it can run on `queue`.
    pub(crate) fn check(&self, queue: &Queue) -> Result<()> {
        queue.check_own()?;
        let (own, other) = (self.code.memory().device(), queue.device());
        if own.gpu_id() != other.gpu_id() {
            return Err(Error::Launch {
                kernel: self.kernel.name.clone(),
                reason: format!("its code is in {own}, and the queue is of {other}"),
            });
        }
        let (needs, has) = (self.scratch(), queue.scratch());
        if needs > has {
            return Err(Error::Launch {
                kernel: self.kernel.name.clone(),
                reason: format!("{needs} bytes of scratch, and the queue has {has}"),
            });
        }
        Ok(())
    }

    /// How many bytes of scratch it needs for each work-item: see [`Queue::with_scratch`].
    pub fn scratch(&self) -> u32 {
        self.dispatch.private_segment
    }

    /// What takes its output.
    pub fn printer(&self) -> Option<&Arc<Printer>> {
        self.printer.as_ref()
    }

    /// The code it runs.
    pub fn code(&self) -> &Arc<CodeObject> {
        &self.code
    }

    /// Changes an argument between runs: what lies at byte `offset` of the visible ones.
    ///
    /// # Panics
    /// When it lies beyond them, or `offset` is not aligned for `T`.
    pub fn set_argument<T: Plain>(&self, offset: usize, value: T) {
        let visible = self.kernel.arguments.iter().filter(|it| !it.is_hidden());
        let end = visible.map(|it| it.offset + it.size).max().unwrap_or(0);
        let fits = offset
            .checked_add(size_of::<T>())
            .is_some_and(|to| to <= end);
        assert!(fits, "beyond the arguments");
        self.arguments.write(offset, &[value]);
    }
}

/// Scratch of a work-item: what is always used, and a stack whose size only the caller can know. It
/// would grow into the next wave's variables.
fn private_memory(kernel: &Kernel, stack: Option<u32>) -> Result<u32> {
    let (fixed, name) = (kernel.private_segment, &kernel.name);
    let refuse = |reason| Error::Launch {
        kernel: name.clone(),
        reason,
    };
    match stack {
        None if kernel.dynamic_stack => Err(refuse(
            "its stack is dynamic: say how many bytes a work-item needs".into(),
        )),
        None => Ok(fixed),
        Some(stack) => fixed
            .checked_add(stack)
            .ok_or_else(|| refuse(format!("{fixed} + {stack} bytes of scratch"))),
    }
}

/// Fixed and dynamic local memory together, if a compute unit of `limit` bytes has room.
fn local_memory(kernel: &str, fixed: u32, dynamic: u32, limit: u64) -> Result<u32> {
    let sum = fixed
        .checked_add(dynamic)
        .filter(|sum| u64::from(*sum) <= limit);
    sum.ok_or_else(|| Error::Launch {
        kernel: kernel.to_owned(),
        reason: format!("{fixed} + {dynamic} bytes of local memory: a work-group has {limit}"),
    })
}

fn check(kernel: &Kernel, grid: [u32; 3], workgroup: [u16; 3], visible: &[u8]) -> Result<()> {
    let refuse = |reason: String| {
        Err(Error::Launch {
            kernel: kernel.name.clone(),
            reason,
        })
    };
    let items: u64 = workgroup.iter().map(|size| u64::from(*size)).product();
    if items == 0 || grid.contains(&0) {
        return refuse(
            "a grid and a work-group have at least one work-item in each dimension".into(),
        );
    }
    if items > kernel.max_workgroup.into() {
        return refuse(format!(
            "work-groups of {items}: it is compiled for at most {}",
            kernel.max_workgroup
        ));
    }
    if let Some(wanted) = kernel
        .required_workgroup
        .filter(|it| *it != workgroup.map(u32::from))
    {
        return refuse(format!(
            "work-groups of {workgroup:?}: it is compiled for {wanted:?}"
        ));
    }
    let wanted = kernel
        .arguments
        .iter()
        .filter(|argument| !argument.is_hidden());
    let wanted = wanted
        .map(|argument| argument.offset + argument.size)
        .max()
        .unwrap_or(0);
    if visible.len() < wanted || visible.len() > kernel.kernarg_size {
        return refuse(format!(
            "{} bytes of arguments: it takes {wanted}",
            visible.len()
        ));
    }
    Ok(())
}

/// Where a kernel's output goes.
const PRINTF_BUFFER: &str = "hidden_printf_buffer";

/// Refuses a kernel that prints where nothing takes that: `own` is whether what there is belongs to
/// the kernel's code object, whose formats it must be read by, and `is_known` whether there are
/// such.
fn check_printer(kernel: &Kernel, own: Option<bool>, is_known: bool) -> Result<()> {
    let mut hidden_ones = kernel.arguments.iter();
    let prints = hidden_ones.any(|argument| argument.kind == PRINTF_BUFFER);
    let reason = match (prints, own) {
        (true, _) if !is_known => {
            "it may print as HIP does into a buffer, which this runtime does not read"
        }
        (_, Some(false)) => "its printer is another code object's",
        (true, None) => "it prints: give it a Printer",
        _ => return Ok(()),
    };
    Err(Error::Launch {
        kernel: kernel.name.clone(),
        reason: reason.into(),
    })
}

/// Refuses a kernel with a hidden argument that this runtime has nothing for: it would find 0 where
/// a heap, a host that answers calls or a queue should be.
fn check_hidden(kernel: &Kernel) -> Result<()> {
    // `hidden_none` is a place that nothing is expected in; the others are known below.
    const GIVEN: [&str; 5] = [
        "hidden_none",
        PRINTF_BUFFER,
        "hidden_dynamic_lds_size",
        "hidden_private_base",
        "hidden_shared_base",
    ];
    let hidden_ones = kernel
        .arguments
        .iter()
        .filter(|argument| argument.is_hidden());
    for argument in hidden_ones {
        let is_given =
            GIVEN.contains(&argument.kind.as_str()) || hidden(argument, [1; 3], [1; 3]).is_some();
        if !is_given {
            return Err(Error::Launch {
                kernel: kernel.name.clone(),
                reason: format!(
                    "it expects {}, which this runtime does not have",
                    argument.kind
                ),
            });
        }
    }
    Ok(())
}

/// The upper halves of the apertures' addresses, for kernels that ask for them.
fn aperture(argument: &Argument, device: &Device) -> Option<u64> {
    match argument.kind.as_str() {
        "hidden_private_base" => Some(device.apertures().scratch_base >> 32),
        "hidden_shared_base" => Some(device.apertures().lds_base >> 32),
        _ => None,
    }
}

/// What the compiler expects in a hidden argument of sizes.
fn hidden(argument: &Argument, grid: [u32; 3], workgroup: [u16; 3]) -> Option<u64> {
    let axis = match argument.kind.as_bytes().last()? {
        b'x' => 0,
        b'y' => 1,
        b'z' => 2,
        _ => 0,
    };
    let (items, group) = (u64::from(grid[axis]), u64::from(workgroup[axis]));
    match argument.kind.trim_end_matches(['x', 'y', 'z']) {
        "hidden_block_count_" => Some(items / group),
        "hidden_group_size_" => Some(group),
        "hidden_remainder_" => Some(items % group),
        "hidden_grid_dims" => Some(dimensions(grid).into()),
        "hidden_global_offset_" => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> Kernel {
        let argument = |offset, size, kind: &str| Argument {
            offset,
            size,
            kind: kind.into(),
        };
        Kernel {
            name: "vadd".into(),
            descriptor: 0,
            kernarg_size: 48,
            group_segment: 0,
            private_segment: 0,
            dynamic_stack: false,
            max_workgroup: 256,
            required_workgroup: None,
            arguments: vec![
                argument(0, 8, "global_buffer"),
                argument(8, 4, "by_value"),
                argument(16, 4, "hidden_block_count_x"),
            ],
        }
    }

    #[test]
    fn sizes_and_arguments_are_checked() {
        let ok =
            |grid, workgroup, bytes| check(&kernel(), grid, workgroup, &vec![0; bytes]).is_ok();
        assert!(ok([1000, 1, 1], [256, 1, 1], 12));
        assert!(!ok([1000, 1, 1], [257, 1, 1], 12));
        // Products that a u32 does not hold.
        assert!(!ok([1000, 1, 1], [54411, 51251, 65379], 12));
        assert!(!ok([1000, 1, 1], [65535; 3], 12));
        let only = Kernel {
            required_workgroup: Some([16, 16, 1]),
            ..kernel()
        };
        assert!(check(&only, [32, 32, 1], [16, 16, 1], &[0; 12]).is_ok());
        assert!(check(&only, [32, 32, 1], [256, 1, 1], &[0; 12]).is_err());
        assert!(!ok([0, 1, 1], [64, 1, 1], 12));
        assert!(!ok([64, 1, 1], [64, 1, 1], 11));
        assert!(!ok([64, 1, 1], [64, 1, 1], 49));
    }

    #[test]
    fn hidden_arguments_follow_the_grid() {
        let of = |kind: &str| {
            hidden(
                &Argument {
                    offset: 0,
                    size: 4,
                    kind: kind.into(),
                },
                [1000, 2, 1],
                [256, 1, 1],
            )
        };
        assert_eq!(of("hidden_block_count_x"), Some(3));
        assert_eq!(of("hidden_remainder_x"), Some(232));
        assert_eq!(of("hidden_group_size_y"), Some(1));
        assert_eq!(of("hidden_grid_dims"), Some(2));
        assert_eq!(of("hidden_printf_buffer"), None);
    }

    #[test]
    fn what_this_runtime_does_not_have_is_refused() {
        let with = |kind: &str| {
            let mut kernel = kernel();
            kernel.arguments.push(Argument {
                offset: 24,
                size: 8,
                kind: kind.into(),
            });
            check_hidden(&kernel)
        };
        for kind in [
            "hidden_none",
            "hidden_block_count_z",
            "hidden_group_size_x",
            "hidden_global_offset_y",
            "hidden_dynamic_lds_size",
            "hidden_private_base",
            "global_buffer",
        ] {
            assert!(with(kind).is_ok(), "{kind}");
        }
        for kind in [
            "hidden_heap_v1",
            "hidden_hostcall_buffer",
            "hidden_default_queue",
            "hidden_completion_action",
            "hidden_multigrid_sync_arg",
            "hidden_queue_ptr",
            "hidden_of_a_later_version",
        ] {
            let error = with(kind).expect_err(kind).to_string();
            assert!(error.contains(kind), "{error}");
        }
    }

    #[test]
    fn who_prints_needs_a_printer_of_its_own() {
        let mut kernel = kernel();
        for own in [None, Some(true)] {
            assert!(check_printer(&kernel, own, true).is_ok(), "{own:?}");
            assert!(check_printer(&kernel, own, false).is_ok(), "{own:?}");
        }
        kernel.arguments.push(Argument {
            offset: 24,
            size: 8,
            kind: PRINTF_BUFFER.into(),
        });
        assert!(check_printer(&kernel, Some(true), true).is_ok());
        let told = |own, is_known| {
            let result = check_printer(&kernel, own, is_known);
            result.expect_err("refused").to_string()
        };
        assert!(told(None, true).contains("give it a Printer"));
        assert!(told(Some(false), true).contains("another code object"));
        for own in [None, Some(true)] {
            assert!(told(own, false).contains("as HIP does"), "{own:?}");
        }
    }

    #[test]
    fn a_dynamic_stack_has_the_size_that_is_said() {
        let fixed = Kernel {
            private_segment: 32,
            ..kernel()
        };
        assert_eq!(private_memory(&fixed, None).ok(), Some(32));
        assert_eq!(private_memory(&fixed, Some(1024)).ok(), Some(1056));
        let dynamic = Kernel {
            dynamic_stack: true,
            ..fixed
        };
        let error = private_memory(&dynamic, None).expect_err("refused");
        assert!(error.to_string().contains("dynamic"), "{error}");
        assert_eq!(private_memory(&dynamic, Some(1024)).ok(), Some(1056));
        assert!(private_memory(&dynamic, Some(u32::MAX)).is_err());
    }

    #[test]
    fn local_memory_has_a_limit() {
        assert_eq!(local_memory("k", 1024, 1024, 65536).ok(), Some(2048));
        assert!(local_memory("k", 1024, 65536, 65536).is_err());
        assert!(local_memory("k", 1024, u32::MAX, u64::MAX).is_err());
    }
}
