#!/usr/bin/env python3
"""Compares the shares of the top user functions with `perf record -e cpu-clock --call-graph dwarf`, and prints the share
of CPU time with stacks that reach the root.

usage: bench/compare_perf.py [--rate HZ] [--scale N] [PROGRAM...]     programs: sqlite3 xz python3 redis-server rust

Both recorders sample the same run of the program, at rates that do not coincide. With --separate, each has its own run
(the difference then includes the program's variation). A function's self share is the share of samples in which it is the
innermost user-space function. Its total share is the share of samples with the function anywhere in the stack. Kernel
time counts for the user function that entered the kernel. Functions are identified by module and start of their unwind
entry (.eh_frame), so that stripped modules are compared too. Exit status 1 if a self share differs by more than 2
percentage points.
"""
import argparse, bisect, re, subprocess, sys, time
from collections import Counter
from pathlib import Path
import measuring
from measuring import WORK, FLIGHTLINE


class Module:
    """The function starts of one ELF file, from its unwind entries, and the symbols that name them."""

    def __init__(self, path):
        frames = subprocess.run(["readelf", "--wide", "--debug-dump=frames", path], capture_output=True, text=True).stdout
        self.ranges = sorted({(int(a, 16), int(b, 16)) for a, b in re.findall(r"FDE .*pc=([0-9a-f]+)\.\.([0-9a-f]+)", frames)})
        self.starts = [a for a, _ in self.ranges]
        self.symbols = {}
        for table in (["nm", "-C", "--defined-only", debug_file(path)], ["nm", "-C", "--defined-only", path],
                      ["nm", "-C", "-D", "--defined-only", path]):
            for line in subprocess.run(table, capture_output=True, text=True).stdout.splitlines():
                parts = line.split(" ", 2)
                if len(parts) == 3 and parts[1] in "tTwWiuV":
                    self.symbols.setdefault(plain(parts[2].split("@")[0]), int(parts[0], 16))

    def start(self, offset):
        i = bisect.bisect_right(self.starts, offset) - 1
        return self.starts[i] if i >= 0 and offset < self.ranges[i][1] else offset

    def named(self, name):
        at = self.symbols.get(plain(name))
        return None if at is None else self.start(at)


def debug_file(path):
    """Returns the distribution's debug file with this build ID, if it is installed; otherwise the file itself."""
    notes = subprocess.run(["readelf", "-n", path], capture_output=True, text=True).stdout
    found = re.search(r"Build ID: ([0-9a-f]{2})([0-9a-f]+)", notes)
    debug = Path(f"/usr/lib/debug/.build-id/{found[1]}/{found[2]}.debug") if found else Path(path)
    return debug if debug.exists() else path


def plain(name):
    """Returns a demangled name without hash, arguments and clone suffix, in which the tools differ."""
    name = re.sub(r"::h[0-9a-f]{16}$", "", name)
    name = re.sub(r"\(.*", "", name)
    name = re.sub(r"\.(constprop|isra|part|cold|llvm)\.[0-9.]+", "", name)
    return name.removeprefix("__GI_").strip()


modules = {}
aliases = {}


def learn_aliases(paths):
    """Maps the loader's names to perf's: libx.so.1 is libx.so.1.2.3 in perf."""
    for base, path in paths.items():
        folder = Path(path).parent
        if folder.is_dir() and path.startswith("/"):
            for link in folder.glob(base.split(".so")[0] + ".so*"):
                if link.is_symlink() and link.resolve().name == base:
                    aliases[link.name] = base


def key(paths, module, name, offset):
    """Returns (module, function start) if the start is known, otherwise (module, name)."""
    module = aliases.get(module, module).strip("[]")  # The recording has the names of the kernel's modules without brackets.
    if module not in modules:
        path = paths.get(module)
        modules[module] = Module(path) if path and Path(path).is_file() else None
    found = modules[module]
    if found and offset is not None:
        return module, hex(found.start(offset))
    if found and (at := found.named(name)) is not None:
        return module, hex(at)
    return module, plain(name)


class Shares:
    """Self and total counts by function, and a name for each function."""

    def __init__(self):
        self.own, self.total, self.names, self.events = Counter(), Counter(), {}, 0

    def add(self, frames, times=1):
        """Adds a stack. Frames: [(key, name)], leaf first."""
        self.events += times
        if frames:
            self.own[frames[0][0]] += times
            for at in {at for at, _ in frames}:
                self.total[at] += times
            for at, name in frames:
                self.names.setdefault(at, name)


def ours(recording, paths, period):
    """Returns the shares, and the share of all CPU time that has whole stacks."""
    dump = FLIGHTLINE.parent / "dump"
    text = subprocess.run([dump, recording], capture_output=True, text=True, check=True).stdout
    stacks, seen, cpu = [], Counter(), {}
    for line in text.splitlines():
        kind, *fields = line.split("\t")
        if kind == "stack":
            stacks.append((fields[0] == "true", list(zip(fields[1::2], fields[2::2]))))
        elif kind == "sample":
            seen[int(fields[2])] += 1
        elif kind == "cpu":
            cpu[fields[0]] = int(fields[1])
    shares, whole = Shares(), 0
    for index, times in seen.items():
        truncated, frames = stacks[index]
        whole += 0 if truncated else times
        keyed = []
        for module, method in frames:
            offset = re.fullmatch(r".*\+0x([0-9a-f]+)", method)
            keyed.append((key(paths, module, method, int(offset[1], 16) if offset else None), method))
        shares.add(keyed, times)
    return shares, whole * period / max(1, sum(cpu.values()))


