// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! [`Stage`]: the processes of one case.

use anyhow::{bail, ensure, Context, Result};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::{kill_process, Pid, Signal};
use std::collections::btree_map::{BTreeMap, Entry};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// TIMEOUT: a step is done sooner, on a loaded host as well.
const PATIENCE: Duration = Duration::from_secs(60);
/// A step that waits for another process is not done in this time.
const WAITS: Duration = Duration::from_millis(500);
/// Letters from this one on are another user.
const STRANGERS: char = 'u';
const STRANGER: u32 = 65534;
/// Below this a number is no address of memory.
const ADDRESSES: u64 = 1 << 32;

#[derive(Default)]
pub struct Stage {
    players: BTreeMap<char, Player>,
    /// What was shown so far.
    addresses: Vec<u64>,
    /// The last step was a call that failed.
    refused: bool,
    /// Nothing is printed.
    quiet: bool,
}

impl Stage {
    /// One that prints nothing.
    pub fn quiet() -> Self {
        let mut stage = Self::default();
        stage.quiet = true;
        stage
    }

    fn print(&self, text: &str) {
        if !self.quiet {
            println!("{text}");
        }
    }

    /// One line of the case. Returns whether the case goes on.
    pub fn line(&mut self, line: &str) -> Result<bool> {
        match line.split_once(' ').context("a line has two words")? {
            ("sleep", milliseconds) => {
                std::thread::sleep(Duration::from_millis(milliseconds.parse()?));
                return Ok(true);
            }
            ("ends", "refused") if !self.refused => return Ok(true),
            ("ends", "refused") => {
                self.print("the GPU cannot do that");
                return Ok(false);
            }
            ("kill", who) => self.known(who)?.kill()?,
            ("end", who) => self.known(who)?.end()?,
            (who, step) => {
                self.step(line, who, step)?;
                return Ok(true);
            }
        }
        self.print(line);
        Ok(true)
    }

    fn step(&mut self, line: &str, who: &str, step: &str) -> Result<()> {
        let mut letters = who.chars();
        let (name, how) = (letters.next(), letters.next());
        let name = name.context("a line has a process")?;
        if let Entry::Vacant(new) = self.players.entry(name) {
            new.insert(Player::start(name)?);
        }
        let words: Vec<String> = step
            .split(' ')
            .map(|word| self.resolve(word))
            .collect::<Result<_>>()?;
        let player = self.players.get_mut(&name).context("it was started")?;
        if how != Some('?') {
            player.say(&words.join(" "))?;
        }
        let limit = if how == Some('~') { WAITS } else { PATIENCE };
        let said = match player.hear(limit)? {
            Some(said) => self.label(&said),
            None if how == Some('~') => "waits".into(),
            None => bail!("no answer in {} s", PATIENCE.as_secs()),
        };
        self.refused = !said.starts_with('0');
        self.print(&format!("{line}: {said}"));
        Ok(())
    }

    fn known(&mut self, who: &str) -> Result<&mut Player> {
        let name = who.chars().next().context("a process")?;
        self.players.get_mut(&name).context("it does not play")
    }

    /// `@t` and `@t/1` as ids, `@A1` as an address that was shown; also behind "=".
    fn resolve(&self, word: &str) -> Result<String> {
        if let Some((name, value)) = word.split_once('=') {
            return Ok(format!("{name}={}", self.resolve(value)?));
        }
        let Some(named) = word.strip_prefix('@') else {
            return Ok(word.to_owned());
        };
        if let Some(number) = named.strip_prefix('A') {
            let at = number.parse::<usize>()?.checked_sub(1);
            let address = at.and_then(|at| self.addresses.get(at));
            return Ok(format!("{:#x}", address.context("no such address")?));
        }
        let (name, thread) = named.split_once('/').unwrap_or((named, "0"));
        let name = name.chars().next().context("@ and a process")?;
        let player = self.players.get(&name).context("it does not play")?;
        let mut threads: Vec<u32> = std::fs::read_dir(format!("/proc/{}/task", player.id))?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        threads.sort_unstable();
        let thread: usize = thread.parse()?;
        Ok(threads.get(thread).context("no such thread")?.to_string())
    }

    /// The text with names instead of addresses.
    fn label(&mut self, said: &str) -> String {
        let words = said.split(' ').map(|word| {
            let bare = word.trim_end_matches([',', ';']);
            let number = bare.strip_prefix("0x");
            match number.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
                Some(address) if address >= ADDRESSES => {
                    let known = self.addresses.iter().position(|other| *other == address);
                    let at = known.unwrap_or_else(|| {
                        self.addresses.push(address);
                        self.addresses.len() - 1
                    });
                    word.replace(bare, &format!("A{}", at + 1))
                }
                _ => word.to_owned(),
            }
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

/// One process of a case.
struct Player {
    child: Child,
    id: u32,
    say: Option<ChildStdin>,
    hear: ChildStdout,
    heard: Vec<u8>,
}

impl Player {
    fn start(name: char) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["debug", "--player"]);
        if name >= STRANGERS {
            command.uid(STRANGER).gid(STRANGER);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Self {
            id: child.id(),
            say: child.stdin.take(),
            hear: child.stdout.take().context("it has an output")?,
            heard: Vec::new(),
            child,
        })
    }

    fn say(&mut self, step: &str) -> Result<()> {
        let say = self.say.as_mut().context("it was told to end")?;
        Ok(writeln!(say, "{step}")?)
    }

    /// Its next line, if it comes in time.
    fn hear(&mut self, limit: Duration) -> Result<Option<String>> {
        let begin = Instant::now();
        loop {
            if let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.heard.drain(..=end).collect();
                return Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()));
            }
            let Some(left) = limit.checked_sub(begin.elapsed()) else {
                return Ok(None);
            };
            let mut wanted = [PollFd::new(&self.hear, PollFlags::IN)];
            poll(&mut wanted, Some(&Timespec::try_from(left)?))?;
            if wanted[0].revents().is_empty() {
                continue;
            }
            let mut bytes = [0; 4096];
            let count = rustix::io::read(&self.hear, &mut bytes)?;
            ensure!(count > 0, "it has ended");
            self.heard.extend_from_slice(&bytes[..count]);
        }
    }

    /// Kills it, and waits until it is dead: its tracer may have to be told before this process is.
    fn kill(&mut self) -> Result<()> {
        let pid = Pid::from_raw(self.id as i32).context("an id is not 0")?;
        kill_process(pid, Signal::KILL)?;
        self.until_dead()
    }

    fn end(&mut self) -> Result<()> {
        drop(self.say.take());
        self.until_dead()
    }

    fn until_dead(&mut self) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id));
            // The state stands behind the name, which is in parentheses.
            let state = stat.ok().and_then(|stat| {
                let (_, rest) = stat.rsplit_once(") ")?;
                rest.chars().next()
            });
            if matches!(state, None | Some('Z' | 'X')) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("process {} does not end", self.id)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for player in self.players.values_mut() {
            let _ = player.child.kill();
        }
        // A debugger's death lets go what it traced.
        for player in self.players.values_mut() {
            let _ = player.child.wait();
        }
    }
}
