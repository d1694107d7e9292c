//! Events of the PMUs that the kernel describes in `/sys/bus/event_source/devices`.

use std::{fs, path::PathBuf};

use super::{Meaning, names};

fn file(unit: &str, name: &str) -> PathBuf {
    PathBuf::from("/sys/bus/event_source/devices").join(unit).join(name)
}

fn read(unit: &str, name: &str) -> Option<String> {
    fs::read_to_string(file(unit, name)).ok().map(|text| text.trim().to_owned())
}

/// Returns the type number of a PMU.
pub fn kind(unit: &str) -> Option<u32> {
    read(unit, "type")?.parse().ok()
}

/// Returns `value` shifted to the position of `term` in `config`; `None` if there is no such term or it is in
/// another word.
pub fn field(unit: &str, term: &str, value: u64) -> Option<u64> {
    match place(&read(unit, &format!("format/{term}"))?, value)? {
        (0, bits) => Some(bits),
        _ => None,
    }
}

/// Parses a format such as `config1:0-7,21`. Returns the index of the word, and the value distributed over
/// these bits.
fn place(format: &str, value: u64) -> Option<(usize, u64)> {
    let (word, ranges) = format.split_once(':')?;
    let word = ["config", "config1", "config2"].iter().position(|name| *name == word)?;
    let (mut bits, mut rest) = (0u64, value);
    for range in ranges.split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
        let width = high.checked_sub(low)?.checked_add(1).filter(|_| high < 64)?;
        let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
        bits |= (rest & mask) << low;
        rest = rest.checked_shr(width).unwrap_or(0);
    }
    (rest == 0).then_some((word, bits))
}

/// Parses `unit/term=value,term,event/`.
pub fn find(name: &str) -> Result<Meaning, String> {
    let (unit, terms) = name.split_once('/').unwrap_or((name, ""));
    let terms = terms.strip_suffix('/').ok_or("write unit/term=value,…/ with a slash at the end")?;
    let plain = !unit.is_empty() && unit.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let kind = kind(unit).filter(|_| plain).ok_or_else(|| {
        format!("unit {unit:?} does not exist; `ls /sys/bus/event_source/devices` lists the units")
    })?;
    let mut config = [0u64; 3];
    let event = read_event(unit, terms);
    for term in event.as_deref().unwrap_or(terms).split(',').filter(|term| !term.is_empty()) {
        add(unit, term, &mut config)?;
    }
    let mut meaning = Meaning::new(kind, config[0], names::HARDWARE_PERIOD);
    meaning.spec.config1 = config[1];
    meaning.spec.config2 = config[2];
    Ok(meaning)
}

/// Returns the definition of a named event of the PMU, if a single word is one.
fn read_event(unit: &str, terms: &str) -> Option<String> {
    let plain = terms.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    if plain && terms.bytes().any(|b| b != b'.') { read(unit, &format!("events/{terms}")) } else { None }
}

fn add(unit: &str, term: &str, config: &mut [u64; 3]) -> Result<(), String> {
    let (name, value) = term.split_once('=').unwrap_or((term, "1"));
    let value = match value.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => value.parse().ok(),
    };
    let value = value.ok_or_else(|| format!("{term:?}: not a number"))?;
    if let Some(word) = ["config", "config1", "config2"].iter().position(|word| *word == name) {
        config[word] |= value;
        return Ok(());
    }
    let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let format = if plain { read(unit, &format!("format/{name}")) } else { None };
    let format = format.ok_or_else(|| {
        format!("{unit} has no term {name:?}; `ls {}` lists the terms", file(unit, "format").display())
    })?;
    let (word, bits) = place(&format, value).ok_or_else(|| format!("{term:?} does not fit into {format}"))?;
    config[word] |= bits;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pmu_values_are_placed_by_format() {
        assert_eq!(place("config:0-7", 0x3c), Some((0, 0x3c)));
        assert_eq!(place("config:0-7,32-35", 0xabc), Some((0, 0xa_0000_00bc)));
        assert_eq!(place("config1:21", 1), Some((1, 1 << 21)));
        assert_eq!(place("config2:0-63", u64::MAX), Some((2, u64::MAX)));
        for bad in ["config:0-7", "config:9-2", "config:0-64", "other:0", "config"] {
            assert_eq!(place(bad, 0x100), None, "{bad}");
        }
    }

    #[test]
    fn pmu_names_cannot_escape_their_folder() {
        assert!(find("../../../etc/x=1/").is_err() && find("/x/").is_err() && find("software/x").is_err());
        assert!(find("software/../type=1/").is_err());
        assert_eq!(find("software/config=2/").map(|m| (m.spec.kind, m.spec.config)).ok(), Some((1, 2)));
    }
}
