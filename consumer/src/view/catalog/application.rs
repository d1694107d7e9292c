//! Views of the application.

use crate::model::SLEEPING;
use crate::view::definition::Category::Application;
use crate::view::definition::*;

const THROWN: &[&str] = &["jdk.JavaErrorThrow", "jdk.JavaExceptionThrow"];
const ENTER: &[&str] = &["jdk.JavaMonitorEnter"];
/// Samples with a weight.
const ALLOCATED: &[&str] = &["jdk.ObjectAllocationSample"];
/// Older JDKs and async-profiler: an event for each new TLAB, and for each object outside of one.
const BUFFERS: &[&str] = &["jdk.ObjectAllocationInNewTLAB", "jdk.ObjectAllocationOutsideTLAB"];
/// A new TLAB represents all allocations in the one before.
const WEIGHT: &str = "weight|tlabSize|allocationSize";
const WAITS: &[&str] = &[
    "jdk.JavaMonitorWait",
    "jdk.JavaMonitorEnter",
    "jdk.ThreadPark",
    "jdk.ThreadSleep",
    "jdk.SocketRead",
    "jdk.SocketWrite",
    "jdk.FileWrite",
    "jdk.FileRead",
    "jdk.FileForce",
];

const SYNCS: &[&str] = &["jdk.FileForce"];
const IO: &[&str] = &["jdk.FileRead", "jdk.FileWrite", "jdk.FileForce", "jdk.SocketRead", "jdk.SocketWrite"];

