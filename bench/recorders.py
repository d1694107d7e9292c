#!/usr/bin/env python3
"""Compares Flightline's recorder with async-profiler, perf, samply, pprof-rs and gperftools: one run, one table.

usage: bench/recorders.py [--quick] [--json] [--write] [--get] [--only TEXT] [--rounds N] [--rates 99,999] [SECTION...]

sections: cost defaults short start truth guest     (all of them without any)
--quick   small programs, two rounds: tests the recorders; the costs are not meaningful
--write   write the table to docs/side-by-side/recorders.md
--get     first install missing recorders by cargo and Maven into target/bench/peers (minutes); Debian packages are only printed
--only    recorders whose name contains TEXT, and always Flightline
Without FLIGHTLINE_BIN, Flightline is built. Recorders that are not installed are skipped with a message.

All costs are paired: each round runs the program alone and then under each recorder, in alternating order, and divides a recorded
run by the lone run of its round. The stacks of all recorders are read as text, made by the recorder's own converter if it has one.
"""
import argparse, ctypes, json, os, re, signal, subprocess, sys, tempfile, time
from dataclasses import dataclass
from pathlib import Path
import measuring, peers
from beside import Cell, Table, fill, middle
from measuring import ROOT, WORK

DOCUMENT = ROOT / "docs/side-by-side/recorders.md"
VICTIMS = ROOT / "tests/victims"
OUT = WORK / "recorders"
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
FUNCTIONS = ("alpha", "beta", "gamma_", "via_left", "via_right", "recursion")


def say(*text):
    print(time.strftime("%H:%M:%S"), *text, file=sys.stderr, flush=True)


def build():
    if "FLIGHTLINE_BIN" not in os.environ:
        subprocess.run(["cargo", "build", "--release", "-q", "-p", "flightline", "-p", "flightline-preload"], cwd=ROOT, check=True)
    measuring.programs()
    OUT.mkdir(exist_ok=True)
    pointers = ["-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"]
    for name, source, flags in [("known", "known_answer", ["-fomit-frame-pointer"]), ("known_fp", "known_answer", pointers),
                                ("known_all", "known_answer", ["-O0"]), ("deep", "deep", []), ("short_threads", "short_threads", [])]:
        subprocess.run(["gcc", "-g", "-O2", *flags, "-o", OUT / name, VICTIMS / f"{source}.c", "-lpthread"], check=True)


def clean():
    for old in OUT.glob("out*"):
        old.unlink()
    return OUT / "out"


# Costs. ---------------------------------------------------------------------------------------------------------

@dataclass
class Run:
    """A recorded run, the lone run of its round, and the recording's samples and size."""
    used: measuring.Used
    base: measuring.Used
    samples: int
    size: int


def rounds_per_second():
    """Returns the number of rounds of `burn` that take one second of a thread."""
    rounds = 20_000
    return int(rounds / measuring.run([], [WORK / "burn", "1", str(rounds)]).program_cpu)


def paired(recorders, rate, command, rounds):
    """Returns name → runs, name → failures, and the differences between two lone runs, in percent."""
    seen, failed, noise = {r.name: [] for r in recorders}, {}, []
    for turn in range(rounds):
        base = measuring.run([], command)
        for r in recorders if turn % 2 else reversed(recorders):
            out = clean()
            prefix, env = r.start(rate, out)
            try:
                used = measuring.run(prefix, command, env)
                seen[r.name].append(Run(used, base, r.samples(out), sum(f.stat().st_size for f in r.files(out))))
            except Exception as why:
                failed.setdefault(r.name, []).append(reason(why))
                say(f"{r.name}: {failed[r.name][-1]}")
        again = measuring.run([], command)
        noise.append(100 * (again.program_cpu / base.program_cpu - 1))
        say(f"{' '.join(Path(str(c)).name for c in command)} at {rate or 'its own rate'}: round {turn + 1} of {rounds}")
    return seen, failed, noise


def reason(why):
    """Describes a failure in a few words, without paths of this machine."""
    words = str(why).strip().splitlines()[-1] if str(why).strip() else type(why).__name__
    return "failed: " + re.sub(r"/\S*/", "", words)[-60:]


