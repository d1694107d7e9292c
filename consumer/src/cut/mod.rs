//! Extracts a part of a recording, by time and by labels of spans.

mod labelled;

use std::io::{self, Write};

use jfr_format::edit::{self, Decision, Filtered, Scope, Source};
use jfr_format::event::EventRef;

pub use labelled::Labelled;

/// Events that describe the recording, the program or the machine.
const CONTEXT: &[&str] = &[
    "flightline.ClockAnchor",
    "jdk.ActiveRecording",
    "jdk.ActiveSetting",
    "jdk.BooleanFlag",
    "jdk.CPUInformation",
    "jdk.CPUTimeStampCounter",
    "jdk.CodeCacheConfiguration",
    "jdk.CompilerConfiguration",
    "jdk.ContainerConfiguration",
    "jdk.DoubleFlag",
    "jdk.GCConfiguration",
    "jdk.GCHeapConfiguration",
    "jdk.GCSurvivorConfiguration",
    "jdk.GCTLABConfiguration",
    "jdk.InitialEnvironmentVariable",
    "jdk.InitialSecurityProperty",
    "jdk.InitialSystemProperty",
    "jdk.IntFlag",
    "jdk.JVMInformation",
    "jdk.JavaAgent",
    "jdk.LongFlag",
    "jdk.NativeAgent",
    "jdk.NativeLibrary",
    "jdk.OSInformation",
    "jdk.StringFlag",
    "jdk.UnsignedIntFlag",
    "jdk.UnsignedLongFlag",
    "jdk.VirtualizationInformation",
    "jdk.YoungGenerationConfiguration",
];

/// Writes the events within `from..to`, in nanoseconds since 1970. Unless `strict`, it also writes the
/// events that describe the recording.
///
/// # Errors
/// `out` cannot be written.
pub fn part(source: &Source, from: i64, to: i64, strict: bool, out: &mut dyn Write) -> io::Result<Filtered> {
    labelled_part(source, from, to, strict, None, out)
}

/// Like [`part`], for samples and spans with given labels. It writes these samples with their contexts,
/// the spans themselves, the events that describe the recording, and all losses, because losses are not
/// recorded by label.
///
/// # Errors
/// `out` cannot be written.
pub fn labelled_part(
    source: &Source,
    from: i64,
    to: i64,
    strict: bool,
    labelled: Option<&Labelled>,
    out: &mut dyn Write,
) -> io::Result<Filtered> {
    let mut decide = |event: &EventRef<'_>| {
        let describes = !strict && CONTEXT.contains(&&*event.class().name);
        // Events that describe the recording span whole chunks. They alone are no reason to retain a
        // chunk.
        if describes && event.start_nanos().is_some_and(|start| !(from..to).contains(&start)) {
            if event.chunk().header.start_nanos < to { Decision::Context } else { Decision::Drop }
        } else if within(event, from, to) {
            match labelled {
                None => Decision::Keep,
                Some(_) if describes => Decision::Context,
                Some(labelled) => labelled.decide(event),
            }
        } else {
            Decision::Drop
        }
    };
    let scope = Scope { range: Some((from, to)), ..Scope::default() };
    edit::filter(source, scope, &mut decide, out)
}

/// Returns true if a part of the event lies within `from..to`.
fn within(event: &EventRef<'_>, from: i64, to: i64) -> bool {
    let Some(start) = event.start_nanos() else { return true };
    if (from..to).contains(&start) {
        return true;
    }
    let lasts = event.class().fields.get(1).is_some_and(|field| &*field.name == "duration");
    if !lasts || start >= to {
        return false;
    }
    let ticks = event.field("duration").ok().flatten().and_then(|value| value.as_i64()).unwrap_or(0);
    start.saturating_add(event.chunk().span_nanos(ticks)) >= from
}
