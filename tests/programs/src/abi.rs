// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! abi-diff: sequences of calls, good and bad, scripted and generated from a seed, and what each
//! one returned, wrote back and did. The lines name objects by what they are (`GPU`, `h0`, `q1`),
//! never by address, so that those of the C driver and of ours can be compared.
//!
//! What a call does is seen in the calls that follow it, and in the files of the process in sysfs,
//! which are printed now and then.

mod calls;
mod files;
mod mappings;
mod memory;
mod queues;
mod scripts;
mod world;

use anyhow::Result;
use clap::Args;
use world::World;

/// Drive scripted and generated sequences of calls and print what each came to, one line a case.
#[derive(Args)]
pub struct Abi {
    /// Where the generated sequence begins; each seed is another sequence.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Generated calls.
    #[arg(long, default_value_t = 300)]
    calls: u32,
    /// Run the scripts as well.
    #[arg(long)]
    scripts: bool,
}

impl Abi {
    /// All of it.
    pub fn run(&self) -> Result<()> {
        if self.scripts {
            scripts::before_acquire()?;
        }
        let mut world = World::new(self.seed)?;
        if self.scripts {
            scripts::all(&mut world)?;
        }
        for number in 0..self.calls {
            generate(&mut world);
            if number % 50 == 49 {
                files::show(&mut world);
            }
        }
        world.tidy();
        files::show(&mut world);
        Ok(())
    }
}

/// One call of those that there are.
fn generate(world: &mut World) {
    type Call = fn(&mut World);
    // A call that stands here twice is drawn twice as often.
    const CALLS: &[Call] = &[
        calls::get_version,
        calls::set_memory_policy,
        calls::get_clock_counters,
        calls::get_process_apertures,
        calls::get_process_apertures_new,
        calls::set_scratch_backing_va,
        calls::get_tile_config,
        calls::set_trap_handler,
        calls::acquire_vm,
        calls::set_xnack_mode,
        calls::runtime_enable,
        calls::deprecated,
        calls::create_event,
        calls::create_event,
        calls::create_event,
        calls::destroy_event,
        calls::set_event,
        calls::set_event,
        calls::reset_event,
        calls::wait_events,
        calls::wait_events,
        calls::smi_events,
        calls::profiler,
        queues::create,
        queues::create,
        queues::create,
        queues::create,
        queues::destroy,
        queues::update,
        queues::update,
        queues::set_cu_mask,
        queues::get_wave_state,
        queues::alloc_gws,
        memory::alloc,
        memory::alloc,
        memory::alloc,
        memory::free,
        memory::map,
        memory::map,
        memory::unmap,
        memory::export,
        memory::import,
        memory::dmabuf_info,
        memory::available,
        mappings::mmap,
        mappings::mmap,
    ];
    let call = CALLS[world.below(CALLS.len())];
    call(world);
}