def cost_rows(table, recorders, rate, command, rounds, label):
    seen, failed, noise = paired(recorders, rate, command, rounds)

    def row(name, better, cell, same=0.0):
        cells = {}
        for r in recorders:
            runs = seen[r.name]
            cells[r.name] = cell(r, runs) if runs else Cell((failed.get(r.name) or ["–"])[0])
            if runs and (lost := len(failed.get(r.name, []))):
                cells[r.name].text += f"; failed {lost} of {lost + len(runs)}"
        table.add(f"{label}: {name}", better, cells, same)

    percent = lambda values: middle([100 * v for v in values], "{:+.1f}", " %")
    row("program's CPU time", "less", lambda r, runs: percent([x.used.program_cpu / x.base.program_cpu - 1 for x in runs]), 1)
    row("recorder's own processes, ms of CPU", "less",
        lambda r, runs: Cell("in the program", None) if r.inside else middle([1e3 * max(0, x.used.total_cpu - x.used.program_cpu) for x in runs], "{:.0f}"))
    row("all CPU time", "less", lambda r, runs: percent([x.used.total_cpu / x.base.total_cpu - 1 for x in runs]), 1)
    row("wall time until all is written", "less", lambda r, runs: percent([x.used.total_wall / x.base.total_wall - 1 for x in runs]), 1)
    row("samples of those due", "more", lambda r, runs: yielded(r, rate, runs), 1)
    row("bytes per sample", "less", lambda r, runs: middle([x.size / x.samples for x in runs if x.samples], "{:.0f}"), 1)
    row("RSS of the program, MiB more", "less", lambda r, runs: middle([(x.used.peak_kb - x.base.peak_kb) / 1024 for x in runs], "{:+.1f}"), 0.3)
    return middle(noise, "{:+.1f}", " %").text


def yielded(r, rate, runs):
    """Returns the percentage of the samples due by rate and CPU time, at most 100 for the comparison."""
    shares = [100 * x.samples / ((rate or r.default_rate) * x.used.program_cpu) for x in runs]
    cell = middle(shares, "{:.0f}", " %")
    return Cell(cell.text, min(100, cell.value), min(100, cell.low), min(100, cell.high))


def cost(table, recorders, args):
    per_second = rounds_per_second()
    command = [WORK / "burn", "2", str(int(per_second * args.scale))]
    return {f"{rate} Hz": cost_rows(table, recorders, rate, command, args.rounds, f"{rate} Hz") for rate in args.rates}


def defaults(table, recorders, args):
    command = [WORK / "burn", "2", str(int(rounds_per_second() * args.scale))]
    return {"defaults": cost_rows(table, recorders, None, command, max(1, args.rounds - 2), "default options")}


def short(table, recorders, args):
    """Measures a program with one thread that runs for one second."""
    command = [WORK / "burn", "1", str(int(rounds_per_second() * args.scale))]
    seen, failed, noise = paired(recorders, 999, command, args.rounds)
    for name, of in (("all CPU time, ms more", lambda x: 1e3 * (x.used.total_cpu - x.base.total_cpu)),
                     ("wall time until all is written, ms more", lambda x: 1e3 * (x.used.total_wall - x.base.total_wall))):
        cells = {r.name: middle([of(x) for x in seen[r.name]], "{:+.0f}") if seen[r.name] else Cell("–") for r in recorders}
        table.add(f"1 s of one thread, 999 Hz: {name}", "less", cells, 5)
    return {"1 s": middle(noise, "{:+.1f}", " %").text}


def start(table, recorders, args):
    """Measures a program that does nothing."""
    cpu, wall = {r.name: [] for r in recorders}, {r.name: [] for r in recorders}
    for _ in range(args.rounds * 3):
        base = measuring.run([], ["/bin/true"])
        for r in recorders:
            try:
                used = measuring.run(*reversed_pair(r.start(99, clean()), ["/bin/true"]))
            except measuring.RecorderFailed:
                continue
            cpu[r.name].append(1e3 * (used.total_cpu - base.total_cpu))
            wall[r.name].append(1e3 * (used.total_wall - base.total_wall))
    table.add("a program that does nothing: CPU time, ms more", "less", {n: middle(v, "{:+.1f}") for n, v in cpu.items()}, 1)
    table.add("a program that does nothing: wall time, ms more", "less", {n: middle(v, "{:+.1f}") for n, v in wall.items()}, 1)
    say("start: done")
    return {}


