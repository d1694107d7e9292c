//! Event types.

use super::declare::{Field, Type, Unit, event, field};
use super::structs::{
    EVENT_NAME, FLOAT, INT, LONG, METHOD, NETWORK_INTERFACE_NAME, STACK_TRACE, STRING, THREAD, THREAD_STATE,
    ids,
};
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

    THREAD_CONTEXT_SWITCH_RATE = 40 "jdk.ThreadContextSwitchRate";
    RESIDENT_SET_SIZE = 41 "jdk.ResidentSetSize";
    PHYSICAL_MEMORY = 42 "jdk.PhysicalMemory";
    SWAP_SPACE = 43 "jdk.SwapSpace";
    CONTAINER_CONFIGURATION = 44 "jdk.ContainerConfiguration";
    CONTAINER_CPU_USAGE = 45 "jdk.ContainerCPUUsage";
    CONTAINER_CPU_THROTTLING = 46 "jdk.ContainerCPUThrottling";
    CONTAINER_MEMORY_USAGE = 47 "jdk.ContainerMemoryUsage";
    CONTAINER_IO_USAGE = 48 "jdk.ContainerIOUsage";
    NETWORK_UTILIZATION = 49 "jdk.NetworkUtilization";
    PROCESS_USAGE = 50 "flightline.ProcessUsage";
    PROCESS_LABEL = 118 "flightline.Label";

    CLOCK_ANCHOR = 120 "flightline.ClockAnchor";
    THREAD_CPU = 121 "flightline.ThreadCpu";
    SAMPLE_LOSS = 122 "flightline.SampleLoss";
    SAMPLE_TRUNCATED = 123 "flightline.SampleTruncated";
    NOTICE = 124 "flightline.Notice";
    OUTAGE = 128 "flightline.Outage";
    EVENT_LOSS = 125 "flightline.EventLoss";
    SEGMENT = 71 "flightline.Segment";
    STREAM_LOSS = 72 "flightline.StreamLoss";
    EVENT_SAMPLE = 126 "flightline.EventSample";

    RECORDER_COST = 70 "flightline.RecorderCost";

    METHOD_TRACE = 60 "jdk.MethodTrace";

    MALLOC = 64 "profiler.Malloc";
    FREE = 65 "profiler.Free";
    ALLOCATION = 66 "flightline.Allocation";
    LIVE_ALLOCATION = 67 "flightline.LiveAllocation";
    LIVE_MEMORY = 127 "flightline.LiveMemory";
}

const RUNTIME: &[&str] = &["Java Virtual Machine"];
const PROFILING: &[&str] = &["Java Virtual Machine", "Profiling"];
const PROFILER: &[&str] = &["Profiler"];
const RECORDER: &[&str] = &["Flight Recorder"];
const SYSTEM: &[&str] = &["Operating System"];
const PROCESSOR: &[&str] = &["Operating System", "Processor"];
const MEMORY: &[&str] = &["Operating System", "Memory"];
const MEMORY_OF_PROCESS: &[&str] = &["Java Virtual Machine", "Memory"];
const FILE_SYSTEM: &[&str] = &["Operating System", "File System"];
const NETWORK: &[&str] = &["Operating System", "Network"];
pub(super) const THREADS: &[&str] = &["Java Application"];
pub(super) const FLIGHTLINE: &[&str] = &["Flightline"];

