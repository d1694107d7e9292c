#!/usr/bin/env python3
"""Compares the shares of the top user functions with `perf record -e cpu-clock --call-graph dwarf`, and says how much
of the CPU time is on stacks that reach the root.

usage: bench/compare_perf.py [--rate HZ] [--scale N] [PROGRAM...]     programs: sqlite3 xz python3 redis-server rust

Each program does the same fixed work twice, once under each recorder. A function's share is the share of samples whose
innermost user-space function it is; kernel time counts for the user function that entered the kernel. Functions are
identified by module and start of their unwind entry (.eh_frame), so that stripped modules are compared too.
Exit status 1 when a share differs by more than 2 points.
"""
import argparse, bisect, re, subprocess, sys
from collections import Counter
from pathlib import Path
import common
from common import WORK, FLIGHTLINE


class Module:
    """Function starts of one ELF file: by unwind entry, and the symbols that name them."""

    def __init__(self, path):
        frames = subprocess.run(["readelf", "--wide", "--debug-dump=frames", path], capture_output=True, text=True).stdout
        self.ranges = sorted({(int(a, 16), int(b, 16)) for a, b in re.findall(r"FDE .*pc=([0-9a-f]+)\.\.([0-9a-f]+)", frames)})
        self.starts = [a for a, _ in self.ranges]
        self.symbols = {}
        for table in (["nm", "-C", "--defined-only", path], ["nm", "-C", "-D", "--defined-only", path]):
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


def plain(name):
    """A demangled name without hash, arguments and clone suffix: the tools differ in these."""
    name = re.sub(r"::h[0-9a-f]{16}$", "", name)
    name = re.sub(r"\(.*", "", name)
    name = re.sub(r"\.(constprop|isra|part|cold|llvm)\.[0-9.]+", "", name)
    return name.removeprefix("__GI_").strip()


modules = {}


def key(paths, module, name, offset):
    """(module, function start) where it can be found, else (module, name)."""
    if module not in modules:
        path = paths.get(module)
        modules[module] = Module(path) if path and Path(path).is_file() else None
    found = modules[module]
    if found and offset is not None:
        return module, hex(found.start(offset))
    if found and (at := found.named(name)) is not None:
        return module, hex(at)
    return module, plain(name)


def ours(recording, paths, period):
    """Leaf shares, number of events, and the part of all CPU time that is on whole stacks."""
    dump = common.ROOT / "target" / "release" / "dump"
    text = subprocess.run([dump, recording], capture_output=True, text=True, check=True).stdout
    stacks, count, names, cpu = [], Counter(), {}, {}
    whole = events = 0
    for line in text.splitlines():
        kind, *fields = line.split("\t")
        if kind == "stack":
            stacks.append((fields[0] == "true", fields[1:]))
        elif kind == "sample":
            truncated, frames = stacks[int(fields[2])]
            events += 1
            whole += not truncated
            module, method = (frames[0], frames[1]) if frames else ("?", "?")
            offset = re.fullmatch(r".*\+0x([0-9a-f]+)", method)
            at = key(paths, module, method, int(offset[1], 16) if offset else None)
            names.setdefault(at, method)
            count[at] += 1
        elif kind == "cpu":
            cpu[fields[0]] = int(fields[1])
    return count, names, events, whole * period / max(1, sum(cpu.values()))


def perf(data):
    """Leaf shares by perf script, whose addresses in a module are file offsets; also module paths by base name."""
    script = subprocess.Popen(["perf", "script", "-i", data, "--no-inline", "-F", "comm,tid,event,ip,sym,dso"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace")
    paths, count, names = {}, Counter(), {}
    leaf = None
    in_sample = False
    events = 0

    def finish():
        nonlocal leaf, events
        if in_sample and leaf:
            ip, sym, dso = leaf
            base = dso.rsplit("/", 1)[-1]
            paths.setdefault(base, dso)
            offset = address(dso, ip) if dso.startswith("/") and ip < 1 << 40 else None
            at = key(paths, base, sym, offset)
            names.setdefault(at, sym)
            count[at] += 1
        if in_sample:
            events += 1
        leaf = None

    for line in script.stdout:
        if not line.strip():
            finish()
            in_sample = False
        elif line[0].isspace() and in_sample:
            found = re.match(r"\s+([0-9a-f]+) (.*) \((.*)\)$", line.rstrip("\n"))
            if found and leaf is None and int(found[1], 16) < 1 << 63 and not found[3].startswith("[kernel"):
                leaf = (int(found[1], 16), found[2], found[3])
        elif "cpu-clock" in line:
            in_sample = True
    finish()
    return paths, count, names, events


segments = {}


def address(path, file_offset):
    """File offset → virtual address of the ELF file."""
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
    parse.add_argument("--keep", action="store_true", help="use the recordings of the last run")
    parse.add_argument("programs", nargs="*", default=["sqlite3", "xz", "python3", "redis-server", "rust"])
    args = parse.parse_args()
    common.build()
    runs = common.workloads(args.scale)
    worst_of_all = 0
    table = []
    for name in args.programs:
        recording, data = WORK / f"{name}.jfr", WORK / f"{name}.perf"
        if not args.keep:
            runs[name]([FLIGHTLINE, "record", "--rate", str(args.rate), "-o", recording, "--"])
            runs[name](["perf", "record", "-q", "-e", "cpu-clock", "-F", str(args.rate), "--call-graph", "dwarf,16384", "-o", data, "--"])
        paths, theirs, their_names, their_events = perf(data)
        mine, my_names, my_events, whole = ours(recording, paths, 1e9 / args.rate)
        a, b = sum(mine.values()), sum(theirs.values())
        print(f"\n{name}: {my_events} events here, {their_events} in perf ({b} with user frames); "
              f"{100 * whole:.3f} % of all CPU time on whole stacks")
        worst = 0
        top = sorted(set(x for x, _ in mine.most_common(20)) | set(x for x, _ in theirs.most_common(20)),
                     key=lambda x: -(mine[x] / a + theirs[x] / b))[:20]
        for at in top:
            x, y = 100 * mine[at] / a, 100 * theirs[at] / b
            worst = max(worst, abs(x - y))
            label = my_names.get(at) or their_names.get(at)
            print(f"  {x:6.2f} % {y:6.2f} % {x - y:+6.2f}  {at[0]:28.28} {label[:60]}")
        worst_of_all = max(worst_of_all, worst)
        table.append((name, my_events, their_events, worst, 100 * whole))
    print(f"\n{common.machine()}\n\n| program | events | perf's | top-20: worst difference, points | CPU time on whole stacks |\n|---|---|---|---|---|")
    for name, mine, theirs, worst, whole in table:
        print(f"| {name} | {mine} | {theirs} | {worst:.2f} | {whole:.3f} % |")
    sys.exit(worst_of_all > 2)


if __name__ == "__main__":
    main()
