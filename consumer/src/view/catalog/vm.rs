//! Views of the Java virtual machine.

use crate::view::definition::Category::Vm;
use crate::view::definition::*;

const COMPILED: &[&str] = &["jdk.Compilation"];
const FLAGS: &[&str] = &[
    "jdk.IntFlag",
    "jdk.UnsignedIntFlag",
    "jdk.BooleanFlag",
    "jdk.LongFlag",
    "jdk.UnsignedLongFlag",
    "jdk.DoubleFlag",
    "jdk.StringFlag",
    "jdk.IntFlagChanged",
    "jdk.UnsignedIntFlagChanged",
    "jdk.BooleanFlagChanged",
    "jdk.LongFlagChanged",
    "jdk.UnsignedLongFlagChanged",
    "jdk.DoubleFlagChanged",
    "jdk.StringFlagChanged",
];
const GENERATIONS: &[&str] = &[
    "jdk.YoungGarbageCollection",
    "jdk.OldGarbageCollection",
    "jdk.ZYoungGarbageCollection",
    "jdk.ZOldGarbageCollection",
];
const PAUSES: &[&str] = &[
    "jdk.GCPhasePause",
    "jdk.GCPhasePauseLevel1",
    "jdk.GCPhasePauseLevel2",
    "jdk.GCPhasePauseLevel3",
    "jdk.GCPhasePauseLevel4",
];

