#!/usr/bin/env python3
"""Compares JFR readers: the same jobs on the same files, every result checked before its speed counts.

usage: bench/readers.py [--quick] [--write] [--dir DIR] [--json] [--only TEXT] [--rounds N]

Builds flightline and the other readers (tests/readers/build.sh: Maven, Go, cargo), makes the recordings unless DIR has them
(fixtures/make.sh big|quick), runs all readers in turn in each round, and prints tables. jafar is in no registry; it takes part
if FLIGHTLINE_JAFAR names the folder of its jars. Exit status 1 if a result of Flightline is wrong. With FLIGHTLINE_BIN,
Flightline is not built; its examples are next to that command.

--quick   small recordings, one round: the results are checked, but the speeds are not meaningful
--dir     folder of existing recordings; default target/bench/readers or …-quick
--write   also write the tables to docs/side-by-side/readers.md
--json    JSON instead of the tables
--only    contestants whose "job file reader" contains TEXT
--rounds  maximum number of rounds (5); readers that take seconds get fewer

The reference for correct results is RecordingFile of JDK 25. CPU is the user + system time of the whole process, including the
start of a JVM. "of floor" is the CPU time of bench/walk_floor.c, a bare walk along the event sizes, divided by the reader's CPU
time in the same round, median of the rounds. It would be 1 for a reader whose job needs no time in addition to this walk.
"""
import argparse, hashlib, json, os, re, statistics, subprocess, sys, time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
import beside, measuring
from measuring import FLIGHTLINE, ROOT, WORK

READERS = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "readers"
EXAMPLES = FLIGHTLINE.parent / "examples"
JAVA = READERS.parent / "java"
DOCUMENT = ROOT / "docs/side-by-side/readers.md"
# The folder with the jars of jafar and its dependencies, which are in no registry.
JAFAR = os.environ.get("FLIGHTLINE_JAFAR")
RUSAGE, FLOOR = WORK / "rusage", WORK / "walk_floor"
# The output of the current reader; the PID keeps parallel runs of this script apart.
OUTPUT = WORK / f"readers-{os.getpid()}.out"
# The time limit of a reader, in seconds.
LIMIT = 120
FILES = ["big17", "exec", "ap-mem", "prof"]
# Simple class names of async-profiler's reader → the event types that it reads into this class.
CONVERTER_TYPES = {
    "ExecutionSample": ["jdk.ExecutionSample", "jdk.NativeMethodSample", "profiler.WallClockSample"],
    "AllocationSample": ["jdk.ObjectAllocationInNewTLAB", "jdk.ObjectAllocationOutsideTLAB", "jdk.ObjectAllocationSample"],
    "ContendedLock": ["jdk.JavaMonitorEnter", "jdk.ThreadPark"],
    "CPULoad": ["jdk.CPULoad"],
    "ObjectCount": ["jdk.ObjectCount", "jdk.ObjectCountAfterGC"],
    "GCHeapSummary": ["jdk.GCHeapSummary"],
    "MallocEvent": ["profiler.Malloc", "profiler.Free"],
}


# Results of a job, in comparable form. ------------------------------------------------------------------

def plain(text):
    # HotSpot writes a character outside the Basic Multilingual Plane as two surrogates, which the JDK prints as two U+FFFD.
    return re.sub("[\U00010000-\U0010ffff]", "\ufffd\ufffd", text)


def tabbed(text):
    return Counter({name: int(n) for name, n in (line.rsplit("\t", 1) for line in text.splitlines()) if int(n)})


def events_only(counts):
    return Counter({name: n for name, n in counts.items() if n and name.lower() not in ("jdk.checkpoint", "jdk.metadata")})


def ours_types(text):
    return events_only({row["type"]: row["count"] for row in json.loads(text)["events"]})


def jfr_summary(text):
    rows = re.findall(r"^\s*([\w.$]+)\s+(\d+)\s+\d+\s*$", text, re.M)
    return events_only({name: int(n) for name, n in rows})


