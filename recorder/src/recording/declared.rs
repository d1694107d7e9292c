//! The event types that a chunk declares: those of the engines in use. If another engine is enabled later,
//! its first event starts a chunk that declares its types too.

use jfr_format::{ids::TypeId, schema::*};

use super::Recording;
use crate::settings::{OffCpuSettings, Settings, Spans};

/// Event types that every chunk declares.
const ALWAYS: &[TypeId] = &[
    EXECUTION_SAMPLE,
    ACTIVE_RECORDING,
    ACTIVE_SETTING,
    OS_INFORMATION,
    CPU_INFORMATION,
    JVM_INFORMATION,
    SYSTEM_PROCESS,
    NATIVE_LIBRARY,
    THREAD_START,
    THREAD_END,
    CLOCK_ANCHOR,
    THREAD_CPU,
    SAMPLE_LOSS,
    SAMPLE_TRUNCATED,
    NOTICE,
    PROCESS_LABEL,
    RECORDER_COST,
];

/// Event types about the stream itself.
const STREAM: &[TypeId] = &[SEGMENT, STREAM_LOSS, DATA_LOSS];

/// Events that are written together, so they are declared together.
const METRICS: &[TypeId] = &[
    CPU_LOAD,
    THREAD_CPU_LOAD,
    THREAD_CONTEXT_SWITCH_RATE,
    RESIDENT_SET_SIZE,
    PHYSICAL_MEMORY,
    SWAP_SPACE,
    NETWORK_UTILIZATION,
    PROCESS_USAGE,
];
const CONTAINER: &[TypeId] = &[
    CONTAINER_CONFIGURATION,
    CONTAINER_CPU_USAGE,
    CONTAINER_CPU_THROTTLING,
    CONTAINER_MEMORY_USAGE,
    CONTAINER_IO_USAGE,
];
const WALL: &[TypeId] = &[WALL_CLOCK_SAMPLE];
const ALLOC: &[TypeId] = &[MALLOC, FREE, ALLOCATION, LIVE_ALLOCATION, LIVE_MEMORY];
const LOCK: &[TypeId] = &[JAVA_MONITOR_ENTER, JAVA_MONITOR_WAIT, THREAD_PARK, BELOW_THRESHOLD];
const OFF: &[TypeId] = &[OFF_CPU, OPEN_OFF_CPU, BELOW_THRESHOLD];
/// Block I/O requests, and memory growth: few recordings have both.
const BLOCK: &[TypeId] = &[BLOCK_IO, BELOW_THRESHOLD];
const GROWTH: &[TypeId] = &[MEMORY_GROWTH];
const IO: &[TypeId] = &[
    FILE_READ,
    FILE_WRITE,
    FILE_FORCE,
    SOCKET_READ,
    SOCKET_WRITE,
    SOCKET_CONNECT,
    SOCKET_ACCEPT,
    BELOW_THRESHOLD,
];
const THROW: &[TypeId] = &[JAVA_EXCEPTION_THROW, JAVA_ERROR_THROW];
const TRACE: &[TypeId] = &[METHOD_TRACE];
const EVENTS: &[TypeId] = &[EVENT_SAMPLE];
const SIGNALS: &[TypeId] = &[FATAL_SIGNAL, CAUGHT_SIGNAL, LAST_SAMPLE, BELOW_THRESHOLD];
/// Declared from the start only if all are requested. Few programs have spans. Those with spans pay for one
/// additional chunk header (some 10 KB, once); the others would pay 2 KB in each chunk.
const SPANS: &[TypeId] = &[SAMPLE_CONTEXT, SPAN, SPAN_SCOPE, OPEN_SPAN, PROFILER_SPAN, WATERMARK, EVENT_LOSS];
/// All events except CPU samples can be lost to a full ring.
const LOSS: &[TypeId] = &[EVENT_LOSS];

const GROUPS: &[&[TypeId]] =
    &[METRICS, CONTAINER, WALL, ALLOC, LOCK, IO, OFF, BLOCK, GROWTH, THROW, TRACE, EVENTS, SIGNALS, SPANS];

