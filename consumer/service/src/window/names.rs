//! File names, by which a window recognizes its own files.

use std::io;

/// Latest time in a file name: the end of the year 9999, UTC ms.
pub(super) const LATEST: i64 = 253_402_300_799_999;

/// `<from ms>-<to ms>-<random>.jfr`.
pub fn chunk_name(from: i64, to: i64, random: u64) -> String {
    format!("{from}-{to}-{random:016x}.jfr")
}

/// Name of an incomplete file.
pub(super) fn part_name(random: u64) -> String {
    format!("{random:016x}.tmp")
}

/// Parses a chunk's name into from, to and the random number.
pub fn chunk(name: &str) -> Option<(i64, i64, u64)> {
    let mut parts = name.strip_suffix(".jfr")?.split('-');
    let (from, to, random) = (parts.next()?, parts.next()?, parts.next()?);
    let (from, to) = (moment(from)?, moment(to)?);
    let number = u64::from_str_radix(random, 16).ok()?;
    (parts.next().is_none() && is_random(random) && from <= to).then_some((from, to, number))
}

/// Returns true if this is the name of an incomplete file.
pub(super) fn is_part(name: &str) -> bool {
    name.strip_suffix(".tmp").is_some_and(is_random)
}

fn moment(text: &str) -> Option<i64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|moment| plain && (0..=LATEST).contains(moment))
}

fn is_random(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns an unpredictable number.
pub(super) fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_generated_file_names_are_recognized() {
        let name = chunk_name(0, LATEST, 7);
        assert_eq!(name, "0-253402300799999-0000000000000007.jfr");
        assert_eq!(chunk(&name), Some((0, LATEST, 7)));
        assert_eq!(chunk(&chunk_name(5, 5, u64::MAX)), Some((5, 5, u64::MAX)));
        assert!(is_part(&part_name(random().unwrap())));
        for other in [
            "",
            ".jfr",
            "1-2-3.jfr",
            "2-1-0000000000000007.jfr",
            "01-2-0000000000000007.jfr",
            "+1-2-0000000000000007.jfr",
            "1-2-000000000000000g.jfr",
            "1-2-000000000000000A.jfr",
            "1-2-0000000000000007.jfr.tmp",
            "1-2-3-0000000000000007.jfr",
            "-1-2-0000000000000007.jfr",
            "1-253402300800000-0000000000000007.jfr",
            "1-99999999999999999999-0000000000000007.jfr",
            "../1-2-0000000000000007.jfr",
            "1-2-0000000000000007.jfr\n",
        ] {
            assert_eq!(chunk(other), None, "{other}");
            assert!(!is_part(other), "{other}");
        }
        assert!(!is_part("notes.tmp") && !is_part("0000000000000007.tmp~"));
    }
}
