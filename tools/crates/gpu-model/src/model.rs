// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! One whole GPU as its host sees it: configuration space, three BARs, reset. One per device;
//! dropping it stops its engine thread.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::athub::Athub;
use crate::bus::{Block, RegisterBus};
use crate::chip::{Chip, Clock, Host};
use crate::device::{self, Processors};
use crate::discovery;
use crate::doorbells::Ring;
use crate::engine::{step_all, DoorbellIndex, Engine, EngineThread, Progress};
use crate::gc::Gc;
use crate::gmc::{Gmc, Reach};
use crate::hostile::Hostile;
use crate::ih::Ih;
use crate::inject::{window, Delays};
use crate::limited::{warn_limited, Limited};
use crate::memory::BusError;
use crate::misc;
use crate::nbio::Nbio;
use crate::pci::{self, ConfigSpace};
use crate::preset::{Generation, Preset};
use crate::psp::Psp;
use crate::smu::Smu;
use crate::traffic::Traffic;

/// What the host chooses about a GPU.
pub struct Config {
    pub preset: Preset,
    /// Bytes of local memory: a multiple of 256 MiB.
    pub vram_size: u64,
    /// The card's number, which makes its unique id.
    pub serial: u32,
    /// Engines run on the accessing thread and time is counted: runs are reproducible.
    pub synchronous: bool,
    /// Does what hardware may do, as this seed chooses.
    pub hostile: Option<u64>,
    /// Local memory is empty after a reset from outside, as after one that cuts the power.
    pub loses_memory: bool,
}

