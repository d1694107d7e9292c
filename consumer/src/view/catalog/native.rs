//! Views of native code, for recordings of async-profiler and Flightline.

use crate::view::definition::Category::Native;
use crate::view::definition::*;

#[rustfmt::skip]
pub(super) const VIEWS: &[View] = &[
    view("wall-clock", Native, "Wall-clock samples by thread state", &["profiler.WallClockSample"], &[
        key("State", "state"), sum("Samples", "samples|#1"), sum("Percent", "samples|#1").share(), sum("Time", "@span"),
    ]).by(1),
    view("wall-clock-by-thread", Native, "Wall-clock samples by thread and state", &["profiler.WallClockSample"], &[
        key("Thread", "sampledThread"), key("State", "state"), sum("Samples", "samples|#1"),
        sum("Percent", "samples|#1").share(), sum("Time", "@span"),
    ]).by(2),
    view("wall-clock-methods", Native, "Wall-clock samples by function", &["profiler.WallClockSample"], &[
        key("Function", "stackTrace.top"), key("State", "state"), sum("Samples", "samples|#1"),
        sum("Percent", "samples|#1").share(), sum("Time", "@span"),
    ]).by(2).top(25),
    view("native-allocation", Native, "Native memory by the function that asked for it", &["profiler.Malloc", "profiler.Free"], &[
        key("Function", "stackTrace.caller").types(&["profiler.Malloc"]), count("Allocations").types(&["profiler.Malloc"]),
        sum("Bytes", "size"), sum("Percent", "size").share(), live_count("Live"), live_sum("Live Bytes"),
    ]).by(2).top(25),
    view("native-leaks", Native, "Native memory not freed, by stack", &["profiler.Malloc", "profiler.Free"], &[
        key("Stack", "stackTrace").types(&["profiler.Malloc"]), live_count("Live"), live_sum("Live Bytes"),
        live_sum("Percent").share(), count("Allocations").types(&["profiler.Malloc"]), sum("Bytes", "size"),
    ]).by(2).top(25),
    view("native-allocation-by-thread", Native, "Native memory by thread", &["profiler.Malloc", "profiler.Free"], &[
        key("Thread", "eventThread").types(&["profiler.Malloc"]), count("Allocations").types(&["profiler.Malloc"]), sum("Bytes", "size"),
        sum("Percent", "size").share(), live_count("Live"), live_sum("Live Bytes"),
    ]).by(2),
    view("native-allocation-balance", Native, "Calls of malloc and free", &["profiler.Malloc", "profiler.Free"], &[
        count("Allocations").types(&["profiler.Malloc"]), sum("Bytes", "size"), mean("Average", "size"), max("Largest", "size"),
        count("Frees").types(&["profiler.Free"]), live_count("Live"), live_sum("Live Bytes"),
    ]),
    view("live-allocation", Native, "Native memory that was never freed, by stack", &["flightline.LiveAllocation"], &[
        key("Stack", "stackTrace"), count("Samples"), sum("Bytes", "weight"), sum("Percent", "weight").share(),
        mean("Average Size", "size"), max("Oldest", "age"),
    ]).by(2).top(25),
    view("live-memory", Native, "Native memory not freed yet while the program runs, by stack", &["flightline.LiveMemory"], &[
        key("Stack", "stackTrace"), last("Samples", "allocations"), last("Bytes", "bytes"), max("Most", "bytes"),
        last("Oldest", "oldest"),
    ]).by(2).top(25),
    view("allocation-sizes", Native, "Sampled allocations by function of the allocator: true sizes", &["flightline.Allocation"], &[
        key("Function", "function"), count("Samples"), sum("Bytes", "weight"), sum("Percent", "weight").share(),
        median("Median Size", "size"), max("Largest", "size"),
    ]).by(2),
    view("native-locks", Native, "Waiting for native locks, by stack", &["profiler.NativeLock"], &[
        key("Stack", "stackTrace.site"), count("Count"), mean("Average", "duration"), p90("P90", "duration"),
        max("Longest", "duration"), sum("Total", "duration"),
    ]).by(5),
    view("native-locks-by-address", Native, "Waiting for native locks, by lock", &["profiler.NativeLock"], &[
        key("Address", "address"), count("Count"), distinct("Threads", "eventThread"), mean("Average", "duration"),
        max("Longest", "duration"), sum("Total", "duration"),
    ]).by(5),
    view("native-locks-by-thread", Native, "Waiting for native locks, by thread", &["profiler.NativeLock"], &[
        key("Thread", "eventThread"), count("Count"), mean("Average", "duration"), p90("P90", "duration"),
        max("Longest", "duration"), sum("Total", "duration"),
    ]).by(5),
    view("processes", Native, "Processes of the system", &["profiler.ProcessSample"], &[
        key("PID", "pid"), last("Parent", "ppid"), last("Name", "name"), last("Threads", "threads"),
        mean("CPU", "cpuPercent"), last("CPU User (s)", "cpuUser"), last("CPU System (s)", "cpuSystem"),
        max("Resident", "vmRss"), max("Anonymous", "rssAnon"), last("Read", "ioRead"), last("Written", "ioWrite"),
        last("Command", "cmdLine"),
    ]).by(4),
    view("spans", Native, "Spans by tag", &["profiler.Span"], &[
        key("Tag", "tag"), count("Count"), mean("Average", "duration"), p99("P99", "duration"), max("Longest", "duration"),
        sum("Total", "duration"),
    ]).by(5),
    view("user-events", Native, "Events of the program's own", &["profiler.UserEvent"], &[
        key("Kind", "type"), count("Count"), first("First", "startTime"), last("Last", "startTime"), last("Last Data", "data"),
    ]).by(1),
    view("cpu-ledger", Native, "CPU time of threads: sampled and lost", &["flightline.ThreadCpu"], &[
        key("Thread", "eventThread"), last("CPU Time", "cpuTime"), last("Sampled", "sampled"), last("Lost", "lost"),
        last("Percent", "cpuTime").share(),
    ]).by(1),
    view("sample-loss", Native, "Samples lost, by cause", &["flightline.SampleLoss"], &[
        key("Cause", "cause"), distinct("Threads", "eventThread"), sum("Samples", "samples"), sum("CPU Time", "cpuTime"),
    ]).by(3),
    view("sample-truncation", Native, "Stacks not walked to their root, by cause", &["flightline.SampleTruncated"], &[
        key("Cause", "cause"), distinct("Threads", "eventThread"), sum("Samples", "samples"),
    ]).by(2),
    view("notices", Native, "What the recorder had to say", &["flightline.Notice", "profiler.Log"], &[
        each("Time", "startTime"), each("Level", "level"), each("Message", "message"),
    ]),
];
