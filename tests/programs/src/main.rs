// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! kfd-tests: what the tests run inside the guest. Each subcommand is one test or one tool for a
//! test; all of them work on any driver behind `/dev/kfd`, so that C's answers and ours can be
//! compared.

mod abi;
mod asleep;
mod bench;
mod cases;
mod checkpoint;
mod closed_evicted;
mod contexts;
mod copy_stays;
mod cost;
mod counters;
mod crates;
mod crowd;
mod dbgapi;
mod debug;
mod denied;
mod disturbed;
mod doorbells;
mod end_evicted;
mod errno;
mod exception;
mod faults;
mod figures;
mod first_map;
mod fuzz;
mod gutted;
mod handed_over;
mod handles;
mod ipc;
mod kill;
mod late_update;
mod left_mapped;
mod limits;
mod map_no_table;
mod marks;
mod mqd;
mod opener;
mod openers;
mod peer;
mod pinned;
mod power;
mod pressure;
mod raw;
mod refused;
mod render_job;
mod runlist;
mod running;
mod same_gpu;
mod script;
mod smi;
mod stale_doorbells;
mod stopped;
mod stranger;
mod svm;
mod thunk;
mod unmap_stopped;
mod userptr;
mod wakes;
mod waves;
mod xnack;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make every bad call of a table and print what each came to, one line a case.
    Errno,
    /// What `errno` runs as another process, on a file that it did not open.
    #[command(hide = true)]
    NotOpener {
        fd: i32,
        gpu_id: u32,
    },
    /// What `errno` runs as another process, to go on as another program with its file.
    #[command(hide = true)]
    BeforeExec {
        gpu_id: u32,
    },
    /// What that goes on as.
    #[command(hide = true)]
    AfterExec {
        fd: i32,
        gpu_id: u32,
    },
    /// What `errno` runs as another process, which gives its rights away.
    #[command(hide = true)]
    WithoutRights {
        /// All but the general one.
        #[arg(long)]
        general: bool,
    },
    /// What `errno` runs as another process, to bring an event page of its own.
    #[command(hide = true)]
    OwnEventPage,
    /// Drive scripted and generated sequences of calls and print what each came to.
    Abi(abi::Abi),
    /// Cause each SMI event of a GPU, and print them.
    Smi(smi::Smi),
    /// Share memory between two processes by a dma-buf, and print what each sees.
    Ipc(ipc::Ipc),
    /// Free shared buffers beside a process that allocates: nothing of it comes to light.
    Handles(handles::Handles),
    /// Let go of a ring that many files have, while they come and go.
    Crowd(crowd::Crowd),
    /// Map a buffer for the first time while another one has what that locks (hold_locks.ko).
    FirstMap,
    /// Close what the render node has mapped while page tables are evicted (hold_info.ko).
    ClosedEvicted(closed_evicted::ClosedEvicted),
    /// Have memory thrown away that queues and the CPU have mapped, and given to others.
    Gutted(gutted::Gutted),
    /// Have doorbells, as many as may be.
    #[command(subcommand)]
    Doorbells(doorbells::Doorbells),
    /// Keep what was mapped of doorbells that were thrown away, while another queue gets them.
    StaleDoorbells(stale_doorbells::StaleDoorbells),
    /// Map memory where there is no VRAM for the last page table.
    MapNoTable(map_no_table::MapNoTable),
    /// Open /dev/kfd while a process ends, and signals, stops and a tracer come.
    Disturbed,
    /// Kill processes while their VRAM is evicted and a child of theirs waits for that.
    EndEvicted(end_evicted::EndEvicted),
    /// Unmap memory while page tables seem to be moved (hold_fence.ko).
    UnmapStopped,
    /// Acquire a VM by a file that the parent has opened, and unmap memory when it was killed.
    OpenerKilled(opener::OpenerKilled),
    /// Have a shared buffer pinned, and moved, by others (pin_dmabuf.ko).
    Pinned(pinned::Pinned),
    /// Copy by a queue that the GPU model keeps from getting done, and wait for it.
    CopyStays,
    /// Have memory moved that a process's queues have from its render node.
    SameGpu(same_gpu::SameGpu),
    /// Save a process in the middle of a kernel, or become one that was saved.
    Checkpoint(checkpoint::Save),
    /// What a process may do with a GPU that its device cgroup hides.
    Denied(denied::Denied),
    /// Use what the crates have beyond single calls, and say what each came to.
    Crates {
        /// Instead: wait on one GPU while reading this file resets another one.
        #[arg(long, value_name = "FILE")]
        recover: Option<std::path::PathBuf>,
    },
    /// Give queues packets that no GPU takes, and say how the waits end.
    Stopped {
        /// Instead: kernels that trap or have an illegal instruction, with a runtime.
        #[arg(long)]
        exceptions: bool,
    },
    /// Print who keeps the GPU awake.
    Power(power::Power),
    /// Fill VRAM, so that processes that compute are evicted, and see that they lose nothing.
    Pressure(pressure::Pressure),
    /// Have the performance counters of a GPU in partitions taken, and see what counts.
    Counters(counters::Counters),
    /// Keep a kernel running and a pattern in VRAM, and look at both for each line of stdin.
    Asleep(asleep::Asleep),
    /// Take memory of the process's own away while the GPU writes to it.
    Userptr(userptr::Userptr),
    /// Have the GPU repeat accesses that find no page, and print whether the driver brings it.
    Xnack(xnack::Xnack),
    /// Set and ask for attributes of shared virtual memory, and have GPUs access it.
    Svm(svm::Svm),
    /// Debug processes on their GPUs, well and badly, and print what each step came to.
    Debug(debug::Debug),
    /// Debug a HIP program with AMD's debugger library, and print what it sees.
    Dbgapi(dbgapi::Dbgapi),
    /// Have two GPUs that xGMI connects use each other's memory.
    Peer(peer::Peer),
    /// Create queues of all kinds and print their descriptors, but for addresses.
    Mqd,
    /// Create scenes of queues, in several processes, and print the run lists, but for addresses
    /// and order.
    Runlist,
    /// Do one operation after the other, each between two marks in the model's trace.
    Script,
    /// What `runlist` runs as other processes.
    #[command(hide = true)]
    RunlistChild(runlist::RunlistChild),
    /// Have one user try to learn of another's process, to change it, and to hold it up.
    Stranger(stranger::Stranger),
    /// Hold what a process is told in figures (memory, clocks, copy queues' time) against what is
    /// known of it, and print what each came to.
    Figures,
    /// Create queues until there are no more, and print how many there are.
    Queues,
    /// Ring a queue's doorbell through a file that has become another context's since.
    Contexts(contexts::Contexts),
    /// Kill a process in the middle of a dispatch, COUNT times.
    Kill(kill::Kill),
    /// Have a queue and wait for the events of a GPU that failed; print them.
    Exception(exception::Exception),
    LateUpdate(late_update::LateUpdate),
    /// Acquire a VM in which copy engines are late with an entry.
    HandedOver,
    LeftMapped(left_mapped::LeftMapped),
    /// Have packets refused, and print what a runtime is told of each.
    Refused(refused::Refused),
    /// Have each allocation and each copy of user memory fail in turn, in each call, and see that
    /// nothing is left.
    Faults(faults::Faults),
    /// Run generated programs of calls in several processes at once.
    Fuzz(fuzz::Fuzz),
    /// Open, ask and close `/dev/kfd` for SECONDS in a loop; only success, ENOENT and EAGAIN are
    /// right.
    Openers(openers::Openers),
    /// Keep the GPU interrupting for SECONDS without using `/dev/kfd`.
    Storm(openers::Storm),
    /// Have pairs of threads wake each other through events, and see that no wake-up is lost.
    Wakes(wakes::Wakes),
    /// Run long kernels on more queues than the GPU has, in several processes, and check the
    /// results.
    Oversubscribe(waves::Oversubscribe),
    /// Stop a queue in the middle of a kernel, look at its saved waves, and let it go on.
    SavedWaves,
    /// Make the calls of the thunk that no other test makes, and print what they tell.
    Thunk,
    /// Measure what each operation costs; prints JSON rows.
    Cost(cost::Cost),
    /// What `cost` runs as other processes.
    #[command(hide = true)]
    CostChild(cost::CostChild),
    /// Hold `/dev/kfd` open, mapped, or as a process whose file is closed, until stdin ends.
    Hold(openers::Hold),
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kfd-tests: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Errno => errno::table(),
        Command::NotOpener { fd, gpu_id } => errno::not_opener(fd, gpu_id),
        Command::BeforeExec { gpu_id } => errno::before_exec(gpu_id),
        Command::AfterExec { fd, gpu_id } => errno::after_exec(fd, gpu_id),
        Command::WithoutRights { general } => errno::without_rights(general),
        Command::OwnEventPage => errno::own_page(),
        Command::Abi(abi) => abi.run(),
        Command::Smi(smi) => smi.run(),
        Command::Ipc(ipc) => ipc.run(),
        Command::Handles(handles) => handles.run(),
        Command::Checkpoint(save) => save.run(),
        Command::FirstMap => first_map::run(),
        Command::ClosedEvicted(closed) => closed.run(),
        Command::Gutted(test) => test.run(),
        Command::Doorbells(test) => test.run(),
        Command::StaleDoorbells(test) => test.run(),
        Command::MapNoTable(map) => map.run(),
        Command::Disturbed => disturbed::run(),
        Command::EndEvicted(test) => test.run(),
        Command::UnmapStopped => unmap_stopped::run(),
        Command::OpenerKilled(killed) => killed.run(),
        Command::Pinned(pinned) => pinned.run(),
        Command::CopyStays => copy_stays::run(),
        Command::SameGpu(same_gpu) => same_gpu.run(),
        Command::Crowd(crowd) => crowd.run(),
        Command::Denied(denied) => denied.run(),
        Command::Crates { recover: None } => crates::all(),
        Command::Crates {
            recover: Some(file),
        } => crates::reset_of_another(&file),
        Command::Stopped { exceptions: false } => stopped::packets(),
        Command::Stopped { exceptions: true } => stopped::exceptions(),
        Command::Power(power) => power.run(),
        Command::Pressure(pressure) => pressure.run(),
        Command::Counters(counters) => counters.run(),
        Command::Asleep(asleep) => asleep.run(),
        Command::Userptr(userptr) => userptr.run(),
        Command::Xnack(xnack) => xnack.run(),
        Command::Svm(svm) => svm.run(),
        Command::Dbgapi(dbgapi) => dbgapi.run(),
        Command::Debug(debug) => debug.run(),
        Command::Peer(peer) => peer.run(),
        Command::Mqd => mqd::all(),
        Command::Runlist => runlist::all(),
        Command::Script => script::all(),
        Command::RunlistChild(child) => child.run(),
        Command::Stranger(stranger) => stranger.run(),
        Command::Queues => limits::queues(),
        Command::Contexts(contexts) => contexts.run(),
        Command::Kill(kill) => kill.run(),
        Command::Exception(exception) => exception.run(),
        Command::LateUpdate(update) => update.run(),
        Command::HandedOver => handed_over::run(),
        Command::LeftMapped(left) => left.run(),
        Command::Refused(refused) => refused.run(),
        Command::Faults(faults) => faults.run(),
        Command::Figures => figures::all(),
        Command::Fuzz(fuzz) => fuzz.run(),
        Command::Openers(openers) => openers.run(),
        Command::Storm(storm) => storm.run(),
        Command::Wakes(wakes) => wakes.run(),
        Command::Oversubscribe(oversubscribe) => oversubscribe.run(),
        Command::SavedWaves => waves::saved(),
        Command::Thunk => thunk::all(),
        Command::Cost(cost) => cost.run(),
        Command::CostChild(child) => child.run(),
        Command::Hold(hold) => hold.run(),
    }
}
