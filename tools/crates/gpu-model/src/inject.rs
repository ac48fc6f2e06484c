// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Fault injection: what hardware does to a driver on a bad day, from a script of rules. One
//! [`Inject`] per GPU, in its [`Chip`]; blocks and engines ask it at the few places where something
//! can go wrong.
//!
//! A guest turns rules on and off through three registers in configuration space ([`window`]): the
//! flags, a 64-bit argument, and a count of what was injected. Drivers do not know them.

pub mod parse;
pub mod rule;
#[cfg(test)]
mod tests;
pub mod window;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::chip::Chip;
use crate::engine::{DoorbellIndex, Engine, Progress};
use crate::gmc::{writes, Access, Hub};
use crate::ih::Interrupt;
use parse::ScriptError;
use rule::{FaultRange, FenceFate, FenceKind, First, Hang, IrqFate, QueueAt, Rule, SmuFate, What};

/// A rule and what became of it.
struct Live {
    line: usize,
    rule: Rule,
    state: Mutex<LiveState>,
}

#[derive(Default)]
struct LiveState {
    matched: u64,
    applied: u64,
    first: Option<Instant>,
}

/// What waits for its time.
enum Deferred {
    Interrupt(Interrupt),
    /// One that the interrupt handler waits for (hostile mode).
    Late(Interrupt),
    Write {
        hub: Hub,
        vmid: u8,
        address: u64,
        bytes: Vec<u8>,
    },
}

/// Kinds of rules, as bits of [`Inject::kinds`].
mod kind {
    pub const SMU: u32 = 1;
    pub const IRQ: u32 = 1 << 1;
    pub const FENCE: u32 = 1 << 2;
    pub const HANG: u32 = 1 << 3;
    pub const FAULT: u32 = 1 << 4;
    pub const RAISE: u32 = 1 << 5;
    pub const REGISTER: u32 = 1 << 6;
    pub const LOST: u32 = 1 << 7;
}

fn kind_of(what: &What) -> u32 {
    match what {
        What::Smu { .. } => kind::SMU,
        What::Irq { .. } => kind::IRQ,
        What::Fence { .. } => kind::FENCE,
        What::Hang(_) => kind::HANG,
        What::Fault(_) => kind::FAULT,
        What::Raise(_) => kind::RAISE,
        What::Register { .. } => kind::REGISTER,
        What::Lost => kind::LOST,
    }
}

/// How many delayed events are kept; more are dropped, and said so.
const MAX_DEFERRED: usize = 4096;

/// The rules of one GPU.
#[derive(Default)]
pub struct Inject {
    rules: RwLock<Arc<Vec<Live>>>,
    /// Which kinds of rules there are: without any, every question costs one load.
    kinds: AtomicU32,
    flags: AtomicU32,
    argument: AtomicU64,
    count: AtomicU32,
    deferred: Mutex<BTreeMap<(Instant, u64), Deferred>>,
    has_deferred: AtomicBool,
    number: AtomicU64,
    /// The page that last faulted by a rule.
    last_fault: Mutex<Option<(u8, u64)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Live {
    /// Whether the rule applies to what it matches now; counts.
    fn applies(&self, flags: u32) -> bool {
        let when = &self.rule.when;
        if when.flag.is_some_and(|flag| flags >> flag & 1 == 0) {
            return false;
        }
        let mut state = lock(&self.state);
        state.matched += 1;
        let over = |first: Instant| when.lasts.is_some_and(|lasts| first.elapsed() > lasts);
        if state.matched <= when.skip
            || when.times.is_some_and(|times| state.applied >= times)
            || state.first.is_some_and(over)
        {
            return false;
        }
        state.first.get_or_insert_with(Instant::now);
        state.applied += 1;
        true
    }
}

impl Inject {
    /// Takes a script in the place of the present one. Refused as a whole if a line is wrong.
    pub fn load(&self, chip: &Chip, text: &str) -> Result<usize, ScriptError> {
        let rules = parse::script(text, &|name| chip.bus.find(name))?;
        let rules: Vec<Live> = rules
            .into_iter()
            .map(|(line, rule)| Live {
                line,
                rule,
                state: Mutex::default(),
            })
            .collect();
        let kinds = rules
            .iter()
            .fold(0, |kinds, it| kinds | kind_of(&it.rule.what));
        let count = rules.len();
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
        self.kinds.store(kinds, Ordering::Release);
        chip.gmc.invalidate();
        tracing::info!(target: "inject", "{count} rules");
        Ok(count)
    }

    fn has(&self, kind: u32) -> bool {
        self.kinds.load(Ordering::Relaxed) & kind != 0
    }