def reversed_pair(started, command):
    prefix, env = started
    return prefix, command, env


# Accuracy. ----------------------------------------------------------------------------------------------------

def truth_of(path):
    """Returns the CPU times that the program measured itself: function → CPU ns, thread → CPU ns."""
    functions, threads = {}, {}
    for line in path.read_text().splitlines():
        kind, *rest = line.split("\t")
        if kind == "function":
            functions[rest[0]] = int(rest[1])
        elif kind == "thread":
            threads[rest[1]] = threads.get(rest[1], 0) + int(rest[2])
    return functions, threads


def known(r, program, seconds):
    """Returns the stacks of the program with known results, its own measurements, and the CPU seconds of converting the file to text."""
    out, told = clean(), OUT / "out.truth"
    prefix, env = r.start(999, out)
    measuring.run(prefix, [program, str(seconds)], {**env, "TRUTH_FILE": str(told)})
    before = os.times()
    stacks = r.folded(out, program)
    after = os.times()
    return stacks, truth_of(told), after.children_user + after.children_system - before.children_user - before.children_system


def share(stacks, has):
    return 100 * sum(n for s, n in stacks.items() if has(s)) / max(1, sum(stacks.values()))


def truth(table, recorders, args):
    seconds = args.scale
    reading, threads = {}, {}
    for label, name in (("no frame pointers", "known"), ("frame pointers but in leaves", "known_fp"), ("frame pointers everywhere", "known_all")):
        wrong, whole = {}, {}
        for r in recorders:
            try:
                stacks, (functions, cpu), reading[r.name] = known(r, OUT / name, seconds)
            except Exception as why:
                wrong[r.name] = whole[r.name] = Cell(reason(why))
                continue
            total = sum(cpu.values())
            errors = [abs(share(stacks, lambda s: f in s) - 100 * functions[f] / total) for f in FUNCTIONS]
            reached = share(stacks, lambda s: "worker" in s or "main" in s)
            wrong[r.name] = Cell(f"{max(errors):.1f}", max(errors))
            whole[r.name] = Cell(f"{reached:.1f} %", reached)
            found = [t for t in cpu if t.startswith("known-") and r.tells(OUT / "out", stacks, t)]
            threads[r.name] = Cell(f"{len(found)} of 4", len(found))
            say(f"{r.name}, {label}: {sum(stacks.values())} samples, worst error {max(errors):.2f}, whole {reached:.1f} %")
        table.add(f"{label}: worst error of a function's share, points", "less", wrong, 0.5)
        table.add(f"{label}: stacks that reach the thread's first function", "more", whole, 0.5)
    deep(table, recorders)
    table.add("names told of 4 threads that have ended", "more", threads)
    table.add("CPU s to make text of 4,000 samples" if args.scale == 1 else "CPU s to make text of them", "less",
              {n: Cell(f"{v:.2f}", v) for n, v in reading.items()}, 0.02)
    return {}


def deep(table, recorders):
    cells = {}
    for r in recorders:
        try:
            out = clean()
            prefix, env = r.start(999, out)
            measuring.run(prefix, [OUT / "deep", "300", "0.5"], env)
            reached = share(r.folded(out, OUT / "deep"), lambda s: "main" in s)
            cells[r.name] = Cell(f"{reached:.1f} %", reached)
        except Exception as why:
            cells[r.name] = Cell(reason(why))
    table.add("300 frames deep: stacks that reach main", "more", cells, 0.5)
    say("deep: done")


# Effects on the program. --------------------------------------------------------------------------------------------

