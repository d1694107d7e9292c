//! Decodes the metadata event independently, and compares it with the fields that other readers hard-code.

use crate::walk;

use jfr_format::metadata::Declared;
use std::collections::{BTreeMap, HashSet};
use walk::Bytes;

struct Node {
    name: String,
    attributes: BTreeMap<String, String>,
    children: Vec<Node>,
}

impl Node {
    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Node> {
        self.children.iter().filter(move |child| child.name == name)
    }

    fn get(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }
}

fn tree() -> Node {
    let all = Declared::all();
    let event = all.event();
    let mut bytes = Bytes::new(event);
    assert_eq!(bytes.varint(), event.len() as u64);
    assert_eq!(bytes.at, 4, "padded, but not to more than the five bytes Go reads");
    assert_eq!([bytes.varint(), bytes.varint(), bytes.varint()], [0, 0, 0]);
    assert!(bytes.varint() > 1 << 29, "ids of JDKs are small");
    let count = bytes.varint();
    let strings: Vec<String> = (0..count).map(|_| bytes.string().unwrap()).collect();
    let root = node(&mut bytes, &strings);
    assert_eq!(bytes.at, event.len());
    root
}

fn node(bytes: &mut Bytes<'_>, strings: &[String]) -> Node {
    let string = |bytes: &mut Bytes<'_>| strings[bytes.varint() as usize].clone();
    let name = string(bytes);
    let attributes = (0..bytes.varint()).map(|_| (string(bytes), string(bytes))).collect();
    let children = (0..bytes.varint()).map(|_| node(bytes, strings)).collect();
    Node { name, attributes, children }
}

