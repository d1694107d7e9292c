#!/usr/bin/env python3
"""Measures the cost of continuous recording: servers under load with the defaults of `flightline record --repository`, in paired runs.

usage: bench/always_on.py [--rounds N] [--scale S] [--cpus SERVER:LOAD] [redis-server nginx postgres]

Every round runs each server three times under the same load, in rotating order: alone, alone again, recorded. The
recorded run is compared with the first lone run of its round. The second lone run is compared with it too; this is the
noise. The columns are requests per second, the 99th percentile of latency, and CPU time per request of the server's
processes. Each is the median of the rounds' ratios minus one, with a 95 % confidence interval of the median (from order
statistics, without an assumption about the distribution). `recorder` is the drain's CPU time under load, in percent of
the server's. A fifth of the load is run first, so that programs and symbols have been read; `start` is this cost, in CPU
seconds per recording.
Load: redis-benchmark, wrk, pgbench -S. Servers and load programs that are not installed are skipped with a message.
"""
import argparse, csv, grp, math, os, pwd, re, shutil, signal, socket, statistics, subprocess, sys, tempfile, time
from pathlib import Path
from measuring import FLIGHTLINE, WORK, build, machine

POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1:]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def answers(port, process):
    for _ in range(600):
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with status {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError("the server does not answer")


def p99_of(values):
    values.sort()
    return values[min(len(values) - 1, len(values) * 99 // 100)]


class Redis:
    name, needs = "redis-server", ["redis-server", "redis-benchmark"]

    def __init__(self, dir, scale):
        self.dir, self.requests, self.port = dir, int(400_000 * scale), free_port()

    def command(self):
        return ["redis-server", "--port", self.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", self.dir, "--loglevel", "warning"]

    def load(self, on, share=1):
        requests = int(self.requests * share) // 2
        out = subprocess.run([*on, "redis-benchmark", "-p", str(self.port), "-n", str(requests), "-c", "50", "-t", "get,set", "--csv"],
                             capture_output=True, text=True, check=True).stdout
        rows = list(csv.DictReader(out.splitlines()))
        return 2 * requests, statistics.mean(float(r["rps"]) for r in rows), statistics.mean(float(r["p99_latency_ms"]) for r in rows)

    def stop(self, pid):
        os.kill(pid, signal.SIGTERM)


class Nginx:
    name, needs = "nginx", ["nginx", "wrk"]

    def __init__(self, dir, scale):
        self.dir, self.seconds, self.port = dir, max(2, round(8 * scale)), free_port()
        (dir / "page.html").write_text("<p>" + "text " * 200 + "</p>\n")
        user = "user root;" if os.geteuid() == 0 else ""
        (dir / "nginx.conf").write_text(f"""{user} daemon off; master_process on; worker_processes 2; pid {dir}/nginx.pid; error_log {dir}/error.log;
events {{ worker_connections 512; }}
http {{ access_log off; keepalive_requests 1000000; client_body_temp_path {dir}/t; proxy_temp_path {dir}/t; fastcgi_temp_path {dir}/t;
uwsgi_temp_path {dir}/t; scgi_temp_path {dir}/t; types {{ text/html html; }}
server {{ listen 127.0.0.1:{self.port}; root {dir}; }} }}
""")

    def command(self):
        return ["nginx", "-p", self.dir, "-c", self.dir / "nginx.conf", "-e", self.dir / "error.log"]

    def load(self, on, share=1):
        out = subprocess.run([*on, "wrk", "-t", "1", "-c", "32", "-d", f"{max(1, round(self.seconds * share))}s", "--latency", f"http://127.0.0.1:{self.port}/page.html"],
                             capture_output=True, text=True, check=True).stdout
        number, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", out).groups()
        p99 = float(number) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]
        requests = int(re.search(r"(\d+) requests in", out)[1])
        return requests, float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1]), p99

    def stop(self, pid):
        os.kill(pid, signal.SIGQUIT)


class Postgres:
    name, needs = "postgres", []

    def __init__(self, dir, scale):
        if not POSTGRES:
            raise RuntimeError("not here")
        self.dir, self.each, self.port, self.bin = dir, int(12_000 * scale), free_port(), POSTGRES[0]
        subprocess.run([*as_user(), self.bin / "initdb", "-D", dir / "data", "-U", "bench", "--auth=trust", "-N"], check=True, capture_output=True, cwd=dir)
        self.ready = False

    def command(self):
        return [self.bin / "postgres", "-D", self.dir / "data", "-p", self.port, "-h", "127.0.0.1", "-k", "", "-F"]

    def load(self, on, share=1):
        each = int(self.each * share)
        ready = [self.bin / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port), "-t", "10"]
        while subprocess.run(ready).returncode == 1:
            time.sleep(0.05)
        base = [self.bin / "pgbench", "-h", "127.0.0.1", "-p", str(self.port), "-U", "bench"]
        if not self.ready:
            subprocess.run([*base, "-i", "-q", "-s", "5", "postgres"], check=True, capture_output=True)
            self.ready = True
            return None
        for old in self.dir.glob("load.*"):
            old.unlink()
        out = subprocess.run([*on, *base, "-n", "-S", "-M", "prepared", "-c", "8", "-j", "2", "-t", str(each), "-l", "--log-prefix", self.dir / "load", "postgres"],
                             capture_output=True, text=True, check=True).stdout
        times = [int(line.split()[2]) for log in self.dir.glob("load.*") for line in log.read_text().splitlines()]
        return 8 * each, float(re.search(r"tps = ([\d.]+)", out)[1]), p99_of(times) / 1e3

    def stop(self, pid):
        os.kill(pid, signal.SIGINT)


