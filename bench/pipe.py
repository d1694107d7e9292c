#!/usr/bin/env python3
"""Measures recording into a pipe: the age of events at the reader, the bytes of small segments, and the effect of a stopped reader on the program.

usage: bench/pipe.py [--rounds N] [age] [bytes] [stall]

  age    a program with two threads at 5 kHz each, read live with flush intervals of 10 ms, 100 ms and 1 s: the age of an event
         when the reader receives it (goal: 99 % below two flush intervals)
  bytes  the same with segments of 100 ms, compared with one chunk in a file (goal: at most 1.3 times as much)
  stall  the program's units of work per CPU second and its interruptions, with a reader that reads and with one that stops
         forever after a second, in paired rounds (goal: no difference; 99.9 % of interruptions less than 50 µs longer than alone)
"""
import argparse, json, os, re, signal, statistics, subprocess, time
import measuring
from measuring import FLIGHTLINE, ROOT, WORK, machine

RATE = 5000


def build():
    measuring.build()
    subprocess.run(["cargo", "build", "--release", "-q", "-p", "flightline-consumer", "--example", "age"], cwd=ROOT, check=True)
    subprocess.run(["gcc", "-O2", "-g", "-o", WORK / "throughput", ROOT / "tests" / "victims" / "throughput.c", "-lpthread"], check=True)
    subprocess.run(["gcc", "-O2", "-o", WORK / "gap", ROOT / "bench" / "gap.c"], check=True)


def record(*options):
    return [str(FLIGHTLINE), "record", "--quiet", "-F", str(RATE), *options]


def age(rounds):
    for flush, ms in [("10ms", 10), ("100ms", 100), ("1s", 1000)]:
        rows = []
        for _ in range(rounds):
            writer = subprocess.Popen([*record("--flush", flush), "-o", "-", "--", WORK / "throughput", "8"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
            reader = subprocess.run([ROOT / "target" / "release" / "examples" / "age"], stdin=writer.stdout, capture_output=True, text=True, check=True)
            writer.wait()
            rows.append(json.loads(reader.stdout))
        of = lambda key: statistics.median(row[key] for row in rows)
        print(f"age    flush {flush:>5}: {of('events'):9.0f} events   p50 {of('p50'):8.2f}   p99 {of('p99'):8.2f}   p99.9 {of('p999'):8.2f}   "
              f"max {of('max'):8.2f} ms   p99 = {of('p99') / ms:.2f} flushes")


def samples(path):
    said = json.loads(subprocess.run([FLIGHTLINE, "summary", "--json", path], capture_output=True, text=True, check=True).stdout)
    for row in said["events"]:
        if row["type"] == "jdk.ExecutionSample":
            return row["count"]
    raise RuntimeError(f"no samples in {path}")


def size(options, sink):
    path = WORK / f"pipe-{sink}.jfr"
    begun = time.monotonic()
    with open(path, "wb") as out:
        if sink == "stream":
            writer = subprocess.Popen([*record(*options), "-o", "-", "--", WORK / "throughput", "30"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
            subprocess.run(["cat"], stdin=writer.stdout, stdout=out, check=True)
            writer.wait()
        else:
            subprocess.run([*record(*options), "-o", str(path), "--", WORK / "throughput", "30"], stdin=subprocess.DEVNULL)
    seconds, count = time.monotonic() - begun, samples(path)
    return path.stat().st_size, count, count / seconds


def byte_count(rounds):
    for _ in range(rounds):
        stream, of_stream, rate = size(["--flush", "100ms"], "stream")
        file, of_file, _ = size(["--flush", "600s"], "file")
        each = stream / of_stream, file / of_file
        print(f"bytes  segments of 100 ms {stream:>9} B, {each[0]:6.2f} a sample   one chunk {file:>9} B, {each[1]:6.2f} a sample   ratio {each[0] / each[1]:.3f}, "
              f"at {rate:.0f} events a second")


def stalled(command, stop):
    """Returns the program's output, with a reader that continues to read or that stops after a second."""
    truth = WORK / "truth"
    truth.unlink(missing_ok=True)
    env = {**os.environ, "TRUTH_FILE": str(truth)}
    out = WORK / "program.out"
    if stop is None:
        subprocess.run(["sh", "-c", f'exec "$0" "$@" >{out}', *command], env=env, stdin=subprocess.DEVNULL)
        return out.read_text(), truth
    read, write = os.pipe()
    writer = subprocess.Popen([*record(), "-o", f"/dev/fd/{write}", "--", "sh", "-c", f'exec "$0" "$@" >{out}', *command], env=env,
                              stdin=subprocess.DEVNULL, pass_fds=[write])
    os.close(write)
    reader = subprocess.Popen(["cat"], stdin=read, stdout=subprocess.DEVNULL)
    os.close(read)
    time.sleep(1)
    if stop:
        reader.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + 60
    while not out.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    reader.send_signal(signal.SIGCONT)
    writer.wait()
    reader.wait()
    return out.read_text(), truth


def stall(rounds):
    modes = [("alone", None), ("read", False), ("stopped", True)]
    gaps = {name: [] for name, _ in modes}
    units = {name: [] for name, _ in modes}
    for round in range(rounds):
        for name, stop in modes[round % 3:] + modes[:round % 3]:
            text, _ = stalled([str(WORK / "gap"), "6"], stop)
            gaps[name].append({key: float(value) for key, value in re.findall(r"(p[\d.]+|max)\s+([\d.]+)", text)})
            _, truth = stalled([str(WORK / "throughput"), "4"], stop)
            units[name].append(int(re.search(r"units\s+(\d+)", truth.read_text()).group(1)))
    for name, _ in modes:
        middle = lambda key: statistics.median(row[key] for row in gaps[name])
        ratio = statistics.median(unit / alone for unit, alone in zip(units[name], units["alone"]))
        print(f"stall  {name:8} work {ratio:6.3f} of alone   interruptions p50 {middle('p50'):6.1f}   p99 {middle('p99'):6.1f}   "
              f"p99.9 {middle('p99.9'):7.1f}   max {middle('max'):8.1f} µs")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("what", nargs="*", choices=["age", "bytes", "stall", []], default=[])
    arguments = parser.parse_args()
    build()
    print(f"pipe.py, {time.strftime('%Y-%m-%d')}, {machine()}; medians of {arguments.rounds} rounds")
    for what, run in [("age", age), ("bytes", byte_count), ("stall", stall)]:
        if not arguments.what or what in arguments.what:
            run(arguments.rounds)


main()
