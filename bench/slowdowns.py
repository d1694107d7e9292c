#!/usr/bin/env python3
"""Causes slowdowns of the distribution's PostgreSQL under pgbench, and checks that a recording of its backends by `flightline record --off-cpu
--wakeups` shows the cause. Each slowdown is recorded before and after. Needs root.

usage: bench/slowdowns.py [--seconds N] [--clients N] [--keep DIR] [--pictures DIR] [lock fsync run-queue]

lock: another session updates a row and sleeps before it commits. fsync: commits wait for the disk. run-queue: --spinners programs compete for the
processor on which the server runs. Shares are those of the backends' wall time. Exit status 1 if a graph does not show the cause.
"""
import argparse, contextlib, json, os, re, subprocess, sys, tempfile, time
from pathlib import Path
from measuring import FLIGHTLINE, machine

POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1:]
USER = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
# There are so few rows that a session that holds one soon blocks all others.
UPDATE = "\\set aid random(1, 20)\nupdate pgbench_accounts set abalance = abalance + 1 where aid = :aid;\n"
HOLD = """begin;
update pgbench_accounts set abalance = abalance + 1 where aid = 1;
select pg_sleep(0.1);
commit;
select pg_sleep(0.01);
"""
FAST = {"PGOPTIONS": "-c synchronous_commit=off"}
LIMIT = 120
# The function or the kind of wait that must be near the top of the differential flame graph.
CAUSES = {"lock": "ProcSleep", "fsync": "XLogFlush", "run-queue": "[runnable]"}


class Server:
    """A PostgreSQL cluster with its own folder and socket."""

    def __init__(self, stack, dir):
        self.dir, self.stack = dir, stack
        self.tool("initdb", "-D", dir / "data", "-U", "bench", "--auth=trust", as_user=True)
        log = open(dir / "log", "w")
        process = subprocess.Popen([*USER, POSTGRES[0] / "postgres", "-D", dir / "data", "-k", dir, "-h", "", "-c", "autovacuum=off"],
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=dir)
        stack.callback(ended, process)
        for _ in range(LIMIT * 10):
            if process.poll() is not None:
                sys.exit((dir / "log").read_text())
            if subprocess.run([POSTGRES[0] / "pg_isready", "-q", "-h", dir]).returncode == 0:
                break
            time.sleep(0.1)
        self.tool("pgbench", *self.at(), "-i", "-q", "-s", "5", "postgres")

    def at(self):
        return ["-h", self.dir, "-U", "bench"]

    def tool(self, name, *arguments, as_user=False, env=None):
        command = [*(USER if as_user else []), POSTGRES[0] / name, *arguments]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=self.dir, timeout=LIMIT, env={**os.environ, **(env or {})})
        if done.returncode:
            sys.exit(f"{name}: {done.stderr}")
        return done.stdout

    def bench(self, script, clients, seconds, name, env):
        """Starts pgbench in the background."""
        file = self.dir / f"{name}.sql"
        options = ["-S"]
        if script:
            file.write_text(script)
            options = ["-f", file]
        command = [POSTGRES[0] / "pgbench", *self.at(), "-n", *options, "-c", clients, "-j", 1, "-T", seconds, "postgres"]
        process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, **env, "PGAPPNAME": name})
        self.stack.callback(process.kill)
        return process

    def backends(self, name, number):
        """Returns the backends of a client once they are stable: pgbench first makes a short connection."""
        last = []
        for _ in range(LIMIT * 10):
            query = f"select pid from pg_stat_activity where application_name = '{name}' and backend_type = 'client backend'"
            pids = [int(pid) for pid in self.tool("psql", *self.at(), "-Atc", query, "postgres").split()]
            if len(pids) == number and pids == last:
                return pids
            last = pids
            time.sleep(0.2)
        sys.exit(f"{name} does not connect")


def ended(process):
    process.terminate()
    process.wait(timeout=LIMIT)


