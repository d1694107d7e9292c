#!/usr/bin/env python3
"""Runs every reader on the malformed recordings (tests/src/malformed.rs) and prints a table of the results.

    tests/readers/build.sh && cargo build --release && tests/readers/malformed.py > fixtures/malformed.md

With an earlier table, `malformed.py fixtures/malformed.md`, the other readers run only for cases that are not in it.
Has the requirements of tests/readers/run.sh. Each reader gets SECONDS of wall-clock time and 2 GiB of heap (4 GiB of
address space if it is not a JVM). The script counts the jdk.ExecutionSample events that the reader returns before it ends.
"""
import concurrent.futures
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(TOP, "target"))
PEERS = ["jdk17", "jdk25", "jmc", "converter", "go", "jfrs"]
SECONDS = 10
SPACE = 4 << 30
PARALLEL = int(os.environ.get("JOBS", "2"))


def run(command, limit, out):
    """Runs a command; status (None after the time-out), stderr, most kB resident, CPU seconds."""
    with open(out, "wb") as stdout, tempfile.TemporaryFile() as stderr:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                                 start_new_session=True, preexec_fn=limit)
        end = time.monotonic() + SECONDS
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                break
            if time.monotonic() > end:
                os.killpg(child.pid, signal.SIGKILL)
                _, _, usage = os.wait4(child.pid, 0)
                code = None
                break
            time.sleep(0.01)
        child.returncode = 0
        stderr.seek(0)
        told = stderr.read(1 << 16).decode(errors="replace")
    return code, told, usage.ru_maxrss, usage.ru_utime + usage.ru_stime


def peer(reader, path, work):
    out = os.path.join(work, f"{reader}-{os.path.basename(path)}.out")
    limit = None
    if reader in ("go", "jfrs"):
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (SPACE, SPACE))
    code, told, _, _ = run([os.path.join(HERE, "run.sh"), "--lines", reader, path], limit, out)
    with open(out, "rb") as lines:
        samples = sum(1 for _ in lines)
    os.remove(out)
    if code == 0:
        return f"✓ {samples}"
    if code is None:
        return f"hangs {samples}"
    if "OutOfMemory" in told or "memory allocation" in told or "out of memory" in told:
        return f"memory {samples}"
    if "StackOverflow" in told or "stack overflow" in told or "stack exceeds" in told:
        return f"stack {samples}"
    if "panic" in told or code < 0 or code > 128:
        return f"crash {samples}"
    return f"✗ {samples}"


def ours(path, work):
    out = os.path.join(work, "ours-" + os.path.basename(path))
    binary = os.path.join(TARGET, "release", "flightline")
    code, told, kb, cpu = run([binary, "print", "--events", "jdk.ExecutionSample", path], None, out)
    with open(out, "rb") as lines:
        samples = sum(line.startswith(b"jdk.ExecutionSample {") for line in lines)
    first = told.strip().splitlines()
    first = first[0].split(": ", 2)[-1].replace(os.path.dirname(path) + "/", "").replace("|", "\\|") if first else ""
    sign = {0: "✓", 1: "!", None: "hangs"}.get(code, "crash")
    return f"{sign} {samples}", first, kb, cpu


def known():
    """Returns the results of the other readers in an earlier table."""
    results = {}
    for table in sys.argv[1:]:
        with open(table, encoding="utf-8") as lines:
            for line in lines:
                cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
                if len(cells) >= len(PEERS) + 3 and cells[0] not in ("", "file"):
                    results.update({(cells[0], r): cell for r, cell in zip(PEERS, cells[2:])})
    return results


def main():
    results = known()
    with tempfile.TemporaryDirectory() as work:
        folder = os.path.join(work, "files")
        listed = subprocess.run([os.path.join(TARGET, "debug", "flightline-test-programs"), "malformed", folder], check=True,
                                capture_output=True, text=True).stdout
        cases = [line.split("\t") for line in listed.splitlines()]
        path = lambda name: os.path.join(folder, name + ".jfr")
        with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
            new = {(case[0], reader): pool.submit(peer, reader, path(case[0]), work)
                   for case in cases for reader in PEERS if (case[0], reader) not in results}
            results.update({key: future.result() for key, future in new.items()})
        mine = {case[0]: ours(path(case[0]), work) for case in cases}
    print("# Results of readers for malformed recordings\n")
    print("Generated by `tests/readers/malformed.py`. Each file has one error; the files are made by")
    print("`cargo run -p flightline-tests --bin flightline-test-programs malformed DIR`. Numbers are the")
    print("`jdk.ExecutionSample` events that the reader returned before it ended.\n")
    print("* ✓: the reader ends without an error. ✗: it ends with an error.")
    print(f"* hangs: not done after {SECONDS} s.")
    print("* memory, stack: out of memory or stack (2 GiB of heap, 4 GiB of address space).")
    print("* crash: a panic or a signal.")
    print("* !: only Flightline; it reports the error and its place, and continues (exit status 1).\n")
    print(f"Flightline used at most {max(m[2] for m in mine.values()) // 1024} MB of resident memory and "
          f"{max(m[3] for m in mine.values()):.2f} s of CPU time for a file.\n")
    whole = lambda reader: sum(results[c[0], reader].startswith("✓") for c in cases)
    print("| | " + " | ".join(PEERS) + " | Flightline |\n|---|" + "---|" * (len(PEERS) + 1))
    kinds = ["✓", "✗", "hangs", "memory", "stack", "crash"]
    for kind in kinds:
        row = [sum(results[c[0], r].split()[0] == kind for c in cases) for r in PEERS]
        told = sum(m[0].split()[0] in (("✓", "!") if kind == "✓" else (kind,)) for m in mine.values())
        print(f"| {kind} | " + " | ".join(map(str, row)) + f" | {told} |")
    samples = [sum(int(results[c[0], r].split()[1]) for c in cases) for r in PEERS]
    print("| samples in total | " + " | ".join(map(str, samples)) + f" | {sum(int(m[0].split()[1]) for m in mine.values())} |\n")
    print("| file | error | " + " | ".join(PEERS) + " | Flightline | warning |")
    print("|---|---|" + "---|" * (len(PEERS) + 2))
    for name, _, _, _, wrong in cases:
        print(f"| {name} | {wrong} | " + " | ".join(results[name, r] for r in PEERS) + f" | {mine[name][0]} | {mine[name][1]} |")


if __name__ == "__main__":
    main()
