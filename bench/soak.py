#!/usr/bin/env python3
"""Simulates months of recording in minutes: records a program that never repeats itself at 10 kHz, and measures memory, bytes and losses over time.

usage: soak.py [--minutes M] [--until stacks=N,threads=N,…] [--drift] [--pipe] [--flightline PATH] CSV SVG

`tests/victims/endless.c` alternates between kinds of work that make recorders grow: unique stacks, short threads with unique
names, libraries that are loaded once each, and short processes. --until sets the number of each kind, limited by --minutes.
Each turn of work is a point of the curves:
* the peak resident memory of recorder and program in the turn (the kernel's high-water mark, reset at each point, so that no
  peak is missed),
* the bytes in the repository,
* the CPU time lost so far, by cause, from the recorder's metrics.
The slope is that of the second half, by least squares.
--pipe: record into a pipe instead of a repository; its reader (`bench/age.rs`) decodes everything. The curve of bytes has the bytes
that it read.
--drift: the recorder's wall clock is 0.1 % fast, and is set an hour forward and back alternately.
"""
import argparse, os, re, socket, subprocess, sys, tempfile, time, urllib.request

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The amount of work in one turn of each kind, some seconds. The recorder reserves half a megabyte for each process and refuses processes that do
# not fit into the repository, so the number of processes is limited.
TURNS = {"stacks": 4000, "threads": 8000, "modules": 400, "processes": 100}
# The limit of the drain's memory, kB: its own limits, memory that the allocator retains, and the names of the kernel and of libraries.
MOST_KB = 200 << 10
# The limit of a session's files, for a program with one process and short-lived children. If the recorder gets too little CPU time, the files of
# one turn are still to be read.
MOST_SHARED_KB = 1 << 20
UNITS = {"stacks": "different stacks", "threads": "threads", "modules": "libraries", "processes": "processes"}


def status(pid, field):
    try:
        with open(f"/proc/{pid}/status") as file:
            for line in file:
                if line.startswith(field + ":"):
                    return int(line.split()[1])
    except OSError:
        pass
    return None


def last_pid():
    """Returns the newest PID; the output file shows how often PIDs wrapped."""
    with open("/proc/loadavg") as file:
        return int(file.read().split()[4])


def metrics(port):
    """Returns the number of samples, and the lost CPU seconds by cause."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    samples = sum(float(v) for v in re.findall(r"^flightline_samples_total\S* (\S+)$", text, re.M))
    lost = re.findall(r'^flightline_lost_cpu_seconds_total\S*cause="([^"]+)"\S* (\S+)$', text, re.M)
    return int(samples), {cause: float(value) for cause, value in lost}


def session_of(pid):
    """Returns the program's session directory in shared memory."""
    with open(f"/proc/{pid}/environ") as file:
        return next(part.split("=", 1)[1] for part in file.read().split("\0") if part.startswith("FLIGHTLINE_SESSION="))


def shared_kb(folder):
    """Returns the shared memory used by the files of a session."""
    total = 0
    for name in os.listdir(folder):
        try:
            total += os.stat(os.path.join(folder, name)).st_blocks // 2
        except OSError:
            pass
    return total


def catch_up(folder):
    """Waits until the files of ended children are read, so that they do not count for the next turn."""
    for _ in range(600):
        if sum(name.endswith(".proc") for name in os.listdir(folder)) <= 2:
            break
        time.sleep(0.1)


def reset_peak(pid):
    with open(f"/proc/{pid}/clear_refs", "w") as file:
        file.write("5")


def bytes_of(path):
    if path.startswith("/proc/"):
        with open(path) as file:
            return int(file.readline().split()[1])
    if os.path.isfile(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(path) for f in files if os.path.exists(os.path.join(d, f)))


def slope(points):
    """Returns the slope by least squares."""
    n = len(points)
    mx, my = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    below = sum((x - mx) ** 2 for x, _ in points)
    return sum((x - mx) * (y - my) for x, y in points) / below if below else 0.0