class Run:
    """A recording of backends under load."""

    def __init__(self, server, args, path, script, clients, env, plant=None):
        self.path, self.clients, self.seconds = path, clients, args.seconds
        load = server.bench(script, clients, args.seconds + 3, path.stem, env)
        self.pids = server.backends(path.stem, clients)
        self.holder = None
        with contextlib.ExitStack() as planted:
            if plant:
                self.holder = plant(planted, self.pids)
            wanted = [x for pid in [*self.pids, *([self.holder] if self.holder else [])] for x in ("-p", str(pid))]
            command = [FLIGHTLINE, "record", "--off-cpu", "--wakeups", "-o", path, "--duration", f"{args.seconds}s", *wanted]
            done = subprocess.run([str(c) for c in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT)
            if done.returncode:
                sys.exit(done.stderr)
            self.said = done.stderr.strip().splitlines()[-1]
            out, errors = load.communicate(timeout=LIMIT)
        if load.returncode:
            sys.exit(errors)
        self.tps, self.latency = (float(re.search(rf"{what} = ([\d.]+)", out)[1]) for what in ("tps", "latency average"))

    def of_clients(self):
        return ["--only-process", rf"postgres \(({'|'.join(map(str, self.pids))})\)"]

    def lines(self, graph, *options):
        """Returns the folded lines of the clients' backends: frames and µs."""
        command = [str(c) for c in [FLIGHTLINE, graph, self.path, *self.of_clients(), *options]]
        done = subprocess.run(command, capture_output=True, text=True)
        if "passes the filters" in done.stderr:
            return []
        if done.returncode:
            sys.exit(f"{command}: {done.stderr}")
        split = (line.rsplit(" ", 1) for line in done.stdout.splitlines())
        return [(stack.split(";"), int(micros)) for stack, micros in split]

    def share(self, lines, wanted=lambda frames: True):
        """Returns the share in the wall time of all backends, in percent."""
        return sum(micros for frames, micros in lines if wanted(frames)) / (self.clients * self.seconds * 1e4)

    def having(self, graph, *functions, options=()):
        return self.share(self.lines(graph, *options), lambda frames: any(f in frames for f in functions))


def lock(server, args, keep):
    def plant(stack, pids):
        holder = server.bench(HOLD, 1, args.seconds + 3, "holder", FAST)
        stack.callback(holder.kill)
        return server.backends("holder", 1)[0]

    runs = [Run(server, args, keep / f"lock-{when}.jfr", UPDATE, args.clients, FAST, planted) for when, planted in [("before", None), ("after", plant)]]
    after = runs[1]
    waits = [run.having("offcpu", "ProcSleep") for run in runs]
    holder = f"[postgres tid={after.holder}]"
    chains = [line for line in after.lines("chain", "-t") if "ProcSleep" in line[0]]
    named = after.share(chains, lambda frames: holder in frames[1:])
    direct = after.share([line for line in after.lines("offwake", "-t") if "ProcSleep" in line[0]], lambda frames: frames[-1] == holder)
    row = [("blocked in ProcSleep (`offcpu`)", *waits), ("of it woken by the holder itself (`offwake -t`)", None, direct), ("woken by it or by whom it woke (`chain -t`)", None, named)]
    good = {"waits for locks grew to more than half of the time": waits[0] < 10 and waits[1] > 50, "four fifths of the chains come from the holder": named > 0.8 * waits[1] > 0}
    picture = ["offwake", after.path, "-U", "-I", "ProcSleep", "--focus", "heap_update|heap_lock_tuple"]
    return runs, row, good, picture


def fsync(server, args, keep):
    runs = [Run(server, args, keep / f"fsync-{when}.jfr", "\\set aid random(1, 500000)\n" + UPDATE.splitlines()[1], args.clients, env)
            for when, env in [("before", FAST), ("after", {})]]
    flush = [run.having("offcpu", "XLogFlush") for run in runs]
    disk = [run.having("offcpu", "fdatasync", options=["--state", "D"]) for run in runs]
    queue = [run.having("offcpu", "LWLockAcquireOrWait") for run in runs]
    kinds = [run.share(run.lines("threadtime", "--at-leaves"), lambda frames: frames[-1] == "[blocked: disk]") for run in runs]
    row = [("blocked in XLogFlush (`offcpu`)", *flush), ("of it in fdatasync, state D (`offcpu --state D`)", *disk),
           ("of it for another backend's flush (LWLockAcquireOrWait)", *queue), ("[blocked: disk] (`threadtime`)", *kinds)]
    good = {"waits for the log grew to more than half of the time": flush[0] < 10 and flush[1] > 50, "the disk is among them": disk[1] > 5 > disk[0],
            "they are the disk and who waits for its turn": disk[1] + queue[1] > 0.9 * flush[1]}
    return runs, row, good, ["offcpu", runs[1].path, "-I", "XLogFlush", "--focus", "CommitTransactionCommand"]


def run_queue(server, args, keep):
    cpu = max(os.sched_getaffinity(0))

    def pinned(spinners):
        def plant(stack, pids):
            for pid in pids:
                os.sched_setaffinity(pid, {cpu})
            # Each spinner gets its own session, as each backend has, because the scheduler divides time among sessions.
            for _ in range(spinners):
                spinner = subprocess.Popen(["taskset", "-c", str(cpu), "sh", "-c", "while :; do :; done"], start_new_session=True)
                stack.callback(spinner.wait)
                stack.callback(spinner.kill)
        return plant

    runs = [Run(server, args, keep / f"run-queue-{when}.jfr", None, 1, {}, pinned(number)) for when, number in [("before", 0), ("after", args.spinners)]]
    split = [run.lines("threadtime", "--at-leaves") for run in runs]
    kinds = sorted({frames[-1] for lines in split for frames, _ in lines})
    row = [(f"{kind} (`threadtime`)", *(run.share(lines, lambda frames: frames[-1] == kind) for run, lines in zip(runs, split))) for kind in kinds]
    queue = [run.share(run.lines("offcpu", "--run-queue")) for run in runs]
    row.append(("waiting for a processor (`offcpu --run-queue`)", *queue))
    runnable = [share for kind, *share in row if kind.startswith("[runnable]")][0]
    good = {"waits for a processor grew to more than half of the time": queue[1] > max(50, queue[0] + 30),
            "both graphs agree": all(abs(a - b) < 1 for a, b in zip(queue, runnable))}
    return runs, row, good, ["threadtime", runs[1].path]


def difference(runs):
    """Returns the largest increases in the time of all threads."""
    texts = []
    for run in runs:
        texts.append(run.path.with_suffix(".folded"))
        subprocess.run([FLIGHTLINE, "threadtime", run.path, "-o", texts[-1]], check=True, capture_output=True)
    return subprocess.run([FLIGHTLINE, "diff", "--limit", "8", *texts], check=True, capture_output=True, text=True).stdout


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--seconds", type=int, default=8)
    parse.add_argument("--clients", type=int, default=4)
    parse.add_argument("--spinners", type=int, default=3)
    parse.add_argument("--keep", type=Path, help="recordings")
    parse.add_argument("--pictures", type=Path, help="a picture of each after")
    parse.add_argument("cases", nargs="*", default=["lock", "fsync", "run-queue"])
    args = parse.parse_args()
    if not POSTGRES:
        sys.exit("no PostgreSQL here: apt-get install postgresql")
    print(f"{machine()}, load {os.getloadavg()[0]:.1f}; {POSTGRES[0].parent.name}, {args.clients} clients, {args.seconds} s each")
    failed = False
    with contextlib.ExitStack() as stack:
        dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flightline-bench-")))
        dir.chmod(0o755)
        (dir / "pg").mkdir()
        subprocess.run(["chown", "postgres", dir / "pg"], check=True)
        keep = args.keep or dir
        keep.mkdir(parents=True, exist_ok=True)
        server = Server(stack, dir / "pg")
        for name, case in [("lock", lock), ("fsync", fsync), ("run-queue", run_queue)]:
            if name not in args.cases:
                continue
            runs, rows, good, picture = case(server, args, keep)
            cause = CAUSES[name]
            print(f"\n| {name} | before | after |\n|---|---|---|")
            print("| transactions a second | " + " | ".join(f"{run.tps:,.0f}" for run in runs) + " |")
            print("| latency, mean, ms | " + " | ".join(f"{run.latency:.2f}" for run in runs) + " |")
            for what, *shares in rows:
                print(f"| {what} | " + " | ".join("–" if share is None else f"{share:.1f} %" for share in shares) + " |")
            for run in runs:
                print(run.said.replace(str(keep), "…"))
            grown = difference(runs)
            print(grown)
            good[f"{cause} is what grew (`diff` of `threadtime`)"] = re.search(rf"\+[\d.]+%   {re.escape(cause)}$", grown, re.M) is not None
            for what, holds in good.items():
                print(f"{'yes' if holds else 'NO'}: {what}", flush=True)
                failed |= not holds
            if args.pictures:
                subprocess.run([str(c) for c in [FLIGHTLINE, *picture, "--min-width", "1%", "--width", "1000", "-o", args.pictures / f"{name}.png"]], check=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
