//! The Firefox Profiler's processed format.

use std::collections::HashMap;
use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, Profile, SamplingInterval,
    StackHandle, Timestamp, WeightType,
};

use super::{Tracks, from_json};
use crate::error::Error;
use crate::model::FrameKind;

/// Writes a profile with one thread for each sampled thread.
///
/// # Errors
/// `out` cannot be written.
pub fn write(tracks: &Tracks, name: &str, out: &mut impl Write) -> Result<(), Error> {
    let start = UNIX_EPOCH + Duration::from_nanos(tracks.start.max(0).unsigned_abs());
    let mut profile = Profile::new(name, start.into(), SamplingInterval::from_millis(1));
    // Names are complete, so the profiler does not have to fetch symbols.
    profile.set_symbolicated(true);
    let categories = [
        profile.add_category("Native", CategoryColor::Blue),
        profile.add_category("Kernel", CategoryColor::Orange),
        profile.add_category("Java", CategoryColor::Green),
        profile.add_category("JIT", CategoryColor::Yellow),
    ];
    let category = |kind: FrameKind| match kind {
        FrameKind::Native | FrameKind::NativeInlined => categories[0],
        FrameKind::Kernel => categories[1],
        FrameKind::Interpreted | FrameKind::Compiled | FrameKind::Inlined | FrameKind::NativeMethod => {
            categories[2]
        }
        FrameKind::Jit => categories[3],
        FrameKind::Marker | FrameKind::Class | FrameKind::Unknown => CategoryHandle::OTHER,
    };
    let strings: Vec<_> = tracks.labels.iter().map(|label| profile.intern_string(&label.text)).collect();
    let weight_type = || match tracks.unit.as_str() {
        "ns" => WeightType::TracingMs,
        "bytes" => WeightType::Bytes,
        _ => WeightType::Samples,
    };
    let in_ms = tracks.unit == "ns";
    let mut processes = HashMap::new();
    for track in &tracks.tracks {
        let begin = track.samples.first().map_or(0, |sample| sample.time);
        let begin = stamp(begin);
        let process = *processes
            .entry((track.process_id, track.process.as_str()))
            .or_insert_with(|| profile.add_process(&track.process, track.process_id, begin));
        // For a main thread the viewer shows the name of the process.
        let is_main = track.id == track.process_id;
        let thread = profile.add_thread(process, track.id, begin, is_main);
        profile.set_thread_name(thread, &track.name);
        profile.set_thread_samples_weight_type(thread, weight_type());
        let mut stacks: HashMap<u32, Option<StackHandle>> = HashMap::new();
        // Fractions of a ms that remain, because weights are integers.
        let mut carried = 0;
        for sample in &track.samples {
            let stack = *stacks.entry(sample.stack).or_insert_with(|| {
                let frames: Vec<FrameInfo> = tracks
                    .path(sample.stack)
                    .iter()
                    .map(|label| FrameInfo {
                        frame: Frame::Label(strings[label.index()]),
                        category_pair: category(tracks.labels[label.index()].kind).into(),
                        flags: FrameFlags::empty(),
                    })
                    .collect();
                profile.intern_stack_frames(thread, frames.into_iter())
            });
            let mut weight = sample.weight;
            if in_ms {
                let nanos = weight.saturating_add(carried);
                (weight, carried) = (nanos / 1_000_000, nanos % 1_000_000);
            }
            // A sample's weight has 32 bits, so a larger weight becomes several samples. A weight above
            // 64 GB is cut.
            for _ in 0..32 {
                let part = i32::try_from(weight).unwrap_or(i32::MAX);
                profile.add_sample(thread, stamp(sample.time), stack, CpuDelta::ZERO, part);
                weight -= u64::from(part.unsigned_abs());
                if weight == 0 {
                    break;
                }
            }
        }
    }
    serde_json::to_writer(out, &profile).map_err(|error| from_json(error, Error::Write))
}

fn stamp(nanos: i64) -> Timestamp {
    Timestamp::from_nanos_since_reference(nanos.max(0).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::folded;

    #[test]
    fn millisecond_weights_carry_rounding_remainder() {
        let mut tree = folded::read("a;b 1400000\na;c 600000\n".as_bytes()).unwrap();
        tree.unit = "ns".into();
        let mut out = Vec::new();
        write(&Tracks::from_tree(&tree, "x"), "x", &mut out).unwrap();
        let json: Value = serde_json::from_slice(&out).unwrap();
        let samples = &json["threads"][0]["samples"];
        assert_eq!(samples["weight"], serde_json::json!([1, 1]));
        assert_eq!(samples["weightType"], "tracing-ms");
        assert_eq!(json["threads"][0]["stackTable"]["length"], 3);
    }
}
