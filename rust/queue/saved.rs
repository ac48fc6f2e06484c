// SPDX-License-Identifier: GPL-2.0-only

//! What a checkpoint has of a queue, and a queue that is made of one.

use super::{
    properties::{
        Extent,
        QueueKind,
        QueueProperties, //
    },
    Placement,
    Queue, //
};
use crate::{
    gfx::{
        SdmaChoice,
        Words,
        PAGE_BYTES, //
    },
    ids::QueueId,
};
use kernel::prelude::*;

/// Where the control stack begins behind a descriptor, in words.
const STACK: usize = PAGE_BYTES as usize / size_of::<u32>();

/// What a queue is called and where it is, beside its properties.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueIdentity {
    pub(crate) properties: QueueProperties,
    /// Of a copy queue: whether its engine is one for the links between GPUs, and the number of its
    /// slot among those of that kind.
    pub(crate) copies: Option<(bool, u32)>,
    /// The number of its doorbell in the process's pages.
    pub(crate) doorbell_id: usize,
    /// Words of its descriptors and of the control stacks behind them, of all XCCs together.
    pub(crate) descriptor_words: usize,
    pub(crate) stack_words: usize,
}

/// A queue as somebody has brought it.
#[derive(Clone, Copy)]
pub(crate) struct SavedQueue<'a> {
    pub(crate) id: QueueId,
    pub(crate) doorbell_id: usize,
    pub(crate) sdma_number: u32,
    /// Of all XCCs, one after the other.
    pub(crate) descriptors: &'a [u32],
    pub(crate) stacks: &'a [u32],
}

impl Queue {
    /// Words of a descriptor as checkpoints have it.
    fn words_each(&self) -> usize {
        let formats = self.node.generation().formats;
        let bytes = match self.place {
            Placement::Compute { .. } => formats.mqd.bytes(),
            Placement::Sdma { .. } => formats.sdma.bytes(),
        };
        bytes / size_of::<u32>()
    }

    /// Words of the control stack behind each descriptor.
    fn stack_room(&self) -> usize {
        let stack = self.node.save_sizes().control_stack;
        let stride = self.node.generation().formats.mqd.stride(stack);
        match stride > PAGE_BYTES as usize {
            true => stack as usize / size_of::<u32>(),
            false => 0,
        }
    }

    /// Words of it that a checkpoint has, which the hardware may have changed.
    fn stack_words(&self) -> Result<usize> {
        let Placement::Compute { mqd, .. } = &self.place else {
            return Ok(0);
        };
        let (descriptor, _) = mqd.mqd(0)?;
        let waves = self.node.generation().formats.mqd.saved_waves(&descriptor);
        let words = waves.control_stack_size as usize / size_of::<u32>();
        Ok(words.min(self.stack_room()))
    }

    /// What it is called and where it is.
    pub(super) fn identity(&self) -> Result<QueueIdentity> {
        let copies = match &self.place {
            Placement::Compute { .. } => None,
            Placement::Sdma { slot, .. } => Some(self.node.sdma_number(slot)),
        };
        let xccs = self.node.xccs() as usize;
        Ok(QueueIdentity {
            properties: self.properties,
            copies,
            doorbell_id: self.doorbell_id(),
            descriptor_words: self.words_each() * xccs,
            stack_words: self.stack_words()? * xccs,
        })
    }

    /// Reads its descriptors, and of its control stacks what is in use: before that there is 0. It
    /// is off the hardware. `EINVAL`: they are not of that size any more.
    pub(super) fn save(&self, descriptors: &mut [u32], stacks: &mut [u32]) -> Result {
        let (xccs, each) = (self.node.xccs() as usize, self.words_each());
        let stack = self.stack_words()?;
        if descriptors.len() != each * xccs || stacks.len() != stack * xccs {
            return Err(EINVAL);
        }
        match &self.place {
            Placement::Compute { mqd, .. } => {
                let format = self.node.generation().formats.mqd;
                let mut rest = stacks;
                for (xcc, words) in (0..).zip(descriptors.chunks_exact_mut(each)) {
                    let (descriptor, _) = mqd.mqd(xcc)?;
                    descriptor.get_row(0, words);
                    let (own, behind) = rest.split_at_mut_checked(stack).ok_or(EINVAL)?;
                    // Who had the place before may have left its waves there.
                    let first = format.saved_waves(&descriptor).first_word(stack);
                    let (unused, used) = own.split_at_mut_checked(first).ok_or(EINVAL)?;
                    unused.fill(0);
                    if !used.is_empty() {
                        mqd.control_stack(xcc).get_row(first, used);
                    }
                    rest = behind;
                }
            }
            Placement::Sdma { slot, .. } => {
                let (words, _) = self.node.memory().sdma_mqd(slot.place(), false)?;
                words.get_row(0, descriptors.get_mut(..each).ok_or(EINVAL)?);
            }
        }
        Ok(())
    }

    /// Takes over what a new queue's descriptors get of `saved`. `EINVAL`: that is not of the size
    /// that it has here.
    pub(super) fn take_over(&self, saved: &SavedQueue<'_>) -> Result {
        let formats = self.node.generation().formats;
        let (xccs, each) = (self.node.xccs(), self.words_each());
        let SavedQueue {
            descriptors,
            stacks,
            ..
        } = saved;
        if descriptors.len() != each * xccs as usize {
            return Err(EINVAL);
        }
        match &self.place {
            Placement::Compute {
                format,
                mqd,
                doorbell,
                ..
            } => {
                let (room, stack) = (self.stack_room(), stacks.len() / xccs.max(1) as usize);
                if stack > room || stack * xccs as usize != stacks.len() {
                    return Err(EINVAL);
                }
                let mut queue = self.compute(*format, doorbell.index());
                if stack < room {
                    // What was there before is another queue's: nothing was saved.
                    queue.save_area = None;
                }
                for (xcc, saved) in (0..).zip(descriptors.chunks_exact(each)) {
                    let first = stack * xcc as usize;
                    let stack = stacks.get(first..first + stack).ok_or(EINVAL)?;
                    mqd.write(xcc, |words| {
                        formats.mqd.take_over(words, &queue, saved, xccs);
                        // Where there is none the buffer may end here.
                        if !stack.is_empty() {
                            words.set_row(STACK, stack);
                        }
                    })?;
                }
                self.flush();
            }
            Placement::Sdma { slot, .. } => {
                let (words, _) = self.node.memory().sdma_mqd(slot.place(), false)?;
                let own = descriptors.get(..each).ok_or(EINVAL)?;
                formats.sdma.take_over(&words, own);
            }
        }
        Ok(())
    }

    /// Where its waves are saved, if that is still to be kept for it.
    pub(super) fn awaited_area(&self) -> Option<Extent> {
        if !self.awaits_area {
            return None;
        }
        let eop = self.node.generation().chip.eop_buffer_bytes;
        let buffers = self
            .properties
            .buffers(self.node.save_sizes(), self.node.xccs(), eop)?;
        buffers.save_area
    }
}

impl QueueKind {
    /// Which slots of copy engines there are for it.
    pub(super) fn choice(self) -> Option<SdmaChoice> {
        match self {
            Self::Sdma(choice) => Some(choice),
            Self::Aql | Self::Pm4 => None,
        }
    }
}