    /// The first rule that `choose` answers for and that applies now.
    fn first<T>(&self, kind: u32, what: &str, choose: impl Fn(&What) -> Option<T>) -> Option<T> {
        if !self.has(kind) {
            return None;
        }
        let rules = self
            .rules
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let flags = self.flags();
        for live in rules.iter() {
            let Some(answer) = choose(&live.rule.what) else {
                continue;
            };
            if live.applies(flags) {
                self.count.fetch_add(1, Ordering::Relaxed);
                tracing::info!(target: "inject", "line {}: {what}", live.line);
                return Some(answer);
            }
        }
        None
    }

    /// What becomes of a message to the SMU.
    pub fn smu(&self, message: u32) -> Option<SmuFate> {
        self.first(kind::SMU, "SMU message", |what| match what {
            What::Smu {
                message: wanted,
                fate,
            } if wanted.is_none_or(|it| it == message) => Some(*fate),
            _ => None,
        })
    }

    /// What becomes of an interrupt. True: it has been dealt with.
    pub fn interrupt(&self, chip: &Chip, interrupt: &Interrupt) -> bool {
        let Interrupt { client, source, .. } = *interrupt;
        let fate = self.first(kind::IRQ, "interrupt", |what| match what {
            What::Irq {
                client: c,
                source: s,
                fate,
            } if c.is_none_or(|it| it == client) && s.is_none_or(|it| it == source) => Some(*fate),
            _ => None,
        });
        match fate {
            None => return false,
            Some(IrqFate::Drop) => {}
            Some(IrqFate::Delay(delay)) => {
                self.defer(chip, delay, Deferred::Interrupt(*interrupt));
            }
            Some(IrqFate::Repeat(more)) => {
                (0..=more).for_each(|_| chip.ih.deliver(chip, *interrupt));
            }
        }
        true
    }

    /// The bytes of a fence to be written now, if any.
    pub fn fence(
        &self,
        chip: &Chip,
        of: FenceKind,
        (hub, vmid, address): (Hub, u8, u64),
        bytes: &[u8],
    ) -> Option<Vec<u8>> {
        match self.fence_fate(of) {
            None => Some(bytes.to_vec()),
            Some(FenceFate::Withhold) => None,
            Some(FenceFate::Corrupt(flip)) => {
                let flip = flip.to_le_bytes();
                Some(
                    bytes
                        .iter()
                        .zip(flip)
                        .map(|(byte, flip)| byte ^ flip)
                        .collect(),
                )
            }
            Some(FenceFate::Delay(delay)) => {
                let bytes = bytes.to_vec();
                let write = Deferred::Write {
                    hub,
                    vmid,
                    address,
                    bytes,
                };
                self.defer(chip, delay, write);
                None
            }
        }
    }

    /// What becomes of a fence.
    pub fn fence_fate(&self, of: FenceKind) -> Option<FenceFate> {
        self.first(kind::FENCE, "fence", |what| match what {
            What::Fence { of: wanted, fate } if wanted.is_none_or(|it| it == of) => {
                // Without a kind a rule means what is written, unless it just withholds.
                let fits = of != FenceKind::Signal || *fate == FenceFate::Withhold;
                fits.then_some(*fate)
            }
            _ => None,
        })
    }

    /// Whether a queue hangs at the packet that it is about to begin.
    pub fn hangs(&self, queue: &QueueAt) -> Option<Hang> {
        self.first(kind::HANG, "queue hangs", |what| match what {
            What::Hang(hang) if hang.matches(queue) => Some(*hang),
            _ => None,
        })
    }

    /// Whether addresses have to be looked at one by one.
    pub fn watches_addresses(&self) -> bool {
        self.has(kind::FAULT)
    }

    /// Whether an address is not to translate.
    pub fn faults(&self, vmid: u8, pasid: u16, va: u64, access: Access) -> bool {
        // Scripts know no atomic accesses.
        let access = if writes(access) {
            Access::Write
        } else {
            access
        };
        let argument = self.argument.load(Ordering::Relaxed);
        let hit = self.first(kind::FAULT, "address faults", |what| match what {
            What::Fault(range) => {
                let FaultRange {
                    first,
                    length,
                    vmid: v,
                    pasid: p,
                    access: a,
                } = *range;
                let first = match first {
                    First::At(first) => first,
                    First::Argument => argument,
                };
                let inside = va.checked_sub(first).is_some_and(|from| from < length);
                let whose = v.map_or(vmid != 0, |it| it == vmid) && p.is_none_or(|it| it == pasid);
                (inside && whose && a.is_none_or(|it| it == access)).then_some(())
            }
            _ => None,
        });
        if hit.is_some() {
            *lock(&self.last_fault) = Some((vmid, va >> 12));
        }
        hit.is_some()
    }

    /// Whether a page last faulted by a rule: for who asks again for the reason.
    pub fn has_faulted(&self, vmid: u8, va: u64) -> bool {
        self.watches_addresses() && *lock(&self.last_fault) == Some((vmid, va >> 12))
    }

    /// What a register is to read as.
    pub fn register(&self, dword: u64) -> Option<u32> {
        self.first(kind::REGISTER, "register", |what| match what {
            What::Register { dword: at, value } if *at == dword => Some(*value),
            _ => None,
        })
    }

