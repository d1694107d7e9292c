#!/usr/bin/env python3
"""Pictures out of folded text: CPU time, peak memory, bytes and boxes, ours beside others of the same input.

bench/svg.py [--stacks 100000] [--rounds 3] [--flightline PATH] [--work DIR] [--converter JAR] [--once TOOL,…]

Each round runs every tool once, in turn; medians are told, CPU time of others also as a ratio to ours, round by round. Others are run
where they are there: inferno-flamegraph (`cargo install inferno`) and flamegraph.pl on PATH, async-profiler's jfr-converter by
--converter. --once: tools that take minutes, run in the first round only. Stacks are those of bench/flame.py. speedscope and
d3-flame-graph make no files of folded text; what we make for them is `flightline convert`.
"""
import argparse
import os
import re
import shutil
import statistics
import sys
from pathlib import Path

from flame import ROOT, run, write_folded


def tools(args, folded, work):
    """Name, output, command; whether it writes to standard output."""
    found = []
    for name, ending in (("svg", "svg"), ("html", "html")):
        output = work / f"{folded.stem}.{ending}"
        found.append((f"flightline, {name.upper()}", output, [args.flightline, "flame", str(folded), "-o", str(output)], False))
    for name in ("d3", "speedscope"):
        output = work / f"{folded.stem}.{name}.json"
        found.append((f"flightline, {name}", output, [args.flightline, "convert", str(folded), "--format", name, "-o", str(output)], False))
    for name in ("inferno-flamegraph", "flamegraph.pl"):
        path = shutil.which(name)
        if path:
            found.append((name, work / f"{folded.stem}.{name}.svg", [path, str(folded)], True))
    if args.converter:
        output = work / f"{folded.stem}.async-profiler.html"
        command = ["java", "-jar", args.converter, "-o", "html", str(folded), str(output)]
        found.append(("async-profiler", output, command, False))
    return found


def boxes(path):
    """Boxes of an SVG, empty for anything else."""
    if path.suffix != ".svg":
        return ""
    return f"{max(0, len(re.findall(r'<title>', path.read_text(errors='replace'))) - 1):,}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stacks", default="100000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flightline", default=str(ROOT / "target/release/flightline"))
    parser.add_argument("--work", default=str(ROOT / "target/bench-flame"))
    parser.add_argument("--converter")
    parser.add_argument("--once", default="")
    args = parser.parse_args()
    work = Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    for stacks in map(int, args.stacks.split(",")):
        folded = work / f"{stacks}.folded"
        if not folded.exists():
            write_folded(folded, stacks)
        makers = tools(args, folded, work)
        seconds, memory = {}, {}
        for turn in range(args.rounds):
            for name, output, command, prints in makers:
                if turn and name in args.once.split(","):
                    continue
                with open(output if prints else os.devnull, "wb") as out:
                    cpu, peak = run(command, out)
                seconds.setdefault(name, []).append(cpu)
                memory.setdefault(name, []).append(peak)
                print(f"{stacks} {name}: {cpu:.2f} s, {peak:.0f} MB", file=sys.stderr, flush=True)
        print(f"\n{stacks:,} stacks, {folded.stat().st_size / 1e6:.0f} MB, {args.rounds} rounds\n")
        print("| tool | s of CPU | of ours as SVG | peak MB | MB written | boxes |\n|---|---|---|---|---|---|")
        ours = seconds[makers[0][0]]
        for name, output, _, _ in makers:
            ratio = statistics.median(theirs / mine for theirs, mine in zip(seconds[name], ours))
            print(
                f"| {name} | {statistics.median(seconds[name]):.2f} | {ratio:.2f} | {statistics.median(memory[name]):.0f} "
                f"| {output.stat().st_size / 1e6:.2f} | {boxes(output)} |",
                flush=True,
            )


main()
