"""The recorders that the benchmarks compare: how each is started, and how its file is converted to folded stacks.

Recorders that are not installed are skipped with a message. They are searched in these places:
  async-profiler   libasyncProfiler.so in ASYNC_PROFILER, or a jar in ASYNC_PROFILER_JAR or in the folder of peers
  perf             PATH
  samply           SAMPLY, the folder of peers, PATH
  pprof-rs         built from bench/pprof-rs into the folder of peers; it is preloaded, so that it records any program
  gperftools       libprofiler.so.0 on the loader's search path, and google-pprof
`get()` fills the folder of peers (target/bench/peers) by cargo and Maven, and prints the missing Debian packages.
"""
import ctypes.util, gzip, json, os, re, shutil, subprocess, sys, zipfile
from collections import Counter
from pathlib import Path
import measuring
from measuring import FLIGHTLINE, ROOT, WORK

PEERS = WORK / "peers"
ASYNC_PROFILER_VERSION, CONVERTER_VERSION = "4.6", "4.5"
DEBIAN = {"perf": "linux-perf", "google-pprof": "google-perftools libgoogle-perftools4", "java": "default-jre-headless"}


def get_jar(name, version):
    PEERS.mkdir(parents=True, exist_ok=True)
    if not (PEERS / f"{name}-{version}.jar").exists():
        subprocess.run(["mvn", "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy",
                        f"-Dartifact=tools.profiler:{name}:{version}", f"-DoutputDirectory={PEERS}"], check=True)


def get_converter():
    get_jar("jfr-converter", CONVERTER_VERSION)


def get():
    """Installs the recorders from cargo and Maven; prints the Debian packages that are missing."""
    get_jar("async-profiler", ASYNC_PROFILER_VERSION)
    get_converter()
    if not samply():
        subprocess.run(["cargo", "install", "-q", "--locked", "--root", PEERS, "samply"], check=True)
    for features in ("", "framehop"):
        subprocess.run(["cargo", "build", "-q", "--release", "--locked", "--manifest-path", ROOT / "bench/pprof-rs/Cargo.toml",
                        "--target-dir", PEERS / f"pprof-rs-{features or 'default'}", "--features", features], check=True)
    for command, packages in DEBIAN.items():
        if not shutil.which(command):
            print(f"{command} is missing: apt-get install {packages}", file=sys.stderr)


def jar(name):
    """Returns the jar that the environment names, or the newest one in the folder of peers."""
    if path := os.environ.get(name.upper().replace("-", "_") + "_JAR"):
        return Path(path)
    return next(iter(sorted(PEERS.glob(f"{name}-*.jar"), reverse=True)), None)


def async_profiler_library():
    if path := os.environ.get("ASYNC_PROFILER"):
        return Path(path)
    if not (archive := jar("async-profiler")):
        return None
    out = WORK / "libasyncProfiler.so"
    arch = "linux-x64" if os.uname().machine == "x86_64" else "linux-arm64"
    with zipfile.ZipFile(archive) as files:
        out.write_bytes(files.read(f"{arch}/libasyncProfiler.so"))
    return out


def samply():
    return os.environ.get("SAMPLY") or next((str(p) for p in [PEERS / "bin/samply"] if p.exists()), None) or shutil.which("samply")


def text_of(command, **how):
    done = subprocess.run([str(x) for x in command], capture_output=True, text=True, errors="replace", timeout=60, **how)
    if done.returncode and not done.stdout:
        raise RuntimeError((done.stderr.strip() or f"{command[0]} failed")[-200:])
    return done.stdout


def folded_text(text):
    """Returns the stacks, outermost frame first, and their counts."""
    counts = Counter()
    for line in text.splitlines():
        stack, _, times = line.rpartition(" ")
        if stack and times.isdigit():
            counts[tuple(stack.split(";"))] += int(times)
    return counts


class Recorder:
    """A recorder. `start` returns the command prefix and the environment; `folded` returns the stacks of its file."""
    default_rate = None
    #: True if the recorder runs in the recorded process.
    inside = False

    def files(self, out):
        return [f for f in out.parent.glob(out.name + "*")]

    def samples(self, out):
        return sum(self.folded(out, None).values())

    def tells(self, out, stacks, thread):
        """Returns true if the stacks have this thread's name."""
        return any(thread in stack[0] for stack in stacks)

    def to_text(self, out, program):
        """Returns the recorder's own command that converts its file to text; None if there is none."""
        return None

    def folded(self, out, program):
        return folded_text(text_of(self.to_text(out, program)))


