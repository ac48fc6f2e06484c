// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! `kfdctl top` on a terminal: GPUs, processes with their queues, and from a queue down to its
//! ring and to one packet.

use super::text::{device_cells, row, title, HEADINGS};
use super::{details, unit, Look};
use crate::queues::{Memory, Process, Queue};
use crate::ring::{packets, Packet};
use anyhow::Result;
use ratatui::backend::Backend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Paragraph, Row, Table, TableState, Wrap};
use ratatui::{Frame, Terminal};
use std::time::{Duration, Instant};

/// How many packets that are done a ring shows.
const DONE: usize = 256;
/// The shortest and the longest time between two looks that keys choose.
const INTERVALS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(60)];
const HELP: &str = "\
up, down, k, j   another line        page up, page down, home, end
enter            a process's queue: its ring; a packet: its fields
escape           back; from here: the end
s                sort processes by number, VRAM, compute units, rate
space            stand still, go on
+ -              look less or more often
h ?              this
q                the end";
const DIM: Style = Style::new().fg(Color::DarkGray);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const CHOSEN: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Shows it until the user leaves.
pub fn run(interval: Duration) -> Result<()> {
    // What cannot be looked at is said on the terminal as it was.
    let look = Look::now(None)?;
    let mut terminal = ratatui::try_init()?;
    let mut view = View::new(look, interval);
    let result = view.live(&mut terminal);
    ratatui::restore();
    result
}

/// In which order processes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Pid,
    Vram,
    Units,
    Rate,
}

impl Order {
    fn next(self) -> Self {
        match self {
            Order::Pid => Order::Vram,
            Order::Vram => Order::Units,
            Order::Units => Order::Rate,
            Order::Rate => Order::Pid,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Order::Pid => "number",
            Order::Vram => "VRAM",
            Order::Units => "compute units",
            Order::Rate => "rate",
        }
    }
}

/// A queue by what stays the same from look to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chosen {
    pid: u32,
    context: Option<u32>,
    gpu_id: u32,
    id: Option<u32>,
    ring: Option<u64>,
}

impl Chosen {
    fn of(process: &Process, queue: &Queue) -> Self {
        Self {
            pid: process.pid,
            context: process.context,
            gpu_id: queue.gpu_id,
            id: queue.id,
            ring: queue.ring,
        }
    }

    fn find<'a>(&self, look: &'a Look) -> Option<(&'a Process, &'a Queue)> {
        let processes = &look.snapshot.processes;
        let owner = (self.pid, self.context);
        let process = processes
            .iter()
            .find(|process| (process.pid, process.context) == owner)?;
        let same = |queue: &&Queue| Self::of(process, queue) == *self;
        Some((process, process.queues.iter().find(same)?))
    }
}

/// What is on the screen.
#[derive(Debug)]
enum Page {
    /// GPUs, processes, queues.
    All,
    /// The packets of one ring, or why they can't be read.
    Ring(Chosen, Result<Vec<Packet>, String>),
    /// One packet of it, and where it is in the list.
    Packet(Chosen, Packet),
}

struct View {
    look: Look,
    interval: Duration,
    order: Order,
    page: Page,
    /// The line that is chosen on the first page.
    line: usize,
    /// The packet that is chosen in a ring.
    packet: usize,
    paused: bool,
    help: bool,
    over: bool,
}

impl View {
    fn new(look: Look, interval: Duration) -> Self {
        Self {
            look,
            interval,
            order: Order::Pid,
            page: Page::All,
            line: 0,
            packet: 0,
            paused: false,
            help: false,
            over: false,
        }
    }

