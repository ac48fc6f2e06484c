// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Memory as a wave sees it through [`Caches`]. Made for each turn of a work-group.

use gcn::{CacheControl, Scope};

use super::caches::{Caches, Client, Outdated, Place, Through};
use crate::memory::BusError;
use crate::processor::bus::{Access, Fault, View};

/// One wave's address space, and the caches before it.
pub struct WaveView<'a> {
    view: View<'a>,
    caches: &'a Caches,
    client: Client,
    scope: Scope,
}

impl<'a> WaveView<'a> {
    pub fn new(view: View<'a>, caches: &'a Caches, client: Client) -> Self {
        let scope = Scope::Wave;
        Self {
            view,
            caches,
            client,
            scope,
        }
    }

    fn place(&self, address: u64, access: Access) -> Result<Place, Fault> {
        self.view.bus.place(self.view.space, address, access)
    }

    /// Does something to each part that lies together. `act` is told whether the translation is
    /// still one, and does nothing if it is not: then there is a new one.
    fn each(
        &self,
        address: u64,
        length: usize,
        access: Access,
        mut act: impl FnMut(
            (Place, &dyn Fn() -> bool),
            std::ops::Range<usize>,
        ) -> Result<Result<(), Outdated>, BusError>,
    ) -> Result<(), Fault> {
        let mut done = 0;
        while done < length {
            let address = address.wrapping_add(done as u64);
            let generation = self.view.bus.generation();
            let place = self.place(address, access)?;
            let left = length - done;
            let now = usize::try_from(place.length).map_or(left, |room| left.min(room));
            let current = || self.view.bus.generation() == generation;
            match act((place, &current), done..done + now) {
                Ok(Ok(())) => done += now,
                Ok(Err(Outdated)) => {}
                Err(_) => return Err(Fault { address, access }),
            }
        }
        Ok(())
    }

    fn load(
        &self,
        through: (Through, Scope),
        access: Access,
        address: u64,
        bytes: &mut [u8],
    ) -> Result<(), Fault> {
        self.each(address, bytes.len(), access, |(place, current), range| {
            let from = (place.at, current);
            self.caches
                .load(self.client, through, from, &mut bytes[range])
        })
    }

    /// An atomic operation, between what it asks of the caches.
    fn atomic<T>(
        &self,
        address: u64,
        update: impl FnOnce() -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let at = self.place(address, Access::Atomic)?.at;
        self.caches.before_atomic(self.client, at, size_of::<T>());
        let old = update();
        self.caches.after_atomic(self.client, at);
        old
    }
}

impl gcn::Memory for WaveView<'_> {
    fn fetch(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        self.load((Through::Code, Scope::Wave), Access::Fetch, address, bytes)
    }

    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        self.load((Through::Vector, self.scope), Access::Read, address, bytes)
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.each(address, bytes.len(), Access::Write, |to, range| {
            self.caches
                .store(self.client, self.scope, to, &bytes[range])
        })
    }

    fn update32(&mut self, address: u64, update: &mut dyn FnMut(u32) -> u32) -> Result<u32, Fault> {
        let View { bus, space } = self.view;
        self.atomic(address, || bus.update32(space, address, update))
    }

    fn update64(&mut self, address: u64, update: &mut dyn FnMut(u64) -> u64) -> Result<u64, Fault> {
        let View { bus, space } = self.view;
        self.atomic(address, || bus.update64(space, address, update))
    }

    fn goes_beyond_pcie(&mut self, address: u64) -> Result<bool, Fault> {
        self.view.bus.goes_beyond_pcie(self.view.space, address)
    }

    fn realtime(&mut self) -> u64 {
        self.view.bus.realtime()
    }

    fn read_scalar(&mut self, address: u64, bytes: &mut [u8], glc: bool) -> Result<(), Fault> {
        let scope = if glc { Scope::Device } else { Scope::Wave };
        self.load((Through::Scalar, scope), Access::Read, address, bytes)
    }

    fn write_scalar(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.each(address, bytes.len(), Access::Write, |to, range| {
            self.caches.store_scalar(self.client, to, &bytes[range])
        })
    }

    fn set_scope(&mut self, scope: Scope) {
        self.scope = scope;
    }

    fn control(&mut self, control: CacheControl) {
        self.caches.control(self.client, control);
    }
}
