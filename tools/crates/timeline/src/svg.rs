// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! A part of a timeline as a picture (SVG), for pages where nobody can zoom.

use crate::{Reading, Slice, Track};
use std::fmt::Write;

const WIDTH: f64 = 1200.0;
/// Where the tracks begin; left of it are their names.
const LEFT: f64 = 330.0;
const ROW: f64 = 18.0;
const HEAD: f64 = 24.0;
/// What a letter takes.
const LETTER: f64 = 6.2;

/// A picture of the time from `from` to `to`; of tracks of one kind, such as places for
/// work-groups, `most` at most.
pub fn picture(reading: &Reading, from: u64, to: u64, most: usize) -> String {
    let mut body = String::new();
    let mut top = HEAD;
    let mut left_out: Vec<(String, usize)> = Vec::new();
    let mut shown: Vec<(String, usize)> = Vec::new();
    for track in ordered(reading) {
        let is_seen = |begin: u64, end: u64| end >= from && begin <= to;
        let slices = track.slices.iter();
        let slices: Vec<_> = slices
            .filter(|slice| is_seen(slice.begin, slice.end))
            .collect();
        let has_values = track.values.iter().any(|(at, _)| is_seen(*at, *at));
        if slices.is_empty() && !has_values {
            continue;
        }
        let kind = kind(&track.name);
        if bump(&mut shown, &kind) > most {
            bump(&mut left_out, &kind);
            continue;
        }
        let rows = Row {
            from,
            to,
            top,
            body: &mut body,
        };
        top += rows.track(reading, track, &slices);
    }
    for (kind, count) in left_out {
        let text = format!("and {count} more: {kind}");
        let _ = writeln!(
            body,
            "<text x=\"4\" y=\"{:.0}\" class=\"d\">{}</text>",
            top + 13.0,
            plain(&text)
        );
        top += ROW;
    }
    let scale = scale(from, to, top);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top}\" \
         font-family=\"monospace\" font-size=\"10\">\n\
         <style>.d{{fill:#777}}</style>\n\
         <rect width=\"{WIDTH}\" height=\"{top}\" fill=\"#fff\"/>\n{scale}{body}</svg>\n"
    )
}

/// A name without its numbers: what tracks of a kind have in common.
fn kind(name: &str) -> String {
    let mut kind = String::new();
    for letter in name.chars() {
        match letter.is_ascii_digit() {
            true if kind.ends_with('#') => {}
            true => kind.push('#'),
            false => kind.push(letter),
        }
    }
    kind
}

fn bump(counts: &mut Vec<(String, usize)>, kind: &str) -> usize {
    let at = counts.iter().position(|(known, _)| known == kind);
    let at = at.unwrap_or_else(|| {
        counts.push((kind.to_owned(), 0));
        counts.len() - 1
    });
    counts[at].1 += 1;
    counts[at].1
}

/// Each track behind its parent.
fn ordered(reading: &Reading) -> Vec<&Track> {
    fn below<'a>(reading: &'a Reading, parent: Option<u64>, all: &mut Vec<&'a Track>) {
        for track in reading.tracks.iter().filter(|track| track.parent == parent) {
            all.push(track);
            below(reading, Some(track.uuid), all);
        }
    }
    let mut all = Vec::new();
    below(reading, None, &mut all);
    all
}

struct Row<'a> {
    from: u64,
    to: u64,
    top: f64,
    body: &'a mut String,
}

