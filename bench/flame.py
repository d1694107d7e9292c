#!/usr/bin/env python3
"""Compares flame graph pages with those of other tools: CPU time, memory and size to generate a page, and CPU time to open and use it.

bench/flame.py [--stacks 10000,100000] [--callees N] [--flightline PATH] [--work DIR] [--no-browser]

The same stacks are generated in each run: each stack is an earlier one, truncated and extended by functions with Zipf-like
frequency. inferno-flamegraph and flamegraph.pl are measured in the same run if they are on PATH. CPU is the user and system
time of the whole program. The browser needs node, and playwright-core in the folder of tests/browser/run.sh (target/browser).
"""
import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

from measuring import small_parent

ROOT = Path(__file__).resolve().parent.parent


def names(rng, count):
    """Returns names like those of C++ and Rust: a few words, some with namespaces and arguments."""
    words = "alloc btree cache decode encode expr fetch flush frame grow hash index join lock map node page parse plan queue read row scan sort table task tree value wait write".split()
    made = []
    while len(made) < count:
        parts = [rng.choice(words) for _ in range(rng.randint(2, 4))]
        name = "_".join(parts) if rng.random() < 0.4 else "::".join(parts[:-1]) + "::" + parts[-1] + rng.choice(["", "(int)", "<T>", "(Context&, char const*)"])
        made.append(f"{name}_{len(made):x}_{rng.choice(words)}_{rng.choice(words)}_{rng.choice(words)}_impl")
    return made


def write_folded(path, stacks, callees=0):
    """Writes `stacks` distinct stacks of about 20 frames, in the order of generation. Each function calls any other, or only `callees` others."""
    rng = random.Random(20261122)
    known = names(rng, 6000)
    weights = [1 / (rank + 1) for rank in range(len(known))]
    picks = iter(())
    # As in real programs, a function has a fixed set of callees.
    called = {name: rng.choices(known, weights, k=callees) for name in known} if callees else {}
    kept, seen = [[known[0]]], set()
    with open(path, "w") as out:
        while len(seen) < stacks:
            base = kept[int(rng.random() ** 2 * len(kept))] if rng.random() < 0.7 else kept[-1]
            stack = base[: rng.randint(max(1, len(base) - 8), len(base))]
            for _ in range(rng.randint(1, 9)):
                name = rng.choice(called[stack[-1]]) if called else next(picks, None)
                if name is None:
                    picks = iter(rng.choices(known, weights, k=1 << 16))
                    name = next(picks)
                stack.append(name)
            stack = stack[:80]
            line = ";".join(stack)
            if line in seen:
                continue
            seen.add(line if stacks <= 200_000 else hash(line))
            if len(kept) < 20_000:
                kept.append(stack)
            else:
                kept[rng.randrange(len(kept))] = stack
            out.write(f"{line} {rng.randint(1, 9)}\n")


def run(command, stdout=None):
    """Returns the CPU seconds and the peak memory in MB of a command."""
    full, used = small_parent(command)
    if subprocess.run(full, stdout=stdout or subprocess.DEVNULL).returncode:
        sys.exit(f"{command[0]} failed")
    cpu, _, peak, _ = used()
    return cpu, peak


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stacks", default="10000,100000")
    parser.add_argument("--callees", type=int, default=0, help="functions that each function calls; 0: any")
    parser.add_argument("--flightline", default=str(ROOT / "target/release/flightline"))
    parser.add_argument("--work", default=str(ROOT / "target/bench-flame"))
    parser.add_argument("--no-browser", action="store_true")
    args = parser.parse_args()
    work = Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    others = {tool: shutil.which(tool) for tool in ("inferno-flamegraph", "flamegraph.pl")}
    for stacks in map(int, args.stacks.split(",")):
        folded = work / (f"{stacks}-{args.callees}.folded" if args.callees else f"{stacks}.folded")
        if not folded.exists():
            write_folded(folded, stacks, args.callees)
        print(f"## {stacks} stacks, {folded.stat().st_size / 1e6:.1f} MB", flush=True)
        page = work / f"{stacks}.html"
        makers = [("flightline", page, [args.flightline, "flame", str(folded), "-o", str(page)])]
        makers += [(tool, work / f"{stacks}.{tool}.svg", [path, str(folded)]) for tool, path in others.items() if path]
        for name, output, command in makers:
            with open(os.devnull if name == "flightline" else output, "wb") as out:
                cpu, memory = run(command, out)
            print(f"{name}: {cpu:.2f} s CPU, {memory:.0f} MB, {output.stat().st_size / 1e6:.3f} MB", flush=True)
        if not args.no_browser:
            for name, output, _ in makers:
                told = subprocess.run(["node", ROOT / "bench/flame_page.mjs", output, name], capture_output=True, text=True)
                print(f"{name} in the browser: {told.stdout.strip() or told.stderr.strip()[-400:]}", flush=True)


if __name__ == "__main__":
    main()
