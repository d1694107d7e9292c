//! A fixed amount of ordinary Rust: maps of strings, sorting, iterators, trait objects, two threads.
//! usage: rust_fixed ROUNDS
use std::collections::{BTreeMap, HashMap};

trait Work: Send {
    fn round(&mut self, n: u64) -> u64;
}

struct Words(HashMap<String, u64>);
struct Sorted(Vec<u64>);
struct Tree(BTreeMap<u64, Vec<u8>>);

fn scramble(mut x: u64) -> u64 {
    x ^= x << 13;
    x ^= x >> 7;
    x ^ (x << 17)
}

impl Work for Words {
    #[inline(never)]
    fn round(&mut self, n: u64) -> u64 {
        for i in 0..4000 {
            *self.0.entry(format!("word-{}", scramble(n + i) % 9000)).or_default() += i;
        }
        self.0.values().fold(0, |a, b| a ^ b)
    }
}

impl Work for Sorted {
    #[inline(never)]
    fn round(&mut self, n: u64) -> u64 {
        self.0.clear();
        self.0.extend((1..6000).map(|i| scramble(n * 6007 + i)));
        self.0.sort_by_key(|x| x.rotate_left(7));
        self.0[self.0.len() / 3]
    }
}

impl Work for Tree {
    #[inline(never)]
    fn round(&mut self, n: u64) -> u64 {
        for i in 1..2500 {
            let key = scramble(n * 2503 + i) % 20_000;
            self.0.entry(key).or_default().push(i as u8);
            if i % 3 == 0 {
                self.0.remove(&(key / 2));
            }
        }
        self.0.values().map(|v| v.len() as u64).sum()
    }
}

fn drive(works: &mut [Box<dyn Work>], rounds: u64) -> u64 {
    (1..=rounds).fold(0, |sum, n| works.iter_mut().fold(sum, |s, w| s ^ w.round(n)))
}

pub fn main() {
    let rounds = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(200);
    let threads: Vec<_> = (0..2)
        .map(|_| {
            std::thread::spawn(move || {
                let mut works: Vec<Box<dyn Work>> = vec![
                    Box::new(Words(HashMap::new())),
                    Box::new(Sorted(Vec::new())),
                    Box::new(Tree(BTreeMap::new())),
                ];
                drive(&mut works, rounds)
            })
        })
        .collect();
    println!("{:x}", threads.into_iter().map(|t| t.join().unwrap()).fold(0, |a, b| a ^ b));
}
