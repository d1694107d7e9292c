//! Event types.

use super::declare::{Field, Type, Unit, event, field};
use super::structs::{FLOAT, INT, LONG, STACK_TRACE, STRING, THREAD, THREAD_STATE, ids};
use crate::ids::TypeId;

ids! {
    EXECUTION_SAMPLE = 101 "jdk.ExecutionSample";
    NATIVE_METHOD_SAMPLE = 102 "jdk.NativeMethodSample";
    WALL_CLOCK_SAMPLE = 103 "profiler.WallClockSample";
    ACTIVE_RECORDING = 104 "jdk.ActiveRecording";
    ACTIVE_SETTING = 105 "jdk.ActiveSetting";
    OS_INFORMATION = 106 "jdk.OSInformation";
    CPU_INFORMATION = 107 "jdk.CPUInformation";
    JVM_INFORMATION = 108 "jdk.JVMInformation";
    SYSTEM_PROCESS = 109 "jdk.SystemProcess";
    INITIAL_ENVIRONMENT_VARIABLE = 110 "jdk.InitialEnvironmentVariable";
    INITIAL_SYSTEM_PROPERTY = 111 "jdk.InitialSystemProperty";
    NATIVE_LIBRARY = 112 "jdk.NativeLibrary";
    THREAD_START = 113 "jdk.ThreadStart";
    THREAD_END = 114 "jdk.ThreadEnd";
    CPU_LOAD = 115 "jdk.CPULoad";
    THREAD_CPU_LOAD = 116 "jdk.ThreadCPULoad";
    DATA_LOSS = 117 "jdk.DataLoss";

    CLOCK_ANCHOR = 120 "flightline.ClockAnchor";
    THREAD_CPU = 121 "flightline.ThreadCpu";
    SAMPLE_LOSS = 122 "flightline.SampleLoss";
    SAMPLE_TRUNCATED = 123 "flightline.SampleTruncated";
    NOTICE = 124 "flightline.Notice";
}

const RUNTIME: &[&str] = &["Java Virtual Machine"];
const PROFILING: &[&str] = &["Java Virtual Machine", "Profiling"];
const PROFILER: &[&str] = &["Profiler"];
const RECORDER: &[&str] = &["Flight Recorder"];
const SYSTEM: &[&str] = &["Operating System"];
const PROCESSOR: &[&str] = &["Operating System", "Processor"];
const THREADS: &[&str] = &["Java Application"];
const FLIGHTLINE: &[&str] = &["Flightline"];

const START_TIME: Field = field("startTime", LONG, "Start Time").unit(Unit::Timestamp);
const EVENT_THREAD: Field = field("eventThread", THREAD, "Event Thread").pooled();
const SAMPLED_THREAD: Field = field("sampledThread", THREAD, "Thread").pooled();
const STACK: Field = field("stackTrace", STACK_TRACE, "Stack Trace").pooled();
const STATE: Field = field("state", THREAD_STATE, "Thread State").pooled();