class Flightline(Recorder):
    default_rate = 99

    def __init__(self, engine="auto"):
        self.engine = engine
        self.name = "flightline" if engine == "auto" else f"flightline, {engine}"

    def version(self):
        return text_of([FLIGHTLINE, "--version"]).split()[-1]

    def start(self, rate, out):
        return [FLIGHTLINE, "record", "--engine", self.engine, *(["--rate", rate] if rate else []), "-o", out, "--"], {}

    def to_text(self, out, program):
        return [FLIGHTLINE, "fold", "--threads", out]


class AsyncProfiler(Recorder):
    default_rate, inside = 100, True

    def __init__(self, library, stacks=""):
        self.library, self.stacks = library, stacks
        self.name = f"async-profiler, cstack={stacks}" if stacks else "async-profiler"

    def version(self):
        found = re.search(rb"AsyncProfiler\S* v?(\d+\.\d+)", Path(self.library).read_bytes())
        return found[1].decode() if found else ASYNC_PROFILER_VERSION

    def start(self, rate, out):
        options = [f"cstack={self.stacks}"] * bool(self.stacks) + ([f"interval={1_000_000_000 // rate}ns"] if rate else [])
        command = ",".join(["start", "event=cpu", *options, "jfr", f"file={out}"])
        return [], {"UNDER_LD_PRELOAD": str(self.library), "ASPROF_COMMAND": command}

    def to_text(self, out, program):
        converter = jar("jfr-converter")
        if converter and shutil.which("java"):
            return ["java", "-jar", converter, "-o", "collapsed", "--threads", out, "/dev/stdout"]
        return Flightline().to_text(out, program)

    def folded(self, out, program):
        stacks = Counter()
        for stack, times in super().folded(out, program).items():
            stacks[tuple(re.sub(r"_\[.\]$", "", frame) for frame in stack)] += times
        return stacks


class Perf(Recorder):
    default_rate = 4000

    def __init__(self, graph):
        self.graph = graph
        self.name = f"perf, {graph}"

    def version(self):
        return text_of(["perf", "--version"]).split()[-1]

    def start(self, rate, out):
        return ["perf", "record", "-q", "-e", "cpu-clock", *(["-F", rate] if rate else []), "--call-graph", self.graph, "-o", out, "--"], {}

    def to_text(self, out, program):
        return ["perf", "script", "-f", "-i", out, "--no-inline", "-F", "comm,tid,ip,sym,dso"]

    def samples(self, out):
        found = re.findall(r"SAMPLE events:\s+(\d+)", text_of(["perf", "report", "-f", "-i", out, "--stats"]))
        return int(found[0]) if found else 0

    def folded(self, out, program):
        stacks = Counter()
        for block in text_of(self.to_text(out, program)).split("\n\n"):
            head, *frames = block.strip("\n").splitlines() or [""]
            if head.strip():
                names = [re.sub(r"^\s*[0-9a-f]+ (.*) \(.*\)$", r"\1", frame).split("+0x")[0] for frame in frames]
                stacks[(head.rsplit(None, 1)[0].strip(), *reversed(names))] += 1
        return stacks


class Samply(Recorder):
    """samply. It reads the file perf_event_paranoid instead of trying perf_event_open, so root gets a different file in a mount namespace."""
    name, default_rate = "samply", 1000

    def __init__(self, binary):
        self.binary = binary

    def version(self):
        return text_of([self.binary, "--version"]).split()[-1]

    def start(self, rate, out):
        command = [self.binary, "record", *(["-r", rate] if rate else []), "--save-only", "-n", "-o", f"{out}.json.gz", "--"]
        paranoid = Path("/proc/sys/kernel/perf_event_paranoid")
        if os.geteuid() == 0 and int(paranoid.read_text()) > 1:
            (WORK / "paranoid").write_text("1\n")
            show = f"mount --bind {WORK / 'paranoid'} {paranoid} && exec \"$@\""
            command = ["unshare", "--mount", "sh", "-c", show, "sh", *command]
        return command, {}

    def profile(self, out):
        with gzip.open(f"{out}.json.gz") as file:
            return json.load(file)

    def samples(self, out):
        return sum(sum(t["samples"]["weight"]) for t in self.profile(out)["threads"])

    def folded(self, out, program):
        """Looks up the names here: the file has only addresses, which samply resolves when it opens the page."""
        profile, stacks, known = self.profile(out), Counter(), {}
        paths = [lib["path"] for lib in profile["libs"]]
        for thread in profile["threads"]:
            frames, funcs, tree = thread["frameTable"], thread["funcTable"], thread["stackTable"]
            names = []
            for address, func in zip(frames["address"], frames["func"]):
                resource = funcs["resource"][func]
                path = paths[thread["resourceTable"]["lib"][resource]] if resource is not None and resource >= 0 else None
                names.append(symbol(known, path, address) or thread["stringArray"][funcs["name"][func]])
            whole = []
            for prefix, frame in zip(tree["prefix"], tree["frame"]):
                whole.append((*(whole[prefix] if prefix is not None else (thread["name"],)), names[frame]))
            for stack, weight in zip(thread["samples"]["stack"], thread["samples"]["weight"]):
                if weight:
                    stacks[whole[stack] if stack is not None else (thread["name"],)] += weight
        return stacks


