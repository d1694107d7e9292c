//! Chrome's trace events (JSON) for Perfetto and chrome://tracing: a lane for each thread, and a box for
//! as long as consecutive samples show a function.
//!
//! Each box has a start and a duration, and readers add the two as floating-point numbers; speedscope
//! derives the order in which boxes end from the result. Both are therefore integer multiples of 1/1024
//! µs, whose sums are exact: boxes that end together do so in all readers, and a time rounded to
//! nanoseconds has its original value.

use std::io::Write;

use serde_json::json;

use super::{Track, Tracks, from_json};
use crate::error::Error;
use crate::tree::LabelId;

/// Writes all threads.
///
/// # Errors
/// `out` cannot be written.
pub fn write(tracks: &Tracks, out: &mut impl Write) -> Result<(), Error> {
    out.write_all(br#"{"displayTimeUnit":"ms","traceEvents":["#).map_err(Error::Write)?;
    let mut first = true;
    let mut put = |event: serde_json::Value| -> Result<(), Error> {
        if !std::mem::replace(&mut first, false) {
            out.write_all(b",\n").map_err(Error::Write)?;
        }
        serde_json::to_writer(&mut *out, &event).map_err(|error| from_json(error, Error::Write))
    };
    for track in &tracks.tracks {
        let (pid, tid) = (track.process_id, track.id);
        // Some readers require a time in every event.
        let name = |of, name: &str| {
            let args = json!({"name": name});
            json!({"ph": "M", "name": of, "pid": pid, "tid": tid, "ts": 0, "args": args})
        };
        put(name("process_name", &track.process))?;
        put(name("thread_name", &track.name))?;
        spans(tracks, track, |label, from, to| {
            let name = &tracks.labels[label.index()].text;
            let (ts, end) = (micros(from), micros(to));
            let dur = end - ts;
            put(
                json!({"ph": "X", "cat": "stack", "name": &**name, "pid": pid, "tid": tid, "ts": ts, "dur": dur}),
            )
        })?;
    }
    out.write_all(b"]}\n").map_err(Error::Write)
}

/// Microseconds in steps of 1/1024.
fn micros(nanos: i64) -> f64 {
    // In integer arithmetic: 1.024 has no exact floating-point representation, which matters for a day in
    // nanoseconds.
    let steps = (i128::from(nanos) * 128 + 62).div_euclid(125);
    steps as f64 / 1024.0
}

/// Passes the boxes of a thread with start and end to `each`, ordered by end. Of boxes that end together,
/// the outer ones come first, because readers treat the first of two boxes that also start together as
/// the outer one. A box continues while the following samples show it at the same depth, without a gap
/// longer than two usual ones.
fn spans(
    tracks: &Tracks,
    track: &Track,
    mut each: impl FnMut(LabelId, i64, i64) -> Result<(), Error>,
) -> Result<(), Error> {
    let longest = match tracks.is_timed() {
        true => usual_gap(track).saturating_mul(2),
        false => i64::MAX,
    };
    let mut open: Vec<(LabelId, i64)> = Vec::new();
    for (at, sample) in track.samples.iter().enumerate() {
        let path = tracks.path(sample.stack);
        let same = open.iter().zip(path).take_while(|((open, _), label)| open == *label).count();
        for (label, from) in open.drain(same..) {
            each(label, from, sample.time)?;
        }
        open.extend(path[same..].iter().map(|&label| (label, sample.time)));
        let usual = match tracks.is_timed() {
            true => sample.time.saturating_add(longest / 2),
            false => sample.time.saturating_add_unsigned(sample.weight),
        };
        let next = track.samples.get(at + 1).map(|next| next.time);
        let goes_on = next.is_some_and(|next| next.saturating_sub(sample.time) <= longest);
        if !goes_on {
            for (label, from) in open.drain(..) {
                each(label, from, next.map_or(usual, |next| usual.min(next)))?;
            }
        }
    }
    Ok(())
}

/// The median time between samples; a millisecond if there is none.
fn usual_gap(track: &Track) -> i64 {
    let mut gaps: Vec<i64> = track.samples.windows(2).map(|pair| pair[1].time - pair[0].time).collect();
    let middle = gaps.len() / 2;
    match gaps.is_empty() {
        true => 1_000_000,
        false => (*gaps.select_nth_unstable(middle).1).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Moment;
    use super::*;
    use crate::folded;

    #[test]
    fn spans_last_until_a_different_sample_or_a_gap() {
        let tree = folded::read("a;b 1\na;c 1\n".as_bytes()).unwrap();
        let mut tracks = Tracks::from_tree(&tree, "x");
        tracks.start = 1;
        let moment = |time: i64, stack: u32| Moment { time, stack, weight: 1, otherwise: 0 };
        // a;b a;b a;c, a long gap, a;b
        tracks.tracks[0].samples =
            vec![moment(0, 0), moment(10, 0), moment(20, 1), moment(30, 1), moment(200, 0)];
        let mut boxes = Vec::new();
        spans(&tracks, &tracks.tracks[0], |label, from, to| {
            boxes.push((tracks.labels[label.index()].text.to_string(), from, to));
            Ok(())
        })
        .unwrap();
        let want = [("b", 0, 20), ("a", 0, 40), ("c", 20, 40), ("a", 200, 210), ("b", 200, 210)];
        assert_eq!(boxes, want.map(|(name, from, to)| (name.to_owned(), from, to)));
        let mut json = Vec::new();
        write(&tracks, &mut json).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["traceEvents"].as_array().unwrap().len(), 2 + want.len());
    }

    #[test]
    fn start_plus_duration_is_exact_end_time() {
        let day = 86_400_000_000_000_i64;
        for nanos in (0..2_000).chain(day..day + 2_000).chain([6_664_077, 77_104_411, 126_693_688]) {
            let at = micros(nanos);
            assert_eq!((at * 1000.0).round() as i64, nanos);
            for from in [0, 1, nanos / 3, nanos / 2, nanos.saturating_sub(7)] {
                let from = micros(from);
                assert_eq!(from + (at - from), at, "{nanos}");
            }
        }
    }
}