#[rustfmt::skip]
pub(super) const TYPES: &[Type] = &[
    event(EXECUTION_SAMPLE, "jdk.ExecutionSample", "Method Profiling Sample", PROFILING, &[
        START_TIME,
        SAMPLED_THREAD,
        STACK,
        STATE,
    ]).about("Snapshot of a thread's stack, one per sampling period of CPU time"),
    event(NATIVE_METHOD_SAMPLE, "jdk.NativeMethodSample", "Method Profiling Sample Native", PROFILING, &[
        START_TIME,
        SAMPLED_THREAD,
        STACK,
        STATE,
    ]),
    event(WALL_CLOCK_SAMPLE, "profiler.WallClockSample", "Wall Clock Sample", PROFILER, &[
        START_TIME,
        SAMPLED_THREAD,
        STACK,
        STATE,
        field("samples", INT, "Samples").unit(Unit::Unsigned),
        field("timeSpan", LONG, "Time Span").unit(Unit::Span),
    ]),

    event(ACTIVE_RECORDING, "jdk.ActiveRecording", "Flight Recording", RECORDER, &[
        START_TIME,
        field("id", LONG, "Id"),
        field("name", STRING, "Name"),
        field("destination", STRING, "Destination"),
        field("maxAge", LONG, "Max Age").unit(Unit::Millis),
        field("maxSize", LONG, "Max Size").unit(Unit::Bytes),
        field("recordingStart", LONG, "Start Time").unit(Unit::EpochMillis),
        field("recordingDuration", LONG, "Recording Duration").unit(Unit::Millis),
    ]),
    event(ACTIVE_SETTING, "jdk.ActiveSetting", "Recording Setting", RECORDER, &[
        START_TIME,
        field("id", LONG, "Event Id"),
        field("name", STRING, "Setting Name"),
        field("value", STRING, "Setting Value"),
    ]),
    event(DATA_LOSS, "jdk.DataLoss", "Data Loss", RECORDER, &[
        START_TIME,
        field("amount", LONG, "Amount").unit(Unit::Bytes),
        field("total", LONG, "Total").unit(Unit::Bytes),
    ]).about("Data was dropped before it could be written"),

    event(OS_INFORMATION, "jdk.OSInformation", "OS Information", SYSTEM, &[
        START_TIME,
        field("osVersion", STRING, "OS Version"),
    ]),
    event(CPU_INFORMATION, "jdk.CPUInformation", "CPU Information", PROCESSOR, &[
        START_TIME,
        field("cpu", STRING, "Type"),
        field("description", STRING, "Description"),
        field("sockets", INT, "Sockets").unit(Unit::Unsigned),
        field("cores", INT, "Cores").unit(Unit::Unsigned),
        field("hwThreads", INT, "Hardware Threads").unit(Unit::Unsigned),
    ]),
    event(JVM_INFORMATION, "jdk.JVMInformation", "JVM Information", RUNTIME, &[
        START_TIME,
        field("jvmName", STRING, "JVM Name"),
        field("jvmVersion", STRING, "JVM Version"),
        field("jvmArguments", STRING, "JVM Command Line Arguments"),
        field("jvmFlags", STRING, "JVM Settings File Arguments"),
        field("javaArguments", STRING, "Java Application Arguments"),
        field("jvmStartTime", LONG, "JVM Start Time").unit(Unit::EpochMillis),
        field("pid", LONG, "Process Identifier"),
    ]).about("The recorded program"),
    event(SYSTEM_PROCESS, "jdk.SystemProcess", "System Process", SYSTEM, &[
        START_TIME,
        field("pid", STRING, "Process Identifier"),
        field("commandLine", STRING, "Command Line"),
    ]),
    event(INITIAL_ENVIRONMENT_VARIABLE, "jdk.InitialEnvironmentVariable", "Initial Environment Variable", SYSTEM, &[
        START_TIME,
        field("key", STRING, "Key"),
        field("value", STRING, "Value"),
    ]),
    event(INITIAL_SYSTEM_PROPERTY, "jdk.InitialSystemProperty", "Initial System Property", RUNTIME, &[
        START_TIME,
        field("key", STRING, "Key"),
        field("value", STRING, "Value"),
    ]),
    event(NATIVE_LIBRARY, "jdk.NativeLibrary", "Native Library", &["Java Virtual Machine", "Runtime"], &[
        START_TIME,
        field("name", STRING, "Name"),
        field("baseAddress", LONG, "Base Address").unit(Unit::Address),
        field("topAddress", LONG, "Top Address").unit(Unit::Address),
    ]),

    event(THREAD_START, "jdk.ThreadStart", "Java Thread Start", THREADS, &[
        START_TIME,
        EVENT_THREAD,
        STACK,
        field("thread", THREAD, "New Java Thread").pooled(),
        field("parentThread", THREAD, "Parent Java Thread").pooled(),
    ]),
    event(THREAD_END, "jdk.ThreadEnd", "Java Thread End", THREADS, &[
        START_TIME,
        EVENT_THREAD,
        field("thread", THREAD, "Java Thread").pooled(),
    ]),
    event(CPU_LOAD, "jdk.CPULoad", "CPU Load", PROCESSOR, &[
        START_TIME,
        field("jvmUser", FLOAT, "JVM User").unit(Unit::Percentage),
        field("jvmSystem", FLOAT, "JVM System").unit(Unit::Percentage),
        field("machineTotal", FLOAT, "Machine Total").unit(Unit::Percentage),
    ]),
    event(THREAD_CPU_LOAD, "jdk.ThreadCPULoad", "Thread CPU Load", PROCESSOR, &[
        START_TIME,
        EVENT_THREAD,
        field("user", FLOAT, "User Mode CPU Load").unit(Unit::Percentage),
        field("system", FLOAT, "System Mode CPU Load").unit(Unit::Percentage),
    ]),

    event(CLOCK_ANCHOR, "flightline.ClockAnchor", "Clock Anchor", FLIGHTLINE, &[
        START_TIME,
        field("monotonic", LONG, "Monotonic Clock").unit(Unit::Nanos),
        // Not a Timestamp: no JDK can show one in ns since 1970, its tools fail on the whole file.
        field("realtime", LONG, "Wall Clock (ns since 1970)"),
    ]).about("Monotonic and wall clock read together, against drift between them"),
    event(THREAD_CPU, "flightline.ThreadCpu", "Thread CPU Time", FLIGHTLINE, &[
        START_TIME,
        EVENT_THREAD,
        field("cpuTime", LONG, "CPU Time").unit(Unit::Nanos),
        field("sampled", LONG, "Sampled CPU Time").unit(Unit::Nanos),
        field("lost", LONG, "Lost CPU Time").unit(Unit::Nanos),
    ]).about("CPU time of a thread since its start: all of it, what samples stand for, and what was lost"),
    event(SAMPLE_LOSS, "flightline.SampleLoss", "Sample Loss", FLIGHTLINE, &[
        START_TIME,
        EVENT_THREAD,
        field("cause", STRING, "Cause"),
        field("samples", LONG, "Samples").unit(Unit::Unsigned),
        field("cpuTime", LONG, "CPU Time").unit(Unit::Nanos),
    ]).about("Samples not taken or not kept since the last such event, and the CPU time they stood for"),
    event(SAMPLE_TRUNCATED, "flightline.SampleTruncated", "Truncated Samples", FLIGHTLINE, &[
        START_TIME,
        EVENT_THREAD,
        field("cause", STRING, "Cause"),
        field("samples", LONG, "Samples").unit(Unit::Unsigned),
    ]).about("Samples whose stack was not walked to its root"),
    event(NOTICE, "flightline.Notice", "Notice", FLIGHTLINE, &[
        START_TIME,
        field("message", STRING, "Message"),
    ]).about("What the recorder has to say about this recording"),
];