def symbol(known, path, address):
    """Returns the function of a module at a relative address."""
    if path not in known:
        text = text_of(["nm", "-C", "--defined-only", path]) if path and Path(path).is_file() else ""
        known[path] = sorted((int(m[1], 16), m[2]) for m in re.finditer(r"^([0-9a-f]+) [tTwW] (.*)$", text, re.M))
    import bisect
    at = bisect.bisect_right(known[path], (address, "\x7f")) - 1
    return known[path][at][1] if at >= 0 else None


class PprofRs(Recorder):
    default_rate, inside = 99, True

    def __init__(self, library, unwinder):
        self.library = library
        self.name = "pprof-rs" if unwinder == "default" else f"pprof-rs, {unwinder}"

    def version(self):
        lock = (ROOT / "bench/pprof-rs/Cargo.lock").read_text()
        return re.search(r'name = "pprof"\nversion = "(.*)"', lock)[1]

    def start(self, rate, out):
        self.period = 1_000_000_000 // (rate or self.default_rate)
        return [], {"UNDER_LD_PRELOAD": str(self.library), "PPROF_RATE": str(rate or self.default_rate), "PPROF_OUT": f"{out}.pb"}

    def to_text(self, out, program):
        return [FLIGHTLINE, "fold", f"{out}.pb.gz"]

    def files(self, out):
        return [Path(f"{out}.pb")]

    def tells(self, out, stacks, thread):
        """Searches the profile: threads are labels of samples, and the text has no labels."""
        return thread.encode() in Path(f"{out}.pb").read_bytes()

    def folded(self, out, program):
        """Converts nanoseconds to samples. The profile is compressed first, as pprof's tools write it."""
        if not Path(f"{out}.pb").exists():
            raise RuntimeError("wrote nothing")
        Path(f"{out}.pb.gz").write_bytes(gzip.compress(Path(f"{out}.pb").read_bytes()))
        return Counter({stack: round(ns / self.period) for stack, ns in super().folded(out, program).items()})


class Gperftools(Recorder):
    name, default_rate, inside = "gperftools", 100, True

    def __init__(self, library):
        self.library = library

    def version(self):
        return text_of(["dpkg-query", "-W", "-f", "${Version}", "libgoogle-perftools4"]) if shutil.which("dpkg-query") else "?"

    def start(self, rate, out):
        rate = {"CPUPROFILE_FREQUENCY": str(rate)} if rate else {}
        return [], {"UNDER_LD_PRELOAD": self.library, "CPUPROFILE": str(out), **rate}

    def to_text(self, out, program):
        return ["google-pprof", "--collapsed", program or "/bin/true", out]

    def samples(self, out):
        """Counts the samples in the file itself: a header, then (count, depth, addresses) in words, up to a count of zero."""
        words = memoryview(out.read_bytes()).cast("Q") if out.stat().st_size % 8 == 0 else memoryview(out.read_bytes()[: out.stat().st_size & ~7]).cast("Q")
        at, total = 2 + words[1], 0
        while at + 1 < len(words) and words[at]:
            total += words[at]
            at += 2 + words[at + 1]
        return total

    def folded(self, out, program):
        stacks = Counter()
        for stack, times in super().folded(out, program).items():
            stacks[tuple(re.sub(r"<[0-9a-f]+>$", "", frame) for frame in stack)] += times
        return stacks


def here(say=lambda text: print(text, file=sys.stderr)):
    """Returns the recorders that are installed, Flightline first; prints the missing ones."""
    found = [Flightline()]

    def add(present, made, missing):
        if present:
            found.extend(made())
        else:
            say(f"LEFT OUT: {missing}")

    library, sampler = async_profiler_library(), samply()
    add(library, lambda: [AsyncProfiler(library), AsyncProfiler(library, "vm")], "async-profiler: no library, no jar (--get brings it)")
    add(shutil.which("perf"), lambda: [Perf("fp"), Perf("dwarf")], "perf: not on the search path (apt-get install linux-perf)")
    add(sampler, lambda: [Samply(sampler)], "samply: not here (--get builds it)")
    for unwinder in ("default", "framehop"):
        path = PEERS / f"pprof-rs-{unwinder}/release/libpprof_preload.so"
        add(path.exists(), lambda: [PprofRs(path, unwinder)], f"pprof-rs, {unwinder}: not built (--get builds it)")
    profiler = ctypes.util.find_library("profiler")
    add(profiler and shutil.which("google-pprof"), lambda: [Gperftools(profiler)], "gperftools: apt-get install google-perftools libgoogle-perftools4")
    return found
