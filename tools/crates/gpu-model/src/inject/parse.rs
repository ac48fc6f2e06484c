// SPDX-License-Identifier: GPL-2.0-only OR MIT
//! The language of fault-injection scripts: a rule a line, `VERB key=value... word...`, `#` begins
//! a comment. Whatever is not understood is an error that names its line.

use std::collections::BTreeMap;
use std::time::Duration;

use super::rule::*;
use crate::gmc::Access;

/// Why a script is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct ScriptError {
    pub line: usize,
    pub why: String,
}

/// Finds a register's dword address by name, as `MP1.MP1_SMN_C2PMSG_90`.
pub type FindRegister<'a> = &'a dyn Fn(&str) -> Option<u64>;

/// All rules of a script, with their line numbers.
pub fn script(text: &str, find: FindRegister<'_>) -> Result<Vec<(usize, Rule)>, ScriptError> {
    let mut rules = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or_default();
        if !text.trim().is_empty() {
            let rule = rule(text, find).map_err(|why| ScriptError { line, why })?;
            rules.push((line, rule));
        }
    }
    Ok(rules)
}

/// What a line says, taken word by word; what is left over at the end is an error.
struct Words<'a> {
    values: BTreeMap<&'a str, &'a str>,
    flags: Vec<&'a str>,
}

type Answer<T> = Result<T, String>;

impl<'a> Words<'a> {
    fn new(text: impl Iterator<Item = &'a str>) -> Answer<Self> {
        let (mut values, mut flags) = (BTreeMap::new(), Vec::new());
        for word in text {
            match word.split_once('=') {
                Some((key, value)) => {
                    if values.insert(key, value).is_some() {
                        return Err(format!("{key} is given twice"));
                    }
                }
                None => flags.push(word),
            }
        }
        Ok(Self { values, flags })
    }

    fn flag(&mut self, name: &str) -> bool {
        let before = self.flags.len();
        self.flags.retain(|word| *word != name);
        self.flags.len() != before
    }

    fn text(&mut self, key: &str) -> Option<&'a str> {
        self.values.remove(key)
    }

    fn number<T: TryFrom<u64>>(&mut self, key: &str) -> Answer<Option<T>> {
        let convert = |text| {
            number(text)
                .and_then(|it| T::try_from(it).ok())
                .ok_or_else(|| format!("{key}={text}: not a number, or too large"))
        };
        self.text(key).map(convert).transpose()
    }

    fn needed<T: TryFrom<u64>>(&mut self, key: &str) -> Answer<T> {
        self.number(key)?
            .ok_or_else(|| format!("{key}= is missing"))
    }

    fn duration(&mut self, key: &str) -> Answer<Option<Duration>> {
        let convert =
            |text| duration(text).ok_or_else(|| format!("{key}={text}: want as 20ms, 3s or 500us"));
        self.text(key).map(convert).transpose()
    }

    fn one_of<T: Copy>(&mut self, key: &str, names: &[(&str, T)]) -> Answer<Option<T>> {
        let Some(text) = self.text(key) else {
            return Ok(None);
        };
        match names.iter().find(|(name, _)| *name == text) {
            Some((_, value)) => Ok(Some(*value)),
            None => {
                let names: Vec<_> = names.iter().map(|(name, _)| *name).collect();
                Err(format!("{key}={text}: want one of {}", names.join(", ")))
            }
        }
    }

    fn finish(self) -> Answer<()> {
        let words = self.values.keys().chain(&self.flags);
        let left: Vec<&str> = words.copied().collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("not understood here: {}", left.join(" ")))
        }
    }
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn duration(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(end);
    let number = number.parse().ok()?;
    match unit {
        "us" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        // A delay over a day is of no use; the sum with the present must not overflow.
        "s" if number <= 86_400 => Some(Duration::from_secs(number)),
        _ => None,
    }
    .filter(|it| *it <= Duration::from_secs(86_400))
}