def folded(text):
    counts = Counter()
    for line in plain(text).splitlines():
        stack, n = line.rsplit(" ", 1)
        counts[stack] += int(n)
    return counts


def ours_folded(text):
    # Other readers have no thread ID, no mark for truncated stacks, and another word for missing stacks.
    text = text.replace(";[truncated]", "").replace("[no stack]", "?")
    return folded(re.sub(r"(?m)^\[(.*?) tid=\d+\]", r"\1", text))


def jfrconv_folded(text):
    # Only the converter prints frame types (_[j]) and thread IDs.
    return folded(re.sub(r"_\[.\](?=;| \d+$)", "", re.sub(r"(?m)^\[(.*?) tid=\d+\]", r"\1", text), flags=re.M))


def numbers(text):
    return tuple(int(n) for n in text.split())


# Contestants. -------------------------------------------------------------------------------------------------------

@dataclass
class Run:
    cpu: float
    wall: float
    peak_kb: int
    floor: float


@dataclass
class Contestant:
    job: str
    file: Path
    reader: str
    command: list
    read: object
    # The key of the correct result, and known differences.
    reference: str
    knows: object = None
    # The output format of a contestant that prints events (`read` is None): json, ndjson or compact.
    form: str = ""
    runs: list = field(default_factory=list)
    verdict: str = ""
    equal: bool = False

    @property
    def ours(self):
        return self.reader.startswith("flightline")

    def name(self):
        return f"{self.job} {self.file.name} {self.reader}"


def java(version):
    out = subprocess.run(["bash", "-c", f". {ROOT}/tests/readers/env.sh; find_jdk {version}"], capture_output=True, text=True)
    return Path(out.stdout.strip()) / "bin"


def in_java(bins):
    """Returns the command lines of Flightline's Java reader and of jafar."""
    ours = [bins[25] / "java", "-cp", f"{JAVA}/flightline-reader.jar:{JAVA}/tests", "dev.flightline.reader.Jobs"]
    jafar = [bins[25] / "java", "-cp", f"{READERS}/jafar:{READERS}/classes:{JAFAR}/*", "JafarJobs"]
    return [("flightline in Java", ours), *([("jafar", jafar)] if JAFAR else [])]


