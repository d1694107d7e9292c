#!/usr/bin/env python3
"""Measures the bytes of a recording at 99 Hz, raw and aggregated: python3 with seven kinds of work in a random order, and a C program.

    bench/thrift.py [SECONDS] [-- COMMAND …]

Needs `cargo build --release`. The names and metadata of a recording are a larger part of it the shorter it is.
"""

import hashlib, json, os, random, re, subprocess, sys, tempfile, time, zlib

FORMS = {"raw": [], "--aggregate 10s --aggregate-lines": ["--aggregate", "10s", "--aggregate-lines"],
         "--aggregate 10s": ["--aggregate", "10s"]}


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def parse():
    rows = [{"id": i, "name": f"n{i}", "tags": [str(j) for j in range(i % 7)]} for i in range(200)]
    return json.loads(json.dumps(rows))


def search():
    text = " ".join(f"user{i}@host{i % 13}.example" for i in range(300))
    return re.findall(r"(\w+)@(\w+)\.(\w+)", text)


def order():
    return sorted((random.random() for _ in range(3000)), key=lambda x: -x)


def digest():
    return hashlib.sha256(bytes(200000)).hexdigest()


def press():
    return zlib.compress(bytes(random.getrandbits(5) for _ in range(3000)))


def count():
    counts = {}
    for i in range(3000):
        counts[str(i % 97)] = counts.get(str(i % 97), 0) + 1
    return counts


def work(seconds):
    end = time.monotonic() + seconds
    kinds = [lambda: fib(16), parse, search, order, digest, press, count]
    while time.monotonic() < end:
        random.choice(kinds)()


def main(arguments):
    seconds = float(arguments[0]) if arguments and arguments[0] != "--" else 60
    command = arguments[arguments.index("--") + 1:] if "--" in arguments else None
    command = command or [sys.executable, os.path.abspath(__file__), "--work", str(seconds)]
    flightline = os.path.join(os.path.dirname(__file__), "..", "target", "release", "flightline")
    for name, options in FORMS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run.jfr")
            run = [flightline, "record", "-F", "99", *options, "-o", path, "--", *command]
            told = subprocess.run(run, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True).stderr
            cpu = float(re.search(r"([\d.]+) s CPU time", told).group(1))
            size = os.path.getsize(path)
            print(f"{name:36} {size / 1e3:8.0f} kB for {cpu:7.1f} s of CPU time", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(float(sys.argv[2]))
    else:
        main(sys.argv[1:])
