"""Shared by the benchmarks: paths, builds, and running a command with its resource usage."""
import os, shutil, signal, subprocess, sys, threading, time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = Path(os.environ.get("FLIGHTLINE_BENCH_DIR", ROOT / "target" / "bench"))
LIMIT = 180
FLIGHTLINE = Path(os.environ.get("FLIGHTLINE_BIN", ROOT / "target" / "release" / "flightline"))


def build():
    """Builds the recorder, the reader for the checks, and the benchmark's programs."""
    cargo = ["cargo", "build", "--release", "-q", "-p", "flightline", "-p", "flightline-preload", "-p", "flightline-tests"]
    subprocess.run(cargo, cwd=ROOT, check=True)
    programs()


def programs():
    """Builds the benchmark's programs."""
    WORK.mkdir(parents=True, exist_ok=True)
    here = ROOT / "bench"
    for name, flags in [("burn", ["-O2", "-fomit-frame-pointer"]), ("burn_fp", ["-O2", "-fno-omit-frame-pointer"]), ("rusage", ["-O2"])]:
        source = here / (name.replace("_fp", "") + ".c")
        subprocess.run(["gcc", *flags, "-g", "-o", WORK / name, source, "-lpthread"], check=True)
    rust = ROOT / "tests" / "victims" / "rust_fixed.rs"
    if not (WORK / "rust_fixed").exists() or (WORK / "rust_fixed").stat().st_mtime < rust.stat().st_mtime:
        subprocess.run(["rustc", "-O", "-g", "-o", WORK / "rust_fixed", rust], check=True)


class RecorderFailed(Exception):
    """A recorder refused to run on this machine."""


@dataclass
class Used:
    """CPU seconds, peak memory and wall seconds of a program, and the total CPU and wall seconds including its recorder."""
    program_cpu: float
    peak_kb: int
    total_cpu: float
    status: int
    wall: float = 0
    total_wall: float = 0


def small_parent(command):
    """Returns a command line that runs the command as a child of a tiny program, and a function that returns its CPU s, wall s, peak MB
    and exit code afterwards. The kernel starts a child's peak memory with its parent's, and Python's can be hundreds of MB."""
    WORK.mkdir(parents=True, exist_ok=True)
    if not (WORK / "rusage").exists():
        subprocess.run(["gcc", "-O2", "-o", WORK / "rusage", ROOT / "bench/rusage.c"], check=True)
    out = WORK / "small-parent.out"
    out.unlink(missing_ok=True)

    def used():
        user, system, peak, status, wall = (int(x) for x in out.read_text().split())
        return (user + system) / 1e9, wall / 1e9, peak / 1024, os.waitstatus_to_exitcode(status)

    return [str(x) for x in [WORK / "rusage", out, *command]], used


def run(prefix, command, env=None, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, meanwhile=None):
    """Runs `prefix... rusage command`; `meanwhile(process)`, if given, is called while it runs.

    UNDER_LD_PRELOAD in `env` is passed only to the program, not to `rusage`."""
    env = dict(env or {})
    if preload := env.pop("UNDER_LD_PRELOAD", None):
        command = ["env", f"LD_PRELOAD={preload}", *command]
    out = WORK / "rusage.out"
    out.unlink(missing_ok=True)
    full = [str(x) for x in [*prefix, WORK / "rusage", out, *command]]
    begun = time.monotonic()
    process = subprocess.Popen(full, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True)
    # Some recorders hang their program, so limit the waiting time.
    late = threading.Timer(LIMIT, lambda: os.killpg(process.pid, signal.SIGKILL))
    late.start()
    if meanwhile:
        meanwhile(process)
    _, status, usage = os.wait4(process.pid, 0)
    total_wall = time.monotonic() - begun
    process.returncode = status
    if not late.is_alive():
        raise RecorderFailed(f"{full[0]} hung for {LIMIT} s")
    late.cancel()
    if not out.exists():
        raise RecorderFailed(f"{full[0]} ended with status {status} and ran no program")
    user, system, peak, code, wall = (int(x) for x in out.read_text().split())
    return Used((user + system) / 1e9, peak, usage.ru_utime + usage.ru_stime, code, wall / 1e9, total_wall)