def contestants(files):
    bins = {v: java(v) for v in (17, 25)}
    classes = f"{READERS}/classes:{READERS}/lib/*"
    converter = next((READERS / "lib").glob("jfr-converter-*.jar"))
    jvm = lambda v, *args: [bins[v] / "java", "-cp", classes, *args]
    one = ["--jobs", "1"]
    out = []

    def add(job, name, reader, command, read, reference, knows=None, form=""):
        if (path := files.get(name)) and path.exists():
            out.append(Contestant(job, path, reader, [*command, path], read, f"{reference} {name}", knows, form))

    for name in ["big17", "exec", "ap-mem"]:
        job = "count by type"
        add(job, name, "flightline summary", [FLIGHTLINE, "summary", "--top", "0", "--json", *one], ours_types, "types")
        add(job, name, "flightline summary, 2 jobs", [FLIGHTLINE, "summary", "--top", "0", "--json", "--jobs", "2"], ours_types, "types")
        for v in bins:
            add(job, name, f"JDK {v} jfr summary", [bins[v] / "jfr", "summary"], jfr_summary, "types")
            add(job, name, f"JDK {v} RecordingFile", jvm(v, "JdkJobs", "file", "types"), tabbed, "types")
            add(job, name, f"JDK {v} EventStream", jvm(v, "JdkJobs", "stream", "types"), tabbed, "types")
        add(job, name, "async-profiler JfrReader", jvm(17, "ConverterJobs", "types"), tabbed, "types", CONVERTER_TYPES)
        add(job, name, "JMC", jvm(17, "JmcJobs", "types"), lambda t: tabbed(t), "types")
        for reader, command in in_java(bins):
            add(job, name, reader, [*command, "types"], tabbed, "types")
        add(job, name, "grafana/jfr-parser", [READERS / "gojfr", "types"], tabbed, "types", "subset")
        add(job, name, "jfrs", [READERS / "jfrs/release/jfrs-lines", "types"], tabbed, "types")

    for name in ["big17", "exec"]:
        job = "samples to folded stacks"
        fold = [FLIGHTLINE, "fold", "--threads", "-e", "jdk.ExecutionSample"]
        add(job, name, "flightline fold", [*fold, *one], ours_folded, "collapsed")
        add(job, name, "flightline fold, 2 jobs", [*fold, "--jobs", "2"], ours_folded, "collapsed")
        for v in bins:
            add(job, name, f"JDK {v} RecordingFile", jvm(v, "JdkJobs", "file", "collapsed"), folded, "collapsed")
            add(job, name, f"JDK {v} EventStream", jvm(v, "JdkJobs", "stream", "collapsed"), folded, "collapsed")
        add(job, name, "async-profiler JfrReader", jvm(17, "ConverterJobs", "collapsed"), folded, "merged")
        # run_once appends the output file.
        add(job, name, "async-profiler jfrconv", [bins[17] / "java", "-jar", converter, "-o", "collapsed", "--threads", "--dot"],
            jfrconv_folded, "merged")
        add(job, name, "JMC", jvm(17, "JmcJobs", "collapsed"), folded, "collapsed")
        for reader, command in in_java(bins):
            add(job, name, reader, [*command, "collapsed"], folded, "collapsed")
        add(job, name, "grafana/jfr-parser", [READERS / "gojfr", "collapsed"], folded, "collapsed")
        add(job, name, "jfrs", [READERS / "jfrs/release/jfrs-lines", "collapsed"], folded, "collapsed")

    for name in ["big17", "exec"]:
        job = "every field of every event"
        add(job, name, "flightline, jfr-format", [EXAMPLES / "all_fields"], numbers, "fields")
        for v in bins:
            add(job, name, f"JDK {v} RecordingFile", jvm(v, "JdkJobs", "file", "fields"), numbers, "fields")
        for reader, command in in_java(bins):
            add(job, name, reader, [*command, "fields"], numbers, "fields")
        add(job, name, "jfrs", [READERS / "jfrs/release/jfrs-lines", "fields"], numbers, "fields")

    printing = [FLIGHTLINE, "print"]
    job = "every event as JSON"
    for form in ["json", "ndjson", "compact"]:
        depth = ["--stack-depth", "5"] if form == "compact" else []
        for jobs in (1, 2):
            note = ", 5 frames" * bool(depth) + ", 2 jobs" * (jobs == 2)
            add(job, "prof", f"flightline print --{form}{note}", [*printing, f"--{form}", *depth, "--jobs", str(jobs)], None, "json", form=form)
    for v in bins:
        add(job, "prof", f"JDK {v} jfr print --json", [bins[v] / "jfr", "print", "--json"], None, "json", form="json")

    job = "every event as JSON, whole stacks by reference"
    for name in ["big17", "exec", "ap-mem"]:
        for jobs in (1, 2):
            add(job, name, f"flightline print --compact{', 2 jobs' * (jobs == 2)}", [*printing, "--compact", "--jobs", str(jobs)], None, "types",
                form="compact")

    job = "a small file, whole process"
    add(job, "prof", "flightline summary", [FLIGHTLINE, "summary", "--top", "0", "--json"], ours_types, "types")
    add(job, "prof", "flightline fold", [FLIGHTLINE, "fold", "--threads", "-e", "jdk.ExecutionSample"], ours_folded, "collapsed")
    add(job, "prof", "JDK 25 jfr summary", [bins[25] / "jfr", "summary"], jfr_summary, "types")
    add(job, "prof", "JDK 25 RecordingFile, stacks", jvm(25, "JdkJobs", "file", "collapsed"), folded, "collapsed")
    for reader, command in in_java(bins):
        add(job, "prof", f"{reader}, stacks", [*command, "collapsed"], folded, "collapsed")
    add(job, "prof", "grafana/jfr-parser, stacks", [READERS / "gojfr", "collapsed"], folded, "collapsed")
    return out


