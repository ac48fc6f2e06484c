// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`LaunchBuilder`]: a [`Launch`] put together step by step, each argument checked against what
//! the code object says of it.

use crate::{Argument, CodeObject, Error, Launch, Printer, Result};
use kfd::{Buffer, Managed, Memory, Plain, Slice};
use std::sync::Arc;

/// What a kernel can be given: numbers, and memory by its address.
pub trait Value {
    /// Its bytes as the kernel reads them.
    fn bytes(&self) -> Vec<u8>;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Value for $number {
            fn bytes(&self) -> Vec<u8> {
                self.to_le_bytes().into()
            }
        }
    )*};
}
numbers!(u8 i8 u16 i16 u32 i32 u64 i64 f32 f64);

macro_rules! addresses {
    ($([$($of:tt)*] $memory:ty;)*) => {$(
        impl<$($of)*> Value for $memory {
            fn bytes(&self) -> Vec<u8> {
                self.address().to_le_bytes().into()
            }
        }
    )*};
}
addresses! {
    [] &Memory;
    [] &Managed;
    [T: Plain] &Buffer<T>;
    [T: Plain] Slice<'_, T>;
}

/// Sizes of a grid or of a work-group: `n`, `[x, y]` or `[x, y, z]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent(pub [u32; 3]);

impl From<u32> for Extent {
    fn from(x: u32) -> Self {
        Self([x, 1, 1])
    }
}

impl From<[u32; 2]> for Extent {
    fn from([x, y]: [u32; 2]) -> Self {
        Self([x, y, 1])
    }
}

impl From<[u32; 3]> for Extent {
    fn from(all: [u32; 3]) -> Self {
        Self(all)
    }
}

/// A launch of a kernel to be: see [`CodeObject::launch`]. It has the addresses of the memory that
/// it is given, which must live until the kernel is done.
///
/// ```no_run
/// # use kfd::Buffer;
/// # type Code = std::sync::Arc<kfd_aql::CodeObject>;
/// # fn of(code: &Code, a: &Buffer<f32>, sum: &Buffer<f32>) -> kfd_aql::Result<()> {
/// let launch = code
///     .launch("saxpy")?
///     .grid(1024)
///     .workgroup(256)
///     .arg(2.5f32)
///     .arg(a)
///     .arg(sum)
///     .arg(1000u32)
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LaunchBuilder {
    code: Arc<CodeObject>,
    kernel: String,
    grid: Extent,
    workgroup: Option<Extent>,
    lds: u32,
    stack: Option<u32>,
    printer: Option<Arc<Printer>>,
    values: Vec<Vec<u8>>,
}

impl LaunchBuilder {
    pub(crate) fn new(code: &Arc<CodeObject>, kernel: &str) -> Result<Self> {
        code.kernel(kernel)?;
        Ok(Self {
            code: code.clone(),
            kernel: kernel.to_owned(),
            grid: Extent([1; 3]),
            workgroup: None,
            lds: 0,
            stack: None,
            printer: None,
            values: Vec::new(),
        })
    }

    /// Work-items in all. Without this it is one.
    pub fn grid(mut self, items: impl Into<Extent>) -> Self {
        self.grid = items.into();
        self
    }

    /// Work-items in a work-group. Without this it is what the kernel demands; else they are a
    /// wave's 64, or as many as the kernel is compiled for, if that is less.
    pub fn workgroup(mut self, items: impl Into<Extent>) -> Self {
        self.workgroup = Some(items.into());
        self
    }

    /// Bytes of local memory for each work-group beyond what the kernel always uses.
    pub fn dynamic_lds(mut self, bytes: u32) -> Self {
        self.lds = bytes;
        self
    }

    /// Bytes of stack for each work-item beyond the scratch that the kernel always uses. A kernel
    /// whose stack is dynamic needs it ([`crate::Kernel::dynamic_stack`]): one that recurses, or
    /// calls by pointer. What grows beyond it overwrites variables of others.
    pub fn stack(mut self, bytes: u32) -> Self {
        self.stack = Some(bytes);
        self
    }

    /// What takes the output of `printf`. A kernel that prints needs one of its own code object.
    pub fn printer(mut self, printer: &Arc<Printer>) -> Self {
        self.printer = Some(printer.clone());
        self
    }