def floor(values):
    """Returns the lower quartile."""
    return sorted(values)[len(values) // 4]


def svg(rows, title, path):
    width, height, left, gap = 900, 190, 80, 46
    panels = [("recorder, MB: highest resident (dark), own", [("recorder_kb", "#1f77b4"), ("recorder_own_kb", "#aec7e8")], 1 / 1024),
              ("program, MB: highest resident (dark), own", [("program_kb", "#d62728"), ("program_own_kb", "#ff9896")], 1 / 1024),
              ("shared memory of all processes, MB", [("shared_kb", "#ff7f0e")], 1 / 1024),
              ("bytes of output, MB", [("output_bytes", "#2ca02c")], 1 / 1e6),
              ("CPU time lost, s: ring full (dark), all causes", [("lost_s", "#c5b0d5"), ("ring_full_s", "#9467bd")], 1)]
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + left + 30}" height="{60 + len(panels) * (height + gap)}" '
           f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
           f'<text x="{left}" y="22" font-size="15">{title}</text>']
    last = rows[-1]["seconds"] or 1
    for index, (name, series, scale) in enumerate(panels):
        top = 50 + index * (height + gap)
        most = max((r[key] or 0) * scale for r in rows for key, _ in series) * 1.1 or 1
        out.append(f'<text x="{left}" y="{top - 6}">{name}</text>'
                   f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#999"/>')
        for part in range(5):
            y = top + height - height * part / 4
            out.append(f'<line x1="{left}" x2="{left + width}" y1="{y}" y2="{y}" stroke="#eee"/>'
                       f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{most * part / 4:.1f}</text>')
        for key, colour in series:
            points = " ".join(f"{left + width * r['seconds'] / last:.1f},{top + height - height * r[key] * scale / most:.1f}"
                              for r in rows if r[key] is not None)
            out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        for part in range(6):
            out.append(f'<text x="{left + width * part / 5}" y="{top + height + 16}" text-anchor="middle">'
                       f'{last * part / 5:.0f} s</text>')
    out.append("</svg>\n")
    with open(path, "w") as file:
        file.write("\n".join(out))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--flightline", default=os.path.join(HERE, "target/release/flightline"))
    parser.add_argument("--until", default=",".join(f"{kind}={10**9}" for kind in TURNS))
    parser.add_argument("--drift", action="store_true")
    parser.add_argument("--pipe", action="store_true")
    parser.add_argument("--rate", default="10000")
    parser.add_argument("csv")
    parser.add_argument("svg")
    options = parser.parse_args()
    goals = {kind: int(count) for kind, count in (part.split("=") for part in options.until.split(","))}
    failed = False
    with tempfile.TemporaryDirectory(prefix="flightline-soak-", ignore_cleanup_errors=True) as work:
        victims = os.path.join(HERE, "tests/victims")
        program, module = os.path.join(work, "endless"), os.path.join(work, "module.so")
        subprocess.run(["gcc", "-O2", "-fomit-frame-pointer", "-g", "-o", program, f"{victims}/endless.c", "-lpthread", "-ldl"], check=True)
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-DMODULE=0", "-o", module, f"{victims}/module.c"], check=True)
        env = dict(os.environ)
        if options.drift:
            drift = os.path.join(work, "drift.so")
            subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", drift, f"{HERE}/bench/drift.c"], check=True)
            env |= {"LD_PRELOAD": drift, "DRIFT_START": str(time.time_ns())}
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        copies, root = os.path.join(work, "copies"), os.path.join(work, "repository")
        os.mkdir(copies)
        limit = None if options.pipe else 64 << 20
        output, reader, passed = ["--repository", root, "--max-size", "64m", "--chunk-size", "4m"], None, []
        if options.pipe:
            end, write = os.pipe()
            output, passed = ["-o", f"/dev/fd/{write}"], [write]
            reader = subprocess.Popen([f"{HERE}/target/release/examples/age"], stdin=end, stdout=subprocess.PIPE, text=True)
            os.close(end)
            root = f"/proc/{reader.pid}/io"
        recorder = subprocess.Popen(
            [options.flightline, "record", "--rate", options.rate, "--ring-size", "4m" if "stacks" in goals else "256k", *output,
             "--metrics-listen", f"127.0.0.1:{port}", "--", program, copies, module],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, pass_fds=passed)
        for write in passed:
            os.close(write)
        pid = int(recorder.stdout.readline().split()[1])
        session = session_of(pid)
        rows, done, begin = [], dict.fromkeys(goals, 0), time.monotonic()
        turn, samples = 0, 0
        while time.monotonic() - begin < options.minutes * 60:
            left = [kind for kind in goals if done[kind] < goals[kind]]
            if not left:
                break
            kind = left[turn % len(left)]
            for one in (recorder.pid, pid):
                reset_peak(one)
            try:
                recorder.stdin.write(f"{kind} {TURNS[kind]}\n")
                recorder.stdin.flush()
                if recorder.stdout.readline() != "done\n":
                    raise OSError("the program ended")
                shared = shared_kb(session)
                seen, lost = metrics(port)
            except OSError as error:
                print(f"after {turn} turns: {error}")
                failed = True
                break
            # Wait until the recorder has written this turn, so that the high-water mark belongs to it. The totals do not depend on this.
            catch_up(session)
            time.sleep(0.3)
            # Every stack of this work is unique, so the number of samples is the number of stacks.
            done[kind] += seen - samples if kind == "stacks" else TURNS[kind]
            samples = seen
            rows.append({"seconds": round(time.monotonic() - begin, 1), "kind": kind,
                         "recorder_kb": status(recorder.pid, "VmHWM"), "recorder_own_kb": status(recorder.pid, "RssAnon"),
                         "program_kb": status(pid, "VmHWM"), "program_own_kb": status(pid, "RssAnon"),
                         "shared_kb": shared, "output_bytes": bytes_of(root), "pid": last_pid(), "samples": samples,
                         "lost_s": round(sum(lost.values()), 3), "ring_full_s": round(lost.get("ring full", 0), 3)})
            turn += 1
            if shared > MOST_SHARED_KB:
                print("more shared memory than is good for this machine")
                failed = True
                break
        recorder.stdin.close()
        told = recorder.stderr.read()
        status_code = recorder.wait()
        with open(options.csv, "w") as file:
            file.write(",".join(rows[0]) + "\n")
            file.writelines(",".join(map(str, row.values())) + "\n" for row in rows)
        svg(rows, f"endless.c at {options.rate} Hz: " + ", ".join(f"{n} {UNITS[k]}" for k, n in done.items()), options.svg)
        print(re.sub(r"in /\S+", "in the repository", told.strip().splitlines()[-1] if told.strip() else "nothing told"))
        print("done: " + ", ".join(f"{n} {UNITS[k]}" for k, n in done.items()) + f"; status {status_code}")
        half, early = rows[len(rows) // 2:], rows[len(rows) // 8:len(rows) // 2] or rows
        for who in ("recorder", "program"):
            key = f"{who}_kb"
            rise = slope([(r["seconds"], r[f"{who}_own_kb"]) for r in half])
            # Memory rises and falls with the dictionary, which is cleared when it is full. A leak raises the lower quartile.
            first, last = (floor([r[f"{who}_own_kb"] for r in part]) for part in (early, half))
            part = max(1, (len(rows) + 3) // 4)
            peaks = [max(r[key] for r in rows[at:at + part]) for at in range(0, len(rows), part)]
            print(f"{who}: highest resident in each quarter {peaks} kB; floor of its own memory {first} kB in the first half, "
                  f"{last} kB in the second; slope in the second {rise * 60:+.1f} kB a minute")
            failed |= last > first * 1.15 + 2048
        # The unread files of ended processes are mapped by the recorder, but they count as shared memory, so exclude them here.
        highest = [r["recorder_own_kb" if r["kind"] == "processes" else "recorder_kb"] for r in rows]
        failed |= max(highest) > MOST_KB
        print(f"shared memory: at most {max(r['shared_kb'] for r in rows)} kB")
        most = max(r["output_bytes"] for r in rows)
        if reader:
            print(f"ages of events at the reader, ms: {reader.stdout.read().strip()}")
            print(f"output: {most} bytes, read with status {reader.wait()}")
            failed |= reader.returncode != 0
        else:
            read = subprocess.run([options.flightline, "summary", root], stdout=subprocess.DEVNULL)
            print(f"what is left in the repository is read with status {read.returncode}")
            print(f"output: at most {most} bytes, limit {limit}")
            failed |= read.returncode != 0 or most > limit
        failed |= status_code != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
