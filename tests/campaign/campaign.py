#!/usr/bin/env python3
"""Runs real programs under every engine while another process commands the recorder at random, and compares each run with one without the
recorder: standard output, exit status and the signal that ended it. Any difference and any run that takes 20 times as long is a failure.

usage: campaign.py FLIGHTLINE MINUTES [--jobs N] [--seed N] [--only PROGRAM]

`flightline` runs from where it lies, with libflightline.so beside it. The test's own programs are compiled into the working folder. A program that
this machine lacks is listed at the end. Exit status 0 only if there was no difference.
"""
import argparse
import collections
import concurrent.futures
import hashlib
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
VICTIMS = ROOT / "tests/victims"

EVERYTHING = "cpu@100us,wall@1ms,alloc@1k,live,lock@1us,io@1us,throw,metrics,page-faults@1,context-switches@1"
# Name, options of `flightline record`. The last two do not start the program.
MODES = {
    "cpu@99hz": ["-F", "99"],
    "cpu@10khz": ["-F", "10000"],
    "timer": ["--engine", "timer", "-F", "10000"],
    "itimer": ["--engine", "itimer", "-F", "10000"],
    "all": ["-e", EVERYTHING],
    "all by timers": ["--engine", "timer", "-e", EVERYTHING],
    "dormant": ["--dormant"],
    "attached": None,
}
ENGINES = ["cpu", "cpu,alloc", "cpu@100us,lock", "alloc@1k,io@1us", "wall@1ms", "cpu,alloc,lock,io,throw"]
LEAST_S = 60.0
TIMES_AS_LONG = 20


class Program:
    """A command line, with folders and variables of its own."""

    def __init__(self, name, argv, env=None, needs=(), reads=None):
        self.name, self.argv, self.env, self.needs, self.reads = name, argv, env or {}, needs, reads
        self.alone = None


def compiled(folder, source, flags=(), out=None, compiler="gcc"):
    target = folder / (out or pathlib.Path(source).stem)
    command = [compiler, "-O2", "-g", "-w", str(VICTIMS / source), "-o", str(target), *flags]
    subprocess.run(command, check=True)
    return str(target)