    /// The next argument.
    pub fn arg(mut self, value: impl Value) -> Self {
        self.values.push(value.bytes());
        self
    }

    /// The next argument, by its bytes: a struct.
    pub fn arg_bytes(mut self, bytes: &[u8]) -> Self {
        self.values.push(bytes.to_vec());
        self
    }

    /// Checks it all, and has memory for the arguments.
    ///
    /// `Launch`: another number of arguments than the kernel has, one of another size, sizes that
    /// don't fit, or something that the kernel needs and was not given.
    pub fn build(self) -> Result<Launch> {
        let kernel = self.code.kernel(&self.kernel)?;
        let refuse = |reason| Error::Launch {
            kernel: self.kernel.clone(),
            reason,
        };
        let visible = lay_out(&kernel.arguments, &self.values).map_err(refuse)?;
        let most = Extent::from(kernel.max_workgroup.min(64));
        let usual = kernel.required_workgroup.map_or(most, Extent);
        let Extent(workgroup) = self.workgroup.unwrap_or(usual);
        let workgroup = workgroup.map(u16::try_from);
        let [Ok(x), Ok(y), Ok(z)] = workgroup else {
            return Err(refuse("a work-group has at most 65535 in a row".into()));
        };
        let Extent(grid) = self.grid;
        let (code, stack, printer) = (&self.code, self.stack, self.printer);
        let launch = Launch::with(
            code,
            &self.kernel,
            grid,
            [x, y, z],
            &visible,
            stack,
            printer,
        )?;
        match self.lds {
            0 => Ok(launch),
            bytes => launch.dynamic_lds(bytes),
        }
    }
}

/// The bytes of all visible arguments, each where the code object says.
fn lay_out(arguments: &[Argument], values: &[Vec<u8>]) -> std::result::Result<Vec<u8>, String> {
    let visible: Vec<_> = arguments.iter().filter(|it| !it.is_hidden()).collect();
    if visible.len() != values.len() {
        let (given, wanted) = (values.len(), visible.len());
        return Err(format!("{given} arguments: it takes {wanted}"));
    }
    let mut bytes = Vec::new();
    for (number, (argument, value)) in visible.iter().zip(values).enumerate() {
        if argument.size != value.len() {
            let (given, wanted) = (value.len(), argument.size);
            let kind = &argument.kind;
            return Err(format!(
                "argument {number} of {given} bytes: it is a {kind} of {wanted}"
            ));
        }
        let end = argument.offset + argument.size;
        bytes.resize(bytes.len().max(end), 0);
        bytes[argument.offset..end].copy_from_slice(value);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argument(offset: usize, size: usize, kind: &str) -> Argument {
        Argument {
            offset,
            size,
            kind: kind.into(),
        }
    }

    #[test]
    fn arguments_lie_where_the_code_object_says() {
        let arguments = [
            argument(0, 4, "by_value"),
            argument(8, 8, "global_buffer"),
            argument(16, 2, "by_value"),
            argument(24, 4, "hidden_block_count_x"),
        ];
        let values = [7u32.bytes(), 0x1234u64.bytes(), 5i16.bytes()];
        let bytes = lay_out(&arguments, &values).expect("they fit");
        assert_eq!(bytes.len(), 18);
        assert_eq!(
            (bytes[0], bytes[8], bytes[9], bytes[16]),
            (7, 0x34, 0x12, 5)
        );
    }

    #[test]
    fn a_wrong_number_and_a_wrong_size_are_told() {
        let arguments = [argument(0, 8, "global_buffer"), argument(8, 4, "by_value")];
        let told = |values: &[Vec<u8>]| lay_out(&arguments, values).expect_err("they do not fit");
        assert_eq!(told(&[1u64.bytes()]), "1 arguments: it takes 2");
        assert_eq!(
            told(&[1u64.bytes(), 1u64.bytes()]),
            "argument 1 of 8 bytes: it is a by_value of 4"
        );
    }

    #[test]
    fn extents_have_three_dimensions() {
        assert_eq!(Extent::from(7), Extent([7, 1, 1]));
        assert_eq!(Extent::from([7, 8]), Extent([7, 8, 1]));
        assert_eq!(Extent::from([7, 8, 9]), Extent([7, 8, 9]));
    }
}