fn rule(text: &str, find: FindRegister<'_>) -> Answer<Rule> {
    let mut words = text.split_whitespace();
    let verb = words.next().unwrap_or_default();
    let mut words = Words::new(words)?;
    let what = match verb {
        "smu" => smu(&mut words)?,
        "irq" => irq(&mut words)?,
        "fence" => fence(&mut words)?,
        "hang" => hang(&mut words)?,
        "fault" => fault(&mut words)?,
        "raise" => raise(&mut words)?,
        "register" => register(&mut words, find)?,
        "lost" => What::Lost,
        _ => {
            return Err(format!(
                "{verb}: want one of smu, irq, fence, hang, fault, raise, register, lost"
            ))
        }
    };
    let flag = words.number("flag")?;
    if flag.is_some_and(|flag: u8| flag > 31) {
        return Err("flag= counts from 0 to 31".into());
    }
    if flag.is_none() && matches!(what, What::Raise(_)) {
        return Err("raise happens when a flag rises: flag= is missing".into());
    }
    let when = When {
        flag,
        skip: words.number("skip")?.unwrap_or(0),
        times: words.number("times")?,
        lasts: words.duration("for")?,
    };
    words.finish()?;
    Ok(Rule { what, when })
}

/// The one fate of several possible ones that a line names.
fn fate<T, const N: usize>(fates: [Option<T>; N], names: &str) -> Answer<T> {
    let mut given = fates.into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(fate), None) => Ok(fate),
        _ => Err(format!("want exactly one of {names}")),
    }
}

fn smu(words: &mut Words<'_>) -> Answer<What> {
    let message = words.number("message")?;
    let fates = [
        words.duration("delay")?.map(SmuFate::Delay),
        words.flag("silent").then_some(SmuFate::Silent),
        words.number("fail")?.map(SmuFate::Fail),
    ];
    let fate = fate(fates, "delay=, silent, fail=")?;
    Ok(What::Smu { message, fate })
}

fn irq(words: &mut Words<'_>) -> Answer<What> {
    let (client, source) = (words.number("client")?, words.number("source")?);
    let fates = [
        words.flag("drop").then_some(IrqFate::Drop),
        words.number("repeat")?.map(IrqFate::Repeat),
        words.duration("delay")?.map(IrqFate::Delay),
    ];
    let fate = fate(fates, "drop, repeat=, delay=")?;
    Ok(What::Irq {
        client,
        source,
        fate,
    })
}

fn fence(words: &mut Words<'_>) -> Answer<What> {
    let of = words.one_of("of", &FenceKind::NAMES)?;
    let fates = [
        words.flag("withhold").then_some(FenceFate::Withhold),
        words.number("corrupt")?.map(FenceFate::Corrupt),
        words.duration("delay")?.map(FenceFate::Delay),
    ];
    let fate = fate(fates, "withhold, corrupt=, delay=")?;
    if of == Some(FenceKind::Signal) && fate != FenceFate::Withhold {
        return Err("a completion signal is counted down, not written: withhold only".into());
    }
    Ok(What::Fence { of, fate })
}

fn hang(words: &mut Words<'_>) -> Answer<What> {
    let kind = words.one_of("queue", &QueueKind::NAMES)?;
    let confirmed = words.flag("confirmed");
    let passes = words.flag("passes");
    if passes && kind != Some(QueueKind::Sdma) {
        return Err("passes: only of queue=sdma".into());
    }
    let flags = ["preempts", "reported", "resists"].map(|name| words.flag(name));
    let compute = matches!(kind, Some(QueueKind::Aql | QueueKind::Pm4));
    let on_unmap = match flags {
        _ if passes && (confirmed || flags != [false; 3]) => {
            return Err("passes excludes what becomes of an order to unmap".into())
        }
        _ if confirmed && kind != Some(QueueKind::Sdma) => {
            return Err("confirmed: only of queue=sdma".into())
        }
        [false, false, false] if confirmed => OnUnmap::Confirmed,
        _ if confirmed => return Err("confirmed excludes preempts, reported and resists".into()),
        [false, false, false] => OnUnmap::Waits,
        [true, false, false] => OnUnmap::Works,
        [true, ..] => return Err("preempts excludes reported and resists".into()),
        [_, true, _] if !compute => return Err("reported: only of queue=aql or queue=pm4".into()),
        [_, true, false] => OnUnmap::Reported,
        [_, true, true] => OnUnmap::ReportedForGood,
        [_, false, true] => return Err("resists: only with reported".into()),
    };
    Ok(What::Hang(Hang {
        kind,
        doorbell: words.number("doorbell")?,
        pasid: words.number("pasid")?,
        user: words.flag("user"),
        passes,
        on_unmap,
    }))
}

