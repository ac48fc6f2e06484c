// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Buffer`]: a [`Memory`] of values of one type; [`Slice`]: some of them.

use crate::{Device, Memory, Plain, Result};
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// So many values of `T` that GPUs and this process see at the same address.
///
/// ```no_run
/// # fn of(device: &std::sync::Arc<kfd::Device>) -> kfd::Result<()> {
/// let numbers = kfd::Buffer::from_slice(device, &[1.0f32, 2.0, 3.0])?;
/// numbers.slice(1..).write(&[5.0, 6.0]);
/// assert_eq!(numbers.read(), [1.0, 5.0, 6.0]);
/// # Ok(())
/// # }
/// ```
///
/// GPUs write what they like. So there is no buffer of what has values that Rust does not know:
///
/// ```compile_fail,E0277
/// # fn of(device: &std::sync::Arc<kfd::Device>) -> kfd::Result<()> {
/// let flags = kfd::Buffer::<bool>::vram(device, 16)?;
/// # Ok(())
/// # }
/// ```
///
/// ```compile_fail,E0277
/// # fn of(device: &std::sync::Arc<kfd::Device>) -> kfd::Result<()> {
/// let words = kfd::Buffer::<&'static str>::vram(device, 16)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Buffer<T> {
    memory: Memory,
    len: usize,
    kind: PhantomData<fn(T) -> T>,
}

impl<T: Plain> Buffer<T> {
    const SIZE: usize = {
        assert!(size_of::<T>() != 0, "values of a buffer have a size");
        size_of::<T>()
    };

    /// `len` values in VRAM that the CPU sees through the GPU's BAR.
    pub fn vram(device: &Arc<Device>, len: usize) -> Result<Self> {
        Self::with(len, |bytes| Memory::vram(device, bytes))
    }

    /// `len` values in system memory that the kernel allocates, all zeros.
    pub fn gtt(device: &Arc<Device>, len: usize) -> Result<Self> {
        Self::with(len, |bytes| Memory::gtt(device, bytes))
    }

    /// `len` values in memory of this process, all zeros.
    pub fn userptr(device: &Arc<Device>, len: usize) -> Result<Self> {
        Self::with(len, |bytes| Memory::userptr(device, bytes))
    }

    /// The same values in VRAM.
    pub fn from_slice(device: &Arc<Device>, values: &[T]) -> Result<Self> {
        let buffer = Self::vram(device, values.len())?;
        buffer.write(values);
        Ok(buffer)
    }

    fn with(len: usize, allocate: impl FnOnce(usize) -> Result<Memory>) -> Result<Self> {
        // As many bytes as no buffer has are refused as such.
        let memory = allocate(len.saturating_mul(Self::SIZE))?;
        Ok(Self {
            memory,
            len,
            kind: PhantomData,
        })
    }

    /// As many values as fit into `memory`.
    pub fn new(memory: Memory) -> Self {
        Self {
            len: memory.size() / Self::SIZE,
            memory,
            kind: PhantomData,
        }
    }

    /// The memory below.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Gives the memory back as bytes.
    pub fn into_memory(self) -> Memory {
        self.memory
    }

    /// The address of the first value, for CPU and GPUs alike.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// How many values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a buffer has a value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Some of the values.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'_, T> {
        Slice {
            memory: &self.memory,
            start: 0,
            len: self.len,
            kind: PhantomData,
        }
        .slice(range)
    }

    /// Copies `values` to the beginning. See [`Memory::write`].
    ///
    /// # Panics
    /// When they don't fit, or the CPU does not see the buffer.
    pub fn write(&self, values: &[T]) {
        self.slice(..values.len()).write(values);
    }

    /// All values. See [`Memory::read`].
    ///
    /// # Panics
    /// When the CPU does not see the buffer.
    pub fn read(&self) -> Vec<T> {
        self.slice(..).read()
    }

    /// The value of that number.
    ///
    /// # Panics
    /// When there are not so many, or the CPU does not see the buffer.
    pub fn get(&self, index: usize) -> T {
        self.slice(index..=index).read()[0]
    }

    /// Sets the value of that number.
    ///
    /// # Panics
    /// When there are not so many, or the CPU does not see the buffer.
    pub fn set(&self, index: usize, value: T) {
        self.slice(index..=index).write(&[value]);
    }
}

