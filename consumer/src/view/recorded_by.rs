//! The producers of event types, and how to enable them.

/// Returns instructions for recording events of this type.
pub fn recording_instructions(event_type: &str) -> String {
    let (package, name) = event_type.rsplit_once('.').unwrap_or(("", event_type));
    match (package, name) {
        (_, "*") => "any recording".into(),
        ("flightline", "OffCpu" | "OpenOffCpu") => "flightline record --off-cpu -o run.jfr -- PROGRAM".into(),
        ("flightline", "BlockIo") => "flightline record --block-io -o run.jfr -- PROGRAM".into(),
        ("flightline", "MemoryGrowth") => "flightline record --growth -o run.jfr -- PROGRAM".into(),
        ("flightline", "LiveAllocation" | "LiveMemory") => "flightline record -e alloc,live -o run.jfr -- PROGRAM".into(),
        ("flightline", "Allocation") => "flightline record -e alloc -o run.jfr -- PROGRAM".into(),
        ("flightline", _) => "flightline record -o run.jfr -- PROGRAM".into(),
        ("profiler", "Malloc" | "Free") => profiler("nativemem"),
        ("profiler", "NativeLock") => profiler("nativelock"),
        ("profiler", "WallClockSample") => profiler("event=wall"),
        ("profiler", "ProcessSample") => profiler("event=cpu,proc"),
        ("profiler", "LiveObject") => profiler("alloc,live"),
        ("profiler", _) => "async-profiler, by the program's own calls of it".into(),
        ("jdk", "ExecutionSample") => {
            "flightline record, async-profiler event=cpu, or java -XX:StartFlightRecording:settings=profile".into()
        }
        ("jdk", "CPUTimeSample" | "CPUTimeSamplesLost") => {
            "JDK 25 or newer on Linux: java -XX:StartFlightRecording:jdk.CPUTimeSample#enabled=true".into()
        }
        ("jdk", "ObjectAllocationInNewTLAB" | "ObjectAllocationOutsideTLAB") => {
            format!("java -XX:StartFlightRecording:jdk.{name}#enabled=true (JDK 17 or newer), or async-profiler alloc")
        }
        ("jdk", "OldObjectSample") => {
            "java -XX:StartFlightRecording:path-to-gc-roots=true,settings=profile".into()
        }
        ("jdk", "NativeMemoryUsage") => {
            "java -XX:NativeMemoryTracking=summary -XX:StartFlightRecording:settings=profile (JDK 20 or newer)".into()
        }
        ("jdk", "MethodTiming" | "MethodTrace") => {
            format!("JDK 25 or newer: java '-XX:StartFlightRecording:jdk.{name}#filter=CLASS::METHOD'")
        }
        ("jdk", "FileRead" | "FileWrite" | "SocketRead" | "SocketWrite") => {
            format!("java '-XX:StartFlightRecording:jdk.{name}#threshold=0 ms' (by default only what takes longer than 10 or 20 ms)")
        }
        ("jdk", "JavaMonitorEnter" | "JavaMonitorWait" | "ThreadPark" | "ThreadSleep") => {
            format!("java '-XX:StartFlightRecording:jdk.{name}#threshold=0 ms' (by default only what takes longer than 10 or 20 ms)")
        }
        ("jdk", _) => format!(
            "java -XX:StartFlightRecording:settings=profile, or jdk.{name}#enabled=true behind -XX:StartFlightRecording: (JDK 17 or newer)"
        ),
        _ => "the program that defines it".into(),
    }
}

/// Returns the command that records events of this type in a native program; `None` if Flightline does
/// not record them.
pub fn native_option(event_type: &str) -> Option<&'static str> {
    Some(match event_type {
        "jdk.JavaMonitorEnter" | "jdk.JavaMonitorWait" | "jdk.ThreadPark" => {
            "flightline record -e lock -o run.jfr -- PROGRAM; of a running program, --off-cpu -p PID records all waits"
        }
        "jdk.FileRead" | "jdk.FileWrite" | "jdk.FileForce" | "jdk.SocketRead" | "jdk.SocketWrite" => {
            "flightline record -e io -o run.jfr -- PROGRAM; of a running program, --syscall-io -p PID"
        }
        "jdk.ThreadSleep" => "flightline record --off-cpu -o run.jfr -- PROGRAM records all waits",
        "profiler.NativeLock" => {
            "flightline record -e lock -o run.jfr -- PROGRAM; its waits are in the views contention-by-site, contention-by-address \
             and parking-by-site"
        }
        "profiler.Malloc" | "profiler.Free" | "jdk.ObjectAllocationSample" => {
            "flightline record -e alloc,live -o run.jfr -- PROGRAM"
        }
        "jdk.JavaExceptionThrow" | "jdk.JavaErrorThrow" => "flightline record -e throw -o run.jfr -- PROGRAM",
        "profiler.WallClockSample" => "flightline record -e wall -o run.jfr -- PROGRAM",
        "jdk.ExecutionSample" => "flightline record -o run.jfr -- PROGRAM",
        _ => return None,
    })
}

fn profiler(options: &str) -> String {
    format!("async-profiler: -agentpath:libasyncProfiler.so=start,{options},file=run.jfr")
}

#[cfg(test)]
mod tests {
    use super::{native_option, recording_instructions};

    #[test]
    fn missing_events_suggest_the_engine_that_records_them() {
        assert!(recording_instructions("flightline.LiveMemory").contains("-e alloc,live"));
        assert!(recording_instructions("flightline.LiveAllocation").contains("-e alloc,live"));
        assert!(recording_instructions("flightline.Allocation").contains("-e alloc "));
        assert!(native_option("jdk.JavaMonitorEnter").is_some_and(|how| how.contains("-e lock")));
        assert!(native_option("jdk.FileForce").is_some_and(|how| how.contains("--syscall-io")));
        assert!(native_option("profiler.NativeLock").is_some_and(|how| how.contains("contention-by-site")));
        assert_eq!(native_option("jdk.GarbageCollection"), None);
    }
}