def perf(data):
    """Returns module paths by base name, and the shares from `perf script`, whose addresses in a module are file offsets.

    Samples of the drain and of Flightline's signal handler are excluded."""
    script = subprocess.Popen(["perf", "script", "-i", data, "--no-inline", "-F", "comm,pid,tid,event,ip,sym,dso"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace")
    paths, shares, drain, frames, known = {}, Shares(), None, None, {}

    def finish():
        if frames is None:
            return
        # The sample hit Flightline's signal handler, not the program's work.
        if not any("libflightline" in dso for _, _, dso in frames):
            keyed = []
            for frame in frames:
                if frame not in known:
                    ip, sym, dso = frame
                    base = dso.rsplit("/", 1)[-1]
                    paths.setdefault(base, dso)
                    offset = address(dso, ip) if dso.startswith("/") and ip < 1 << 40 else None
                    known[frame] = (key(paths, base, sym, offset), sym)
                keyed.append(known[frame])
            shares.add(keyed)

    for line in script.stdout:
        if not line.strip():
            finish()
            frames = None
        elif line[0].isspace() and frames is not None:
            found = re.match(r"\s+([0-9a-f]+) (.*) \((.*)\)$", line.rstrip("\n"))
            if found and int(found[1], 16) < 1 << 63 and not found[3].startswith("[kernel"):
                frames.append((int(found[1], 16), found[2], found[3]))
        elif found := re.search(r"\s(\d+)/\s*\d+ ", line):
            if drain is None and line.startswith("flightline"):
                drain = found[1]
            frames = None if line.startswith("flightline") or found[1] == drain else []
    finish()
    learn_aliases(paths)
    return paths, shares


segments = {}


def address(path, file_offset):
    """Converts a file offset to a virtual address of the ELF file."""
    if path not in segments:
        text = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True).stdout
        segments[path] = [tuple(int(x, 16) for x in m) for m in re.findall(r"LOAD\s+(0x\w+) (0x\w+) 0x\w+ (0x\w+)", text)]
    for offset, virtual, size in segments[path]:
        if offset <= file_offset < offset + size:
            return file_offset - offset + virtual
    return file_offset


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--rate", type=int, default=4000)
    parse.add_argument("--scale", type=float, default=2)
    parse.add_argument("--separate", action="store_true", help="a run for each recorder")
    parse.add_argument("--keep", action="store_true", help="use the recordings of the last run")
    parse.add_argument("programs", nargs="*", default=["sqlite3", "xz", "python3", "redis-server", "rust"])
    args = parse.parse_args()
    measuring.build()
    runs = measuring.workloads(args.scale)
    worst_of_all = 0
    table = []
    for name in args.programs:
        recording, data = WORK / f"{name}.jfr", WORK / f"{name}.perf"
        mine = [FLIGHTLINE, "record", "--quiet", "--rate", str(args.rate), "-o", recording, "--"]
        theirs = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(args.rate - 11), "--call-graph", "dwarf,16384", "-o", data, "--"]
        if not args.keep:
            for prefix in [mine, theirs] if args.separate else [theirs + mine]:
                runs[name](prefix)
        paths, there = perf(data)
        here, whole = ours(recording, paths, 1e9 / args.rate)
        print(f"\n{name}: {here.events} events here, {there.events} in perf; {100 * whole:.3f} % of all CPU time on whole stacks")
        print("      own   perf's              total   perf's")
        share = lambda counter, of, at: 100 * counter[at] / max(1, of.events)
        top = sorted(set(here.own) | set(there.own), key=lambda at: -max(share(here.own, here, at), share(there.own, there, at)))[:20]
        worst = worst_total = 0
        for at in top:
            x, y = share(here.own, here, at), share(there.own, there, at)
            u, v = share(here.total, here, at), share(there.total, there, at)
            worst, worst_total = max(worst, abs(x - y)), max(worst_total, abs(u - v))
            label = here.names.get(at) or there.names.get(at)
            print(f"  {x:6.2f} % {y:6.2f} % {x - y:+6.2f}   {u:6.2f} % {v:6.2f} % {u - v:+6.2f}  {at[0]:24.24} {label[:56]}")
        worst_of_all = max(worst_of_all, worst)
        table.append((name, here.events, there.events, worst, worst_total, 100 * whole))
    print(f"\n{time.strftime('%Y-%m-%d')}, {measuring.machine()}, `bench/compare_perf.py {' '.join(sys.argv[1:])}`\n")
    print("| program | events | perf's | worst difference of the top 20, own share, points | total share | CPU time on whole stacks |\n|---|---|---|---|---|---|")
    for name, mine, theirs, worst, worst_total, whole in table:
        print(f"| {name} | {mine} | {theirs} | {worst:.2f} | {worst_total:.2f} | {whole:.3f} % |")
    sys.exit(worst_of_all > 2)


if __name__ == "__main__":
    main()
