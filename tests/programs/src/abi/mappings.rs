// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Generated mappings of `/dev/kfd`.

use super::world::{Arg, World};
use rustix::mm::{mmap as map, munmap, MapFlags, ProtFlags};

pub fn mmap(world: &mut World) {
    let kind = world.pick(&[0, 0, 1, 2, 2, 3, 3, 3]);
    let gpu = world.gpu();
    let inside = world.pick(&[0, 0, 0, 4096, 1 << 20]);
    let size = world.pick(&[4096, 4096, 8192, 8192, 12288, 32768, 65536]);
    let access = world.pick(&[3, 3, 3, 1, 2, 0, 7]);
    let shared = world.mostly(85, Arg::new(1, "shared"), &[0]);
    let offset = kind.value << 62 | (gpu.value & 0xffff) << 46 | inside.value;
    let flags = match shared.value {
        1 => MapFlags::SHARED,
        _ => MapFlags::PRIVATE,
    };
    // A page of events that the bench brought is not for this file, and C maps nonsense there.
    if kind.value == 2 {
        return;
    }
    let access_flags = ProtFlags::from_bits_retain(access.u32());
    let (fd, bytes) = (world.fd(), size.value as usize);
    // SAFETY: a new mapping at an address that the kernel picks, given back at once.
    let outcome = unsafe {
        map(std::ptr::null_mut(), bytes, access_flags, flags, fd, offset)
            .and_then(|at| munmap(at, bytes))
    };
    world.say(
        "mmap",
        &[&kind, &gpu, &inside, &size, &access, &shared],
        outcome,
        "",
    );
}