/// Some values of a [`Buffer`] one after the other.
#[derive(Debug)]
pub struct Slice<'a, T> {
    memory: &'a Memory,
    /// In values, as the length is.
    start: usize,
    len: usize,
    kind: PhantomData<fn(T) -> T>,
}

impl<T> Clone for Slice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slice<'_, T> {}

impl<'a, T: Plain> Slice<'a, T> {
    /// The address of the first value, for CPU and GPUs alike.
    pub fn address(&self) -> u64 {
        self.memory.address() + self.offset() as u64
    }

    /// How many values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Some of these, counted from its own first.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Slice<'a, T> {
        let from = match range.start_bound() {
            Bound::Included(from) => *from,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(to) => *to,
            Bound::Unbounded => self.len,
        };
        assert!(from <= to, "values {from} to {to}");
        assert!(to <= self.len, "value {to} of {}", self.len);
        Slice {
            start: self.start + from,
            len: to - from,
            ..*self
        }
    }

    /// Copies `values` there. A value of up to 8 bytes is never seen in part.
    ///
    /// # Panics
    /// When it has another number of values, or the CPU does not see the buffer.
    pub fn write(&self, values: &[T]) {
        assert_eq!(values.len(), self.len, "another number of values");
        self.memory.write(self.offset(), values);
    }

    /// All its values. A value of up to 8 bytes is never seen in part.
    ///
    /// # Panics
    /// When the CPU does not see the buffer.
    pub fn read(&self) -> Vec<T> {
        self.memory.read(self.offset(), self.len)
    }

    /// The same into `values`, without an allocation.
    ///
    /// # Panics
    /// When `values` has another length, or the CPU does not see the buffer.
    pub fn read_into(&self, values: &mut [T]) {
        assert_eq!(values.len(), self.len, "another number of values");
        self.memory.read_into(self.offset(), values);
    }

    fn offset(&self) -> usize {
        self.start * size_of::<T>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer<T: Plain>(bytes: usize) -> Buffer<T> {
        let device = Device::without_a_driver();
        Buffer::new(Memory::anonymous(&device, bytes).expect("memory"))
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn slices_of_slices_are_parts_of_the_buffer() {
        let numbers = buffer::<u16>(4096);
        assert_eq!((numbers.len(), numbers.is_empty()), (2048, false));
        numbers.write(&[1, 2, 3, 4, 5, 6]);
        let middle = numbers.slice(1..5);
        assert_eq!(middle.read(), [2, 3, 4, 5]);
        assert_eq!(middle.slice(2..).read(), [4, 5]);
        assert_eq!(middle.slice(..=0).read(), [2]);
        assert_eq!(middle.slice(1..3).address(), numbers.address() + 4);
        assert!(middle.slice(4..).is_empty());
        middle.slice(1..3).write(&[30, 40]);
        let mut all = [0; 6];
        numbers.slice(..6).read_into(&mut all);
        assert_eq!(all, [1, 2, 30, 40, 5, 6]);
        numbers.set(2047, 7);
        assert_eq!((numbers.get(2047), numbers.get(2046)), (7, 0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn as_many_values_as_fit() {
        assert_eq!(buffer::<[f32; 3]>(4096).len(), 341);
        let device = Device::without_a_driver();
        assert!(Buffer::<u64>::gtt(&device, usize::MAX / 4).is_err());
        assert!(Buffer::<u64>::gtt(&device, 0).is_err());
    }

    #[test]
    #[should_panic(expected = "value 2049 of 2048")]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn beyond_the_end() {
        buffer::<u16>(4096).slice(..2049);
    }

    #[test]
    #[should_panic(expected = "value 5 of 4")]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn beyond_the_end_of_a_slice() {
        buffer::<u16>(4096).slice(0..4).slice(4..=4);
    }

    #[test]
    #[should_panic(expected = "another number of values")]
    #[cfg_attr(miri, ignore = "asks the kernel")]
    fn fewer_values_than_the_slice_has() {
        buffer::<u16>(4096).slice(0..4).write(&[1, 2, 3]);
    }
}