/// Name, fields; `*` = pooled, `[]` = array.
const EXPECTED: &[(&str, &str)] = &[
    (
        "java.lang.Thread",
        "osName:java.lang.String osThreadId:long javaName:java.lang.String javaThreadId:long group:jdk.types.ThreadGroup*",
    ),
    ("jdk.types.ThreadGroup", "parent:jdk.types.ThreadGroup* name:java.lang.String"),
    (
        "java.lang.Class",
        "classLoader:jdk.types.ClassLoader* name:jdk.types.Symbol* package:jdk.types.Package* modifiers:int hidden:boolean",
    ),
    ("jdk.types.ClassLoader", "type:java.lang.Class* name:jdk.types.Symbol*"),
    ("jdk.types.Package", "name:jdk.types.Symbol* module:jdk.types.Module* exported:boolean"),
    (
        "jdk.types.Module",
        "name:jdk.types.Symbol* version:jdk.types.Symbol* location:jdk.types.Symbol* classLoader:jdk.types.ClassLoader*",
    ),
    ("jdk.types.Symbol", "string:java.lang.String"),
    (
        "jdk.types.Method",
        "type:java.lang.Class* name:jdk.types.Symbol* descriptor:jdk.types.Symbol* modifiers:int hidden:boolean",
    ),
    ("jdk.types.StackTrace", "truncated:boolean frames:jdk.types.StackFrame[]"),
    (
        "jdk.types.StackFrame",
        "method:jdk.types.Method* lineNumber:int bytecodeIndex:int type:jdk.types.FrameType*",
    ),
    ("jdk.types.FrameType", "description:java.lang.String"),
    ("jdk.types.ThreadState", "name:java.lang.String"),
    ("jdk.types.ChunkHeader", "payload:byte[]"),
    (
        "jdk.ExecutionSample",
        "startTime:long sampledThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* state:jdk.types.ThreadState*",
    ),
    (
        "jdk.NativeMethodSample",
        "startTime:long sampledThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* state:jdk.types.ThreadState*",
    ),
    (
        "profiler.WallClockSample",
        "startTime:long sampledThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* state:jdk.types.ThreadState* samples:int timeSpan:long",
    ),
    (
        "jdk.ActiveRecording",
        "startTime:long id:long name:java.lang.String destination:java.lang.String maxAge:long maxSize:long recordingStart:long recordingDuration:long",
    ),
    ("jdk.ActiveSetting", "startTime:long id:long name:java.lang.String value:java.lang.String"),
    ("jdk.DataLoss", "startTime:long amount:long total:long"),
    ("jdk.OSInformation", "startTime:long osVersion:java.lang.String"),
    (
        "jdk.CPUInformation",
        "startTime:long cpu:java.lang.String description:java.lang.String sockets:int cores:int hwThreads:int",
    ),
    (
        "jdk.JVMInformation",
        "startTime:long jvmName:java.lang.String jvmVersion:java.lang.String jvmArguments:java.lang.String jvmFlags:java.lang.String javaArguments:java.lang.String jvmStartTime:long pid:long",
    ),
    ("jdk.SystemProcess", "startTime:long pid:java.lang.String commandLine:java.lang.String"),
    ("jdk.InitialEnvironmentVariable", "startTime:long key:java.lang.String value:java.lang.String"),
    ("jdk.InitialSystemProperty", "startTime:long key:java.lang.String value:java.lang.String"),
    ("jdk.NativeLibrary", "startTime:long name:java.lang.String baseAddress:long topAddress:long"),
    (
        "jdk.ThreadStart",
        "startTime:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* thread:java.lang.Thread* parentThread:java.lang.Thread*",
    ),
    ("jdk.ThreadEnd", "startTime:long eventThread:java.lang.Thread* thread:java.lang.Thread*"),
    ("jdk.CPULoad", "startTime:long jvmUser:float jvmSystem:float machineTotal:float"),
    ("jdk.ThreadCPULoad", "startTime:long eventThread:java.lang.Thread* user:float system:float"),
    ("jdk.ThreadContextSwitchRate", "startTime:long switchRate:float"),
    ("jdk.ResidentSetSize", "startTime:long size:long peak:long"),
    ("jdk.PhysicalMemory", "startTime:long totalSize:long usedSize:long"),
    ("jdk.SwapSpace", "startTime:long totalSize:long freeSize:long"),
    (
        "jdk.ContainerConfiguration",
        "startTime:long containerType:java.lang.String cpuSlicePeriod:long cpuQuota:long cpuShares:long effectiveCpuCount:long memorySoftLimit:long memoryLimit:long swapMemoryLimit:long hostTotalMemory:long hostTotalSwapMemory:long",
    ),
    ("jdk.ContainerCPUUsage", "startTime:long cpuTime:long cpuUserTime:long cpuSystemTime:long"),
    (
        "jdk.ContainerCPUThrottling",
        "startTime:long cpuElapsedSlices:long cpuThrottledSlices:long cpuThrottledTime:long",
    ),
    ("jdk.ContainerMemoryUsage", "startTime:long memoryFailCount:long memoryUsage:long swapMemoryUsage:long"),
    ("jdk.ContainerIOUsage", "startTime:long serviceRequests:long dataTransferred:long"),
    (
        "jdk.NetworkUtilization",
        "startTime:long networkInterface:jdk.types.NetworkInterfaceName* readRate:long writeRate:long",
    ),
    (
        "flightline.ProcessUsage",
        "startTime:long pid:long user:float system:float residentSize:long residentPeak:long threads:int minorFaults:long majorFaults:long",
    ),
    ("flightline.ClockAnchor", "startTime:long monotonic:long realtime:long"),
    (
        "flightline.ThreadCpu",
        "startTime:long eventThread:java.lang.Thread* cpuTime:long sampled:long lost:long byTimer:long",
    ),
    (
        "flightline.SampleLoss",
        "startTime:long eventThread:java.lang.Thread* cause:java.lang.String samples:long cpuTime:long",
    ),
    (
        "flightline.SampleTruncated",
        "startTime:long eventThread:java.lang.Thread* cause:java.lang.String samples:long",
    ),
    ("flightline.types.EventName", "name:java.lang.String"),
    ("jdk.types.NetworkInterfaceName", "networkInterface:java.lang.String"),
    (
        "flightline.EventSample",
        "startTime:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* event:flightline.types.EventName* count:long",
    ),
    ("flightline.EventLoss", "startTime:long event:java.lang.String count:long value:long"),
    ("flightline.Notice", "startTime:long message:java.lang.String"),
    ("flightline.Segment", "startTime:long sequence:long offset:long size:long crc32:long events:long"),
    (
        "flightline.StreamLoss",
        "startTime:long cause:java.lang.String eventType:java.lang.String events:long bytes:long",
    ),
    ("flightline.Outage", "startTime:long duration:long reason:java.lang.String samples:long cpuTime:long"),
    (
        "jdk.MethodTrace",
        "startTime:long duration:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* method:jdk.types.Method*",
    ),
    (
        "profiler.Malloc",
        "startTime:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* address:long size:long",
    ),
    (
        "profiler.Free",
        "startTime:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* address:long",
    ),
    (
        "flightline.Allocation",
        "startTime:long eventThread:java.lang.Thread* address:long size:long weight:long function:java.lang.String",
    ),
    (
        "flightline.LiveAllocation",
        "startTime:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* address:long size:long weight:long allocationTime:long age:long",
    ),
    (
        "flightline.LiveMemory",
        "startTime:long stackTrace:jdk.types.StackTrace* allocations:long bytes:long oldest:long",
    ),
    (
        "jdk.JavaMonitorEnter",
        "startTime:long duration:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* monitorClass:java.lang.Class* previousOwner:java.lang.Thread* address:long",
    ),
    (
        "jdk.JavaMonitorWait",
        "startTime:long duration:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* monitorClass:java.lang.Class* notifier:java.lang.Thread* timeout:long timedOut:boolean address:long",
    ),
    (
        "jdk.ThreadPark",
        "startTime:long duration:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* parkedClass:java.lang.Class* timeout:long until:long address:long",
    ),
    (
        "jdk.FileRead",
        "startTime:long duration:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* path:java.lang.String bytesRead:long endOfFile:boolean",
    ),
    (
        "jdk.FileWrite",
        "startTime:long duration:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* path:java.lang.String bytesWritten:long",
    ),
    (
        "jdk.FileForce",
        "startTime:long duration:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* path:java.lang.String metaData:boolean",
    ),
    (
        "jdk.SocketRead",
        "startTime:long duration:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* host:java.lang.String address:java.lang.String port:int timeout:long bytesRead:long endOfStream:boolean",
    ),
    (
        "jdk.SocketWrite",
        "startTime:long duration:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* host:java.lang.String address:java.lang.String port:int bytesWritten:long",
    ),
    (
        "flightline.SocketConnect",
        "startTime:long duration:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* host:java.lang.String address:java.lang.String port:int error:int",
    ),
    (
        "flightline.SocketAccept",
        "startTime:long duration:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* host:java.lang.String address:java.lang.String port:int error:int",
    ),
    (
        "jdk.JavaExceptionThrow",
        "startTime:long duration:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* message:java.lang.String thrownClass:java.lang.Class*",
    ),
    (
        "jdk.JavaErrorThrow",
        "startTime:long duration:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* message:java.lang.String thrownClass:java.lang.Class*",
    ),
    ("flightline.BelowThreshold", "startTime:long event:java.lang.String count:long value:long"),
    (
        "flightline.FatalSignal",
        "startTime:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* signal:java.lang.String code:int reason:java.lang.String address:long sender:long",
    ),
    (
        "flightline.CaughtSignal",
        "startTime:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* signal:java.lang.String code:int reason:java.lang.String address:long sender:long",
    ),
    (
        "flightline.LastSample",
        "startTime:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* signal:java.lang.String thread:long",
    ),
    (
        "flightline.types.SpanContext",
        "spanId:long localRootSpanId:long traceIdHi:long traceIdLo:long flags:int labels:java.lang.String*",
    ),
    (
        "flightline.SampleContext",
        "startTime:long eventThread:java.lang.Thread* context:flightline.types.SpanContext* seq:long",
    ),
    (
        "flightline.Span",
        "startTime:long duration:long eventThread:java.lang.Thread* name:java.lang.String* spanId:long parentSpanId:long localRootSpanId:long traceIdHi:long traceIdLo:long flags:int samples:int labels:java.lang.String*",
    ),
    (
        "flightline.SpanScope",
        "startTime:long duration:long eventThread:java.lang.Thread* spanId:long previousSpanId:long seq:long open:boolean",
    ),
    (
        "flightline.OpenSpan",
        "startTime:long duration:long eventThread:java.lang.Thread* name:java.lang.String* spanId:long parentSpanId:long localRootSpanId:long traceIdHi:long traceIdLo:long flags:int labels:java.lang.String*",
    ),
    ("profiler.Span", "startTime:long duration:long eventThread:java.lang.Thread* tag:java.lang.String*"),
    ("flightline.Watermark", "startTime:long"),
    ("flightline.Label", "startTime:long pid:long name:java.lang.String value:java.lang.String"),
    (
        "flightline.OffCpu",
        "startTime:long duration:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* state:java.lang.String nanos:long runQueue:long wakerThread:java.lang.Thread* wakerStackTrace:jdk.types.StackTrace* wakerKind:java.lang.String wakerTime:long",
    ),
    (
        "flightline.OpenOffCpu",
        "startTime:long duration:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* state:java.lang.String nanos:long",
    ),
    (
        "flightline.BlockIo",
        "startTime:long duration:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* device:java.lang.String operation:java.lang.String flags:java.lang.String sector:long bytes:long error:int",
    ),
    (
        "flightline.MemoryGrowth",
        "startTime:long eventThread:java.lang.Thread* stackTrace:jdk.types.StackTrace* call:java.lang.String bytes:long address:long",
    ),
    (
        "flightline.RecorderCost",
        "startTime:long interval:long handlers:long delivery:long calls:long writer:long fixed:long symbols:long cpuTime:long lost:long signals:long bytes:long period:long share:float",
    ),
];

