// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Memory as a wave sees it through [`Caches`]. Made for each turn of a work-group.

use gcn::{CacheControl, Scope};

use super::caches::{Caches, Client, Place, Through};
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

    /// Does something to each part that lies together.
    fn each(
        &self,
        address: u64,
        length: usize,
        access: Access,
        mut act: impl FnMut(Place, std::ops::Range<usize>) -> Result<(), BusError>,
    ) -> Result<(), Fault> {
        let mut done = 0;
        while done < length {
            let address = address.wrapping_add(done as u64);
            let place = self.place(address, access)?;
            let left = length - done;
            let now = usize::try_from(place.length).map_or(left, |room| left.min(room));
            act(place, done..done + now).map_err(|_| Fault { address, access })?;
            done += now;
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
        self.each(address, bytes.len(), access, |place, range| {
            self.caches
                .load(self.client, through, place.at, &mut bytes[range])
        })
    }

    fn before_atomic(&self, address: u64, length: usize) -> Result<(), Fault> {
        let place = self.place(address, Access::Atomic)?;
        self.caches.before_atomic(self.client, place.at, length);
        Ok(())
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
        self.each(address, bytes.len(), Access::Write, |place, range| {
            self.caches
                .store(self.client, self.scope, place, &bytes[range])
        })
    }

    fn update32(&mut self, address: u64, update: &mut dyn FnMut(u32) -> u32) -> Result<u32, Fault> {
        self.before_atomic(address, 4)?;
        self.view.bus.update32(self.view.space, address, update)
    }

    fn update64(&mut self, address: u64, update: &mut dyn FnMut(u64) -> u64) -> Result<u64, Fault> {
        self.before_atomic(address, 8)?;
        self.view.bus.update64(self.view.space, address, update)
    }

    fn realtime(&mut self) -> u64 {
        self.view.bus.realtime()
    }

    fn read_scalar(&mut self, address: u64, bytes: &mut [u8], glc: bool) -> Result<(), Fault> {
        let scope = if glc { Scope::Device } else { Scope::Wave };
        self.load((Through::Scalar, scope), Access::Read, address, bytes)
    }

    fn write_scalar(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.each(address, bytes.len(), Access::Write, |place, range| {
            self.caches.store_scalar(self.client, place, &bytes[range])
        })
    }

    fn set_scope(&mut self, scope: Scope) {
        self.scope = scope;
    }

    fn control(&mut self, control: CacheControl) {
        self.caches.control(self.client, control);
    }
}
