//! Disassembles functions with objdump.

use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use flightline_consumer::fold::{Annotated, Weights};
use flightline_recorder::Symbolizer;

use crate::diagnostics::plain;

/// Longest function that is disassembled, in bytes.
const MOST_CODE: u64 = 1 << 20;
/// Maximum bytes of objdump's output.
const MOST_OUTPUT: u64 = 256 << 20;

/// The instructions of a function.
pub(super) struct Machine {
    /// The disassembled file.
    pub(super) file: PathBuf,
    pub(super) instructions: Vec<Instruction>,
    /// Weight of addresses outside the instructions, for example in clones of the function.
    pub(super) elsewhere: u64,
}

/// An instruction with the weight of its samples.
pub(super) struct Instruction {
    /// Address in the file.
    pub(super) address: u64,
    pub(super) text: String,
    /// Source line; 0 if unknown.
    pub(super) line: u32,
    pub(super) own: u64,
    pub(super) total: u64,
}

/// Disassembles a function, and adds its samples.
///
/// # Errors
/// The recording has no addresses of the function; its file or its symbol was not found; objdump is missing
/// or fails.
pub(super) fn read(function: &Annotated, symbolizer: &mut Symbolizer) -> Result<Machine> {
    let name = plain(&function.name);
    let Some(recorded) = &function.file else {
        bail!("--asm: the recording does not contain the file with the machine code of {name}");
    };
    if function.addresses.is_empty() {
        bail!(
            "--asm: the recording has source lines instead of addresses for {name}; record with `flightline record --addresses`"
        );
    }
    let Some((file, ranges)) = symbolizer.code(&recorded.path, &recorded.build_id, &function.name) else {
        bail!(
            "--asm: {} with build id {} not found; give the file with --file",
            plain(&recorded.path),
            if recorded.build_id.is_empty() { "none" } else { &recorded.build_id }
        );
    };
    if ranges.is_empty() {
        bail!("--asm: {} has no symbol of {name}", file.display());
    }
    let mut instructions = Vec::new();
    for range in ranges {
        if range.end.saturating_sub(range.start) > MOST_CODE {
            bail!("--asm: {name} is longer than 1 MiB");
        }
        for (address, text) in disassemble(&file, &range)? {
            let frames = symbolizer.frames(&recorded.path, &recorded.build_id, address);
            let line = frames.last().map_or(0, |frame| frame.line);
            instructions.push(Instruction { address, text, line, own: 0, total: 0 });
        }
    }
    if instructions.is_empty() {
        bail!("--asm: objdump found no instructions of {name} in {}", file.display());
    }
    let mut machine = Machine { file, instructions, elsewhere: 0 };
    machine.add(function.addresses.iter().map(|(address, weights)| ((*address).into(), *weights)));
    Ok(machine)
}

impl Machine {
    /// Adds samples to the instructions that contain their addresses; those of callers lie within the call
    /// instruction.
    fn add(&mut self, samples: impl Iterator<Item = (u64, Weights)>) {
        // Longest instruction of x86-64; others have 4 bytes.
        const LONGEST: u64 = 16;
        for (address, weights) in samples {
            let after = self.instructions.partition_point(|one| one.address <= address);
            let at = after.checked_sub(1).and_then(|at| self.instructions.get_mut(at));
            match at.filter(|one| address - one.address < LONGEST) {
                Some(one) => {
                    one.own = one.own.saturating_add(weights.own);
                    one.total = one.total.saturating_add(weights.total);
                }
                None => self.elsewhere = self.elsewhere.saturating_add(weights.total),
            }
        }
    }
}

fn disassemble(file: &Path, range: &Range<u64>) -> Result<Vec<(u64, String)>> {
    let mut command = Command::new("objdump");
    command.args(["--disassemble", "--demangle", "--no-show-raw-insn"]).env("LC_ALL", "C");
    command
        .arg(format!("--start-address={:#x}", range.start))
        .arg(format!("--stop-address={:#x}", range.end));
    // An absolute path is never parsed as an option.
    command.arg(std::path::absolute(file)?).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("--asm needs objdump, which is not installed: install the package binutils")
        }
        Err(error) => return Err(error).context("cannot run objdump"),
    };
    let mut text = Vec::new();
    let read = child.stdout.take().map_or(Ok(0), |out| out.take(MOST_OUTPUT).read_to_end(&mut text));
    let status = child.wait().context("cannot wait for objdump")?;
    read.context("cannot read the output of objdump")?;
    if !status.success() {
        bail!("objdump could not disassemble {}: {status}", file.display());
    }
    Ok(String::from_utf8_lossy(&text).lines().filter_map(instruction).collect())
}

/// A line of objdump's output, `  401136:\tpush   %rbp`.
fn instruction(line: &str) -> Option<(u64, String)> {
    let (address, text) = line.strip_prefix(' ')?.split_once(':')?;
    let address = u64::from_str_radix(address.trim_start(), 16).ok()?;
    let text = text.trim().replace('\t', " ");
    (!text.is_empty()).then(|| (address, plain(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objdump_lines_are_parsed_as_instructions() {
        let of = |line: &str| instruction(line);
        assert_eq!(of("    1139:\tpush   %rbp"), Some((0x1139, "push   %rbp".into())));
        assert_eq!(of("  1140:\tcall   1030 <f@plt>"), Some((0x1140, "call   1030 <f@plt>".into())));
        for line in [
            "",
            "0000000000001139 <main>:",
            "Disassembly of section .text:",
            "/a: file format elf64",
            "\t...",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