    /// Whether the device is off the bus.
    pub fn is_lost(&self) -> bool {
        self.first(kind::LOST, "device lost", |what| {
            matches!(what, What::Lost).then_some(())
        })
        .is_some()
    }

    /// The flags register.
    pub fn flags(&self) -> u32 {
        self.flags.load(Ordering::Acquire)
    }

    /// A write of the flags register; interrupts whose flag rises are raised.
    pub fn set_flags(&self, chip: &Chip, flags: u32) {
        let old = self.flags.swap(flags, Ordering::AcqRel);
        // What translated may not do so now.
        chip.gmc.invalidate();
        if !self.has(kind::RAISE) {
            return;
        }
        let rules = self
            .rules
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for live in rules.iter() {
            let (What::Raise(raise), Some(flag)) = (&live.rule.what, live.rule.when.flag) else {
                continue;
            };
            if (flags & !old) >> flag & 1 == 0 || !live.applies(flags) {
                continue;
            }
            self.count.fetch_add(1, Ordering::Relaxed);
            let interrupt = Interrupt {
                client: raise.client,
                source: raise.source,
                ring_id: raise.ring,
                vmid: raise.vmid,
                from_mm: false,
                pasid: raise.pasid,
                node: raise.node,
                data: raise.data,
            };
            (0..raise.count.min(1 << 20)).for_each(|_| chip.ih.deliver(chip, interrupt));
        }
    }

    /// The argument register.
    pub fn argument(&self) -> u64 {
        self.argument.load(Ordering::Relaxed)
    }

    pub fn set_argument(&self, chip: &Chip, argument: u64) {
        self.argument.store(argument, Ordering::Relaxed);
        chip.gmc.invalidate();
    }

    /// How often a rule applied.
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Puts an interrupt into the ring after a while.
    pub fn defer_interrupt(&self, chip: &Chip, delay: Duration, interrupt: Interrupt) {
        self.defer(chip, delay, Deferred::Interrupt(interrupt));
    }

    /// The same for one that others of its client follow. False: there is no room.
    pub fn defer_in_order(&self, chip: &Chip, due: Instant, interrupt: Interrupt) -> bool {
        self.defer_until(chip, due, Deferred::Late(interrupt))
    }

    fn defer(&self, chip: &Chip, delay: Duration, what: Deferred) {
        self.defer_until(chip, Instant::now() + delay, what);
    }

    fn defer_until(&self, chip: &Chip, due: Instant, what: Deferred) -> bool {
        let mut deferred = lock(&self.deferred);
        if deferred.len() >= MAX_DEFERRED {
            tracing::warn!(target: "inject", "too much is delayed: dropped");
            return false;
        }
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        deferred.insert((due, number), what);
        self.has_deferred.store(true, Ordering::Release);
        drop(deferred);
        chip.wake.kick();
        true
    }

    fn take_due(&self) -> Option<Deferred> {
        let mut deferred = lock(&self.deferred);
        let entry = deferred.first_entry()?;
        (entry.key().0 <= Instant::now()).then(|| entry.remove())
    }

    /// A line per rule: how often it matched and applied.
    pub fn report(&self) -> String {
        let rules = self
            .rules
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if rules.is_empty() {
            return String::new();
        }
        let mut text = String::from("# injected: line, matched, applied\n");
        for live in rules.iter() {
            let state = lock(&live.state);
            text += &format!("{} {} {}\n", live.line, state.matched, state.applied);
        }
        text
    }
}

/// Lets delayed things happen, on the engine thread.
pub struct Delays;

impl Engine for Delays {
    fn name(&self) -> String {
        "fault injection".into()
    }

    fn doorbell(&self, _chip: &Chip, _index: DoorbellIndex, _value: u64) -> bool {
        false
    }

    fn step(&self, chip: &Chip) -> Progress {
        let inject = &chip.inject;
        if !inject.has_deferred.load(Ordering::Acquire) {
            return Progress::Idle;
        }
        while let Some(what) = inject.take_due() {
            match what {
                Deferred::Interrupt(interrupt) => chip.ih.deliver(chip, interrupt),
                Deferred::Late(interrupt) => chip.ih.deliver_late(chip, interrupt),
                Deferred::Write {
                    hub,
                    vmid,
                    address,
                    bytes,
                } => {
                    if let Err(fault) = chip.vm(hub, vmid).write(address, &bytes) {
                        tracing::warn!(target: "inject", "delayed fence: {fault}");
                    }
                }
            }
        }
        let left = lock(&inject.deferred);
        inject
            .has_deferred
            .store(!left.is_empty(), Ordering::Release);
        if left.is_empty() {
            Progress::Idle
        } else {
            Progress::Polling
        }
    }

    /// What is on its way is lost.
    fn reset(&self, chip: &Chip) {
        lock(&chip.inject.deferred).clear();
    }
}