/// Why a model cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum NewError {
    #[error("local memory of {0:#x} bytes: need a multiple of 256 MiB")]
    VramSize(u64),
    #[error("cannot put the discovery table into local memory: {0}")]
    Discovery(#[from] BusError),
    #[error("cannot start the engine thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// One GPU.
pub struct GpuModel {
    /// Stops before anything it uses goes.
    _thread: EngineThread,
    chip: Arc<Chip>,
    config_space: ConfigSpace,
    engines: Vec<Arc<dyn Engine>>,
    synchronous: bool,
    loses_memory: bool,
    traffic: Traffic,
    /// What a process's stores to pages of BAR5 and BAR2 are warned of.
    limited: Limited,
    /// Held by whoever acts for the guest: its CPUs' accesses, and their doorbells in memory.
    front: Mutex<()>,
}

impl GpuModel {
    pub fn new(config: Config, host: Host) -> Result<Self, NewError> {
        let Config {
            preset,
            vram_size,
            serial,
            synchronous,
            hostile,
            loses_memory,
        } = config;
        let hostile = hostile.map(|seed| Arc::new(Hostile::new(seed)));
        if vram_size == 0 || vram_size % (256 << 20) != 0 {
            return Err(NewError::VramSize(vram_size));
        }
        let config_space = ConfigSpace::new(&preset, vram_size);
        let reach = match &host.hive {
            Some(hive) => Reach::of(hive),
            None => Reach::alone(vram_size),
        };
        let gmc = Arc::new(Gmc::new(&preset, reach, hostile.as_ref()));
        let ih = Arc::new(Ih::new(&preset));
        let sockets = device::sockets(&preset);
        let mut blocks: Vec<Arc<dyn Block>> = sockets.blocks.clone();
        blocks.extend(gmc.blocks().map(|b| b as Arc<dyn Block>));
        blocks
            .extend((0..preset.xccs).map(|xcc| Arc::new(Gc::new(&preset, xcc)) as Arc<dyn Block>));
        blocks.extend(misc::blocks(&preset));
        blocks.push(Arc::new(Athub::new(&preset)));
        blocks.push(ih.clone());
        blocks.push(Arc::new(Nbio::new(&preset, vram_size)));
        blocks.push(Arc::new(Psp::new(&preset)));
        blocks.push(Arc::new(Smu::new(&preset, serial)));
        let clock = if synchronous {
            Clock::counted()
        } else {
            Clock::host()
        };
        let bus = RegisterBus::new(&preset, blocks);
        let chip = Chip::new(preset, vram_size, host, (clock, hostile), (gmc, ih), bus);
        let chip = Arc::new(chip);
        put_discovery(&chip)?;
        let engines: Vec<Arc<dyn Engine>> = vec![
            Processors::start(chip.clone(), &sockets, synchronous),
            Arc::new(Delays),
        ];
        let thread = EngineThread::spawn(chip.clone(), engines.clone())?;
        Ok(Self {
            _thread: thread,
            chip,
            config_space,
            engines,
            synchronous,
            loses_memory,
            traffic: Traffic::default(),
            limited: Limited::default(),
            front: Mutex::new(()),
        })
    }

    pub fn chip(&self) -> &Chip {
        &self.chip
    }

    #[cfg(test)]
    pub(crate) fn shared_chip(&self) -> Arc<Chip> {
        self.chip.clone()
    }

    /// Bytes of BAR5.
    pub fn mmio_size(&self) -> u64 {
        pci::mmio_size(&self.chip.preset)
    }

    pub fn config_read(&self, offset: u64, out: &mut [u8]) {
        self.config_space.read(offset, out);
        if self.chip.inject.is_lost() {
            out.fill(0xff);
        }
        window::read(&self.chip, &self.traffic, offset, out);
    }

    pub fn config_write(&self, offset: u64, data: &[u8]) {
        let _front = self.front();
        window::write(&self.chip, &self.traffic, offset, data);
        if self.config_space.write(offset, data) == pci::Effect::FunctionReset {
            self.reset_chip();
        }
    }

    /// A read of BAR5 (registers). Accesses are dwords; others are cut out of or merged into
    /// dwords.
    pub fn mmio_read(&self, offset: u64, out: &mut [u8]) {
        let _front = self.front();
        self.traffic.read();
        if self.chip.inject.is_lost() {
            return out.fill(0xff);
        }
        let mut at = 0;
        while at < out.len() {
            let address = offset + at as u64;
            let value = self.chip.bus.read(&self.chip, address / 4).to_le_bytes();
            let from = (address % 4) as usize;
            let count = (4 - from).min(out.len() - at);
            out[at..at + count].copy_from_slice(&value[from..from + count]);
            at += count;
        }
        self.reset_if_asked();
    }

    /// A write of BAR5. Only whole dwords reach registers.
    pub fn mmio_write(&self, offset: u64, data: &[u8]) {
        let _front = self.front();
        self.traffic.write();
        if self.chip.inject.is_lost() {
            return;
        }
        if offset % 4 != 0 || data.len() % 4 != 0 {
            let bytes = data.len();
            warn_limited!(
                self.limited,
                0,
                "write of {bytes} bytes at BAR5+{offset:#x} is not of dwords: dropped"
            );
            return;
        }
        for (i, dword) in data.chunks_exact(4).enumerate() {
            let value = u32::from_le_bytes([dword[0], dword[1], dword[2], dword[3]]);
            self.chip
                .bus
                .write(&self.chip, offset / 4 + i as u64, value);
        }
        self.settle();
        self.reset_if_asked();
    }

    /// A message to the SMU asked for it.
    fn reset_if_asked(&self) {
        let sdma = self.chip.take_sdma_resets();
        if sdma != 0 {
            tracing::info!("reset of SDMA engines {sdma:#b}");
            self.engines.iter().for_each(|it| it.reset_sdma(sdma));
        }
        if self.chip.take_reset_request() {
            self.reset_chip();
        }
    }

    /// A write of BAR2.
    pub fn doorbell_write(&self, offset: u64, data: &[u8]) {
        self.traffic.doorbell();
        let value = match *data {
            [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => {
                let bytes = data.len();
                warn_limited!(self.limited, 0, "doorbell write of {bytes} bytes: dropped");
                return;
            }
        };
        self.ring(DoorbellIndex((offset / 4) as u32), value);
    }

    /// Looks after the doorbells that are in memory ([`Host::doorbells`]) until
    /// [`GpuModel::stop_watching`].
    pub fn watch_doorbells(&self) {
        self.chip.doorbells.watch(|Ring { index, value }| {
            self.traffic.doorbell();
            self.ring(index, value);
        });
    }

    /// Ends [`GpuModel::watch_doorbells`].
    pub fn stop_watching(&self) {
        self.chip.doorbells.stop();
    }

    fn front(&self) -> MutexGuard<'_, ()> {
        self.front.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self, index: DoorbellIndex, value: u64) {
        let _front = self.front();
        tracing::trace!(target: "doorbell", "{:#x} = {value:#x}", index.0);
        if self.chip.ih.doorbell(index, value) {
            return;
        }
        if self
            .engines
            .iter()
            .any(|e| e.doorbell(&self.chip, index, value))
        {
            self.settle();
        } else {
            tracing::debug!(target: "doorbell", "{:#x} = {value:#x}: no queue", index.0);
        }
    }

    /// In synchronous mode, lets the engines run until they have nothing more to do; what waits for
    /// memory is left to the engine thread.
    fn settle(&self) {
        if !self.synchronous {
            return;
        }
        loop {
            match step_all(&self.chip, &self.engines) {
                Progress::Busy => {}
                Progress::Polling => return self.chip.wake.kick(),
                Progress::Idle => return,
            }
        }
    }

    /// The burndown lists: registers, then whatever the engines could not do, and what they did.
    pub fn report(&self) -> String {
        let [reads, writes, doorbells] = self.traffic.counts();
        let mut text =
            format!("# the guest: {reads} reads, {writes} writes, {doorbells} doorbells\n");
        text += &self.chip.bus.burndown();
        text += &self.chip.inject.report();
        text += &self
            .chip
            .hostile
            .as_ref()
            .map_or(String::new(), |it| it.report());
        for engine in &self.engines {
            text += &format!("# {}: count, what\n{}", engine.name(), engine.burndown());
            text += &format!("# {}, done: count, what\n{}", engine.name(), engine.work());
        }
        text
    }

    /// How many kinds of things software asked for that the model does not do: registers, packets,
    /// instructions.
    pub fn missing(&self) -> usize {
        let engines = self.engines.iter();
        self.chip.bus.unknown_count()
            + engines
                .map(|it| it.burndown().lines().count())
                .sum::<usize>()
    }

    /// A reset from outside (bus, hot plug, the end of a sleep): everything as after power-on,
    /// except what local memory holds, unless that loses it.
    pub fn reset(&self) {
        let _front = self.front();
        self.config_space.reset();
        if self.loses_memory {
            if let Err(error) = self.chip.vram.zero(0, self.chip.vram_size) {
                tracing::error!("cannot empty local memory: {error}");
            }
        }
        self.reset_chip();
    }

    /// A reset from inside (function-level, mode 1): configuration space stays.
    fn reset_chip(&self) {
        tracing::info!("reset");
        for engine in &self.engines {
            engine.reset(&self.chip);
        }
        if let Some(caches) = &self.chip.caches {
            caches.reset();
        }
        self.chip.bus.reset(&self.chip);
        if let Err(error) = put_discovery(&self.chip) {
            tracing::error!("cannot restore the discovery table: {error}");
        }
    }
}

fn put_discovery(chip: &Chip) -> Result<(), BusError> {
    if chip.preset.generation == Generation::Mi200 {
        return Ok(());
    }
    let table = discovery::build(&chip.preset);
    chip.vram
        .write(chip.vram_size - discovery::FROM_TOP, &table)
}

#[cfg(test)]
mod tests {
    use crate::limited::told::lines;
    use crate::preset::Preset;
    use crate::rig::{Rig, VRAM};

    /// RCC_CONFIG_MEMSIZE.
    const MEMSIZE: u64 = 0xde3;

    #[test]
    fn the_discovery_table_is_read_through_the_memory_window() {
        let rig = Rig::new();
        let place = (u64::from(rig.read(MEMSIZE)) << 20) - (64 << 10);
        rig.write(0, place as u32 | 1 << 31);
        rig.write(6, (place >> 31) as u32);
        assert_eq!(rig.read(1), 0x2821_1407);
    }

    #[test]
    fn the_index_pair_reaches_every_register() {
        let rig = Rig::of(Preset::mi308x());
        rig.write(0xe, (MEMSIZE * 4) as u32);
        assert_eq!(rig.read(0xf), (VRAM >> 20) as u32);
        // CC_GC_SHADER_ARRAY_CONFIG of XCC 3: 5 of 10 compute units off.
        rig.write(0xe, 0x4_226f * 4);
        assert_eq!(rig.read(0xf), 0x03e0_0000);
        // A byte address above 4 GiB has no register, and the data registers do not reach
        // themselves.
        rig.write(0x11, 1);
        assert_eq!(rig.read(0xf), 0);
        rig.write(0x11, 0);
        rig.write(0xe, 0xf * 4);
        assert_eq!(rig.read(0xf), 0);
    }

    #[test]
    fn unmodelled_registers_are_counted_and_read_as_written() {
        let rig = Rig::new();
        rig.write(0x1_ffff, 5);
        assert_eq!((rig.read(0x1_ffff), rig.read(0x1_fffe)), (5, 0));
        assert_eq!(rig.chip().bus.unknown_count(), 2);
        assert!(rig.model.report().contains("0x1ffff 1 1 0x5"));
    }

    #[test]
    fn parts_of_a_register_can_be_read() {
        let rig = Rig::new();
        let mut bytes = [0; 6];
        rig.model.mmio_read(MEMSIZE * 4 - 2, &mut bytes);
        assert_eq!(bytes, [0, 0, 0, 1, 0, 0]);
    }

    /// A process may map the page of HDP flush registers, and its doorbells.
    #[test]
    fn stores_of_odd_sizes_fill_no_disk() {
        let rig = Rig::new();
        let said = lines(|| {
            for _ in 0..10_000 {
                rig.model.mmio_write(0x1_a000, &[0]);
                rig.model.doorbell_write(0x1000, &[0]);
            }
        });
        assert!((32..64).contains(&said), "{said} lines");
    }

    #[test]
    fn a_reset_restores_the_discovery_table_and_keeps_other_memory() {
        let rig = Rig::new();
        rig.vram().write_u32(VRAM - (64 << 10), 0).unwrap();
        rig.vram().write_u32(0x1234, 99).unwrap();
        rig.model.reset();
        assert_eq!(rig.vram().read_u32(VRAM - (64 << 10)), Ok(0x2821_1407));
        assert_eq!(rig.vram().read_u32(0x1234), Ok(99));
    }

    #[test]
    fn a_reset_may_empty_memory_but_for_the_discovery_table() {
        let mut rig = Rig::new();
        rig.model.loses_memory = true;
        rig.vram().write_u32(0x1234, 99).unwrap();
        rig.model.reset();
        assert_eq!(rig.vram().read_u32(0x1234), Ok(0));
        assert_eq!(rig.vram().read_u32(VRAM - (64 << 10)), Ok(0x2821_1407));
    }

    /// A guest may write anything anywhere: nothing panics, and the model still answers.
    #[test]
    fn random_accesses_do_no_harm() {
        let mut state = 0x1234_5678_9abc_def0u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for preset in [Preset::mi300x(), Preset::mi308x()] {
            let rig = Rig::of(preset);
            for _ in 0..60_000 {
                let (at, value) = (random(), random());
                let (place, bytes) = (at >> 20, value.to_le_bytes());
                match at >> 62 {
                    0 => rig.model.doorbell_write(place & 0x1f_fff8, &bytes),
                    1 => rig.model.config_write(place & 0xfff, &bytes[..4]),
                    2 => drop(rig.read(place & 0x7_ffff)),
                    _ => rig.write(place & 0x1_ffff, value as u32),
                }
            }
            rig.model.reset();
            assert_eq!(rig.read(MEMSIZE), (VRAM >> 20) as u32);
        }
    }
}