# Running. -----------------------------------------------------------------------------------------------------------

def measured(command, stdout):
    """Runs a command. Returns CPU and wall seconds, peak kB and exit status; None after the time limit."""
    out = OUTPUT.with_suffix(".rusage")
    out.unlink(missing_ok=True)
    with open(stdout, "wb") as to, open(OUTPUT.with_suffix(".err"), "wb") as err:
        process = subprocess.Popen([str(x) for x in [RUSAGE, out, *command]], stdin=subprocess.DEVNULL, stdout=to, stderr=err,
                                   start_new_session=True)
        try:
            process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            return None
    user, system, peak, status, wall = (int(x) for x in out.read_text().split())
    return (user + system) / 1e9, wall / 1e9, peak, status


def run_once(c, output):
    """Measures one run of the contestant and one of the floor; `output` gets the contestant's output."""
    floor = min(measured([FLOOR, c.file], "/dev/null")[0] for _ in range(3))
    command = c.command + ([output] if c.reader.endswith("jfrconv") else [])
    result = measured(command, "/dev/null" if c.reader.endswith("jfrconv") else output)
    if result is None:
        c.verdict = f"not done in {LIMIT} s"
        return False
    cpu, wall, peak, status = result
    if status:
        said = OUTPUT.with_suffix(".err").read_text(errors="replace").strip().splitlines()
        c.verdict = "fails: " + (said[-1][:110].replace("|", "/") if said else f"status {status}, without a word")
    c.runs.append(Run(cpu, wall, peak, floor))
    return status == 0


def references(files, only):
    """Returns the results of RecordingFile of JDK 25, except for JSON."""
    base = [java(25) / "java", "-cp", f"{READERS}/classes:{READERS}/lib/*", "JdkJobs", "file"]
    jobs = {"types": tabbed, "collapsed": folded, "merged": folded, "fields": numbers}
    known = {}
    for key in {c.reference for c in only}:
        job, name = key.split(" ")
        if job in jobs:
            text = subprocess.run([*base, job, files[name]], check=True, stdout=subprocess.PIPE).stdout.decode("utf-8", "replace")
            known[key] = jobs[job](text)
    return known


def check(c, text, known):
    """Compares a contestant's output with the reference, and sets its verdict."""
    right, got = known[c.reference], c.read(text)
    if got == right:
        c.equal, c.verdict = True, "equal"
    elif isinstance(c.knows, dict):
        sums = Counter({name: sum(right[t] for t in c.knows.get(name, [])) for name in got})
        c.equal = sums == got
        c.verdict = f"its {len(got)} kinds {'equal' if c.equal else 'DIFFER'}: {got.total():,} of {right.total():,} events"
    elif c.knows == "subset":
        c.equal = all(right[name] == n for name, n in got.items())
        c.verdict = f"its {len(got)} types {'equal' if c.equal else 'DIFFER'}: {got.total():,} of {right.total():,} events"
    elif isinstance(got, Counter):
        same = sum((got & right).values())
        c.verdict = f"DIFFERS: {same:,} of {right.total():,} agree, {got.total() - same:,} others"
    else:
        c.verdict = f"DIFFERS: {got}, not {right}"


def json_events(stream):
    """Yields the events of `{"recording": {"events": [...]}}` in any layout, reading a few MB at a time."""
    decoder, text, at = json.JSONDecoder(), "", 0
    begun = False
    while block := stream.read(4 << 20):
        text, at = text[at:] + block, 0
        if not begun:
            at = text.index("[") + 1
            begun = True
        while True:
            while at < len(text) and text[at] in " ,\n\r\t":
                at += 1
            try:
                event, at = decoder.raw_decode(text, at)
            except json.JSONDecodeError:
                break
            yield event


