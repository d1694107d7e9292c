#!/usr/bin/env python3
"""Measures the cost of recording with several recorders, in paired runs. Every round runs the program alone and then under
each recorder; the CPU time of a recorded run is divided by that of the lone run of its round.

usage: bench/cost.py [--rounds N] [--rates 99,1000] [--scale N] [--recorders TEXT,…] [PROGRAM...]

programs: redis-server python3 sqlite3 xz rust burn burn-fp. Recorders that are not installed are skipped with a message;
bench/peers.py has the places where they are searched, and `bench/recorders.py --get` installs them. bench/recorders.py
compares further properties of the recorders, with one program.

Columns: program = CPU of the recorded program, total = including the recorder's own processes, both relative to the lone
run, median of the rounds (min..max). own = CPU of the recorder's own processes per sample. RSS = peak resident memory of
the program minus that of the lone run.
"""
import argparse, re, statistics, subprocess, sys, time
import measuring, peers
from measuring import WORK, FLIGHTLINE


def recorders(wanted):
    found = peers.here()
    library = peers.async_profiler_library()
    found += [peers.Flightline("timer")] + ([peers.AsyncProfiler(library, "dwarf")] if library else [])
    return [r for r in found if not wanted or any(w in r.name for w in wanted)]


def ratio(pairs):
    values = sorted(a / b for a, b in pairs)
    return f"{100 * (statistics.median(values) - 1):+.1f} % ({100 * (values[0] - 1):+.1f}..{100 * (values[-1] - 1):+.1f})"


def measure(name, run, recorders, rate, rounds, rows):
    lone, seen = [], {r.name: [] for r in recorders}
    for i in range(rounds):
        lone.append(run([]))
        for r in (recorders if i % 2 else reversed(recorders)):
            out = WORK / "cost.out"
            for old in WORK.glob("cost.out*"):
                old.unlink()
            prefix, env = r.start(rate, out)
            base = lone[-1]
            try:
                used = run([str(x) for x in prefix], env)
            except measuring.RecorderFailed as e:
                if i == 0:
                    print(f"{r.name} is left out: {e}", file=sys.stderr)
                continue
            try:
                samples, size = r.samples(out), sum(f.stat().st_size for f in r.files(out))
            except Exception as e:
                samples, size = 0, 0
                print(f"{r.name} on {name}: no samples read: {str(e)[:200]}", file=sys.stderr)
            seen[r.name].append((used, base, samples, size))
    print(f"\n{name}, {rate} Hz: alone {statistics.median(u.program_cpu for u in lone):.2f} s CPU, "
          f"noise of the lone runs {ratio([(u.program_cpu, lone[0].program_cpu) for u in lone])}", flush=True)
    for r in recorders:
        runs = seen[r.name]
        if not runs:
            continue
        own = [max(0.0, u.total_cpu - u.program_cpu) for u, *_ in runs]
        samples = statistics.median(s for *_, s, _ in runs)
        due = rate * statistics.median(u.program_cpu for u, *_ in runs)
        size = statistics.median(z for *_, z in runs)
        row = (name, rate, r.name, ratio([(u.program_cpu, l.program_cpu) for u, l, *_ in runs]),
               ratio([(u.total_cpu, l.total_cpu) for u, l, *_ in runs]),
               f"{samples:.0f} of {due:.0f}", f"{1e6 * statistics.median(own) / max(1, samples):.1f} µs",
               f"{size / max(1, samples):.1f}", f"{statistics.median(u.peak_kb - l.peak_kb for u, l, *_ in runs) / 1024:+.1f} MiB")
        rows.append(row)
        print("  " + " | ".join(str(x) for x in row[2:]), flush=True)


def long_files(rate, seconds):
    """Prints for recordings of a minute: bytes per sample event, file bytes per sample, and the drain's CPU time per sample."""
    print(f"\n| program | Hz | samples | B per sample event | B per sample of the file | drain CPU per sample | lost |\n|---|---|---|---|---|---|---|")
    for name in ["burn", "python3", "redis-server"]:
        alone = measuring.workloads(1)[name]([]).program_cpu
        out = WORK / "long.jfr"
        threads = 2 if name == "burn" else 1
        used = measuring.workloads(seconds * threads / alone)[name]([FLIGHTLINE, "record", "--quiet", "--rate", str(rate), "-o", out, "--"])
        text = subprocess.run([FLIGHTLINE, "summary", out], capture_output=True, text=True, check=True).stdout
        events, size = map(int, re.search(r"jdk\.ExecutionSample\s+(\d+)\s+(\d+)", text).groups())
        lost = " ".join(re.findall(r"^  .*: \d+ samples, .* s of CPU time$", text, re.M)) or "nothing"
        drain = used.total_cpu - used.program_cpu
        print(f"| {name}, {used.program_cpu:.0f} s CPU | {rate} | {events} | {size / events:.1f} | {out.stat().st_size / events:.1f} "
              f"| {1e6 * drain / events:.2f} µs | {lost.strip()} |", flush=True)


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--rounds", type=int, default=5)
    parse.add_argument("--rates", default="99,1000")
    parse.add_argument("--scale", type=float, default=1)
    parse.add_argument("--recorders", default="")
    parse.add_argument("programs", nargs="*", default=["redis-server", "python3", "rust", "burn"])
    parse.add_argument("--minute", action="store_true", help="instead: files of a minute, sizes and the drain's CPU time")
    args = parse.parse_args()
    measuring.build()
    if args.minute:
        print(f"{time.strftime('%Y-%m-%d')}, {measuring.machine()}, `bench/cost.py {' '.join(sys.argv[1:])}`")
        for rate in (int(r) for r in args.rates.split(",")):
            long_files(rate, 60)
        return
    runs = measuring.workloads(args.scale)
    rows = []
    chosen = recorders([r for r in args.recorders.split(",") if r])
    for name in args.programs:
        for rate in (int(r) for r in args.rates.split(",")):
            measure(name, runs[name], chosen, rate, args.rounds, rows)
    print(f"\n{time.strftime('%Y-%m-%d')}, {measuring.machine()}, {args.rounds} rounds, `bench/cost.py {' '.join(sys.argv[1:])}`\n")
    print("| program | Hz | recorder | program CPU | total CPU | samples | own CPU per sample | file B per sample | RSS |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(str(x) for x in row) + " |")


if __name__ == "__main__":
    main()