def spawn(r, rate, out, program, around=(), within=()):
    """Starts `around recorder within program`; a library is preloaded only into the program."""
    prefix, env = r.start(rate, out)
    preload = env.pop("UNDER_LD_PRELOAD", None)
    command = [*around, *prefix, *within, *(["env", f"LD_PRELOAD={preload}"] if preload else []), *program]
    return subprocess.Popen([str(c) for c in command], env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL, start_new_session=True, cwd=out.parent)


def family(process):
    """Returns the processes of a session started by this script: PID → (name, CPU seconds)."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        name, rest = text[text.index("(") + 1: text.rindex(")")], text[text.rindex(")") + 2:].split()
        if int(rest[3]) == process.pid and rest[0] != "Z":
            found[int(path.parent.name)] = (name, (int(rest[11]) + int(rest[12])) / os.sysconf("SC_CLK_TCK"))
    return found


def victim_of(process, name="known"):
    return next(((pid, cpu) for pid, (comm, cpu) in family(process).items() if comm == name), (None, 0.0))


def high_water(pid):
    try:
        return next((int(l.split()[1]) for l in Path(f"/proc/{pid}/status").read_text().splitlines() if l.startswith("VmHWM")), 0)
    except OSError:
        return 0


def end(process):
    """Kills the remaining processes of a session started by this script."""
    for pid in family(process):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


def killed(r, whom, seconds):
    """Kills the program or the recorder. Returns the samples in percent of those due, the peak memory of the recorder's own processes in kB, and
    the PID of the program if it survived the recorder."""
    out = clean()
    process = spawn(r, 999, out, [OUT / "known", "20"])
    time.sleep(seconds)
    pid = victim_of(process)[0]
    peak = {}
    if pid is None:
        end(process)
        raise RuntimeError("no program")
    alive = None
    look = lambda: [peak.__setitem__(p, max(peak.get(p, 0), high_water(p))) for p in family(process) if p != pid]
    look()
    cpu = victim_of(process)[1]
    if whom == "recorder" and not r.inside:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        time.sleep(0.3)
        alive, later = victim_of(process)
        cpu = later or cpu
    if whom == "program" or r.inside or alive:
        os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < until:
        look()
        time.sleep(0.01)
    time.sleep(0.3)
    end(process)
    try:
        samples = r.samples(out)
    except Exception:
        samples = 0
    return 100 * samples / (999 * cpu), sum(peak.values()), alive


def without_perf(command):
    """Runs a command with a seccomp filter that refuses perf_event_open, as containers do by default."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = {"x86_64": 298, "aarch64": 241}[os.uname().machine]
    step = lambda code, jump_true, jump_false, k: code.to_bytes(2, "little") + bytes([jump_true, jump_false]) + k.to_bytes(4, "little")
    # Load the system call's number. If it is perf_event_open, return EPERM, otherwise allow it.
    rules = step(0x20, 0, 0, 0) + step(0x15, 0, 1, number) + step(0x06, 0, 0, 0x00050001) + step(0x06, 0, 0, 0x7FFF0000)
    text = ctypes.create_string_buffer(rules)

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(Program(4, ctypes.addressof(text)))):
        sys.exit(f"seccomp: {os.strerror(ctypes.get_errno())}")
    os.execvp(command[0], command)


