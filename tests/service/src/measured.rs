//! How long requests took, by the service's own clock.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};

/// Durations by route.
#[derive(Default)]
pub struct Measured(Mutex<BTreeMap<String, Vec<u64>>>);

impl Measured {
    /// A request of this route was answered.
    pub fn took(&self, route: &str, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut all = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match all.get_mut(route) {
            Some(times) => times.push(nanos),
            None => _ = all.insert(route.to_owned(), vec![nanos]),
        }
    }

    /// `{"GET /route": {count, totalNanos, p50Nanos, p99Nanos}}`.
    pub fn to_json(&self) -> Value {
        let mut all = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let of = |times: &mut Vec<u64>| {
            times.sort_unstable();
            let quantile = |of_100: usize| times.get((times.len() * of_100).div_ceil(100).saturating_sub(1));
            json!({
                "count": times.len(), "totalNanos": times.iter().sum::<u64>(), "p50Nanos": quantile(50), "p99Nanos": quantile(99),
            })
        };
        all.iter_mut()
            .map(|(route, times)| (format!("GET {route}"), of(times)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }
}