#[rustfmt::skip]
pub(super) const VIEWS: &[View] = &[
    // Samples of sleeping threads are from async-profiler's wall clock, see `model::ASLEEP`.
    view("hot-methods", Application, "Methods on CPU", &["jdk.ExecutionSample"], &[
        key("Method", "stackTrace.top").unless("state.name", SLEEPING), count("Samples"), count("Percent").share(),
    ]).by(1).top(25),
    view("cpu-time-hot-methods", Application, "Methods by CPU time", &["jdk.CPUTimeSample"], &[
        key("Method", "stackTrace.top"), count("Samples"), count("Percent").share(),
        sum("CPU Time", "samplingPeriod"),
    ]).by(1).top(25),
    view("cpu-time-statistics", Application, "CPU time samples taken and lost", &["jdk.CPUTimeSample", "jdk.CPUTimeSamplesLost"], &[
        count("Successful").types(&["jdk.CPUTimeSample"]).when("failed", "false"),
        count("Failed").types(&["jdk.CPUTimeSample"]).when("failed", "true"),
        count("Biased").types(&["jdk.CPUTimeSample"]).when("biased", "true"),
        count("All").types(&["jdk.CPUTimeSample"]),
        sum("Lost", "lostSamples").types(&["jdk.CPUTimeSamplesLost"]),
    ]),
    view("native-methods", Application, "Waiting or running in native methods", &["jdk.NativeMethodSample"], &[
        key("Method", "stackTrace.top"), count("Samples"), count("Percent").share(),
    ]).by(1),
    view("method-timing", Application, "Calls of chosen methods", &["jdk.MethodTiming"], &[
        key("Method", "method"), last("Calls", "invocations"),
        last("Shortest", "minimum"), last("Average", "average"), last("Longest", "maximum"),
    ]).by(1),
    view("method-calls", Application, "Calls of traced methods by caller", &["jdk.MethodTrace"], &[
        key("Method", "method"), key("Caller", "stackTrace.top"), count("Calls"),
        mean("Average", "duration"), max("Longest", "duration"), sum("Total", "duration"),
    ]).by(2),
    view("deprecated-methods-for-removal", Application, "Calls of methods that will be removed", &["jdk.DeprecatedInvocation"], &[
        key("Method", "method"), key("Called From", "stackTrace.top"), last("For Removal", "forRemoval"),
    ]),

    view("allocation-by-class", Application, "Allocation by class", ALLOCATED, &[
        key("Class", "objectClass"), sum("Pressure", WEIGHT).share(), sum("Bytes", WEIGHT), count("Samples"),
    ]).or(BUFFERS).by(2).top(25),
    view("allocation-by-thread", Application, "Allocation by thread", ALLOCATED, &[
        key("Thread", "eventThread"), sum("Pressure", WEIGHT).share(), sum("Bytes", WEIGHT), count("Samples"),
    ]).or(BUFFERS).by(2).top(25),
    view("allocation-by-site", Application, "Allocation by method", ALLOCATED, &[
        key("Method", "stackTrace.top"), sum("Pressure", WEIGHT).share(), sum("Bytes", WEIGHT), count("Samples"),
    ]).or(BUFFERS).by(2).top(25),
    view("allocation-by-application", Application, "Allocation by method of the application", ALLOCATED, &[
        key("Method", "stackTrace.app"), sum("Pressure", WEIGHT).share(), sum("Bytes", WEIGHT), count("Samples"),
    ]).or(BUFFERS).by(2).top(25),
    view("thread-allocation", Application, "Allocated by each thread since its start", &["jdk.ThreadAllocationStatistics"], &[
        key("Thread", "thread"), last("Allocated", "allocated"), last("Percent", "allocated").share(),
    ]).by(1),
    view("memory-leaks", Application, "Objects that stayed alive", &["jdk.OldObjectSample", "profiler.LiveObject"], &[
        key("Class", "object.type|objectClass"), key("Allocated In", "stackTrace.app"),
        count("Samples"), min("Oldest", "allocationTime"), max("Age", "objectAge"),
        sum("Size", "objectSize|allocationSize"), last("Heap Used", "lastKnownHeapUsage"),
    ]).latest("jdk.OldObjectSample").by(2),
    view("memory-leaks-by-class", Application, "Objects that stayed alive, by class", &["jdk.OldObjectSample", "profiler.LiveObject"], &[
        key("Class", "object.type|objectClass"), count("Samples"),
        min("Oldest", "allocationTime"), max("Age", "objectAge"),
        sum("Size", "objectSize|allocationSize"), last("Heap Used", "lastKnownHeapUsage"),
    ]).latest("jdk.OldObjectSample").up(2),
    view("memory-leaks-by-site", Application, "Objects that stayed alive, by method", &["jdk.OldObjectSample", "profiler.LiveObject"], &[
        key("Method", "stackTrace.app"), count("Samples"),
        min("Oldest", "allocationTime"), max("Age", "objectAge"),
        sum("Size", "objectSize|allocationSize"), last("Heap Used", "lastKnownHeapUsage"),
    ]).latest("jdk.OldObjectSample").up(2),
    view("object-statistics", Application, "Objects in the heap by class", &["jdk.ObjectCount", "jdk.ObjectCountAfterGC"], &[
        key("Class", "objectClass"), last("Objects", "count"), last("Size", "totalSize"),
        last("Percent", "totalSize").share(), spread("Change", "totalSize"),
    ]).by(2),
    view("finalizers", Application, "Finalizers", &["jdk.FinalizerStatistics"], &[
        key("Class", "finalizableClass"), key("Source", "codeSource"),
        last("Waiting Objects", "objects"), last("Runs", "totalFinalizersRun"),
    ]).by(3),

    view("contention-by-site", Application, "Waiting for locks, by stack", ENTER, &[
        key("Stack", "stackTrace.site"), count("Count"), mean("Average", "duration"),
        max("Longest", "duration"), sum("Total", "duration"),
    ]).by(4),
    view("contention-by-class", Application, "Waiting for locks, by their class", ENTER, &[
        key("Class", "monitorClass"), count("Count"), mean("Average", "duration"), p90("P90", "duration"),
        max("Longest", "duration"), sum("Total", "duration"),
    ]).by(5),
    view("contention-by-thread", Application, "Waiting for locks, by thread", ENTER, &[
        key("Thread", "eventThread"), count("Count"), mean("Average", "duration"), p90("P90", "duration"),
        max("Longest", "duration"), sum("Total", "duration"),
    ]).by(5),
    view("contention-by-address", Application, "Waiting for locks, by lock", ENTER, &[
        key("Address", "address"), first("Class", "monitorClass"), count("Count"),
        distinct("Threads", "eventThread"), max("Longest", "duration"), sum("Total", "duration"),
    ]).by(5),
    view("parking-by-site", Application, "Parked threads, by what they wait for", &["jdk.ThreadPark"], &[
        key("Class", "parkedClass"), key("Method", "stackTrace.app"), count("Count"),
        mean("Average", "duration"), max("Longest", "duration"), sum("Total", "duration"),
    ]).by(5),
    view("latencies-by-type", Application, "Waiting, by kind", WAITS, &[
        key("Kind", "@label"), count("Count"), mean("Average", "duration"), p99("P99", "duration"),
        max("Longest", "duration"), sum("Total", "duration"),
    ]).by(5),
    view("monitor-inflation", Application, "Monitors that became heavy", &["jdk.JavaMonitorInflate"], &[
        key("Stack", "stackTrace"), key("Class", "monitorClass"), count("Count"),
        max("Longest", "duration"), sum("Total", "duration"),
    ]).by(2),
    view("pinned-threads", Application, "Virtual threads that held their carrier", &["jdk.VirtualThreadPinned"], &[
        key("Method", "stackTrace.app"), count("Count"), mean("Average", "duration"), p99("P99", "duration"),
        max("Longest", "duration"), sum("Total", "duration"),
    ]).by(5),

    view("threads", Application, "Threads", &[
        "jdk.ThreadStart", "jdk.ThreadEnd", "jdk.ExecutionSample", "jdk.NativeMethodSample", "jdk.CPUTimeSample",
        "jdk.ThreadCPULoad", "jdk.ThreadAllocationStatistics", "profiler.WallClockSample", "flightline.ThreadCpu",
    ], &[
        key("Thread", "sampledThread|thread|eventThread"),
        first("OS Id", "sampledThread.osThreadId|thread.osThreadId|eventThread.osThreadId"),
        first("Java Id", "sampledThread.javaThreadId|thread.javaThreadId|eventThread.javaThreadId"),
        first("Start", "startTime").types(&["jdk.ThreadStart"]), first("End", "startTime").types(&["jdk.ThreadEnd"]),
        count("Samples").types(&["jdk.ExecutionSample"]),
        count("CPU Time Samples").types(&["jdk.CPUTimeSample"]),
        count("In Native").types(&["jdk.NativeMethodSample"]),
        sum("Wall Samples", "samples|#1").types(&["profiler.WallClockSample"]),
        last("CPU Time", "cpuTime").types(&["flightline.ThreadCpu"]),
        last("User Load", "user").types(&["jdk.ThreadCPULoad"]),
        last("Allocated", "allocated").types(&["jdk.ThreadAllocationStatistics"]),
    ]).by(5),
    view("thread-count", Application, "Number of threads over time", &["jdk.JavaThreadStatistics"], &[
        each("Time", "startTime"), each("Active", "activeCount"), each("Daemons", "daemonCount"),
        each("Started", "accumulatedCount"), each("Peak", "peakCount"),
    ]),
    view("thread-cpu-load", Application, "CPU load of threads", &["jdk.ThreadCPULoad"], &[
        key("Thread", "eventThread"), last("System", "system"), last("User", "user"),
    ]).by(2),
    view("thread-start", Application, "Threads started", &["jdk.ThreadStart", "jdk.ThreadEnd"], &[
        first("Start", "startTime").types(&["jdk.ThreadStart"]),
        first("Started In", "stackTrace.app").types(&["jdk.ThreadStart"]),
        key("Thread", "thread|eventThread"), spread("Lifetime", "startTime"),
    ]).by(3),

    view("exception-by-type", Application, "Exceptions by class", THROWN, &[
        key("Class", "thrownClass"), count("Count"),
    ]).by(1),
    view("exception-by-message", Application, "Exceptions by message", THROWN, &[
        key("Message", "message"), count("Count"),
    ]).by(1),
    view("exception-by-site", Application, "Exceptions by method", THROWN, &[
        key("Method", "stackTrace.thrower"), count("Count"),
    ]).by(1),
    view("exception-count", Application, "Exceptions thrown in all", &["jdk.ExceptionStatistics"], &[
        spread("During the Recording", "throwables"), last("Since the Start", "throwables"),
    ]),

    view("slowest-io", Application, "Reads and writes that took longest", IO, &[
        each("Time", "startTime"), each("Kind", "@label"), each("Where", "path|host"), each("Bytes", "bytesRead|bytesWritten"),
        each("Thread", "eventThread"), each("Duration", "duration"),
    ]).by(5).top(25),
    view("file-syncs-by-path", Application, "Files synchronised with the disk (fsync)", SYNCS, &[
        key("Path", "path"), count("Calls"), mean("Average", "duration"), p99("P99", "duration"), max("Longest", "duration"),
        sum("Time", "duration"),
    ]).by(5),
    view("file-reads-by-path", Application, "Files read", &["jdk.FileRead"], &[
        key("Path", "path"), count("Reads"), sum("Bytes", "bytesRead"), sum("Time", "duration"),
    ]).by(2),
    view("file-writes-by-path", Application, "Files written", &["jdk.FileWrite"], &[
        key("Path", "path"), count("Writes"), sum("Bytes", "bytesWritten"), sum("Time", "duration"),
    ]).by(2),
    view("socket-reads-by-host", Application, "Hosts read from", &["jdk.SocketRead"], &[
        key("Host", "host"), distinct("Ports", "port"), count("Reads"), sum("Bytes", "bytesRead"), sum("Time", "duration"),
    ]).by(3),
    view("socket-writes-by-host", Application, "Hosts written to", &["jdk.SocketWrite"], &[
        key("Host", "host"), distinct("Ports", "port"), count("Writes"), sum("Bytes", "bytesWritten"), sum("Time", "duration"),
    ]).by(3),

    view("class-loaders", Application, "Class loaders", &["jdk.ClassLoaderStatistics"], &[
        key("Class Loader", "classLoader"), last("Hidden Classes", "hiddenClassCount|unsafeAnonymousClassCount|anonymousClassCount"),
        last("Classes", "classCount"), last("Metaspace", "chunkSize"),
    ]).by(2),
    view("longest-class-loading", Application, "Classes that took longest to load", &["jdk.ClassLoad"], &[
        each("Time", "startTime"), each("Class", "loadedClass"), each("Duration", "duration"),
    ]).by(2).top(25),
    view("modules", Application, "Modules", &["jdk.ModuleRequire"], &[
        key("Module", "source"), count_of("Requires", "requiredModule"),
    ]),
];