#[rustfmt::skip]
pub(super) const VIEWS: &[View] = &[
    view("gc", Vm, "Garbage collections", &[
        "jdk.GarbageCollection", "jdk.GCHeapSummary", "jdk.YoungGarbageCollection", "jdk.OldGarbageCollection",
        "jdk.ZYoungGarbageCollection", "jdk.ZOldGarbageCollection",
    ], &[
        first("Start", "startTime").types(&["jdk.GarbageCollection"]), key("Id", "gcId"),
        first("Generation", "@label").types(GENERATIONS),
        first("Name", "name").types(&["jdk.GarbageCollection"]), first("Cause", "cause").types(&["jdk.GarbageCollection"]),
        first("Heap Before", "heapUsed").types(&["jdk.GCHeapSummary"]).when("when", "Before GC"),
        first("Heap After", "heapUsed").types(&["jdk.GCHeapSummary"]).when("when", "After GC"),
        first("Longest Pause", "longestPause").types(&["jdk.GarbageCollection"]),
        first("All Pauses", "sumOfPauses").types(&["jdk.GarbageCollection"]),
    ]).up(1),
    view("gc-causes", Vm, "Garbage collections by cause", &["jdk.GarbageCollection"], &[
        key("Cause", "cause"), key("Name", "name"), count("Count"), sum("Pauses", "sumOfPauses"), max("Longest Pause", "longestPause"),
    ]).by(3),
    view("gc-pauses", Vm, "Pauses for garbage collection", &["jdk.GCPhasePause"], &[
        sum("Total", "duration"), count("Pauses"), min("Shortest", "duration"), median("Median", "duration"),
        mean("Average", "duration"), p90("P90", "duration"), p95("P95", "duration"), p99("P99", "duration"),
        p999("P99.9", "duration"), max("Longest", "duration"),
    ]),
    view("gc-pause-phases", Vm, "Phases of pauses", PAUSES, &[
        key("Level", "@label"), key("Phase", "name"), mean("Average", "duration"), p95("P95", "duration"),
        max("Longest", "duration"), count("Count"), sum("Total", "duration"),
    ]).up(0),
    view("gc-concurrent-phases", Vm, "Concurrent phases of garbage collection", &["jdk.GCPhaseConcurrent", "jdk.GCPhaseConcurrentLevel1"], &[
        key("Phase", "name"), mean("Average", "duration"), p95("P95", "duration"), max("Longest", "duration"),
        count("Count"), sum("Total", "duration"),
    ]).by(5),
    view("gc-parallel-phases", Vm, "Parallel phases of garbage collection", &["jdk.GCPhaseParallel"], &[
        key("Phase", "name"), mean("Average", "duration"), p95("P95", "duration"), max("Longest", "duration"),
        count("Count"), sum("Total", "duration"),
    ]).by(5),
    view("gc-configuration", Vm, "Garbage collector", &["jdk.GCConfiguration"], &[
        last("Young Collector", "youngCollector"), last("Old Collector", "oldCollector"),
        last("Parallel Threads", "parallelGCThreads"), last("Concurrent Threads", "concurrentGCThreads"),
        last("Dynamic Threads", "usesDynamicGCThreads"), last("System.gc() Concurrent", "isExplicitGCConcurrent"),
        last("System.gc() Disabled", "isExplicitGCDisabled"), last("Pause Target", "pauseTarget"),
        last("Time Ratio", "gcTimeRatio"),
    ]),
    view("gc-references", Vm, "References met by garbage collection", &["jdk.GCReferenceStatistics"], &[
        first("Time", "startTime"), key("Id", "gcId"),
        sum("Soft", "count").when("type", "Soft reference"), sum("Weak", "count").when("type", "Weak reference"),
        sum("Phantom", "count").when("type", "Phantom reference"), sum("Final", "count").when("type", "Final reference"),
        sum("All", "count"),
    ]).up(1),
    view("gc-cpu-time", Vm, "CPU time of garbage collection", &["jdk.GCCPUTime"], &[
        sum("User", "userTime"), sum("System", "systemTime"), sum("Wall Clock", "realTime"),
        spread("Between First and Last", "startTime"), count("Collections"),
    ]),
    view("heap-configuration", Vm, "Heap", &["jdk.GCHeapConfiguration"], &[
        last("Initial Size", "initialSize"), last("Smallest Size", "minSize"), last("Largest Size", "maxSize"),
        last("Compressed References", "usesCompressedOops"), last("Compression", "compressedOopsMode"),
        last("Alignment", "objectAlignment"),
    ]),
    view("heap-usage", Vm, "Heap over time", &["jdk.GCHeapSummary"], &[
        each("Time", "startTime"), each("GC", "gcId"), each("When", "when"), each("Used", "heapUsed"),
        each("Committed", "heapSpace.committedSize"),
    ]),
    view("tlabs", Vm, "Thread-local allocation buffers", &["jdk.ObjectAllocationInNewTLAB", "jdk.ObjectAllocationOutsideTLAB"], &[
        count("Buffers").types(&["jdk.ObjectAllocationInNewTLAB"]), min("Smallest", "tlabSize"), mean("Average", "tlabSize"),
        max("Largest", "tlabSize"), sum("Total", "tlabSize"),
        count("Outside").types(&["jdk.ObjectAllocationOutsideTLAB"]),
        mean("Average Outside", "allocationSize").types(&["jdk.ObjectAllocationOutsideTLAB"]),
        sum("Total Outside", "allocationSize").types(&["jdk.ObjectAllocationOutsideTLAB"]),
    ]),
    view("blocked-by-system-gc", Vm, "Calls of System.gc()", &["jdk.SystemGC"], &[
        each("Time", "startTime"), each("Duration", "duration"), each("Stack", "stackTrace"),
    ]).by(1).top(25),

    view("longest-compilations", Vm, "Longest compilations", COMPILED, &[
        each("Time", "startTime"), each("Duration", "duration"), each("Method", "method"),
        each("Level", "compileLevel"), each("Succeeded", "succeded"), each("Code Size", "codeSize"),
    ]).by(1).top(25),
    view("compiler-configuration", Vm, "Compilers", &["jdk.CompilerConfiguration"], &[
        last("Threads", "threadCount"), last("Number of Threads Varies", "dynamicCompilerThreadCount"),
        last("Tiered", "tieredCompilation"),
    ]),
    view("compiler-statistics", Vm, "Compilation in all", &["jdk.CompilerStatistics"], &[
        last("Methods", "compileCount"), last("Longest", "peakTimeSpent"), last("Time", "totalTimeSpent"),
        last("Bailouts", "bailoutCount"), last("Invalidated", "invalidatedCount"), last("On-Stack Replacements", "osrCompileCount"),
        last("Standard", "standardCompileCount"), last("Bytecode, On-Stack Replacements", "osrBytesCompiled"),
        last("Bytecode, Standard", "standardBytesCompiled"), last("Size", "nmethodsSize"), last("Code Size", "nmethodCodeSize"),
    ]),
    view("compiler-phases", Vm, "Phases of compilation", &["jdk.CompilerPhase"], &[
        key("Level", "phaseLevel"), key("Phase", "phase"), mean("Average", "duration"), p95("P95", "duration"),
        max("Longest", "duration"), count("Count"), sum("Total", "duration"),
    ]).up(0),
    view("deoptimizations-by-reason", Vm, "Code thrown away, by reason", &["jdk.Deoptimization"], &[
        key("Reason", "reason"), count("Count"),
    ]).by(1),
    view("deoptimizations-by-site", Vm, "Code thrown away, by place", &["jdk.Deoptimization"], &[
        key("Method", "method"), first("Line", "lineNumber"), first("Bytecode", "bci"), count("Count"),
    ]).by(3),
    view("class-modifications", Vm, "Classes changed while running", &["jdk.RetransformClasses", "jdk.RedefineClasses"], &[
        key("Id", "redefinitionId"), first("Duration", "duration"), first("Asked For In", "stackTrace.app"),
        first("Operation", "@label"), first("Classes", "classCount"),
    ]).by(1),

    view("safepoints", Vm, "Safepoints", &["jdk.SafepointBegin", "jdk.SafepointEnd", "jdk.SafepointStateSynchronization"], &[
        first("Start", "startTime").types(&["jdk.SafepointBegin"]), key("Id", "safepointId"),
        spread("Duration", "startTime").types(&["jdk.SafepointBegin", "jdk.SafepointEnd"]),
        first("Synchronization", "duration").types(&["jdk.SafepointStateSynchronization"]),
        first("In JNI Critical", "jniCriticalThreadCount"), first("Threads", "totalThreadCount"),
    ]).up(1),
    view("vm-operations", Vm, "Operations of the virtual machine", &["jdk.ExecuteVMOperation"], &[
        key("Operation", "operation"), mean("Average", "duration"), max("Longest", "duration"), count("Count"),
        sum("Total", "duration"),
    ]).by(4),
    view("jvm-information", Vm, "Virtual machine", &["jdk.JVMInformation"], &[
        last("PID", "pid"), last("Start", "jvmStartTime"), last("Name", "jvmName"), last("Version", "jvmVersion"),
        last("JVM Arguments", "jvmArguments"), last("JVM Flags From Files", "jvmFlags"), last("Program Arguments", "javaArguments"),
    ]),
    view("jvm-flags", Vm, "Flags of the virtual machine", FLAGS, &[
        key("Name", "name"), last("Value", "value|newValue"), last("Origin", "origin"),
    ]),
    view("native-memory-committed", Vm, "Native memory of the virtual machine, committed", &["jdk.NativeMemoryUsage"], &[
        key("For", "type"), first("First", "committed"), mean("Average", "committed"), last("Last", "committed"),
        max("Largest", "committed"),
    ]).by(4),
    view("native-memory-reserved", Vm, "Native memory of the virtual machine, reserved", &["jdk.NativeMemoryUsage"], &[
        key("For", "type"), first("First", "reserved"), mean("Average", "reserved"), last("Last", "reserved"),
        max("Largest", "reserved"),
    ]).by(4),
    view("direct-buffers", Vm, "Direct buffers over time", &["jdk.DirectBufferStatistics"], &[
        each("Time", "startTime"), each("Buffers", "count"), each("Used", "memoryUsed"), each("Capacity", "totalCapacity"),
        each("Most Allowed", "maxCapacity"),
    ]),
];
