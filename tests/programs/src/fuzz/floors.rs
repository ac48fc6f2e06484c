// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How many of the calls of each kind must be good: a fuzzer whose calls are refused at the door
//! tests the door.

use super::shared::Row;
use kfd_uapi::IOCTLS;

/// Calls are below their floor where that is as unlikely as this by chance: of few calls, or where
/// few are good at all, it says nothing that none was.
const UNLIKELY: f64 = 1e-9;

/// Of a hundred, where [`FLOORS`] says nothing else.
const FLOOR: u64 = 15;

/// Of a hundred calls, about half of what was measured on two GPUs, with traces of rocminfo and a
/// HIP program among the programs; 0 where no call can be good.
const FLOORS: &[(&str, u64)] = &[
    // No driver does these any more.
    ("DBG_REGISTER_DEPRECATED", 0),
    ("DBG_UNREGISTER_DEPRECATED", 0),
    ("DBG_ADDRESS_WATCH_DEPRECATED", 0),
    ("DBG_WAVE_CONTROL_DEPRECATED", 0),
    // The generator draws its operations and no more: what needs more is refused for that.
    ("CRIU_OP", 5),
    // SETUP has acquired the VMs: it is good in other contexts alone.
    ("ACQUIRE_VM", 1),
    // A trace's places for the answer are another program's.
    ("GET_PROCESS_APERTURES_NEW", 3),
    ("UPDATE_QUEUE", 10),
    ("UNMAP_MEMORY_FROM_GPU", 10),
    // Of a queue that does not run, and has saved something.
    ("GET_QUEUE_WAVE_STATE", 3),
    // One queue of a process at a time has global wave sync; one process has the counters.
    ("ALLOC_QUEUE_GWS", 8),
    ("PROFILER", 5),
];

/// What is below its floor.
pub fn below(rows: &[Row]) -> Vec<String> {
    let few = |row: &&Row| {
        let (calls, floor) = (row.good + row.refused, floor(row.name));
        IOCTLS.iter().any(|ioctl| ioctl.name == row.name)
            && row.good * 100 < floor * calls
            // A floor is half of what was measured.
            && at_most(row.good, calls, 2.0 * floor as f64 / 100.0) < UNLIKELY
    };
    let text = |row: &Row| {
        let (good, calls) = (row.good, row.good + row.refused);
        format!(
            "{} of {calls} of {}, not {} %",
            good,
            row.name,
            floor(row.name)
        )
    };
    rows.iter().filter(few).map(text).collect()
}

/// How likely it is that of so many calls no more than `good` are good, each of which is with that
/// probability.
fn at_most(good: u64, calls: u64, each: f64) -> f64 {
    let (is, is_not) = (each.ln(), (-each).ln_1p());
    // Logarithms: there may be a million calls. In how many ways so many of them are good.
    let mut ways = 0.0;
    let mut sum = 0.0;
    for count in 0..=good {
        let others = (calls - count) as f64;
        sum += (ways + count as f64 * is + others * is_not).exp();
        ways += (others / (count + 1) as f64).ln();
    }
    sum
}

fn floor(name: &str) -> u64 {
    let known = FLOORS.iter().find(|(known, _)| *known == name);
    known.map_or(FLOOR, |(_, floor)| *floor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn row(name: &'static str, good: u64, refused: u64) -> Row {
        Row {
            name,
            good,
            refused,
            time: Duration::ZERO,
            longest: Duration::ZERO,
        }
    }

    #[test]
    fn a_call_that_is_nearly_always_refused_is_told() {
        let few = below(&[
            row("SET_EVENT", 140, 860),
            row("GET_VERSION", 150, 850),
            row("ACQUIRE_VM", 0, 1100),
            row("RESET_EVENT", 0, 60),
            row("UPDATE_QUEUE", 90_000, 910_000),
        ]);
        let told = [
            "140 of 1000 of SET_EVENT, not 15 %",
            "0 of 1100 of ACQUIRE_VM, not 1 %",
            "0 of 60 of RESET_EVENT, not 15 %",
            "90000 of 1000000 of UPDATE_QUEUE, not 10 %",
        ];
        assert_eq!(few, told);
    }

    #[test]
    fn likelihoods_are_those_of_a_table() {
        assert!((at_most(0, 10, 0.3) - 0.028_247_5).abs() < 1e-6);
        assert!((at_most(3, 10, 0.3) - 0.649_610_7).abs() < 1e-6);
        assert!((at_most(10, 10, 0.3) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn few_calls_and_those_that_cannot_be_good_say_nothing() {
        let rows = [
            row("SET_EVENT", 0, 50),
            // Of as many, two in a hundred are good; one of three times none is by chance.
            row("ACQUIRE_VM", 0, 60),
            row("PROFILER", 2, 58),
            row("GET_QUEUE_WAVE_STATE", 1, 59),
            row("DBG_REGISTER_DEPRECATED", 0, 900),
            row("RECEIVE", 0, 900),
        ];
        assert!(below(&rows).is_empty());
    }

    #[test]
    fn floors_are_of_ioctls() {
        for (name, _) in FLOORS {
            assert!(IOCTLS.iter().any(|ioctl| ioctl.name == *name), "{name}");
        }
    }
}
