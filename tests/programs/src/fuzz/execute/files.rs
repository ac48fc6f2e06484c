// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Words of a program that are about files and mappings.

use super::super::abi::Access;
use super::super::generate::MEMORY;
use super::super::program::Line;
use super::open_files::Origin;
use super::World;
use nix::libc;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use rustix::fs::{open, Mode, OFlags};
use rustix::mm::{mmap, mmap_anonymous, munmap, MapFlags, ProtFlags};
use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

impl World<'_> {
    pub fn open(&self, line: &Line) {
        let path = match (self.number(line, "render"), self.prepared.get()) {
            (0, _) | (_, None) => "/dev/kfd".to_owned(),
            (_, Some(it)) => {
                let first = it.benches.first();
                let minor = first.map(|it| it.device.node().property("drm_render_minor"));
                format!("/dev/dri/renderD{}", minor.unwrap_or(0))
            }
        };
        let file = open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        self.shared.tally.count("OPEN", file.is_ok());
        let origin = match path.as_str() {
            "/dev/kfd" => Origin::opened(),
            _ => Origin::Other,
        };
        if let Ok(file) = file {
            self.adopt(line, file, origin);
        }
    }

    /// The lines may use `file` and close it.
    fn adopt(&self, line: &Line, file: OwnedFd, origin: Origin) {
        let number = file.into_raw_fd();
        self.table().add(number, origin);
        self.gives(line, number as u64);
    }

    pub fn close(&self, file: u64) {
        let mut table = self.table();
        let Some(index) = table.files.iter().position(|it| it.number == file as i32) else {
            return;
        };
        let file = table.files.swap_remove(index);
        drop(table);
        // SAFETY: a line opened it, and it has just been taken off the list of those to close.
        unsafe { libc::close(file.number) };
    }

    pub fn map(&self, line: &Line) {
        let number = |name| self.number(line, name);
        let used = self.file_of(line);
        if used.number < 0 {
            return;
        }
        // SAFETY: the number is not -1; a file that is not open is EBADF.
        let file = unsafe { BorrowedFd::borrow_raw(used.number) };
        let offset = number("kind") << 62 | (number("gpu") & 0xffff) << 46;
        let (bytes, access) = (number("bytes") as usize, number("access") as u32);
        let access = ProtFlags::from_bits_retain(access);
        // SAFETY: a new mapping where the kernel likes.
        let at = unsafe { mmap(null_mut(), bytes, access, MapFlags::SHARED, file, offset) };
        self.shared.tally.count("MMAP", at.is_ok());
        if at.is_ok() && used.access == Access::Foreign && self.is_still(used) {
            let wrong = "it works on a file that another process opened";
            self.shared.complain(&format!("{wrong}: {line}"));
        }
        if let Ok(at) = at {
            self.table().mappings.insert(at as u64, bytes);
            self.gives(line, at as u64);
        }
    }

    pub fn unmap(&self, at: u64) {
        if let Some(bytes) = self.table().mappings.remove(&at) {
            // SAFETY: MMAP made it, and it has just been taken off the list.
            let outcome = unsafe { munmap(at as *mut _, bytes) };
            self.shared.tally.count("MUNMAP", outcome.is_ok());
        }
    }

    /// Reads from a mapping. Where the GPU's pages are gone, or were never readable, that ends the
    /// process.
    pub fn touch(&self, at: u64) {
        let table = self.table();
        if table.mappings.contains_key(&at) {
            self.shared.tally.count("TOUCH", true);
            // SAFETY: it is mapped while the table is locked. Any byte will do; a signal ends the
            // process.
            unsafe { (at as *const u8).read_volatile() };
        }
    }

    /// Whether these bytes lie in memory that SETUP set aside for such words.
    fn is_own_memory(&self, at: u64, bytes: u64, also_plain: bool) -> bool {
        let Some(it) = self.prepared.get() else {
            return false;
        };
        let within = |start: u64| at >= start && at.saturating_add(bytes) <= start + MEMORY;
        bytes != 0 && (within(it.svm) || also_plain && within(it.memory))
    }

    /// Writes to each of these pages, as a program does to memory that it shares with a GPU.
    pub fn poke(&self, at: u64, bytes: u64) {
        if !self.is_own_memory(at, bytes, false) {
            return;
        }
        for page in (at..at + bytes).step_by(4096) {
            // SAFETY: the memory is mapped and writable as long as the process lives; nobody has a
            // reference to it.
            unsafe { (page as *mut u8).write_volatile(1) };
        }
        self.shared.tally.count("POKE", true);
    }

    /// Fresh pages in place of these, which a GPU may be using.
    pub fn discard(&self, at: u64, bytes: u64) {
        if !self.is_own_memory(at, bytes, true) {
            return;
        }
        let (access, how) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::FIXED,
        );
        // SAFETY: a part of the memory that SETUP set aside, to which nobody has a reference.
        let outcome = unsafe { mmap_anonymous(at as *mut _, bytes as usize, access, how) };
        self.shared.tally.count("DISCARD", outcome.is_ok());
    }

    pub fn send(&self, file: i32, to: usize) {
        let Some(outbox) = self.shared.outboxes.get(to).filter(|_| file >= 0) else {
            return;
        };
        // SAFETY: the number is not -1; a file that is not open is EBADF.
        let files = [unsafe { BorrowedFd::borrow_raw(file) }];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&files));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        // Whose it is goes with it: the process that opened it, if it is a /dev/kfd.
        let opener = self.opener(file).to_le_bytes();
        let sent = sendmsg(
            outbox.as_fd(),
            &[IoSlice::new(&opener)],
            &mut control,
            flags,
        );
        self.shared.tally.count("SEND", sent.is_ok());
    }

    pub fn receive(&self, line: &Line) {
        let Some(inbox) = self.shared.inboxes.get(usize::from(self.number)) else {
            return;
        };
        let mut opener = [0; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let parts = &mut [IoSliceMut::new(&mut opener)];
        let got = recvmsg(inbox.as_fd(), parts, &mut control, flags);
        self.shared.tally.count("RECEIVE", got.is_ok());
        let origin = Origin::received(u32::from_le_bytes(opener));
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                files.for_each(|file| self.adopt(line, file, origin));
            }
        }
    }
}

/// Two ends of a socket that keeps messages apart.
pub fn mailbox() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    use rustix::net::{socketpair, AddressFamily, SocketFlags, SocketType};
    let pair = socketpair(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    debug_assert!(pair.0.as_raw_fd() >= 0);
    Ok(pair)
}
