//! Compares instruction lengths with objdump's, over the C library's own code: every addressing mode, vector
//! instructions of all generations.

#![cfg(target_arch = "x86_64")]

use std::process::Command;

use flightline_in_signal::unwind::x86::{Code, decode};

struct Bytes(u64, Vec<u8>);

impl Code for Bytes {
    fn byte(&mut self, at: u64) -> Option<u8> {
        self.1.get(at.checked_sub(self.0)? as usize).copied()
    }
}

/// Paths of the C library of this process.
fn libraries() -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths: Vec<String> = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .filter(|path| path.contains(".so"))
        .map(str::to_owned)
        .collect();
    paths.dedup();
    paths
}

#[test]
fn instruction_lengths_match_objdump() {
    let paths = libraries();
    assert!(!paths.is_empty());
    let (mut right, mut wrong) = (0u32, Vec::new());
    for path in paths {
        let output = Command::new("objdump").args(["-d", "-w", "-j", ".text", &path]).output();
        let output = output.unwrap_or_else(|e| panic!("objdump (binutils) is needed: {e}"));
        // 26425:	e8 16 fa ff ff       	call   25e40 <…>
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let mut fields = line.split('\t');
            let Some(at) =
                fields.next().and_then(|at| u64::from_str_radix(at.trim().strip_suffix(':')?, 16).ok())
            else {
                continue;
            };
            let (Some(bytes), Some(text)) = (fields.next(), fields.next()) else { continue };
            let bytes: Vec<u8> =
                bytes.split_whitespace().filter_map(|b| u8::from_str_radix(b, 16).ok()).collect();
            if text.contains("(bad)") || bytes.is_empty() {
                continue;
            }
            let length = bytes.len() as u64;
            // One byte more than the instruction has, to detect reading too far.
            let found = decode(&mut Bytes(at, bytes), at).map(|i| i.next.wrapping_sub(at));
            if found == Some(length) {
                right += 1;
            } else {
                wrong.push(format!("{path} {line}: {found:?}"));
            }
        }
    }
    assert!(right > 100_000, "{right} instructions only");
    assert!(wrong.is_empty(), "{} of {right}: {:#?}", wrong.len(), &wrong[..wrong.len().min(20)]);
}