def programs(folder):
    """All programs of the campaign; the data they work on is made here."""
    text = folder / "text"
    generator = random.Random(7)
    words = ["".join(generator.choice("abcdefgh") for _ in range(generator.randint(2, 9))) for _ in range(3000)]
    text.write_text("\n".join(" ".join(generator.choice(words) for _ in range(12)) for _ in range(60_000)))
    sql = "create table t(a,b); with recursive n(x) as (select 1 union all select x+1 from n where x<120000) " \
          "insert into t select x, x*7919%1000 from n; select b, count(*), sum(a) from t group by b order by b;"
    (folder / "burn.js").write_text(
        "function f(n){return n<2?n:f(n-1)+f(n-2)} let s=0; for(let i=0;i<9;i++) s+=f(24);"
        "const r=n=>n?1+r(n-1):0; console.log(s, r(5000), JSON.stringify([...Array(50000).keys()]).length)")
    (folder / "Main.java").write_text(
        "import java.util.*; import java.util.stream.*; public class Main { static int f(int n){return n<2?n:f(n-1)+f(n-2);}"
        "public static void main(String[] a){ long s=IntStream.range(0,64).parallel().map(i->f(22)).sum(); Map<Integer,String> m=new TreeMap<>();"
        "for(int i=0;i<200000;i++) m.put(i*7919%100003,\"v\"+i); System.out.println(s+\" \"+m.hashCode()); } }")
    (folder / "main.go").write_text(
        "package main\nimport (\"fmt\"; \"sort\"; \"sync\")\nfunc f(n int) int { if n < 2 { return n }; return f(n-1) + f(n-2) }\n"
        "func main() { var g sync.WaitGroup; r := make([]int, 16); for i := range r { g.Add(1); go func() { defer g.Done(); r[i] = f(25 + i%3) }() }\n"
        "g.Wait(); sort.Ints(r); fmt.Println(r) }\n")
    redis = folder / "redis.sh"
    redis.write_text(
        "#!/bin/bash\nd=$(mktemp -d); redis-server --port 0 --unixsocket $d/s --save '' --dir $d --logfile $d/log & p=$!\n"
        "for i in $(seq 200); do [ -S $d/s ] && break; sleep 0.05; done\n"
        "redis-benchmark -s $d/s -n 20000 -q -t set,get,incr,lpush,lrange_100 >/dev/null\n"
        "redis-cli -s $d/s debug digest-value counter:__rand_int__ | head -c 41; redis-cli -s $d/s get counter:__rand_int__\n"
        "redis-cli -s $d/s shutdown nosave; wait $p; echo status $?; rm -r $d\n")
    make = folder / "make.sh"
    make.write_text(
        "#!/bin/bash\nd=$(mktemp -d); cd $d; for i in $(seq 12); do echo \"#include <stdio.h>\nint f$i(int x){return x*$i;}\" >f$i.c; done\n"
        "printf 'all: $(patsubst %%.c,%%.o,$(wildcard *.c))\\n\\t@ls *.o | wc -l\\n%%.o: %%.c\\n\\t@gcc -O2 -c $< -o $@\\n' >Makefile\n"
        "make -j4; echo status $?; rm -r $d\n")
    script = folder / "pipeline.sh"
    script.write_text(f"#!/bin/bash\nfor i in 1 2 3 4; do tr a-d A-D <{text} | grep -c A | cat; (exit $i); echo $?; done; env -i /bin/echo clean\n")
    namespaces = folder / "namespaces.sh"
    namespaces.write_text("#!/bin/bash\nunshare -Urpf --mount-proc bash -c 'echo pid $$; sort /proc/self/status | head -2 | wc -l; exit 7'; echo $?\n")
    for file in (redis, make, script, namespaces):
        file.chmod(0o755)
    lib = "/usr/lib/x86_64-linux-gnu/"
    alloc = lambda name: {"LD_PRELOAD": lib + name}
    sites = ["-lpthread", "-ldl", "-lrt", "-lm"]
    guest = compiled(folder, "guest_signals.c", sites)
    threads = compiled(folder, "guest_threads.c", sites)
    process = compiled(folder, "guest_process.c", sites)
    safety = compiled(folder, "guest_safety.c", sites)
    # The tree may change during the campaign.
    shutil.copytree(VICTIMS, folder / "sources")
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    sorts = ["bash", "-c", f"sort {text} | md5sum"]
    python = "import json,re,threading,hashlib\n" \
             "def f(n): return n if n<2 else f(n-1)+f(n-2)\n" \
             "t=[threading.Thread(target=f,args=(18,)) for _ in range(8)]; [x.start() for x in t]; [x.join() for x in t]\n" \
             "d={str(i):[i,str(i)*3] for i in range(40000)}; s=json.dumps(d); print(len(s),hashlib.md5(s.encode()).hexdigest(),len(re.findall('1+',s)))"
    suites = ["test_json", "test_re", "test_threading", "test_signal", "test_subprocess"]
    jdk = lambda version: next((str(p / "bin/java") for p in pathlib.Path("/usr/lib/jvm").glob(f"*{version}*") if (p / "bin/java").exists()), "java")
    found = [
        Program("gcc", ["bash", "-c", f"gcc -O2 -c {VICTIMS}/guest_threads.c -o /dev/stdout -w | md5sum"], needs=["gcc"]),
        Program("make -j4", [str(make)], needs=["make", "gcc"]),
        Program("rustc", ["bash", "-c", f"rustc -O --crate-type lib --emit obj -o {folder}/rustc.o - <<<'pub fn f(v:&mut Vec<String>){{v.sort()}}' && echo built"], needs=["rustc"]),
        Program("python3", ["python3", "-c", python], needs=["python3"]),
        *[Program(f"cpython {suite}", ["bash", "-c", f"python3 -m test -q {suite} >/dev/null 2>&1; echo $?"], needs=["python3"]) for suite in suites],
        Program("node", ["node", str(folder / "burn.js")], needs=["node"]),
        Program("java 17", [jdk("17"), str(folder / "Main.java")], needs=["java"]),
        Program("java 25", [jdk("25"), str(folder / "Main.java")], needs=["java"]),
        Program("go", [str(folder / "gomain")], needs=["go"]),
        Program("redis", [str(redis)], needs=["redis-server"]),
        Program("sqlite3", ["bash", "-c", f"echo '{sql}' | sqlite3 | md5sum"], needs=["sqlite3"]),
        Program("perl", ["perl", "-e", "my %h; $h{$_*7919%10007}.=$_ for 1..300000; my $s=0; $s+=length for values %h; print scalar(keys %h),\" $s\\n\""], needs=["perl"]),
        Program("xz", ["bash", "-c", f"xz -T4 -3 -c {text} | xz -dc | md5sum"], needs=["xz"]),
        Program("zstd", ["bash", "-c", f"zstd -q -T4 -9 -c {text} | md5sum"], needs=["zstd"]),
        Program("bzip2", ["bash", "-c", f"bzip2 -c {text} | md5sum"], needs=["bzip2"]),
        Program("tar and gzip", ["bash", "-c", f"tar -C {folder} --sort=name --mtime=@0 -czf - sources | gzip -dc | md5sum"], needs=["tar"]),
        Program("git", ["git", "-C", str(ROOT), "log", "--oneline", "-300", "--stat", commit], needs=["git"]),
        Program("jq", ["bash", "-c", "seq 60000 | jq -s 'map(. * 3) | add'"], needs=["jq"]),
        Program("openssl", ["bash", "-c", f"openssl enc -aes-256-ctr -K 00 -iv 00 -in {text} 2>/dev/null | openssl dgst -sha512"], needs=["openssl"]),
        Program("ffmpeg", ["bash", "-c", "ffmpeg -v error -f lavfi -i testsrc=d=1:s=160x120 -f rawvideo - | md5sum"], needs=["ffmpeg"]),
        Program("gdb", ["gdb", "-batch", "-nx", "-ex", "run", "-ex", "info threads", "--args", "/bin/true"], needs=["gdb"], reads="gdb"),
        Program("shell", [str(script)]),
        Program("namespaces", [str(namespaces)], needs=["unshare"]),
        Program("sort", sorts),
        Program("sort with jemalloc", sorts, alloc("libjemalloc.so.2"), [lib + "libjemalloc.so.2"]),
        Program("sort with tcmalloc", sorts, alloc("libtcmalloc_minimal.so.4"), [lib + "libtcmalloc_minimal.so.4"]),
        Program("python3 with mimalloc", ["python3", "-c", python], alloc("libmimalloc.so.2"), [lib + "libmimalloc.so.2"]),
        *[Program(f"signals {case}", [guest, case]) for case in ["handler-prof", "masks", "itimer", "longjmp", "signalfd-prof", "stack-alternate", "inherit"]],
        *[Program(f"threads {case}", [threads, case]) for case in ["many", "crowd", "ends", "errno", "coroutines", "deep"]],
        *[Program(f"processes {case}", [process, case]) for case in ["vfork", "vfork-signals", "spawn", "seccomp", "filter", "raw-fork", "failed-exec"]],
        *[Program(f"safety {case}", [safety, *case.split()]) for case in ["small-stack 4096", "autodisarm 4096", "own-stack", "many-stacks"]],
    ]
    if shutil.which("go"):
        environment = {**os.environ, "GO111MODULE": "off", "GOFLAGS": ""}
        subprocess.run(["go", "build", "-o", str(folder / "gomain"), str(folder / "main.go")], check=True, env=environment)
    if shutil.which("gcc"):
        for kind in ("address", "undefined"):
            built = folder / f"sanitized-{kind}"
            if subprocess.run(["gcc", "-O1", f"-fsanitize={kind}", str(VICTIMS / "sanitized.c"), "-o", str(built), "-lpthread"], stderr=subprocess.DEVNULL).returncode == 0:
                found.append(Program(f"sanitizer {kind}", [str(built)]))
    return found


