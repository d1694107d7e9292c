#!/usr/bin/env python3
"""Measures the cost of the engines other than `cpu`, compared with async-profiler's, in paired runs. Every round runs the
program alone and then under each recorder.

usage: bench/engines.py [--rounds N] [--async-profiler LIBRARY] [allocs] [locks] [reads] [switches] [idle] [start]

  allocs    malloc + free of 16 bytes to 4 KiB, additional ns of CPU time per pair
  locks     uncontended mutex, additional ns per lock and unlock
  reads     pread of a cached page, additional ns
  switches  additional ns of CPU time per switch between two threads on one processor
  idle      500 idle threads for 10 s, sampled every 10 ms: CPU time of program and recorder, in % of one core
  start     a program that does nothing: additional CPU and wall time, ms
"Additional" is relative to the lone run. async-profiler's library is that of the option, of ASYNC_PROFILER, or of the jar
in ASYNC_PROFILER_JAR; without it, async-profiler's rows are skipped with a message.
"""
import argparse, os, statistics, subprocess, sys, time
from pathlib import Path
import measuring, peers
from measuring import WORK, FLIGHTLINE, ROOT

SCALE = {"allocs": 5_000_000, "locks": 20_000_000, "reads": 2_000_000, "switches": 400_000}


def record(*events, engine="auto"):
    return [str(FLIGHTLINE), "record", "--quiet", "--engine", engine, *[x for e in events for x in ("-e", e)], "-o", str(WORK / "engines.jfr"), "--"]


def peer(library, command):
    return {"UNDER_LD_PRELOAD": str(library), "ASPROF_COMMAND": f"start,{command},jfr,file={WORK / 'engines.jfr'}"}


def variants(what, library):
    cpu = ("flightline -e cpu (engine off)", record("cpu"), {})
    ours = {
        "allocs": [cpu, ("flightline -e alloc@512k", record("alloc@512k"), {}), ("flightline -e alloc@512k,live", record("alloc@512k,live"), {}),
                   ("flightline -e alloc@1k", record("alloc@1k"), {})],
        "locks": [cpu, ("flightline -e lock@1ms", record("lock@1ms"), {})],
        "reads": [cpu, ("flightline -e io@10ms", record("io@10ms"), {})],
        "switches": [("flightline, defaults", record("cpu"), {}), ("flightline --engine perf", record("cpu", engine="perf"), {}),
                     ("flightline --engine timer", record("cpu", engine="timer"), {})],
        "idle": [("flightline -e wall@10ms", record("wall@10ms"), {}), ("flightline -e cpu,wall@10ms", record("cpu,wall@10ms"), {})],
        "start": [cpu, ("flightline --all-events", [str(FLIGHTLINE), "record", "--quiet", "--all-events", "-o", str(WORK / "engines.jfr"), "--"], {})],
    }[what]
    theirs = {
        "allocs": ["nativemem=512k", "nativemem=512k,nofree"],
        "locks": ["nativelock=1ms"],
        "reads": [],
        "switches": ["event=cpu,interval=10ms"],
        "idle": ["event=wall,interval=10ms"],
        "start": ["event=cpu,interval=10ms"],
    }[what]
    return ours + ([(f"async-profiler {c}", [], peer(library, c)) for c in theirs] if library else [])


def one(what, prefix, env):
    """Returns (the figure that the program prints, its resource usage from the kernel, wall seconds)."""
    binary = str(WORK / "engines")
    command = {"idle": [binary, "idle", "500", "10"], "start": ["/bin/true"]}.get(what) or [binary, what, str(SCALE[what])]
    out = WORK / "engines.out"
    begun = time.monotonic()
    with open(out, "w") as stdout:
        used = measuring.run(prefix, command, env, stdout=stdout)
    wall = time.monotonic() - begun
    text = out.read_text().split()
    own = next((float(t) for t in reversed(text) if t.replace(".", "", 1).isdigit()), 0.0)
    return own, used, wall


def middle(values, form="{:+.1f}"):
    values = sorted(values)
    return f"{form.format(statistics.median(values))} ({form.format(values[0])}..{form.format(values[-1])})"


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--rounds", type=int, default=5)
    parse.add_argument("--async-profiler", default=None)
    parse.add_argument("what", nargs="*")
    args = parse.parse_args()
    measuring.build()
    subprocess.run(["gcc", "-O2", "-g", "-pthread", "-o", WORK / "engines", ROOT / "bench" / "engines.c"], check=True)
    library = args.async_profiler or peers.async_profiler_library()
    if not library:
        print("async-profiler is not here: set ASYNC_PROFILER_JAR", file=sys.stderr)
    print(f"{time.strftime('%Y-%m-%d')}, {measuring.machine()}, {args.rounds} rounds, `bench/engines.py {' '.join(sys.argv[1:])}`\n")
    print("| work | alone | recorder | above it | file |\n|---|---|---|---|---|")
    for what in args.what or ["allocs", "locks", "reads", "switches", "idle", "start"]:
        chosen = variants(what, library)
        lone, seen = [], {name: [] for name, *_ in chosen}
        for i in range(args.rounds):
            lone.append(one(what, [], {}))
            for name, prefix, env in (chosen if i % 2 else reversed(chosen)):
                (WORK / "engines.jfr").unlink(missing_ok=True)
                try:
                    own, used, wall = one(what, prefix, env)
                except measuring.RecorderFailed as e:
                    print(f"{name}: {e}", file=sys.stderr)
                    continue
                file = WORK / "engines.jfr"
                seen[name].append((own, used, wall, lone[-1], file.stat().st_size if file.exists() else 0))
        for name, runs in seen.items():
            if not runs:
                continue
            if what == "idle":
                base = f"{middle([100 * l[1].program_cpu / 10 for l in lone], '{:.2f}')} %"
                text = f"{middle([100 * (u.total_cpu - l[1].program_cpu) / 10 for _, u, _, l, _ in runs], '{:+.2f}')} %"
            elif what == "start":
                base = f"{middle([1e3 * l[1].program_cpu for l in lone], '{:.1f}')} ms CPU"
                text = (f"{middle([1e3 * (u.program_cpu - l[1].program_cpu) for _, u, _, l, _ in runs])} ms CPU of the program, "
                        f"{middle([1e3 * (w - l[2]) for _, _, w, l, _ in runs])} ms wall of all")
            else:
                base = f"{middle([l[0] for l in lone], '{:.1f}')} ns"
                text = f"{middle([own - l[0] for own, _, _, l, _ in runs])} ns"
            size = statistics.median(r[4] for r in runs)
            print(f"| {what} | {base} | {name} | {text} | {size / 1000:.0f} kB |", flush=True)


if __name__ == "__main__":
    main()