def as_user():
    """Returns a prefix that drops root, because postgres does not run as root."""
    return ["setpriv", "--reuid", "nobody", "--regid", grp.getgrgid(pwd.getpwnam("nobody").pw_gid).gr_name, "--clear-groups"] if os.geteuid() == 0 else []


def cpu_of(pid):
    """Returns the CPU seconds of a process's running threads."""
    used = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            used += int((task / "schedstat").read_text().split()[0])
        except OSError:
            pass
    return used / 1e9


def children(pid):
    found = [int(c) for task in Path(f"/proc/{pid}/task").iterdir() for c in (task / "children").read_text().split()]
    return found


def run(server, recorded, dir, on):
    """Returns requests per second, p99 in ms, the server's CPU seconds per request, the recorder's CPU seconds at its start, and
    the recorder's CPU time under load in percent of the server's."""
    usage, repository = dir / "usage", dir / "repository"
    usage.unlink(missing_ok=True)
    shutil.rmtree(repository, ignore_errors=True)
    record = [FLIGHTLINE, "record", "--repository", repository, "--max-size", "256m", "--"] if recorded else []
    prefix = as_user() if server.name == "postgres" else []
    full = [str(x) for x in [*on[0], *prefix, *record, WORK / "rusage", usage, *server.command()]]
    process = subprocess.Popen(full, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=dir, start_new_session=True)
    try:
        answers(server.port, process)
        warm = server.load(on[1], 0.2)
        start = cpu_of(process.pid)
        result = server.load(on[1])
        used = cpu_of(process.pid) - start
        # The process tree is flightline → rusage → server, or rusage → server.
        around = process.pid
        if recorded:
            around = next(c for c in children(process.pid) if "rusage" in Path(f"/proc/{c}/comm").read_text())
        server.stop(children(around)[0])
        process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    if warm is None:
        return None
    user, system, _, _, _ = (int(x) for x in usage.read_text().split())
    each = (user + system) / 1e9 / (warm[0] + result[0])
    return *result[1:], each, start, 100 * used / (each * result[0])


def text(ratios):
    ratios = sorted(100 * (r - 1) for r in ratios)
    # Exclude as many values at each end as possible; the median is among them with a probability of at most 2.5 % per end.
    n, outside, chance = len(ratios), 0, 0.0
    while (chance := chance + math.comb(n, outside) / 2**n) <= 0.025:
        outside += 1
    at = max(0, outside - 1)
    return f"{statistics.median(ratios):+.2f} % ({ratios[at]:+.1f}..{ratios[n - 1 - at]:+.1f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--cpus", help="processors of the server and of the load, as 0,1:2,3")
    parser.add_argument("servers", nargs="*", default=["redis-server", "nginx", "postgres"])
    options = parser.parse_args()
    build()
    on = [["taskset", "-c", cpus] for cpus in options.cpus.split(":")] if options.cpus else [[], []]
    print(machine())
    print(f"load average {Path('/proc/loadavg').read_text().split()[0]}, {options.rounds} rounds\n")
    print("| server | | requests a second | p99 | CPU a request | recorder | start |\n|---|---|---|---|---|---|---|")
    for kind in [Redis, Nginx, Postgres]:
        if kind.name not in options.servers:
            continue
        missing = [need for need in kind.needs if not shutil.which(need)]
        if missing or kind is Postgres and not POSTGRES:
            print(f"| {kind.name} | left out: {', '.join(missing) or kind.name} is not here | | | | | |")
            continue
        with tempfile.TemporaryDirectory(prefix="flightline-bench-") as name:
            dir = Path(name)
            dir.chmod(0o777)
            server = kind(dir, options.scale)
            run(server, False, dir, on)
            noise, recorded, drain, starts = [], [], [], []
            for turn in range(options.rounds):
                order = ["alone", "again", "recorded"]
                order = order[turn % 3:] + order[:turn % 3]
                got = {which: run(server, which == "recorded", dir, on) for which in order}
                alone = got["alone"][:3]
                noise.append([b / a for a, b in zip(alone, got["again"])])
                recorded.append([b / a for a, b in zip(alone, got["recorded"])])
                drain.append(got["recorded"][4])
                starts.append(got["recorded"][3])
            for what, ratios, own in [("alone again", noise, "| "), ("recorded", recorded, f"{statistics.median(drain):.2f} % | {statistics.median(starts):.2f} s")]:
                print(f"| {kind.name} | {what} | " + " | ".join(text(column) for column in zip(*ratios)) + f" | {own} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