#[test]
fn every_type_has_exactly_the_fields_readers_expect() {
    let root = tree();
    let metadata = root.all("metadata").next().unwrap();
    let names: BTreeMap<&str, &str> =
        metadata.all("class").map(|class| (class.get("id"), class.get("name"))).collect();
    let described = metadata.all("class").map(|class| {
        let fields: Vec<String> = class
            .all("field")
            .map(|field| {
                let mark = |key, value, mark| if field.get(key) == value { mark } else { "" };
                let pooled = mark("constantPool", "true", "*");
                let array = mark("dimension", "1", "[]");
                format!("{}:{}{array}{pooled}", field.get("name"), names[field.get("class")])
            })
            .collect();
        (class.get("name"), fields.join(" "))
    });
    let described: BTreeMap<&str, String> =
        described.filter(|(name, fields)| !fields.is_empty() && !name.starts_with("jdk.jfr.")).collect();
    for (name, fields) in EXPECTED {
        assert_eq!(described.get(name).map(String::as_str), Some(*fields), "{name}");
    }
    let listed: BTreeMap<&str, &str> = EXPECTED.iter().copied().collect();
    let others: Vec<_> = described.iter().filter(|(name, _)| !listed.contains_key(*name)).collect();
    assert!(others.is_empty(), "not in the list above: {others:?}");
}