def line_events(stream):
    """Yields the events of `print --ndjson` and `--compact` in the same form; docs/guide/reference/print-formats.md documents these formats."""
    constants, settled = {}, set()

    def resolved(value):
        if isinstance(value, list):
            return [resolved(v) for v in value]
        if not isinstance(value, dict):
            return value
        if "#" not in value:
            return {k: resolved(v) for k, v in value.items()}
        key = value["#"]
        if key not in settled:
            settled.add(key)
            constants[key] = resolved(constants[key])
        return constants[key]

    while block := stream.read(4 << 20):
        # Read up to the end of the last line.
        while not block.endswith("\n") and (more := stream.read(4096)):
            block += more
        for line in block.split("\n"):
            record = json.loads(line) if line else {"chunk": 0}
            if "constant" in record:
                constants[record["constant"]] = record["value"]
            elif "event" in record:
                name = record.pop("event")
                values = {("event" if k == "event_" else k): resolved(v) for k, v in record.items()}
                yield {"type": name, "values": values}
            elif line:
                constants.clear()
                settled.clear()


# The JDK's text for the longs that mean "none" and "forever".
LIMITS = re.compile(r'"(PT-?2562047788015215H-?30M-?[78](\.9+)?S|[-+]9{9}-[^"]*)"')


TIMES = re.compile(r'"(\d{4}-\d\d-\d\dT[^"]*)"')
# The JDK uses the first chunk's clock for all chunks. This is the maximum drift between the clocks.
DRIFT_NANOS = 1_000_000


def nanos(text):
    """Returns the nanoseconds of an ISO time within its hour, which is enough to measure a drift."""
    minutes, seconds, fraction = re.match(r".*T\d\d:(\d\d)(?::(\d\d)(?:\.(\d+))?)?", text).groups()
    return (int(minutes) * 60 + int(seconds or 0)) * 10**9 + int((fraction or "0").ljust(9, "0"))