def machine():
    """Returns one line that describes the machine."""
    model = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), os.uname().machine)
    virtual = "virtual machine" if "hypervisor" in open("/proc/cpuinfo").read() else "bare metal"
    paranoid = Path("/proc/sys/kernel/perf_event_paranoid").read_text().strip()
    return (f"{os.cpu_count()} × {model} ({virtual}), Linux {os.uname().release}, perf_event_paranoid {paranoid}, "
            f"{'root' if os.geteuid() == 0 else 'unprivileged'}")


def text_input(path, size):
    """Writes a compressible text of `size` bytes, the same on every machine."""
    if path.exists() and path.stat().st_size >= size:
        return
    words, x = [f"word{i * 7919 % 65537}" for i in range(4000)], 88172645463325252
    with open(path, "w") as out:
        written = 0
        while written < size:
            line = []
            for _ in range(12):
                x ^= (x << 13) & 0xFFFFFFFFFFFFFFFF
                x ^= x >> 7
                x ^= (x << 17) & 0xFFFFFFFFFFFFFFFF
                line.append(words[x % 4000])
            written += out.write(" ".join(line) + "\n")


def database(path, rows):
    """Makes a database with about 100 bytes per row."""
    if path.exists():
        return
    sql = (f"create table t(id integer primary key, k integer, name text, body text);"
           f"with recursive n(i) as (select 1 union all select i+1 from n where i<{rows}) insert into t "
           f"select i, i*7919%10007, printf('name-%06d', i*104729%99991), hex(i*i)||printf('%064d', i) from n;")
    subprocess.run(["sqlite3", path, sql], check=True)


PYTHON = """
import json, re
words = {}
for i in range(%d):
    s = json.dumps({'i': i, 'list': list(range(i %% 17)), 'text': 'x' * (i %% 31)})
    for m in re.finditer(r'[0-9]+', s):
        words[m.group()] = words.get(m.group(), 0) + 1
print(len(sorted(words, key=words.get)))
"""


def redis(requests, prefix, env):
    """Runs redis-server under redis-benchmark, and ends it with its shutdown command."""
    socket = WORK / "redis.sock"
    socket.unlink(missing_ok=True)

    def drive(process):
        for _ in range(6000):
            if socket.exists():
                break
            if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                return  # the recorder refused; run() reports it
            time.sleep(0.01)
        subprocess.run(["redis-benchmark", "-s", socket, "-q", "-n", str(requests), "-P", "4", "-t",
                        "set,get,lpush,lrange_100,zadd"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["redis-cli", "-s", socket, "shutdown", "nosave"], stdout=subprocess.DEVNULL)

    command = ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no"]
    return run(prefix, command, env, meanwhile=drive)


def workloads(scale):
    """Returns name → function(prefix, env), which runs the program once with fixed work and returns its Used."""
    database(WORK / "big.db", 700_000)
    query = ("select k, count(*), sum(length(body)), max(name) from t where name > 'name-02' group by k order by 3 desc, 4 limit 5;"
             "select count(*) from (select distinct substr(body, 1, 5), name from t order by body);")
    n = lambda x: str(int(x * scale))
    part = WORK / f"text-{int(6000 * scale)}k"
    text_input(part, int(6_000_000 * scale))
    simple = {
        "sqlite3": ["sqlite3", WORK / "big.db", query * max(1, round(2 * scale))],
        "xz": ["xz", "-9", "-T2", "--block-size=1MiB", "-k", "-c", part],
        "python3": ["/usr/bin/python3", "-c", PYTHON % int(300_000 * scale)],
        "rust": [WORK / "rust_fixed", n(1600)],
        "burn": [WORK / "burn", "2", n(250_000)],
        "burn-fp": [WORK / "burn_fp", "2", n(250_000)],
    }

    def runner(command):
        return lambda prefix, env=None, program=None: run(prefix, [program or command[0], *command[1:]], env)

    made = {name: runner(command) for name, command in simple.items()}
    if shutil.which("redis-server"):
        made["redis-server"] = lambda prefix, env=None, program=None: redis(int(100_000 * scale), prefix, env)
    return made
