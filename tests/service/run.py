#!/usr/bin/env python3
"""Records the service under load and compares what it says of its endpoints with what `flightline spans` says.

    tests/service/run.py [--flightline BIN] [--service FOLDER] [--seconds 20] [--clients 16] [--keep FOLDER]

Both programs must be built (.ci/long service does). --keep leaves the recording and the page of the slowest request there.
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The function that must use most of the resource of each endpoint, and the resource.
REASONS = {
    "GET /report": (("report.rows", "report.render"), "cpuNanos"),
    "GET /orders/{customer}": (("db.query",), "cpuNanos"),
    "GET /cart": (("cart.update",), "lockNanos"),
}


def ms(nanos):
    return f"{nanos / 1e6:.1f}" if nanos is not None else "-"


def record(args, folder):
    """Runs the service recorded, and the load on it."""
    out = folder / "run.jfr"
    command = [args.flightline, "record", "-e", "cpu@1ms,wall@5ms,alloc@64k,lock@100us", "--spans", "all", "-o", out, "--"]
    service = subprocess.Popen([*command, args.service / "flightline-test-service", folder])
    try:
        address, deadline = folder / "address", time.monotonic() + 120
        while not address.exists():
            if service.poll() is not None or time.monotonic() > deadline:
                sys.exit("the service did not start")
            time.sleep(0.05)
        where, pid = address.read_text().split()
        load = subprocess.run([args.service / "load", where, str(args.seconds), str(args.clients)], check=True, capture_output=True,
                              text=True)
        print(load.stdout.strip())
        os.kill(int(pid), signal.SIGTERM)
        if service.wait(120) != 0:
            sys.exit(f"recorded, the service ended with status {service.returncode}")
    finally:
        if service.poll() is None:
            service.kill()
    return out, json.loads((folder / "measured.json").read_text())


def spans(args, *more):
    told = subprocess.run([args.flightline, "spans", "--json", *more], check=True, capture_output=True, text=True)
    return json.loads(told.stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--flightline", default=ROOT / "target/release/flightline")
    parser.add_argument("--service", type=Path, default=ROOT / "target/service/release")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    wrong = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        for old in ("address", "orders.db", "run.jfr"):
            (folder / old).unlink(missing_ok=True)
        recording, measured = record(args, folder)
        told = spans(args, recording)
        rows = {row["key"]: row for row in told["rows"]}
        print(f"{recording.stat().st_size / 1e6:.1f} MB; {told['counts']['inSpans']} samples in spans, {told['counts']['outside']} outside")
        print(f"{'':24}{'requests':>17}{'p50 ms':>15}{'p99 ms':>17}\n{'':24}{'service':>9}{'spans':>8}" + f"{'service':>9}{'spans':>8}" * 2)
        for name, own in sorted(measured.items()):
            row = rows.get(name, {"count": 0, "p50Nanos": 0, "p99Nanos": 0})
            print(f"{name:24}{own['count']:>9}{row['count']:>8}{ms(own['p50Nanos']):>9}{ms(row['p50Nanos']):>8}"
                  f"{ms(own['p99Nanos']):>9}{ms(row['p99Nanos']):>8}")
            if row["count"] != own["count"]:
                wrong.append(f"{name}: {row['count']} spans of {own['count']} requests")
            # The same request by two clocks; the span ends a little later, with the body.
            if not 0.9 * own["p50Nanos"] - 1e6 <= row["p50Nanos"] <= own["p50Nanos"] * 1.01 + 1e6:
                wrong.append(f"{name}: p50 {ms(row['p50Nanos'])} ms of {ms(own['p50Nanos'])} ms")
        print("\nwhat each endpoint's requests spent, per request:")
        for row in spans(args, recording, "--by", "endpoint")["rows"]:
            name, spent = row["key"], row["spent"]
            if name not in measured:
                continue
            count = measured[name]["count"]
            parts = spans(args, recording, "--span", name)["rows"]
            print(f"{name}: CPU {ms(spent['cpuNanos'] / count)} ms, waiting on a thread {ms(spent['offCpuNanos'] / count)} ms, for locks "
                  f"{ms(spent['lockNanos'] / count)} ms, {spent['allocatedBytes'] / count / 1024:.0f} KiB allocated")
            for part in sorted(parts, key=lambda part: -part["spent"]["cpuNanos"]):
                top = part["top"] or {"function": "-", "share": 0}
                print(f"    {part['key']:24} p50 {ms(part['p50Nanos']):>7} ms, CPU {100 * part['spent']['cpuNanos'] / max(1, spent['cpuNanos']):5.1f} %, "
                      f"most in {top['function'][:60]}")
            if name in REASONS:
                of, what = REASONS[name]
                share = sum(part["spent"][what] for part in parts if part["key"] in of) / max(1, spent[what])
                if share < 0.8:
                    wrong.append(f"{name}: {100 * share:.0f} % of {what} in {', '.join(of)}")
        if args.keep:
            slowest = max(measured, key=lambda name: measured[name]["p99Nanos"])
            said = spans(args, recording, "--slowest", "--span", slowest)
            trace = said["slowest"]["spans"][0]["trace"]
            subprocess.run([args.flightline, "spans", recording, "--trace", trace, "--inferred", "--min-duration", "1ms", "-o",
                            folder / "trace.html"], check=True, stdout=subprocess.DEVNULL)
            print(f"\nslowest endpoint: {slowest}; the page of its slowest request is trace {trace}")
    for line in wrong:
        print("WRONG:", line)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