def guest_run(r, around, program, rate):
    """Returns the percentage of samples due, recorded as an unprivileged user if this script runs as root."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        out, usage = Path(folder) / "out", Path(folder) / "usage"
        process = spawn(r, rate, out, program, around, [WORK / "rusage", usage])
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            end(process)
            return Cell("hung", 0)
        if not usage.exists():
            return Cell("does not start", 0)
        user, system, *_ = (int(x) for x in usage.read_text().split())
        try:
            samples = r.samples(out)
        except Exception:
            samples = 0
        got = 100 * samples / (rate * (user + system) / 1e9)
        return Cell(f"{got:.0f} %", min(100, got))


def guest(table, recorders, args):
    seconds = 1.5 * min(1, args.scale * 2)
    rows = {name: {} for name in ("program", "recorder", "memory", "user", "container", "threads")}
    unprivileged = NOBODY if os.geteuid() == 0 else []
    refused = [*unprivileged, sys.executable, Path(__file__).resolve(), "--without-perf"]
    for r in recorders:
        say(f"guest: {r.name}")
        try:
            got, peak, _ = killed(r, "program", seconds)
            rows["program"][r.name] = Cell(f"{got:.0f} %", min(100, got))
            rows["memory"][r.name] = Cell("in the program") if r.inside else Cell(f"{peak / 1024:.0f}", peak / 1024)
            got, _, alive = killed(r, "recorder", seconds)
            after = "is the program" if r.inside else f"{got:.0f} %, {'program goes on' if alive else 'program dies'}"
            rows["recorder"][r.name] = Cell(after, None if r.inside else min(100, got))
        except Exception as why:
            rows["program"][r.name] = Cell(reason(why))
        for key, around in (("user", unprivileged), ("container", refused)):
            rows[key][r.name] = guest_run(r, around, [OUT / "known", "0.3"], 999)
        rows["threads"][r.name] = guest_run(r, [], [OUT / "short_threads", "300", "5"], 99)
    paranoid = Path("/proc/sys/kernel/perf_event_paranoid").read_text().strip()
    table.add("program killed by SIGKILL: samples of those due", "more", rows["program"], 2)
    table.add("recorder killed by SIGKILL: samples of those due", "more", rows["recorder"], 2)
    table.add("peak RSS of the recorder's own processes, MiB", "less", rows["memory"], 1)
    table.add(f"user without rights, perf_event_paranoid {paranoid}: samples of those due", "more", rows["user"], 2)
    table.add("the same, perf_event_open refused: samples of those due", "more", rows["container"], 2)
    table.add("300 threads of 5 ms at 99 Hz: samples of those due", "more", rows["threads"], 10)
    return {}


SECTIONS = {f.__name__: f for f in (cost, defaults, short, start, truth, guest)}


def main():
    if sys.argv[1:2] == ["--without-perf"]:
        without_perf(sys.argv[2:])
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--quick", action="store_true")
    parse.add_argument("--json", action="store_true")
    parse.add_argument("--write", action="store_true")
    parse.add_argument("--get", action="store_true")
    parse.add_argument("--only", default="")
    parse.add_argument("--rounds", type=int, default=5)
    parse.add_argument("--rates", type=lambda text: [int(r) for r in text.split(",")], default=[99, 999])
    parse.add_argument("sections", nargs="*", choices=[[], *SECTIONS], metavar="SECTION")
    args = parse.parse_args()
    args.scale = 1
    if args.quick:
        args.rounds, args.scale = min(args.rounds, 2), 0.3
    measuring.LIMIT = 30
    build()
    if args.get:
        peers.get()
    recorders = [r for r in peers.here() if args.only in r.name or r.name == "flightline"]
    versions = "; ".join(dict.fromkeys(f"{r.name.split(',')[0]} {r.version()}" for r in recorders))
    begun, table, noise = time.monotonic(), Table([r.name for r in recorders]), {}
    load = os.getloadavg()[0]
    for name in args.sections or SECTIONS:
        noise.update(SECTIONS[name](table, recorders, args) or {})
    head = (f"{time.strftime('%Y-%m-%d')}, {measuring.machine()}, load average {load:.1f} at the start, {args.rounds} rounds, "
            f"{time.monotonic() - begun:.0f} s, `bench/recorders.py {' '.join(sys.argv[1:])}`. {versions}.")
    spread = "; ".join(f"{k} {v}" for k, v in noise.items())
    behind = "\n".join(table.behind(["flightline"])) or "* nothing"
    text = (f"{head}\n\nThe bare program against itself, CPU time, median (range): {spread}.\n\n{table.markdown()}\n\n"
            f"**Bold**: the best, or not significantly different from it in this run. Rows in which Flightline is neither:\n\n{behind}\n")
    if args.json:
        print(json.dumps({"head": head, "noise": noise, "rows": table.plain(), "behind": table.behind(["flightline"])}, indent=1))
    else:
        print(text)
    if args.write:
        fill(DOCUMENT, "table", text)


if __name__ == "__main__":
    main()