def printed(c):
    """Starts a contestant that prints events. Returns the process and its output as text."""
    process = subprocess.Popen([str(x) for x in c.command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return process, open(process.stdout.fileno(), encoding="utf-8", errors="replace", newline="", closefd=False)


def json_digests(c):
    """Returns a digest of each event without its times, with the fields in a fixed order; the type of each digest; the sorted start
    times; the number of bytes printed; the exit status."""
    digests, kinds, times, size = Counter(), {}, [], [0]
    process, stream = printed(c)
    with stream:
        counted = type("", (), {"read": lambda _, n: size.__setitem__(0, size[0] + len((b := stream.read(n)).encode())) or b})()
        for event in (json_events if c.form == "json" else line_events)(counted):
            text = LIMITS.sub("null", plain(json.dumps(event, sort_keys=True, ensure_ascii=False)))
            digest = hash(TIMES.sub('"time"', text))
            digests[digest] += 1
            kinds[digest] = event["type"]
            if start := event["values"].get("startTime"):
                times.append(start)
    return digests, kinds, sorted(times), size[0], process.wait()


def printed_hash(c):
    process = subprocess.Popen([str(x) for x in c.command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return hashlib.file_digest(process.stdout, "sha256").digest(), process.wait()


def check_json(cs):
    """Compares the printed events with those of the newest JDK: every field by value; layout and order may differ."""
    base = next(c for c in cs if "JDK 25" in c.reader)
    right, kinds, right_times, _, _ = json_digests(base)
    known = {}
    for c in cs:
        # With two jobs the output has the same bytes, so reuse the verdict.
        same = known.setdefault(printed_hash(c), c) if c.ours else c
        if same is not c:
            c.equal, c.verdict, c.out_bytes = same.equal, same.verdict, same.out_bytes
            continue
        got, mine, times, c.out_bytes, status = json_digests(c)
        missing, other = right - got, got - right
        drift = max((abs(nanos(a) - nanos(b)) for a, b in zip(right_times, times) if a != b), default=0)
        if missing or other:
            types = Counter({mine[d]: n for d, n in other.items()}) or Counter({kinds[d]: n for d, n in missing.items()})
            c.verdict = (f"DIFFERS: {other.total():,} of {right.total():,} events, {missing.total():,} missing: "
                         + ", ".join(dict.fromkeys(types)))
        elif status or drift > DRIFT_NANOS or len(times) != len(right_times):
            c.verdict = f"DIFFERS: exit status {status}, times by up to {drift} ns"
        else:
            c.equal, c.verdict = True, f"equal, times of later chunks by {drift} ns" if drift else "equal"


def check_lines(c, right):
    """Compares the number of printed events by type, for recordings whose JSON would take the JDK hours."""
    got, c.out_bytes = Counter(), 0
    process = subprocess.Popen([str(x) for x in c.command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    for line in process.stdout:
        c.out_bytes += len(line)
        if line.startswith(b'{"event":"'):
            got[line[10:line.index(b'"', 10)].decode()] += 1
    c.equal = got == right and process.wait() == 0
    c.verdict = "types and numbers of events equal" if c.equal else f"DIFFERS: {got.total():,} events, not {right.total():,}"


def race(cs, known, rounds):
    printing = [c for c in cs if c.read is None]
    for c in printing:
        if c.reference in known:
            check_lines(c, known[c.reference])
    against_jdk = [c for c in printing if c.reference not in known]
    if any("JDK 25" in c.reader for c in against_jdk):
        check_json(against_jdk)
    left = {id(c): rounds for c in cs}
    for turn in range(rounds):
        for c in cs:
            if left[id(c)] <= 0:
                continue
            fine = run_once(c, "/dev/null" if c.read is None else OUTPUT)
            if not fine:
                left[id(c)] = 0
                print(f"  {c.name()}: {c.verdict}", file=sys.stderr)
                continue
            if turn == 0 and c.read is not None:
                check(c, OUTPUT.read_bytes().decode("utf-8", "replace"), known)
            # A run of several seconds is less sensitive to other load, so it needs fewer rounds.
            wall = c.runs[-1].wall
            left[id(c)] = min(left[id(c)] - 1, 0 if wall > 6 else 2 if wall > 2 else left[id(c)])
            print(f"  {c.name()}: {c.runs[-1].cpu:.3f} s, {c.verdict}", file=sys.stderr)
    for suffix in [".out", ".err", ".rusage"]:
        OUTPUT.with_suffix(suffix).unlink(missing_ok=True)


# The table. ---------------------------------------------------------------------------------------------------------

def figures(c, events):
    """Returns the medians of a contestant's runs, for a row or JSON."""
    if not c.runs:
        return {"job": c.job, "file": c.file.name, "reader": c.reader, "result": c.verdict}
    median = lambda of: statistics.median(of(r) for r in c.runs)
    cpu, size = median(lambda r: r.cpu), c.file.stat().st_size
    row = {"job": c.job, "file": c.file.name, "reader": c.reader, "result": c.verdict, "equal": c.equal, "runs": len(c.runs),
           "cpu_s": cpu, "wall_s": median(lambda r: r.wall), "peak_rss_mb": median(lambda r: r.peak_kb) / 1024,
           "mb_per_cpu_s": size / 1e6 / cpu, "million_events_per_cpu_s": events / 1e6 / cpu,
           "of_floor": median(lambda r: r.floor / r.cpu), "floor_cpu_s": median(lambda r: r.floor)}
    if hasattr(c, "out_bytes"):
        row["json_mb_per_cpu_s"] = c.out_bytes / 1e6 / cpu
    return row


SHORT = {"count by type": "count", "samples to folded stacks": "fold", "every field of every event": "fields", "every event as JSON": "JSON",
         "a small file, whole process": "small file"}


def overview(rows):
    """Returns one table of all readers: CPU time relative to Flightline's command for the same job, and peak memory."""
    rows = [r for r in rows if r["job"] in SHORT and "2 jobs" not in r["reader"]]
    jobs = list(dict.fromkeys((r["job"], r["file"]) for r in rows))
    ours = {key: next((r for r in rows if (r["job"], r["file"]) == key and "cpu_s" in r), None) for key in jobs}
    of = {}
    for r in rows:
        name = re.sub(r"^flightline (?!in Java).*|^flightline,.*", "flightline", r["reader"]).removesuffix(", stacks")
        base = ours[r["job"], r["file"]]
        cell = "fails" if "cpu_s" not in r or r["result"].startswith("fails") else f"{r['cpu_s'] / base['cpu_s']:.1f}" if base else "–"
        if not r.get("equal") and cell not in ("fails", "–"):
            cell = f"({cell})"
        elif r["result"].startswith("its "):
            cell += " *"
        of.setdefault(name, {}).setdefault((r["job"], r["file"]), cell)
        of[name]["peak"] = max(of[name].get("peak", 0), r.get("peak_rss_mb", 0))
    head = ["reader", *(f"{SHORT[job]}, {name.removesuffix('.jfr')}" for job, name in jobs), "MB at most"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name, cells in of.items():
        lines.append("| " + " | ".join([name, *(cells.get(key, "") for key in jobs), f"{cells['peak']:,.0f}"]) + " |")
    return "\n".join(lines)


def table(rows):
    lines = []
    for key in dict.fromkeys((r["job"], r["file"]) for r in rows):
        group = [r for r in rows if (r["job"], r["file"]) == key]
        ours = next((r for r in group if r["reader"].startswith("flightline") and "cpu_s" in r), None)
        as_json = any("json_mb_per_cpu_s" in r for r in group)
        floor = statistics.median(r["floor_cpu_s"] for r in group if "floor_cpu_s" in r) if any("floor_cpu_s" in r for r in group) else 0
        lines += ["", f"### {key[0]}: {key[1]} (floor {floor * 1000:.0f} ms)", "",
                  "| reader | result | CPU s | wall s | peak RSS MB | MB/s | M events/s | of floor | CPU, ours = 1 |" + (" JSON MB/s |" if as_json else ""),
                  "|---|---|---:|---:|---:|---:|---:|---:|---:|" + ("---:|" if as_json else "")]
        for r in group:
            if "cpu_s" not in r:
                lines.append(f"| {r['reader']} | {r['result']} |  |  |  |  |  |  |  |")
                continue
            # The speed of a wrong result does not count.
            speed = (f"{r['mb_per_cpu_s']:,.0f} | {r['million_events_per_cpu_s']:.2f} | {r['of_floor']:.3f} | "
                     f"{r['cpu_s'] / ours['cpu_s'] if ours else 0:.1f}" if r.get("equal") else
                     f"({r['mb_per_cpu_s']:,.0f}) | – | – | –")
            lines.append(f"| {r['reader']} | {r['result']} | {r['cpu_s']:.3f} | {r['wall_s']:.3f} | {r['peak_rss_mb']:.1f} | {speed} |"
                         + (f" {r.get('json_mb_per_cpu_s', 0):,.0f} |" if as_json else ""))
        pairs = {r["reader"]: r for r in group if r["reader"].startswith("flightline") and "wall_s" in r}
        for name, r in pairs.items():
            if (double := pairs.get(name + ", 2 jobs")):
                lines += ["", f"Two jobs: {r['wall_s'] / double['wall_s']:.2f} times as fast by the clock."]
    return "\n".join(lines)


def versions():
    release = {v: re.search(r'IMPLEMENTOR="?([^"\n]*)"?', (java(v).parent / "release").read_text()).group(1) + " "
               + re.search(r'JAVA_VERSION="([^"]*)', (java(v).parent / "release").read_text()).group(1) for v in (17, 25)}
    pom = (ROOT / "tests/readers/pom.xml").read_text()
    pin = lambda artifact: re.search(rf"<artifactId>{artifact}</artifactId><version>([^<]*)", pom).group(1)
    go = re.search(r"jfr-parser v(\S+)", (ROOT / "tests/readers/go/go.mod").read_text()).group(1)
    jfrs = re.search(r'name = "jfrs"\nversion = "([^"]*)', (ROOT / "tests/readers/jfrs/Cargo.lock").read_text()).group(1)
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return (f"flightline {commit}; JDK 17 = {release[17]}, JDK 25 = {release[25]}; JMC {pin('flightrecorder')}; async-profiler's "
            f"jfr-converter {pin('jfr-converter')}; grafana/jfr-parser {go}; jfrs {jfrs}; jafar "
            + (", ".join(sorted(p.stem for p in Path(JAFAR).glob("*.jar") if "jafar" in p.name)) if JAFAR else "left out: FLIGHTLINE_JAFAR not set"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int)
    args = parser.parse_args()

    WORK.mkdir(parents=True, exist_ok=True)
    if "FLIGHTLINE_BIN" not in os.environ:
        subprocess.run(["cargo", "build", "--release", "-q", "-p", "flightline"], cwd=ROOT, check=True)
        subprocess.run(["cargo", "build", "--release", "-q", "-p", "jfr-format", "--example", "all_fields"], cwd=ROOT, check=True)
    subprocess.run([ROOT / "tests/readers/build.sh"], check=True)
    subprocess.run([ROOT / "consumer/java/build.sh", "tests"], check=True, stdout=sys.stderr)
    if not JAFAR:
        print("LEFT OUT: jafar: no registry has it, and FLIGHTLINE_JAFAR names no folder with its jars", file=sys.stderr)
    for name in ["rusage", "walk_floor"]:
        subprocess.run(["gcc", "-O2", "-o", WORK / name, ROOT / "bench" / f"{name}.c"], check=True)
    folder = args.dir or WORK / ("readers-quick" if args.quick else "readers")
    if not all((folder / f"{name}.jfr").exists() for name in FILES):
        subprocess.run([ROOT / "fixtures/make.sh", "quick" if args.quick else "big", folder], check=True, stdout=sys.stderr)
    files = {name: folder / f"{name}.jfr" for name in FILES}

    started = time.time()
    cs = [c for c in contestants(files) if args.only in c.name()]
    known = references(files, cs)
    race(cs, known, args.rounds or (1 if args.quick else 5))
    events = {name: int(subprocess.run([FLOOR, path], capture_output=True, text=True).stdout) for name, path in files.items()}
    rows = [figures(c, events[c.file.stem]) for c in cs]
    if args.json:
        json.dump({"versions": versions(), "machine": measuring.machine(), "rows": rows}, sys.stdout, indent=1)
        print()
    else:
        sizes = "\n".join(f"* {p.name}: {p.stat().st_size / 1e6:.0f} MB, {events[n]:,} events with checkpoints and metadata"
                          for n, p in files.items())
        told = (f"`bench/readers.py{' --quick' * args.quick}`, {time.strftime('%Y-%m-%d')}, {(time.time() - started) / 60:.0f} minutes; average load of "
                f"the machine {os.getloadavg()[2]:.1f}. {measuring.machine()}. {versions()}.\n\n{sizes}\n\n"
                f"{overview(rows)}\n{table(rows)}\n")
        print(told)
        if args.write:
            beside.fill(DOCUMENT, "readers", f"\n{told.strip()}\n")
    wrong = [c for c in cs if c.ours and not c.equal]
    for c in wrong:
        print(f"readers: {c.name()}: {c.verdict}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
