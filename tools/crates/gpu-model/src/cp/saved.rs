// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! Keeping what a compute queue was in the middle of, under a token in its MQD: see
//! [`crate::processor::saved`].

use super::mqd::{save, Mqd, SAVED_TOKEN};
use super::queue::{Flight, Queue};
use super::Shared;
use crate::processor::lock;

/// Keeps what a retired queue was in the middle of.
pub fn keep(shared: &Shared, queue: &Queue, flight: Flight) {
    let token = lock(&shared.saved).put(queue.mqd, flight);
    if let Err(fault) = save(queue.kernel_view(), queue.mqd, &[(SAVED_TOKEN, token)]) {
        tracing::warn!(slot = ?queue.slot, %fault, "waves of the queue are lost");
    }
}

/// What was kept of the queue of this MQD, at most once.
pub fn take(shared: &Shared, xcc: u8, address: u64, mqd: &Mqd) -> Flight {
    let token = mqd.get(SAVED_TOKEN);
    let flight = lock(&shared.saved).take(address, token);
    if token != 0 {
        if let Err(fault) = save(shared.kernel_view(xcc), address, &[(SAVED_TOKEN, 0)]) {
            tracing::warn!(address, %fault, "MQD not writable");
        }
    }
    flight
}