    /// Draws, waits for a key or the next look, until it is over.
    fn live<B: Backend>(&mut self, terminal: &mut Terminal<B>) -> Result<()> {
        let mut next = Instant::now() + self.interval;
        while !self.over {
            terminal.draw(|frame| self.draw(frame))?;
            let pause = next.saturating_duration_since(Instant::now());
            if event::poll(pause)? {
                if let Event::Key(key) = event::read()? {
                    self.key(key);
                }
            }
            if Instant::now() >= next {
                if !self.paused {
                    self.renew(Look::now(Some(&self.look))?);
                }
                next = Instant::now() + self.interval;
            }
        }
        Ok(())
    }

    /// Shows another look.
    fn renew(&mut self, look: Look) {
        self.look = look;
        if let Page::Ring(chosen, _) = self.page {
            self.open(chosen);
        }
    }

    /// The lines of the first page: processes, each with its queues.
    fn lines(&self) -> Vec<(&Process, Option<&Queue>)> {
        let mut processes: Vec<_> = self.look.snapshot.processes.iter().collect();
        let rate = |process: &Process| -> f64 {
            let queues = process.queues.iter();
            queues.filter_map(|q| self.look.rate(process, q)).sum()
        };
        match self.order {
            Order::Pid => processes.sort_by_key(|process| (process.pid, process.context)),
            Order::Vram => processes.sort_by_key(|process| std::cmp::Reverse(process.vram)),
            Order::Units => {
                processes.sort_by_key(|process| std::cmp::Reverse(process.cu_occupancy))
            }
            Order::Rate => processes.sort_by(|a, b| rate(b).total_cmp(&rate(a))),
        }
        let lines = processes.into_iter().flat_map(|process| {
            let queues = process
                .queues
                .iter()
                .map(move |queue| (process, Some(queue)));
            std::iter::once((process, None)).chain(queues)
        });
        lines.collect()
    }