#[test]
fn metadata_tree_is_valid_for_the_jdk() {
    let root = tree();
    assert_eq!(root.name, "root");
    assert_eq!(root.children.iter().map(|child| &child.name[..]).collect::<Vec<_>>(), ["metadata", "region"]);
    assert_eq!(root.children[1].get("gmtOffset"), "0");
    let metadata = &root.children[0];
    let ids: HashSet<&str> = metadata.all("class").map(|class| class.get("id")).collect();
    assert_eq!(ids.len(), metadata.children.len());
    for class in &metadata.children {
        for part in class.children.iter().chain(class.children.iter().flat_map(|child| &child.children)) {
            assert!(["field", "annotation"].contains(&&part.name[..]), "{}", part.name);
            assert!(
                ids.contains(part.get("class")),
                "{}: {} is not declared",
                class.get("name"),
                part.get("class")
            );
        }
        let is_event = ["jdk.", "profiler.", "flightline."].iter().any(|p| class.get("name").starts_with(p))
            && class.all("field").next().is_some_and(|field| field.get("name") == "startTime");
        assert_eq!(is_event, class.get("superType") == "jdk.jfr.Event", "{}", class.get("name"));
    }
    // Types that Go's parser requires.
    let names: HashSet<&str> = metadata.all("class").map(|class| class.get("name")).collect();
    for name in ["int", "long", "short", "float", "boolean", "java.lang.String"] {
        assert!(names.contains(name), "{name}");
    }
}
