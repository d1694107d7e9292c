//! Views of the machine, the operating system, and the recording.

use crate::view::definition::Category::Environment;
use crate::view::definition::*;

const SETTING: &[&str] = &["jdk.ActiveSetting"];

#[rustfmt::skip]
pub(super) const VIEWS: &[View] = &[
    view("recording", Environment, "Recording", &["*"], &[
        count("Events"), min("First Event", "startTime"), max("Last Event", "startTime"),
        spread("Length", "startTime"), distinct("Event Types", "@type"),
        last("Dump Reason", "reason").types(&["jdk.DumpReason", "jdk.Shutdown"]),
        last("Data Lost", "total").types(&["jdk.DataLoss"]),
    ]),
    view("active-recordings", Environment, "Recordings that ran", &["jdk.ActiveRecording"], &[
        key("Id", "id"), last("Name", "name"), last("Start", "recordingStart"), last("Duration", "recordingDuration"),
        last("Destination", "destination"), last("Max Age", "maxAge"), last("Max Size", "maxSize"),
    ]),
    view("active-settings", Environment, "Settings of event types", SETTING, &[
        key("Event", "id.@event"),
        last("Enabled", "value").when("name", "enabled"), last("Threshold", "value").when("name", "threshold"),
        last("Stack Trace", "value").when("name", "stackTrace"), last("Period", "value").when("name", "period"),
        last("Cutoff", "value").when("name", "cutoff"), last("Throttle", "value").when("name", "throttle"),
    ]),
    view("recording-settings", Environment, "Settings by name", SETTING, &[
        key("Event", "id.@event"), key("Setting", "name"), last("Value", "value"),
    ]),
    view("events-by-count", Environment, "Event types by count", &["*"], &[
        key("Event Type", "@label"), key("Name", "@type"), count("Count"), count("Percent").share(),
    ]).by(2),
    view("events-by-name", Environment, "Event types by name", &["*"], &[
        key("Event Type", "@label"), key("Name", "@type"), count("Count"),
    ]),

    view("cpu-load", Environment, "CPU load", &["jdk.CPULoad"], &[
        min("JVM User, Smallest", "jvmUser"), mean("JVM User, Average", "jvmUser"), max("JVM User, Largest", "jvmUser"),
        min("JVM System, Smallest", "jvmSystem"), mean("JVM System, Average", "jvmSystem"), max("JVM System, Largest", "jvmSystem"),
        min("Machine, Smallest", "machineTotal"), mean("Machine, Average", "machineTotal"), max("Machine, Largest", "machineTotal"),
    ]),
    view("cpu-load-samples", Environment, "CPU load over time", &["jdk.CPULoad"], &[
        each("Time", "startTime"), each("JVM User", "jvmUser"), each("JVM System", "jvmSystem"), each("Machine", "machineTotal"),
    ]),
    view("cpu-information", Environment, "Processor", &["jdk.CPUInformation"], &[
        last("CPU", "cpu"), last("Sockets", "sockets"), last("Cores", "cores"), last("Hardware Threads", "hwThreads"),
        last("Description", "description"),
    ]),
    view("cpu-tsc", Environment, "Time stamp counter", &["jdk.CPUTimeStampCounter"], &[
        last("Automatic", "fastTimeAutoEnabled"), last("In Use", "fastTimeEnabled"), last("Frequency", "fastTimeFrequency"),
        last("Frequency of the System Clock", "osFrequency"),
    ]),
    view("context-switches", Environment, "Context switches over time", &["jdk.ThreadContextSwitchRate"], &[
        each("Time", "startTime"), each("Rate", "switchRate"),
    ]),
    view("physical-memory", Environment, "Physical memory over time", &["jdk.PhysicalMemory"], &[
        each("Time", "startTime"), each("Total", "totalSize"), each("Used", "usedSize"),
    ]),
    view("resident-set", Environment, "Resident memory over time", &["jdk.ResidentSetSize"], &[
        each("Time", "startTime"), each("Size", "size"), each("Peak", "peak"),
    ]),
    view("system-information", Environment, "System", &[
        "jdk.CPUInformation", "jdk.PhysicalMemory", "jdk.OSInformation", "jdk.VirtualizationInformation",
    ], &[
        last("Memory", "totalSize").types(&["jdk.PhysicalMemory"]), last("System", "osVersion"),
        last("Virtualization", "name").types(&["jdk.VirtualizationInformation"]), last("CPU", "cpu"), last("Cores", "cores"),
        last("Hardware Threads", "hwThreads"), last("Sockets", "sockets"), last("Description", "description"),
    ]),
    view("system-processes", Environment, "Processes of the system", &["jdk.SystemProcess"], &[
        key("PID", "pid"), first("First Seen", "startTime"), last("Last Seen", "startTime"), last("Command", "commandLine"),
    ]),
    view("environment-variables", Environment, "Environment variables", &["jdk.InitialEnvironmentVariable"], &[
        key("Name", "key"), last("Value", "value"),
    ]),
    view("system-properties", Environment, "System properties", &["jdk.InitialSystemProperty"], &[
        key("Name", "key"), last("Value", "value"),
    ]),
    view("security-properties", Environment, "Security properties", &["jdk.InitialSecurityProperty"], &[
        key("Name", "key"), last("Value", "value"),
    ]),
    view("native-libraries", Environment, "Loaded libraries", &["jdk.NativeLibrary"], &[
        key("Name", "name"), last("From", "baseAddress"), last("To", "topAddress"),
    ]),
    view("native-library-failures", Environment, "Libraries that could not be loaded or unloaded", &[
        "jdk.NativeLibraryLoad", "jdk.NativeLibraryUnload",
    ], &[
        key("Operation", "@label"), key("Name", "name").when("success", "false"), last("Why", "errorMessage"), count("Count"),
    ]),
    view("agents", Environment, "Agents", &["jdk.JavaAgent", "jdk.NativeAgent"], &[
        key("Kind", "@label"), key("Name", "name"), last("Options", "options"), last("Time to Start", "initializationDuration"),
    ]),
    view("network-utilization", Environment, "Network", &["jdk.NetworkUtilization"], &[
        key("Interface", "networkInterface"), mean("Read, Average", "readRate"), max("Read, Largest", "readRate"),
        mean("Written, Average", "writeRate"), max("Written, Largest", "writeRate"),
    ]).by(2),

    view("container-configuration", Environment, "Container", &["jdk.ContainerConfiguration"], &[
        last("Type", "containerType"), last("CPU Slice", "cpuSlicePeriod"), last("CPU Quota", "cpuQuota"),
        last("CPU Shares", "cpuShares"), last("CPUs", "effectiveCpuCount"), last("Soft Memory Limit", "memorySoftLimit"),
        last("Memory Limit", "memoryLimit"), last("Swap Limit", "swapMemoryLimit"), last("Memory of the Host", "hostTotalMemory"),
    ]),
    view("container-cpu-usage", Environment, "CPU time of the container", &["jdk.ContainerCPUUsage"], &[
        last("CPU Time", "cpuTime"), last("User", "cpuUserTime"), last("System", "cpuSystemTime"),
        spread("During the Recording", "cpuTime"),
    ]),
    view("container-cpu-throttling", Environment, "Throttling of the container", &["jdk.ContainerCPUThrottling"], &[
        last("Slices", "cpuElapsedSlices"), last("Throttled Slices", "cpuThrottledSlices"), last("Throttled Time", "cpuThrottledTime"),
    ]),
    view("container-memory-usage", Environment, "Memory of the container", &["jdk.ContainerMemoryUsage"], &[
        last("Failures", "memoryFailCount"), last("Used", "memoryUsage"), max("Most Used", "memoryUsage"),
        last("With Swap", "swapMemoryUsage"),
    ]),
    view("container-io-usage", Environment, "I/O of the container", &["jdk.ContainerIOUsage"], &[
        last("Requests", "serviceRequests"), last("Transferred", "dataTransferred"),
    ]),
];
