#!/usr/bin/env python3
"""Compares the cost of recording context switches with `perf record -e sched:sched_switch -g` and bpftrace. Every round runs the program
alone and then under each recorder. Needs root. perf and bpftrace need the tracing file system; they get their own one, in a mount namespace.
bpftrace sums times by stack in the kernel, as offcputime does; it stores no single intervals, and its stacks are those of frame pointers.

usage: bench/off_cpu.py [--rounds N] [--pairs N] [--switches N] [--pause N]

Prints for each: switches per second, CPU time of the program per switch minus that of the lone run, CPU time of the recorder per switch,
bytes per switch in the output, and the share of switches that the output contains.
"""
import argparse, json, os, re, statistics, subprocess, sys
from pathlib import Path
from measuring import FLIGHTLINE, ROOT, WORK


def run(command):
    """Returns the program's standard output, the total CPU seconds, and standard error."""
    before = os.times()
    done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180)
    after = os.times()
    if done.returncode:
        sys.exit(f"{command}: {done.stderr}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return done.stdout, cpu, done.stderr


def one(prefix, program, output, recorded):
    output.unlink(missing_ok=True)
    text, cpu, said = run([*prefix, *program])
    switches, rate, ns = re.findall(r"^(\d+) (\d+) ([\d.]+)$", text, re.M)[-1]
    switches, own = int(switches), float(ns)
    size = output.stat().st_size if output.exists() else 0
    return {"rate": float(rate), "ns": own, "recorder": cpu * 1e9 / switches - own, "bytes": size / switches, "share": recorded(said, output) / switches}


def ours(said, _):
    return int(re.search(r"(\d+) times off CPU", said)[1])


def perfs(_, output):
    report = subprocess.run(["perf", "report", "-i", str(output), "--stats"], capture_output=True, text=True).stdout
    return int(re.search(r"SAMPLE events: +(\d+)", report)[1])


# Sums by thread, kernel stack and user stack, only for the test program, like bcc's offcputime.
BPFTRACE = """
tracepoint:sched:sched_switch {
    if (comm == "switches") { @out[tid] = nsecs; @kernel[tid] = kstack; @user[tid] = ustack; }
    $began = @out[args->next_pid];
    if ($began) {
        @times = count();
        @ns[args->next_pid, @kernel[args->next_pid], @user[args->next_pid]] = sum(nsecs - $began);
        delete(@out[args->next_pid]);
    }
}
"""


def bpftraces(_, output):
    return int(re.search(r"@times: (\d+)", output.read_text())[1])


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--rounds", type=int, default=5)
    parse.add_argument("--pairs", type=int, default=4)
    parse.add_argument("--switches", type=int, default=200_000)
    parse.add_argument("--pause", type=int, default=0)
    args = parse.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    program = WORK / "switches"
    subprocess.run(["gcc", "-O2", "-fno-omit-frame-pointer", "-o", program, ROOT / "bench" / "switches.c", "-lpthread"], check=True)
    command = [program, args.pairs, args.switches, args.pause]
    jfr, data = WORK / "off-cpu.jfr", WORK / "off-cpu.data"
    record = [FLIGHTLINE, "record", "-F", "1", "-o", jfr, "--off-cpu"]
    perf = ["unshare", "-m", "sh", "-c", f'mount -t tracefs nodev /sys/kernel/tracing && exec perf record -q -e sched:sched_switch -g -o {data} "$@"', "sh"]
    sums, script = WORK / "off-cpu.sums", WORK / "off-cpu.bt"
    script.write_text(BPFTRACE)
    bpftrace = ["unshare", "-m", "sh", "-c", f'mount -t tracefs nodev /sys/kernel/tracing && exec bpftrace -o {sums} -c "$*" {script}', "sh"]
    table = [
        ("alone", [], lambda *_: 0),
        ("--off-cpu", [*record, "--off-cpu-rate", "0", "--"], ours),
        ("--off-cpu --wakeups", [*record, "--wakeups", "--off-cpu-rate", "0", "--"], ours),
        ("--off-cpu --off-cpu-stack 0", [*record, "--off-cpu-stack", "0", "--off-cpu-rate", "0", "--"], ours),
        ("--off-cpu, guard at 100,000/s", [*record, "--"], ours),
        ("--off-cpu, unprivileged", ["setpriv", "--bounding-set", "-sys_admin,-perfmon", *record, "--off-cpu-rate", "0", "--"], ours),
        ("perf record -g", perf, perfs),
        ("bpftrace, sums by stack", bpftrace, bpftraces),
    ]
    results = {name: [] for name, *_ in table}
    for _ in range(args.rounds):
        for name, prefix, recorded in table:
            output = data if name.startswith("perf") else sums if name.startswith("bpftrace") else jfr
            results[name].append(one(prefix, command, output, recorded))
    lone = statistics.median(r["ns"] for r in results["alone"])
    print(f"{'':32} {'switches/s':>11} {'program ns':>11} {'recorder ns':>12} {'bytes':>7} {'recorded':>9}   per switch; alone {lone:.0f} ns")
    for name, *_ in table:
        m = {key: statistics.median(r[key] for r in results[name]) for key in results[name][0]}
        print(f"{name:32} {m['rate']:11.0f} {m['ns'] - lone:+11.0f} {m['recorder']:12.0f} {m['bytes']:7.1f} {100 * m['share']:8.1f} %")


if __name__ == "__main__":
    main()
