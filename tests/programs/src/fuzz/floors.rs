// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! How many of the calls of each kind must be good: a fuzzer whose calls are refused at the door
//! tests the door.

use super::shared::Row;
use kfd_uapi::IOCTLS;

/// So many calls say something.
const ENOUGH: u64 = 50;

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
    // The generator draws its operations and no more: they are refused for what is missing.
    ("CRIU_OP", 0),
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
        let calls = row.good + row.refused;
        IOCTLS.iter().any(|ioctl| ioctl.name == row.name)
            && calls >= ENOUGH
            && row.good * 100 < floor(row.name) * calls
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
        let few = below(&[row("SET_EVENT", 14, 86), row("GET_VERSION", 15, 85)]);
        assert_eq!(few, ["14 of 100 of SET_EVENT, not 15 %"]);
    }

    #[test]
    fn few_calls_and_those_that_cannot_be_good_say_nothing() {
        let rows = [
            row("SET_EVENT", 0, 49),
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