/// Returns the event types that a recording with these settings declares from the start.
pub(super) fn at_start(
    settings: &Settings,
    stream: bool,
    in_container: impl FnOnce() -> bool,
) -> Vec<TypeId> {
    let traced = |is_on: fn(&OffCpuSettings) -> bool| settings.off_cpu.as_ref().is_some_and(is_on);
    let engines = [
        (settings.metrics.interval.is_some(), METRICS),
        (settings.metrics.interval.is_some() && in_container(), CONTAINER),
        (settings.wall.is_some() || settings.cpu.aggregate.is_some(), WALL),
        (settings.alloc.interval_bytes.is_some(), ALLOC),
        (settings.calls.lock.is_some(), LOCK),
        (settings.calls.io.is_some() || traced(|o| o.calls.is_some()), IO),
        (traced(|o| o.switches), OFF),
        (traced(|o| o.block.is_some()), BLOCK),
        (traced(|o| o.growth), GROWTH),
        (settings.calls.throw, THROW),
        (!settings.calls.trace.is_empty(), TRACE),
        (!settings.events.is_empty(), EVENTS),
        (settings.processes.fatal_signals == Some(true), SIGNALS),
        (settings.spans == Spans::All, SPANS),
    ];
    let on = engines.iter().filter(|(on, _)| *on).map(|(_, types)| *types);
    let more: Vec<TypeId> = on.flatten().copied().collect();
    let distinguished = engines.iter().skip(2).any(|(on, _)| *on);
    let loss = if distinguished { LOSS } else { &[] };
    let stream = if stream { STREAM } else { &[] };
    ALWAYS.iter().copied().chain(more).chain(loss.iter().chain(stream).copied()).collect()
}

impl Recording {
    /// Starts a chunk that declares `id` too.
    #[cold]
    pub(super) fn declare(&mut self, id: TypeId) {
        self.open_before_record();
        let with = GROUPS.iter().filter(|group| group.contains(&id));
        self.chunk.declare_next(std::iter::once(id).chain(with.flat_map(|group| group.iter().copied())));
        self.next_chunk(crate::os::clock::monotonic_ns(), 0, usize::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{AllocSettings, CallSettings, PerfEvent, ProcessSettings, Trace};
    use jfr_format::metadata::Declared;
    use jfr_format::schema::{self, Kind};
    use std::time::Duration;

    fn bytes(settings: &Settings) -> usize {
        Declared::new(at_start(settings, false, || false)).event().len()
    }

    #[test]
    fn cpu_sample_chunk_has_a_small_header() {
        let cpu = Settings::default();
        assert!(bytes(&cpu) <= 8700, "{}", bytes(&cpu));
        let mut bare = Settings::default();
        bare.metrics.interval = None;
        assert!(bytes(&bare) <= 6700, "{}", bytes(&bare));
        // The additional bytes for spans.
        let spans = bytes(&Settings { spans: Spans::All, ..Settings::default() });
        assert!((1500..2500).contains(&(spans - bytes(&cpu))), "{spans}");
        // The whole schema has more than 17 KB.
        assert!(2 * bytes(&cpu) < Declared::all().event().len());
    }

    #[test]
    fn every_engine_declares_its_event_types() {
        let second = Some(Duration::from_secs(1));
        let all = Settings {
            wall: second,
            alloc: AllocSettings { interval_bytes: Some(1), live: true, ..AllocSettings::default() },
            calls: CallSettings {
                lock: second,
                io: second,
                throw: true,
                trace: vec![Trace { function: "f".into(), threshold: Duration::ZERO }],
            },
            processes: ProcessSettings { fatal_signals: Some(true), ..ProcessSettings::default() },
            off_cpu: Some(OffCpuSettings { block: second, growth: true, ..OffCpuSettings::default() }),
            events: vec![PerfEvent { name: "page-faults".into(), period: None }],
            ..Settings::default()
        };
        let declared = Declared::new(at_start(&all, true, || true));
        // These occur only in recordings of other recorders. OUTAGE and the span events are declared once
        // they are needed.
        let never = [NATIVE_METHOD_SAMPLE, INITIAL_ENVIRONMENT_VARIABLE, INITIAL_SYSTEM_PROPERTY, OUTAGE];
        let file = Declared::new(at_start(&all, false, || true));
        assert!(!STREAM.iter().any(|id| file.has(*id)));
        for event in schema::types().filter(|ty| ty.kind == Kind::Event) {
            let left_out = never.contains(&event.id) || (SPANS.contains(&event.id) && event.id != EVENT_LOSS);
            assert_ne!(declared.has(event.id), left_out, "{}", event.name);
        }
    }
}