    fn key(&mut self, key: KeyEvent) {
        if key.kind == KeyEventKind::Release {
            return;
        }
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            self.over = true;
            return;
        }
        if std::mem::take(&mut self.help) {
            return;
        }
        match key.code {
            KeyCode::Char('q') => self.over = true,
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => self.back(),
            KeyCode::Char('h' | '?') => self.help = true,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char(' ') => self.paused = !self.paused,
            KeyCode::Char('+') => self.interval = (self.interval * 2).min(INTERVALS[1]),
            KeyCode::Char('-') => self.interval = (self.interval / 2).max(INTERVALS[0]),
            KeyCode::Up | KeyCode::Char('k') => self.choose(-1),
            KeyCode::Down | KeyCode::Char('j') => self.choose(1),
            KeyCode::PageUp => self.choose(-20),
            KeyCode::PageDown => self.choose(20),
            KeyCode::Home => self.choose(isize::MIN),
            KeyCode::End => self.choose(isize::MAX),
            KeyCode::Enter | KeyCode::Right => self.enter(),
            _ => {}
        }
    }

    fn back(&mut self) {
        match std::mem::replace(&mut self.page, Page::All) {
            Page::All => self.over = true,
            Page::Ring(..) => {}
            Page::Packet(chosen, packet) => {
                self.open(chosen);
                self.go_to(packet.index);
            }
        }
    }

    /// Chooses another line, as many further.
    fn choose(&mut self, by: isize) {
        let (at, count) = match &self.page {
            Page::All => (&self.line, self.lines().len()),
            Page::Ring(_, Ok(packets)) => (&self.packet, packets.len()),
            _ => return,
        };
        let to = at.saturating_add_signed(by).min(count.saturating_sub(1));
        match self.page {
            Page::All => self.line = to,
            _ => self.packet = to,
        }
    }

    fn enter(&mut self) {
        match &self.page {
            Page::All => {
                let lines = self.lines();
                // Of a process, its first queue.
                let chosen = lines
                    .iter()
                    .skip(self.line)
                    .find_map(|(process, queue)| queue.map(|queue| Chosen::of(process, queue)));
                if let Some(chosen) = chosen {
                    self.open(chosen);
                    self.choose(isize::MAX);
                }
            }
            Page::Ring(chosen, Ok(packets)) => {
                if let Some(packet) = packets.get(self.packet) {
                    self.page = Page::Packet(*chosen, packet.clone());
                }
            }
            _ => {}
        }
    }

    /// Shows a ring as it is now.
    fn open(&mut self, chosen: Chosen) {
        let packets = match chosen.find(&self.look) {
            None => Err("the queue is gone".to_owned()),
            Some((process, queue)) => {
                let shown = packets(queue, &Memory::of(process.pid), DONE);
                let shown = shown.map(|shown| shown.packets);
                shown.map_err(|error| format!("{error:#}"))
            }
        };
        // The packet that was chosen stays so: others come behind it.
        let index = match &self.page {
            Page::Ring(_, Ok(known)) => known.get(self.packet).map(|packet| packet.index),
            _ => None,
        };
        self.page = Page::Ring(chosen, packets);
        if let Some(index) = index {
            self.go_to(index);
        }
    }

    fn go_to(&mut self, index: u64) {
        if let Page::Ring(_, Ok(packets)) = &self.page {
            let at = packets.iter().position(|packet| packet.index >= index);
            self.packet = at.unwrap_or(packets.len().saturating_sub(1));
        }
    }

    fn draw(&self, frame: &mut Frame) {
        let rows = [
            Constraint::Length(1),
            Constraint::Min(0),
            Constraint::Length(1),
        ];
        let [top, middle, bottom] = Layout::vertical(rows).areas(frame.area());
        frame.render_widget(Line::styled(title(&self.look.snapshot), BOLD), top);
        match &self.page {
            Page::All => self.draw_all(frame, middle),
            Page::Ring(chosen, packets) => self.draw_ring(frame, middle, chosen, packets),
            Page::Packet(chosen, packet) => draw_packet(frame, middle, chosen, packet),
        }
        frame.render_widget(Line::styled(self.footer(), DIM), bottom);
        if self.help {
            let block = Block::bordered().title(" keys ");
            frame.render_widget(ratatui::widgets::Clear, middle);
            frame.render_widget(Paragraph::new(HELP).block(block), middle);
        }
    }

    fn footer(&self) -> String {
        let state = match self.paused {
            true => "stands still".to_owned(),
            false => format!("every {:.1} s", self.interval.as_secs_f64()),
        };
        let keys = match self.page {
            Page::All => "enter: the ring   s: sort   space: stand still   h: keys   q: the end",
            Page::Ring(..) => "enter: the packet   escape: back   h: keys   q: the end",
            Page::Packet(..) => "escape: back   q: the end",
        };
        match self.page {
            Page::All => format!("{state}, by {}   {keys}", self.order.name()),
            _ => format!("{state}   {keys}"),
        }
    }

    fn draw_all(&self, frame: &mut Frame, area: Rect) {
        let lacks = self.look.lacks.as_ref();
        let lack = lacks.map_or(0, |why| 1 + why.len() as u16 / area.width.max(1));
        let rows = [
            Constraint::Length(self.look.devices.len() as u16 + 2),
            Constraint::Length(lack),
            Constraint::Min(3),
        ];
        let [gpus, note, queues] = Layout::vertical(rows).areas(area);
        self.draw_devices(frame, gpus);
        if let Some(why) = lacks {
            let text = format!("not shown: rings, indices, faults: {why}");
            frame.render_widget(
                Paragraph::new(text).wrap(Wrap { trim: true }).style(DIM),
                note,
            );
        }
        self.draw_queues(frame, queues);
    }

    fn draw_devices(&self, frame: &mut Frame, area: Rect) {
        let heads = [
            "GPU", "TARGET", "BUSY", "VRAM", "", "POWER", "TEMP", "CLOCK", "CUS",
        ];
        let rows = self.look.devices.iter().map(|device| {
            let [gpu, target, busy, vram, power, temperature, clock, units] = device_cells(device);
            let part = device.busy_percent.map(|percent| percent / 100.0);
            let full = match (device.vram_used, device.vram_total) {
                (Some(used), Some(total)) if total > 0 => Some(used as f64 / total as f64),
                _ => None,
            };
            Row::new([
                Cell::new(gpu),
                Cell::new(target),
                Cell::new(format!("{} {busy:>4}", bar(part))).style(heat(part)),
                Cell::new(bar(full)).style(heat(full)),
                Cell::new(vram),
                Cell::new(power),
                Cell::new(temperature),
                Cell::new(clock),
                Cell::new(units),
            ])
        });
        let widths = [5, 7, 13, 8, 19, 6, 5, 8, 11].map(Constraint::Length);
        let table = Table::new(rows, widths).header(Row::new(heads).style(BOLD));
        frame.render_widget(table, area);
    }

    fn draw_queues(&self, frame: &mut Frame, area: Rect) {
        let rows = self
            .lines()
            .into_iter()
            .map(|(process, queue)| match queue {
                None => {
                    let faults = process.faults.filter(|faults| *faults > 0);
                    let faults = faults.map_or(String::new(), |faults| format!("{faults} faults"));
                    let units = process.cu_occupancy.unwrap_or(0);
                    Row::new([
                        format!("{} {}", process.pid, process.name),
                        String::new(),
                        crate::units::bytes(process.vram),
                        format!("{units} CUs"),
                        faults,
                        String::new(),
                        process.of_context().trim_start_matches(", ").to_owned(),
                    ])
                    .style(BOLD)
                }
                Some(queue) => {
                    let [id, gpu, kind, ring, waiting, fill, read, write, rate, bell] =
                        row(queue, self.look.rate(process, queue));
                    let id = format!("  queue {id}");
                    Row::new([id, gpu, ring, kind, waiting, fill, read, write, rate, bell])
                }
            });
        let [_, gpu, kind, ring, waiting, fill, read, write, rate, bell] = HEADINGS;
        let heads = [
            "PROCESS", gpu, ring, kind, waiting, fill, read, write, rate, bell,
        ];
        let widths = [24, 5, 9, 9, 8, 5, 13, 13, 7, 5].map(Constraint::Length);
        let table = Table::new(rows, widths)
            .header(Row::new(heads).style(BOLD))
            .row_highlight_style(CHOSEN);
        let mut state = TableState::new().with_selected(self.line);
        frame.render_stateful_widget(table, area, &mut state);
    }

    fn draw_ring(
        &self,
        frame: &mut Frame,
        area: Rect,
        chosen: &Chosen,
        packets: &Result<Vec<Packet>, String>,
    ) {
        let facts = chosen.find(&self.look).map(|(process, queue)| {
            let one = Process {
                queues: vec![queue.clone()],
                ..process.clone()
            };
            details(&one)
        });
        let facts = facts.unwrap_or_else(|| format!("process {}: the queue is gone\n", chosen.pid));
        let rows = [
            Constraint::Length(facts.lines().count() as u16 + 1),
            Constraint::Min(3),
        ];
        let [above, below] = Layout::vertical(rows).areas(area);
        frame.render_widget(Paragraph::new(facts), above);
        let packets = match packets {
            Ok(packets) => packets,
            Err(why) => {
                frame.render_widget(
                    Paragraph::new(why.as_str()).wrap(Wrap { trim: true }),
                    below,
                );
                return;
            }
        };
        let rows = packets.iter().map(|packet| {
            let fields = packet.fields.iter();
            let fields: Vec<_> = fields
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            let row = Row::new([
                packet.index.to_string(),
                if packet.done { "done" } else { "waits" }.to_owned(),
                packet.name.clone(),
                fields.join(" "),
            ]);
            row.style(if packet.done { DIM } else { Style::new() })
        });
        let widths = [
            Constraint::Length(12),
            Constraint::Length(6),
            Constraint::Length(30),
            Constraint::Min(10),
        ];
        let what = chosen.find(&self.look).map(|(_, queue)| unit(queue.kind));
        let index = format!("INDEX/{}", what.unwrap_or("?"));
        let heads = [index.as_str(), "", "PACKET", "FIELDS"];
        let table = Table::new(rows, widths)
            .header(Row::new(heads.map(str::to_owned)).style(BOLD))
            .row_highlight_style(CHOSEN);
        let mut state = TableState::new().with_selected(self.packet);
        frame.render_stateful_widget(table, below, &mut state);
    }
}

