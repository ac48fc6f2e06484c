// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! `kfd-timeline list FILE`, `kfd-timeline svg FILE --around NAME`: what is in a timeline.

use clap::{CommandFactory, Parser, Subcommand};
use kfd_timeline::{read, svg, Reading};
use std::error::Error;
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Shows timelines of `kfdctl trace --perfetto` and `kfd-vm run --perfetto`.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the tracks: how much is on each, and of what there is most.
    List {
        /// The timeline.
        file: PathBuf,
    },
    /// Write a picture to standard output.
    Svg {
        /// The timeline.
        file: PathBuf,
        /// Of the first slice of that name, such as a kernel's, with half as much before and after
        /// it [default: all of it].
        #[arg(long, value_name = "NAME")]
        around: Option<String>,
        /// How many tracks of a kind, such as places for work-groups, are shown.
        #[arg(long, value_name = "COUNT", default_value_t = 8)]
        most: usize,
    },
    /// Write the manual pages.
    #[command(hide = true)]
    Generate {
        /// Where to; the directory is made.
        #[arg(long, value_name = "DIRECTORY")]
        man: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(&Arguments::parse().command) {
        Ok(text) => match io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => failed(&error),
            _ => ExitCode::SUCCESS,
        },
        Err(error) => failed(&*error),
    }
}

fn failed(error: &dyn Error) -> ExitCode {
    eprintln!("kfd-timeline: {error}");
    ExitCode::FAILURE
}

fn run(command: &Command) -> Result<String, Box<dyn Error>> {
    let of = |file: &PathBuf| -> Result<Reading, Box<dyn Error>> {
        let bytes = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(read(&bytes)?)
    };
    match command {
        Command::List { file } => Ok(list(&of(file)?)),
        Command::Svg { file, around, most } => {
            let reading = of(file)?;
            let (from, to) = window(&reading, around.as_deref())?;
            Ok(svg::picture(&reading, from, to, *most))
        }
        Command::Generate { man } => {
            let pages = std::fs::create_dir_all(man)
                .and_then(|()| clap_mangen::generate_to(Arguments::command(), man));
            pages.map_err(|error| format!("{}: {error}", man.display()))?;
            Ok(String::new())
        }
    }
}

fn list(reading: &Reading) -> String {
    let mut text = String::new();
    for track in &reading.tracks {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for slice in &track.slices {
            match counts.iter_mut().find(|(name, _)| *name == slice.name) {
                Some((_, count)) => *count += 1,
                None => counts.push((&slice.name, 1)),
            }
        }
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let most: Vec<_> = counts
            .iter()
            .take(3)
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        let parents = reading
            .tracks
            .iter()
            .filter(|known| Some(known.uuid) == track.parent);
        let of = parents
            .map(|parent| format!("{}: ", parent.name))
            .next()
            .unwrap_or_default();
        let count = track.slices.len() + track.values.len();
        let line = format!("{count:7}  {:30}  {of}{}", most.join(", "), track.name);
        text += &(line.trim_end().to_owned() + "\n");
    }
    text
}

/// From when to when.
fn window(reading: &Reading, around: Option<&str>) -> Result<(u64, u64), Box<dyn Error>> {
    let slices = || reading.tracks.iter().flat_map(|track| &track.slices);
    let Some(name) = around else {
        let from = slices()
            .map(|slice| slice.begin)
            .min()
            .ok_or("it is empty")?;
        let to = slices().map(|slice| slice.end).max().ok_or("it is empty")?;
        return Ok((from, to.max(from + 1)));
    };
    let found = slices().filter(|slice| slice.name == name && slice.end > slice.begin);
    let found = found.min_by_key(|slice| slice.begin);
    let slice = found.ok_or_else(|| format!("it has no slice {name}"))?;
    let margin = (slice.end - slice.begin) / 2;
    Ok((slice.begin.saturating_sub(margin), slice.end + margin))
}