class Run:
    """What a run did."""

    def __init__(self, status, out, seconds):
        self.status, self.digest, self.seconds, self.out = status, hashlib.md5(out).hexdigest(), seconds, out

    def same(self, other):
        return self.status == other.status and self.digest == other.digest


def run(argv, env, folder, limit, beside=None):
    """Runs a command in a process group of its own; None if it takes longer than `limit` seconds."""
    start = time.monotonic()
    with tempfile.TemporaryFile(dir=folder) as out, tempfile.TemporaryFile(dir=folder) as err:
        child = subprocess.Popen(argv, env={**os.environ, **env}, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
        try:
            if beside:
                beside(child)
            child.wait(max(1.0, limit - (time.monotonic() - start)))
        except subprocess.TimeoutExpired:
            states = subprocess.run(["ps", "-eLo", "pid,tid,stat,wchan:30,args", "--no-headers", "-s", str(child.pid)], capture_output=True, text=True).stdout
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return None, states
        out.seek(0), err.seek(0)
        return Run(child.returncode, out.read(), time.monotonic() - start), err.read().decode(errors="replace")


def chaos(flightline, folder, generator, dormant):
    """Returns a function that commands the recorder of a child until that has ended."""

    def beside(child):
        number = 0
        while child.poll() is None:
            time.sleep(generator.uniform(0.02, 0.3))
            choices = ["pause", "resume", "engines", "status", "dump"] + (["start", "stop"] if dormant else [])
            word = generator.choice(choices)
            command = [flightline, "ctl", "-p", str(child.pid), word]
            if word == "engines":
                command.append(generator.choice(ENGINES))
            if word == "start":
                number += 1
                command += ["-o", f"{folder}/chaos-{child.pid}-{number}.jfr"]
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
            if time.monotonic() > beside.end:
                break
        for file in pathlib.Path(folder).glob(f"chaos-{child.pid}-*"):
            file.unlink(missing_ok=True)

    return beside


def attaching(flightline, folder, generator):
    """Returns a function that attaches to a child and lets it go, again and again."""

    def beside(child):
        while child.poll() is None and time.monotonic() < beside.end:
            time.sleep(generator.uniform(0.0, 0.2))
            duration = f"{generator.randint(50, 600)}ms"
            out = f"{folder}/attached-{child.pid}.jfr"
            command = [flightline, "record", "-q", "-p", str(child.pid), "--duration", duration, "-F", generator.choice(["99", "5000"]), "-o", out]
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
            pathlib.Path(out).unlink(missing_ok=True)

    return beside


def one(flightline, folder, program, mode, seed):
    """Returns None, or what was different."""
    generator = random.Random(seed)
    limit = max(LEAST_S, TIMES_AS_LONG * program.alone.seconds)
    if MODES[mode] is None:
        beside, argv = attaching(flightline, folder, generator), program.argv
    else:
        beside = chaos(flightline, folder, generator, mode == "dormant")
        out = [] if mode == "dormant" else ["-o", f"{folder}/run-{seed}.jfr"]
        argv = [flightline, "record", "-q", *out, *MODES[mode], "--", *program.argv]
    beside.end = time.monotonic() + limit
    found, said = run(argv, program.env, folder, limit, beside)
    pathlib.Path(f"{folder}/run-{seed}.jfr").unlink(missing_ok=True)
    if found is None:
        return f"still running after {limit:.0f} s\n{said}"
    if not found.same(program.alone):
        return (f"status {found.status} instead of {program.alone.status}; output:\n{found.out[-400:].decode(errors='replace')}\n"
                f"instead of:\n{program.alone.out[-400:].decode(errors='replace')}\nstandard error:\n{said[-1000:]}")
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("flightline")
    parser.add_argument("minutes", type=float)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    flightline = str(pathlib.Path(args.flightline).resolve())
    folder = pathlib.Path(tempfile.mkdtemp(prefix="flightline-campaign-"))
    runs, failures, left_out, usable = collections.Counter(), [], [], []
    try:
        for program in programs(folder):
            missing = [need for need in program.needs if not (shutil.which(need) or os.path.exists(need))]
            if args.only not in program.name or missing:
                left_out += [f"{program.name}: no {need}" for need in missing]
                continue
            results = [run(program.argv, program.env, folder, 600)[0] for _ in range(2)]
            # Only a program with reproducible output can be compared.
            if None in results or not results[0].same(results[1]):
                left_out.append(f"{program.name}: differs from run to run without the recorder")
                continue
            program.alone = max(results, key=lambda result: result.seconds)
            usable.append(program)
        print(f"{len(usable)} programs, {len(MODES)} modes, seed {args.seed}, {args.jobs} at a time", flush=True)
        end, generator, number = time.monotonic() + 60 * args.minutes, random.Random(args.seed), 0
        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            waiting, work = {}, []
            while time.monotonic() < end or waiting:
                while len(waiting) < args.jobs and time.monotonic() < end:
                    if not work:
                        # --dormant refuses programs with a sanitizer and Go programs, with a message: no
                        # library can be preloaded into them.
                        work = [(program, mode) for program in usable for mode in MODES
                                if not (mode == "dormant" and program.name.startswith(("sanitizer", "go")))]
                        generator.shuffle(work)
                    program, mode = work.pop()
                    number += 1
                    waiting[pool.submit(one, flightline, folder, program, mode, args.seed * 100_000 + number)] = (program, mode)
                done, _ = concurrent.futures.wait(waiting, timeout=1, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    program, mode = waiting.pop(future)
                    runs[mode] += 1
                    problem = future.result()
                    if problem:
                        failures.append((program.name, mode))
                        print(f"DIFFERENT: {program.name}, {mode}: {problem}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for mode in MODES:
        print(f"{mode:15} {runs[mode]:5} runs, {sum(1 for _, other in failures if other == mode)} different")
    print("programs:", ", ".join(program.name for program in usable))
    for reason in left_out:
        print("left out:", reason)
    print(f"{sum(runs.values())} runs, {len(failures)} different")
    return 1 if failures or not runs else 0


if __name__ == "__main__":
    sys.exit(main())
