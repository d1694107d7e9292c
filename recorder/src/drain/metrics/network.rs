//! Traffic of network interfaces, read once per network namespace, regardless of the number of processes in
//! it.

use std::{collections::HashMap, fs, os::unix::fs::MetadataExt};

use crate::os::system;

/// Limit of remembered interfaces.
const MANY_INTERFACES: usize = 4096;

/// Bits per second received and sent, by interface.
type Rates = Vec<(String, i64, i64)>;

/// The values of the last reading and of this round.
#[derive(Default)]
pub(super) struct Network {
    /// Bytes received and sent, by namespace and interface.
    old: HashMap<(u64, String), (u64, u64)>,
    round: HashMap<u64, Rates>,
    per_second: Option<f64>,
}

impl Network {
    /// Starts a round. `per_second`: rounds per second, `None` in the first one.
    pub fn begin(&mut self, per_second: Option<f64>) {
        self.round.clear();
        self.per_second = per_second;
        // Drops interfaces of removed containers. The others start over with the next reading.
        if self.old.len() > MANY_INTERFACES {
            self.old.clear();
        }
    }

    /// Returns the interfaces that a process sees and that had traffic. Like the JDK, omits those without.
    pub fn interfaces(&mut self, pid: u32) -> &[(String, i64, i64)] {
        let namespace = fs::metadata(format!("/proc/{pid}/ns/net")).map_or(0, |meta| meta.ino());
        let Network { old, round, per_second } = self;
        round.entry(namespace).or_insert_with(|| {
            let text = fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default();
            rates(old, namespace, &text, *per_second)
        })
    }
}

fn rates(
    old: &mut HashMap<(u64, String), (u64, u64)>,
    namespace: u64,
    text: &str,
    per_second: Option<f64>,
) -> Rates {
    let mut rates = Vec::new();
    for (name, received, sent) in system::interfaces(text) {
        let before = old.insert((namespace, name.to_owned()), (received, sent));
        let (Some((old_received, old_sent)), Some(per_second)) = (before, per_second) else { continue };
        let rate = |now: u64, old: u64| (now.saturating_sub(old) as f64 * 8.0 * per_second) as i64;
        let (read, written) = (rate(received, old_received), rate(sent, old_sent));
        if read > 0 || written > 0 {
            rates.push((name.to_owned(), read, written));
        }
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_network_namespace_has_its_own_interfaces() {
        let text = |received: u64, sent: u64| {
            format!(
                "Inter-|\n face |\n  eth0: {received} 1 0 0 0 0 0 0 {sent} 1 0 0 0 0 0 0\n    lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n"
            )
        };
        let mut old = HashMap::new();
        assert_eq!(rates(&mut old, 1, &text(100, 200), None), []);
        assert_eq!(rates(&mut old, 2, &text(9, 9), Some(2.0)), [], "seen for the first time");
        assert_eq!(rates(&mut old, 1, &text(101, 210), Some(2.0)), [("eth0".to_owned(), 16, 160)]);
        assert_eq!(rates(&mut old, 2, &text(9, 10), Some(1.0)), [("eth0".to_owned(), 0, 8)]);
        let mut network = Network::default();
        network.begin(None);
        let own = std::process::id();
        assert_eq!(network.interfaces(own).len(), 0);
        assert_eq!((network.round.len(), network.interfaces(own).len()), (1, 0), "read once");
    }
}
