//! Ids and secrets.

use std::fmt::Write;

use subtle::ConstantTimeEq;

/// Returns random bytes from the kernel. A service that started successfully does not see this fail.
fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Creates the id of a run or group from UTC ms and a random number, so that file names neither collide nor
/// can be guessed.
///
/// # Errors
/// Returns an error if the kernel has no random numbers.
pub fn new_run(utc: i64) -> std::io::Result<String> {
    Ok(format!("{:013}-{}", utc.max(0), hex(&random::<8>()?)))
}

/// Returns true if `text` has the form of a run's id.
pub fn is_run(text: &str) -> bool {
    text.split_once('-').is_some_and(|(time, random)| {
        (13..=19).contains(&time.len())
            && time.bytes().all(|byte| byte.is_ascii_digit())
            && random.len() == 16
            && random.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Creates a secret shared by an agent and the service.
///
/// # Errors
/// Returns an error if the kernel has no random numbers.
pub fn secret() -> std::io::Result<String> {
    Ok(hex(&random::<16>()?))
}

/// Creates the id of a target: its name for people, its PID, and a hash of its key (FNV-1a), so that an agent
/// that rejoins after a restart of the service finds its history.
pub fn target(name: &str, pid: u32, key: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
    let name: String = name.chars().map(plain).take(40).collect();
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{name}-{pid}-{:08x}", (hash >> 32) ^ (hash & 0xffff_ffff))
}

/// Compares two secrets; the time does not depend on their contents.
pub fn same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_started_at_same_time_have_different_ids() {
        let ids: std::collections::HashSet<String> =
            (0..1000).map(|_| new_run(1_700_000_000_000).unwrap()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| is_run(id)));
    }

    #[test]
    fn malformed_run_ids_are_rejected() {
        for text in [
            "",
            "..",
            "1700000000000-",
            "1700000000000-0123456789abcdeF",
            "1700000000000-0123456789abcdef.jfr",
        ] {
            assert!(!is_run(text), "{text}");
        }
    }

    #[test]
    fn target_id_is_stable_across_restarts() {
        assert_eq!(
            target("nginx: worker", 7, "host/boot/7/99"),
            target("nginx: worker", 7, "host/boot/7/99")
        );
        assert_ne!(target("nginx", 7, "host/boot/7/99"), target("nginx", 7, "host/boot/7/98"));
        assert!(target("../../etc", 7, "k").starts_with("______etc-7-"));
    }
}