fn fault(words: &mut Words<'_>) -> Answer<What> {
    let va = words
        .text("va")
        .ok_or("va= is missing: FIRST-LAST, FIRST or arg")?;
    let length = words.number("length")?;
    let bad = || format!("va={va}: want FIRST-LAST, FIRST or arg");
    let (first, length) = match (va.split_once('-'), length) {
        (Some((first, last)), None) => {
            let first = number(first).ok_or_else(bad)?;
            let last = number(last).filter(|last| *last >= first).ok_or_else(bad)?;
            (First::At(first), (last - first).saturating_add(1))
        }
        (Some(_), Some(_)) => return Err("length= goes with va=FIRST or va=arg".into()),
        (None, length) if va == "arg" => (First::Argument, length.unwrap_or(0x1000)),
        (None, length) => (
            First::At(number(va).ok_or_else(bad)?),
            length.unwrap_or(0x1000),
        ),
    };
    let accesses = [
        ("read", Access::Read),
        ("write", Access::Write),
        ("execute", Access::Fetch),
    ];
    Ok(What::Fault(FaultRange {
        first,
        length,
        vmid: words.number("vmid")?,
        pasid: words.number("pasid")?,
        access: words.one_of("access", &accesses)?,
    }))
}

fn raise(words: &mut Words<'_>) -> Answer<What> {
    let mut data = [0; 4];
    for (at, text) in words
        .text("data")
        .into_iter()
        .flat_map(|it| it.split(','))
        .enumerate()
    {
        let value = number(text).and_then(|it| u32::try_from(it).ok());
        *data.get_mut(at).ok_or("data= has four values at most")? =
            value.ok_or_else(|| format!("data: {text} is not a number of 32 bits"))?;
    }
    Ok(What::Raise(Raise {
        client: words.needed("client")?,
        source: words.needed("source")?,
        ring: words.number("ring")?.unwrap_or(0),
        vmid: words.number("vmid")?.unwrap_or(0),
        node: words.number("node")?.unwrap_or(0),
        pasid: words.number("pasid")?,
        data,
        count: words.number("count")?.unwrap_or(1),
    }))
}

fn register(words: &mut Words<'_>, find: FindRegister<'_>) -> Answer<What> {
    let name = words.text("name").ok_or("name= is missing")?;
    let dword = number(name)
        .or_else(|| find(name))
        .ok_or_else(|| format!("{name}: no block has such a register"))?;
    let value = words.needed("value")?;
    Ok(What::Register { dword, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<Rule, String> {
        let rules = script(text, &|name| (name == "MP1.X").then_some(7));
        rules
            .map(|it| it[0].1.clone())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_verb_parses() {
        let rule = one("smu message=0x3 delay=1500ms flag=4 skip=1 times=2 for=3s").unwrap();
        let fate = SmuFate::Delay(Duration::from_millis(1500));
        assert_eq!(
            rule.what,
            What::Smu {
                message: Some(3),
                fate
            }
        );
        let when = When {
            flag: Some(4),
            skip: 1,
            times: Some(2),
            lasts: Some(Duration::from_secs(3)),
        };
        assert_eq!(rule.when, when);
        for text in [
            "irq client=0x14 source=181 drop",
            "irq repeat=3",
            "fence of=query-status corrupt=0xff",
            "fence of=signal withhold",
            "hang queue=aql pasid=0x8001 preempts # why not",
            "hang queue=pm4 reported",
            "hang queue=aql reported resists",
            "hang queue=sdma user",
            "hang queue=sdma user confirmed",
            "hang",
            "fault va=0x1000-0x1fff access=write pasid=1",
            "fault va=arg length=0x2000",
            "raise client=0x1b source=0 data=1,2 count=100 flag=0",
            "register name=MP1.X value=0",
            "register name=0x16282 value=1",
            "lost flag=31",
        ] {
            one(text).unwrap();
        }
    }

    #[test]
    fn what_is_not_understood_names_its_line() {
        let why = |text| script(text, &|_| None).unwrap_err();
        assert_eq!(why("lost\n\n# fine\nloose").line, 4);
        for text in [
            "smu",
            "smu silent fail=1",
            "smu delay=3",
            "smu delay=99999999999s",
            "smu silent silly",
            "smu silent flag=32",
            "irq drop client=256",
            "irq drop drip=1",
            "irq drop times=1 times=2",
            "fence of=what withhold",
            "fence of=signal delay=1s",
            "hang queue=gfx",
            "hang confirmed",
            "hang queue=aql confirmed",
            "hang queue=sdma confirmed preempts",
            "fault",
            "fault va=0x2000-0x1000",
            "fault va=arg-arg",
            "raise client=1 source=2",
            "raise client=1 source=2 flag=0 data=1,2,3,4,5",
            "register name=NOBODY value=1",
            "register name=0x1",
        ] {
            assert_eq!(why(text).line, 1, "{text}");
        }
    }
}