impl Row<'_> {
    fn x(&self, at: u64) -> f64 {
        let at = at.clamp(self.from, self.to) - self.from;
        LEFT + (WIDTH - LEFT) * at as f64 / (self.to - self.from).max(1) as f64
    }

    /// Draws a track and says how high it is.
    fn track(mut self, reading: &Reading, track: &Track, slices: &[&Slice]) -> f64 {
        let parent = reading
            .tracks
            .iter()
            .find(|known| Some(known.uuid) == track.parent);
        let mut name = match parent {
            Some(parent) => format!("{}: {}", parent.name, track.name),
            None => track.name.clone(),
        };
        if let Some((_, Some(tid))) = track.of {
            name += &format!(" {tid}");
        }
        let _ = writeln!(
            self.body,
            "<text x=\"4\" y=\"{:.0}\">{}</text>",
            self.top + 13.0,
            plain(&cut(&name, LEFT - 8.0))
        );
        let mut ends: Vec<u64> = Vec::new();
        let mut deepest = 0;
        for slice in slices {
            while ends.last().is_some_and(|end| *end <= slice.begin) {
                ends.pop();
            }
            deepest = deepest.max(ends.len());
            self.slice(slice, self.top + ROW * ends.len() as f64);
            if slice.end > slice.begin {
                ends.push(slice.end);
            }
        }
        if !track.values.is_empty() {
            self.values(&track.values);
        }
        let height = ROW * (deepest + 1) as f64;
        let _ = writeln!(
            self.body,
            "<path d=\"M0 {y:.0}H{WIDTH}\" stroke=\"#ddd\"/>",
            y = self.top + height - 0.5
        );
        height
    }

    fn slice(&mut self, slice: &Slice, top: f64) {
        let (left, right) = (self.x(slice.begin), self.x(slice.end));
        let color = color(
            &slice.name,
            if slice.end > slice.begin { 0x70 } else { 0x10 },
        );
        let title = format!("{} ({} us)", slice.name, (slice.end - slice.begin) / 1000);
        if slice.end == slice.begin {
            let _ = writeln!(
                self.body,
                "<path d=\"M{left:.1} {:.0}v{:.0}\" stroke=\"{color}\"><title>{}</title></path>",
                top + 2.0,
                ROW - 5.0,
                plain(&slice.name)
            );
            return;
        }
        let width = (right - left).max(0.5);
        let _ = writeln!(
            self.body,
            "<rect x=\"{left:.1}\" y=\"{:.0}\" width=\"{width:.1}\" height=\"{:.0}\" \
             fill=\"{color}\"><title>{}</title></rect>",
            top + 1.0,
            ROW - 3.0,
            plain(&title)
        );
        let text = cut(&slice.name, width - 6.0);
        if text.chars().count() > 2 {
            let (x, y) = (left + 3.0, top + 13.0);
            let _ = writeln!(
                self.body,
                "<text x=\"{x:.1}\" y=\"{y:.0}\">{}</text>",
                plain(&text)
            );
        }
    }

    /// A line of steps.
    fn values(&mut self, values: &[(u64, i64)]) {
        let highest = values
            .iter()
            .map(|(_, value)| *value)
            .max()
            .unwrap_or(1)
            .max(1);
        let bottom = self.top + ROW - 2.0;
        let mut path = format!("M{LEFT} {bottom:.1}");
        let mut last = (-1.0, bottom);
        for (at, value) in values.iter().filter(|(at, _)| *at <= self.to) {
            let x = self.x(*at);
            let y = bottom - (ROW - 5.0) * *value as f64 / highest as f64;
            // What lies on the same point is not drawn again.
            if (x - last.0).abs() >= 0.3 || (y - last.1).abs() >= 4.0 {
                let _ = write!(path, "H{x:.1}V{y:.1}");
                last = (x, y);
            }
        }
        let _ = write!(path, "H{WIDTH}");
        let _ = writeln!(
            self.body,
            "<path d=\"{path}\" fill=\"none\" stroke=\"#36c\"/>"
        );
    }
}

/// Ten lines with the time since the picture's begin.
fn scale(from: u64, to: u64, height: f64) -> String {
    let mut text = String::new();
    for part in 0..10u64 {
        let x = LEFT + (WIDTH - LEFT) * part as f64 / 10.0;
        let at = (to - from) * part / 10;
        let label = format!("{}.{:03} ms", at / 1_000_000, at / 1000 % 1000);
        let _ = writeln!(
            text,
            "<path d=\"M{x:.0} 0V{height:.0}\" stroke=\"#eee\"/>\
             <text x=\"{:.0}\" y=\"12\" class=\"d\">{label}</text>",
            x + 3.0
        );
    }
    text
}

/// A color that is the name's, no part of it less than `dark` of 255: behind black letters it has
/// to be light.
fn color(name: &str, dark: u32) -> String {
    let hash = name.bytes().fold(2_166_136_261u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
    });
    let part = |shift: u32| dark + (hash >> shift) % 0x80;
    format!("#{:02x}{:02x}{:02x}", part(3), part(11), part(19))
}

fn cut(text: &str, width: f64) -> String {
    let most = (width / LETTER).max(0.0) as usize;
    text.chars().take(most).collect()
}

fn plain(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{read, Timeline};

    #[test]
    fn a_picture_has_what_lies_in_its_time() {
        let mut timeline = Timeline::new(1);
        let gpu = timeline.track(None, "GPU <1>");
        let queue = timeline.track(Some(gpu), "queue 7");
        timeline.slice(queue, 100, 200, "a&b", []);
        timeline.slice(queue, 500, 600, "late", []);
        for number in 0..3 {
            let place = timeline.track(Some(gpu), &format!("place {number}"));
            timeline.instant(place, 150, "x", []);
        }
        let waves = timeline.counter(Some(gpu), "waves", "waves");
        timeline.count(waves, 120, 4);
        let reading = read(&timeline.encode()).expect("a timeline");
        let text = picture(&reading, 100, 300, 2);
        for part in [
            "GPU &lt;1&gt;: queue 7",
            ">a&amp;b<",
            "and 1 more: place #",
            "#36c",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("late"));
    }
}
