//! The work of requests.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Mutex;

/// Pseudo-random numbers from a seed.
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

/// Rows of a report, one allocation each.
#[inline(never)]
pub fn rows(count: u64) -> Vec<String> {
    let mut seed = count;
    let mut rows: Vec<String> = (0..count).map(|i| format!("{:010};{i}", random(&mut seed))).collect();
    rows.sort_unstable();
    black_box(rows)
}

/// A checksum of all rows, as slow as rendering them would be.
#[inline(never)]
pub fn render(rows: &[String]) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    for _ in 0..8 {
        for byte in rows.iter().flat_map(|row| row.bytes()) {
            sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    black_box(sum)
}

/// Reads the simulated response of another service.
#[inline(never)]
pub fn parse(seed: u64) -> u64 {
    let (mut state, mut sum) = (seed, 0);
    for _ in 0..200_000 {
        sum ^= random(&mut state);
    }
    black_box(sum)
}

/// The state that all requests change.
#[derive(Default)]
pub struct Cart(Mutex<BTreeMap<u64, u64>>);

impl Cart {
    /// Holds the lock for all of its work, which is the planted defect.
    #[inline(never)]
    pub fn update(&self) -> usize {
        let mut items = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut seed = items.len() as u64 + 1;
        for _ in 0..12_000 {
            *items.entry(random(&mut seed) % 5_000).or_default() += 1;
        }
        items.len()
    }
}