fn draw_packet(frame: &mut Frame, area: Rect, chosen: &Chosen, packet: &Packet) {
    let id = chosen.id.map_or("?".into(), |id| id.to_string());
    let title = format!(
        " packet {} of queue {id} of process {}: {} ",
        packet.index, chosen.pid, packet.name
    );
    let state = if packet.done {
        "the GPU has taken it"
    } else {
        "it waits, or runs"
    };
    let mut text = format!("{:<14} {state}\n", "state");
    for (name, value) in &packet.fields {
        text += &format!("{name:<14} {value}\n");
    }
    let block = Block::bordered().title(title);
    frame.render_widget(Paragraph::new(text).block(block), area);
}

/// Eight columns of which a part is full.
fn bar(part: Option<f64>) -> String {
    let Some(part) = part else {
        return " ".repeat(8);
    };
    let full = (part.clamp(0.0, 1.0) * 8.0).round() as usize;
    "\u{2588}".repeat(full) + &"\u{2591}".repeat(8 - full)
}

fn heat(part: Option<f64>) -> Style {
    Style::new().fg(match part {
        Some(part) if part >= 0.9 => Color::Red,
        Some(part) if part >= 0.5 => Color::Yellow,
        Some(_) => Color::Green,
        None => Color::DarkGray,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{look, snapshot};
    use super::*;
    use ratatui::backend::TestBackend;

    fn view() -> View {
        let (before, after) = (snapshot(1000, 1008), snapshot(2000, 2064));
        View::new(look(Some(before), after), Duration::from_secs(1))
    }

    /// The screen as text.
    fn shown(view: &View) -> String {
        let mut terminal = Terminal::new(TestBackend::new(110, 24)).expect("a terminal");
        terminal.draw(|frame| view.draw(frame)).expect("drawn");
        let buffer = terminal.backend().buffer();
        let width = usize::from(buffer.area.width);
        let lines = buffer.content().chunks(width);
        let line = |cells: &[ratatui::buffer::Cell]| -> String {
            cells.iter().map(|cell| cell.symbol()).collect()
        };
        lines
            .map(|cells| line(cells).trim_end().to_owned() + "\n")
            .collect()
    }

    fn press(view: &mut View, code: KeyCode) {
        view.key(KeyEvent::new(code, KeyModifiers::NONE));
    }

    #[test]
    fn the_first_page_has_gpus_processes_and_queues() {
        let text = shown(&view());
        let line = |of: &str| {
            let line = text.lines().find(|line| line.contains(of));
            line.unwrap_or_else(|| panic!("{of} in {text}")).to_owned()
        };
        let gpu = line("gfx942");
        for part in [
            "\u{2588}".repeat(8).as_str(),
            "100%",
            "749 W",
            "99 C",
            "2100 MHz",
        ] {
            assert!(gpu.contains(part), "{part} in {gpu}");
        }
        assert!(gpu.contains("152/304"), "{gpu}");
        assert!(line("a-name-of-15-ch").contains("3 faults"));
        let queue = line("queue 1023");
        for part in ["SDMA", "1 GiB", "64", "2000", "2064", "1000.0"] {
            assert!(queue.contains(part), "{part} in {queue}");
        }
    }

    #[test]
    fn what_a_user_may_not_see_is_said() {
        let mut view = view();
        view.look.lacks = Some("only root may look".into());
        assert!(shown(&view).contains("not shown: rings, indices, faults: only root may look"));
    }

    #[test]
    fn keys_lead_down_to_a_packet_and_back() {
        let mut view = view();
        press(&mut view, KeyCode::Down);
        press(&mut view, KeyCode::Enter);
        // No process has that number: the ring can't be read, and that is said.
        let text = shown(&view);
        assert!(
            text.contains("the ring at 0x7ffffffff000 can't be read"),
            "{text}"
        );
        assert!(text.contains("read index   2000 at 0x1000"), "{text}");
        let Page::Ring(chosen, _) = view.page else {
            panic!("a ring")
        };
        let packet = |index: u64, done| Packet {
            index,
            done,
            name: format!("PACKET{index}"),
            fields: vec![("grid", "64x1x1".into())],
        };
        view.page = Page::Ring(chosen, Ok(vec![packet(7, true), packet(8, false)]));
        view.packet = 0;
        press(&mut view, KeyCode::End);
        let text = shown(&view);
        assert!(
            text.contains("PACKET7") && text.contains("PACKET8"),
            "{text}"
        );
        press(&mut view, KeyCode::Enter);
        let text = shown(&view);
        assert!(
            text.contains("packet 8 of queue 1023 of process 4194304: PACKET8"),
            "{text}"
        );
        assert!(
            text.contains("it waits, or runs") && text.contains("grid"),
            "{text}"
        );
        press(&mut view, KeyCode::Esc);
        assert!(matches!(view.page, Page::Ring(..)));
        press(&mut view, KeyCode::Esc);
        assert!(matches!(view.page, Page::All) && !view.over);
        press(&mut view, KeyCode::Esc);
        assert!(view.over);
    }

    #[test]
    fn a_look_into_a_ring_of_our_own_shows_its_packets() {
        // Two dispatches, one of which is taken, in this process's memory.
        let mut ring = vec![0u32; 16 * 64];
        for (at, header) in [(0, 1u32), (16, 2)] {
            ring[at] = header;
            (ring[at + 1], ring[at + 3], ring[at + 8]) = (64 | 1 << 16, 256, 0x40);
        }
        let mut snapshot = snapshot(1, 2);
        let process = &mut snapshot.processes[0];
        process.pid = std::process::id();
        let queue = &mut process.queues[0];
        queue.kind = crate::queues::Kind::Aql;
        (queue.ring, queue.ring_size) = (Some(ring.as_ptr() as u64), 64 * 64);
        let mut view = View::new(look(None, snapshot), Duration::from_secs(1));
        press(&mut view, KeyCode::Enter);
        let text = shown(&view);
        assert!(text.contains("INVALID (was KERNEL_DISPATCH)"), "{text}");
        assert!(text.contains("waits  KERNEL_DISPATCH"), "{text}");
        assert!(text.contains("grid=256x0x0"), "{text}");
        drop(ring);
    }

    #[test]
    fn keys_choose_order_interval_and_help() {
        let mut view = view();
        press(&mut view, KeyCode::Char('s'));
        assert_eq!(view.order, Order::Vram);
        press(&mut view, KeyCode::Char('+'));
        assert_eq!(view.interval, Duration::from_secs(2));
        press(&mut view, KeyCode::Char(' '));
        assert!(shown(&view).contains("stands still, by VRAM"));
        press(&mut view, KeyCode::Char('h'));
        assert!(shown(&view).contains("sort processes"));
        press(&mut view, KeyCode::Char('q'));
        assert!(!view.over && !view.help, "any key closes the help");
        press(&mut view, KeyCode::Char('q'));
        assert!(view.over);
    }

    #[test]
    fn a_small_terminal_is_no_error() {
        for (width, height) in [(1, 1), (20, 3), (80, 5)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("one");
            let drawn = terminal.draw(|frame| view().draw(frame));
            assert!(drawn.is_ok());
        }
    }
}
