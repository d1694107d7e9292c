//! Folded stacks: one `frame;frame weight` per line.

use super::Error;
use super::profile_builder::{Frame, Measure, ProfileBuilder, Sample};

/// Adds folded text. `unit` is samples or bytes; a sample represents `period` ns, if known.
pub(super) fn take(
    text: &[u8],
    unit: &str,
    period: Option<u64>,
    builder: &mut ProfileBuilder,
) -> Result<(), Error> {
    let (measure, factor) = match (unit, period) {
        ("bytes", _) => (Measure::Alloc, 1),
        (_, Some(period)) => (Measure::Cpu, period),
        _ => (Measure::Samples, 1),
    };
    let kind = builder.kind(measure)?;
    for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let flawed = || Error::Bad(format!("Line {number} is not a folded stack; write `frame;frame 42`."));
        let space = line.iter().rposition(|&byte| byte == b' ').ok_or_else(flawed)?;
        let (stack, weight) = line.split_at(space);
        let weight = std::str::from_utf8(weight.trim_ascii()).ok().and_then(|weight| weight.parse().ok());
        let weight: u64 = weight.ok_or_else(flawed)?;
        let mut frames = Vec::new();
        for name in stack.trim_ascii().rsplit(|&byte| byte == b';') {
            let name = builder.name(&String::from_utf8_lossy(name))?;
            frames.push(Frame { name, ..Frame::default() });
        }
        let stack = builder.stack(frames)?;
        let value = weight.saturating_mul(factor);
        builder.sample(Sample { kind, stack, thread: 0, time: None, value })?;
    }
    if builder.samples.is_empty() {
        return Err(Error::Bad("The body is empty; send lines such as `frame;frame 42`.".into()));
    }
    Ok(())
}