pub(super) const DURATION: Field = field("duration", LONG, "Duration").unit(Unit::Span);
pub(super) const START_TIME: Field = field("startTime", LONG, "Start Time").unit(Unit::Timestamp);
pub(super) const EVENT_THREAD: Field = field("eventThread", THREAD, "Event Thread").pooled();
const SAMPLED_THREAD: Field = field("sampledThread", THREAD, "Thread").pooled();
pub(super) const STACK: Field = field("stackTrace", STACK_TRACE, "Stack Trace").pooled();
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

    event(THREAD_CONTEXT_SWITCH_RATE, "jdk.ThreadContextSwitchRate", "Thread Context Switch Rate", PROCESSOR, &[
        START_TIME,
        field("switchRate", FLOAT, "Switch Rate").unit(Unit::Frequency),
    ]).about("Context switches of the whole machine"),
    event(RESIDENT_SET_SIZE, "jdk.ResidentSetSize", "Resident Set Size", MEMORY_OF_PROCESS, &[
        START_TIME,
        field("size", LONG, "Resident Set Size").unit(Unit::UnsignedBytes),
        field("peak", LONG, "Resident Set Size Peak Value").unit(Unit::UnsignedBytes),
    ]).about("Resident memory of all recorded processes together"),
    event(PHYSICAL_MEMORY, "jdk.PhysicalMemory", "Physical Memory", MEMORY, &[
        START_TIME,
        field("totalSize", LONG, "Total Size").unit(Unit::UnsignedBytes),
        field("usedSize", LONG, "Used Size").unit(Unit::UnsignedBytes),
    ]),
    event(SWAP_SPACE, "jdk.SwapSpace", "Swap Space", MEMORY, &[
        START_TIME,
        field("totalSize", LONG, "Total Size").unit(Unit::Bytes),
        field("freeSize", LONG, "Free Size").unit(Unit::Bytes),
    ]),
    event(CONTAINER_CONFIGURATION, "jdk.ContainerConfiguration", "Container Configuration", SYSTEM, &[
        START_TIME,
        field("containerType", STRING, "Container Type"),
        field("cpuSlicePeriod", LONG, "CPU Slice Period").unit(Unit::Micros),
        field("cpuQuota", LONG, "CPU Quota").unit(Unit::Micros),
        field("cpuShares", LONG, "CPU Shares"),
        field("effectiveCpuCount", LONG, "Effective CPU Count"),
        field("memorySoftLimit", LONG, "Memory Soft Limit").unit(Unit::Bytes),
        field("memoryLimit", LONG, "Memory Limit").unit(Unit::Bytes),
        field("swapMemoryLimit", LONG, "Memory and Swap Limit").unit(Unit::Bytes),
        field("hostTotalMemory", LONG, "Container Host Total Memory").unit(Unit::Bytes),
        field("hostTotalSwapMemory", LONG, "Container Host Total Swap Memory").unit(Unit::Bytes),
    ]).about("Limits of the control group; -1: none, -2: not known"),
    event(CONTAINER_CPU_USAGE, "jdk.ContainerCPUUsage", "CPU Usage", PROCESSOR, &[
        START_TIME,
        field("cpuTime", LONG, "CPU Time").unit(Unit::Nanos),
        field("cpuUserTime", LONG, "CPU User Time").unit(Unit::Nanos),
        field("cpuSystemTime", LONG, "CPU System Time").unit(Unit::Nanos),
    ]),
    event(CONTAINER_CPU_THROTTLING, "jdk.ContainerCPUThrottling", "CPU Throttling", PROCESSOR, &[
        START_TIME,
        field("cpuElapsedSlices", LONG, "CPU Elapsed Slices"),
        field("cpuThrottledSlices", LONG, "CPU Throttled Slices"),
        field("cpuThrottledTime", LONG, "CPU Throttled Time").unit(Unit::Nanos),
    ]),
    event(CONTAINER_MEMORY_USAGE, "jdk.ContainerMemoryUsage", "Memory Usage", MEMORY, &[
        START_TIME,
        field("memoryFailCount", LONG, "Memory Fail Count"),
        field("memoryUsage", LONG, "Memory Usage").unit(Unit::Bytes),
        field("swapMemoryUsage", LONG, "Memory and Swap Usage").unit(Unit::Bytes),
    ]),
    event(CONTAINER_IO_USAGE, "jdk.ContainerIOUsage", "Container IO Usage", FILE_SYSTEM, &[
        START_TIME,
        field("serviceRequests", LONG, "Block IO Request Count"),
        field("dataTransferred", LONG, "Block IO Transfer").unit(Unit::Bytes),
    ]),
    event(NETWORK_UTILIZATION, "jdk.NetworkUtilization", "Network Utilization", NETWORK, &[
        START_TIME,
        field("networkInterface", NETWORK_INTERFACE_NAME, "Network Interface").pooled(),
        field("readRate", LONG, "Read Rate").unit(Unit::BitRate),
        field("writeRate", LONG, "Write Rate").unit(Unit::BitRate),
    ]),
    event(PROCESS_USAGE, "flightline.ProcessUsage", "Process Usage", FLIGHTLINE, &[
        START_TIME,
        field("pid", LONG, "Process Identifier"),
        field("user", FLOAT, "User Mode CPU Load").unit(Unit::Percentage),
        field("system", FLOAT, "System Mode CPU Load").unit(Unit::Percentage),
        field("residentSize", LONG, "Resident Set Size").unit(Unit::UnsignedBytes),
        field("residentPeak", LONG, "Resident Set Size Peak Value").unit(Unit::UnsignedBytes),
        field("threads", INT, "Threads").unit(Unit::Unsigned),
        field("minorFaults", LONG, "Minor Page Faults").unit(Unit::Unsigned),
        field("majorFaults", LONG, "Major Page Faults").unit(Unit::Unsigned),
    ]).about("One recorded process: CPU load since the last such event, memory, and totals since its start"),

    event(METHOD_TRACE, "jdk.MethodTrace", "Method Trace", &["Java Virtual Machine", "Method Tracing"], &[
        START_TIME,
        DURATION,
        EVENT_THREAD,
        STACK,
        field("method", METHOD, "Method").pooled(),
    ]).about("A slow call of a traced function, with its callers"),

    event(CLOCK_ANCHOR, "flightline.ClockAnchor", "Clock Anchor", FLIGHTLINE, &[
        START_TIME,
        field("monotonic", LONG, "Monotonic Clock").unit(Unit::Nanos),
        // Not a Timestamp: no JDK can show one in ns since 1970, and its tools fail on the whole file.
        field("realtime", LONG, "Wall Clock (ns since 1970)"),
    ]).about("Monotonic and wall-clock time, read together to correct drift"),
    event(THREAD_CPU, "flightline.ThreadCpu", "Thread CPU Time", FLIGHTLINE, &[
        START_TIME,
        EVENT_THREAD,
        field("cpuTime", LONG, "CPU Time").unit(Unit::Nanos),
        field("sampled", LONG, "Sampled CPU Time").unit(Unit::Nanos),
        field("lost", LONG, "Lost CPU Time").unit(Unit::Nanos),
        // Samples without the kernel's part of the stack.
        field("byTimer", LONG, "Samples by Timer"),
    ]).about("CPU time of a thread since its start: total, represented by samples, and lost"),
    event(SAMPLE_LOSS, "flightline.SampleLoss", "Sample Loss", FLIGHTLINE, &[
        START_TIME,
        EVENT_THREAD,
        field("cause", STRING, "Cause"),
        field("samples", LONG, "Samples").unit(Unit::Unsigned),
        field("cpuTime", LONG, "CPU Time").unit(Unit::Nanos),
    ]).about("Samples that were lost since the last such event, and the CPU time that they represented"),
    event(SAMPLE_TRUNCATED, "flightline.SampleTruncated", "Truncated Samples", FLIGHTLINE, &[
        START_TIME,
        EVENT_THREAD,
        field("cause", STRING, "Cause"),
        field("samples", LONG, "Samples").unit(Unit::Unsigned),
    ]).about("Samples whose stack was not walked to its root"),
    event(EVENT_SAMPLE, "flightline.EventSample", "Event Sample", FLIGHTLINE, &[
        START_TIME,
        EVENT_THREAD,
        STACK,
        field("event", EVENT_NAME, "Event").pooled(),
        field("count", LONG, "Count").unit(Unit::Unsigned),
    ]).about("Stack of a thread where a perf event overflowed, and the number of events that it represents"),
    event(EVENT_LOSS, "flightline.EventLoss", "Event Loss", FLIGHTLINE, &[
        START_TIME,
        field("event", STRING, "Event"),
        field("count", LONG, "Count").unit(Unit::Unsigned),
        field("value", LONG, "Value"),
    ]).about("Lost events of an engine other than CPU time since the last such event, and the values that they represented"),
    event(NOTICE, "flightline.Notice", "Notice", FLIGHTLINE, &[
        START_TIME,
        field("message", STRING, "Message"),
    ]).about("A message of the recorder about this recording"),
    event(OUTAGE, "flightline.Outage", "Outage", FLIGHTLINE, &[
        START_TIME,
        DURATION,
        field("reason", STRING, "Reason"),
        field("samples", LONG, "Lost Samples").unit(Unit::Unsigned),
        field("cpuTime", LONG, "Lost CPU Time").unit(Unit::Nanos),
    ]).about("A time in which the output could not be written. Losses are also in flightline.SampleLoss"),
    // Only in streams, and without labels: every chunk of a stream declares it, and programs read it.
    event(SEGMENT, "flightline.Segment", "Segment", FLIGHTLINE, &[
        START_TIME,
        field("sequence", LONG, ""),
        field("offset", LONG, "").unit(Unit::Bytes),
        field("size", LONG, "").unit(Unit::Bytes),
        field("crc32", LONG, ""),
        field("events", LONG, ""),
    ]).about("End of one flush: its number in the stream, its offset in the chunk, the CRC-32 of its bytes, and its events"),
    event(STREAM_LOSS, "flightline.StreamLoss", "Stream Loss", FLIGHTLINE, &[
        START_TIME,
        field("cause", STRING, "Cause"),
        field("eventType", STRING, "Event Type"),
        field("events", LONG, "Events").unit(Unit::Unsigned),
        field("bytes", LONG, "Bytes").unit(Unit::Bytes),
    ]).about("Events of one type that were written but not delivered to this reader of the stream"),
    event(PROCESS_LABEL, "flightline.Label", "Label", FLIGHTLINE, &[
        START_TIME,
        field("pid", LONG, "Process"),
        field("name", STRING, "Name"),
        field("value", STRING, "Value"),
    ]),

    // Without labels: every chunk declares it, and few users read it.
    event(RECORDER_COST, "flightline.RecorderCost", "Recorder Cost", FLIGHTLINE, &[
        START_TIME,
        field("interval", LONG, "").unit(Unit::Span),
        field("handlers", LONG, "").unit(Unit::Nanos),
        field("delivery", LONG, "").unit(Unit::Nanos),
        field("calls", LONG, "").unit(Unit::Nanos),
        field("writer", LONG, "").unit(Unit::Nanos),
        field("fixed", LONG, "").unit(Unit::Nanos),
        field("symbols", LONG, "").unit(Unit::Nanos),
        field("cpuTime", LONG, "").unit(Unit::Nanos),
        field("lost", LONG, "").unit(Unit::Nanos),
        field("signals", LONG, ""),
        field("bytes", LONG, "").unit(Unit::Bytes),
        field("period", LONG, "").unit(Unit::Nanos),
        field("share", FLOAT, "").unit(Unit::Percentage),
    ]).about("CPU time used by recording since the last such event, by cause, and the sampling interval from now on"),

    event(MALLOC, "profiler.Malloc", "malloc", PROFILER, &[
        START_TIME,
        EVENT_THREAD,
        STACK,
        field("address", LONG, "Address").unit(Unit::Address),
        field("size", LONG, "Size").unit(Unit::Bytes),
    ]).about("Sampled allocation; its size is the number of bytes that it represents"),
    event(FREE, "profiler.Free", "free", PROFILER, &[
        START_TIME,
        EVENT_THREAD,
        STACK,
        field("address", LONG, "Address").unit(Unit::Address),
    ]).about("Free of a sampled allocation"),
    event(ALLOCATION, "flightline.Allocation", "Allocation", FLIGHTLINE, &[
        START_TIME,
        EVENT_THREAD,
        field("address", LONG, "Address").unit(Unit::Address),
        field("size", LONG, "Size").unit(Unit::Bytes),
        field("weight", LONG, "Sample Weight").unit(Unit::Bytes),
        field("function", STRING, "Function"),
    ]).about("True size and weight of the profiler.Malloc event with this time and address"),
    event(LIVE_ALLOCATION, "flightline.LiveAllocation", "Live Allocation", FLIGHTLINE, &[
        START_TIME,
        EVENT_THREAD,
        STACK,
        field("address", LONG, "Address").unit(Unit::Address),
        field("size", LONG, "Size").unit(Unit::Bytes),
        field("weight", LONG, "Sample Weight").unit(Unit::Bytes),
        field("allocationTime", LONG, "Allocation Time").unit(Unit::Timestamp),
        field("age", LONG, "Age").unit(Unit::Span),
    ]).about("Sampled allocation that was not freed when its process ended or recording stopped"),
    event(LIVE_MEMORY, "flightline.LiveMemory", "Live Memory", FLIGHTLINE, &[
        START_TIME,
        STACK,
        field("allocations", LONG, "Sampled Allocations"),
        field("bytes", LONG, "Bytes").unit(Unit::Bytes),
        field("oldest", LONG, "Age of the Oldest").unit(Unit::Span),
    ]).about("Memory that was allocated with one stack and not freed yet, written periodically for the largest stacks"),
];
