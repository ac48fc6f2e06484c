// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! Sizes as people read them.

/// `size` in the largest unit of which there is at least one.
pub fn bytes(size: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units.into_iter().find(|(_, shift)| size >> shift != 0);
    unit.map_or(format!("{size} B"), |(name, shift)| {
        format!("{:.1} {name}", size as f64 / (1u64 << shift) as f64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        assert_eq!(
            [bytes(512), bytes(16 << 10), bytes(3 << 29)],
            ["512 B", "16.0 KiB", "1.5 GiB"]
        );
    }
}
