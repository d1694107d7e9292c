#!/usr/bin/env python3
"""Compares storage layouts of samples and query engines: the same samples and queries; every result is checked before its speed counts.

usage: bench/store.py [--quick] [--write] [--json] [--samples N] [--stacks N] [--rounds N] [--only layouts|engines]

Makes recordings (bench/make_recordings.rs), adds them to a Flightline store, and writes the same samples in the layouts of other tools
(bench/store_layouts.py). Queries each layout for counts, and for stacks with their weights. Then queries the Flightline store with DuckDB,
DataFusion, ClickHouse, polars and Spark (bench/store_ask.py). These engines are installed from PyPI, pinned in bench/store-engines.txt, into
target/store-peers; Spark needs JDK 17 or newer. Prints two tables; --write writes them to docs/side-by-side/store.md. Exit status 1 if any
two results differ.

--quick    100,000 samples of 3,000 stacks, one round: the results are checked, but the speeds are not meaningful
--samples  number of samples (1,000,000)      --stacks  number of different stacks (5,000)
--rounds   runs of each query (3); the least CPU time counts
--only     one of the two tables

With FLIGHTLINE_BIN, nothing is built; flightline-sql and examples/make_recordings are next to that command.
"""
import argparse, hashlib, json, os, re, shutil, subprocess, sys, time
from collections import Counter
from pathlib import Path
import beside, measuring
from measuring import FLIGHTLINE, ROOT, WORK
from store_layouts import DAY, PYROSCOPE, ROWS, SERVICE, TASK, digest

HERE = ROOT / "bench"
DOCUMENT = ROOT / "docs/side-by-side/store.md"
PEERS = ROOT / "target/store-peers"
SQL = Path(os.environ.get("FLIGHTLINE_SQL", FLIGHTLINE.parent / "flightline-sql"))
PYTHON = PEERS / "bin/python"
THREADS = "2"
WHERE = {"all": "", "service and day": f"service = '{SERVICE}' AND day = '{DAY}'", "task": f"label_task = '{TASK}'"}
ENGINES = {"DuckDB": "duckdb", "DataFusion": "datafusion", "ClickHouse": "clickhouse", "polars": None, "Spark": "spark"}
COUNTS = "SELECT service, event_type, count(*) AS n, sum(value) AS v FROM samples GROUP BY service, event_type"

# The columns of the results, in the same order for all engines.
COUNTED, BOXES = ["service", "event_type", "n", "v"], ["parent_id", "node_id", "depth", "class_name", "method_name", "line", "type", "num"]


def say(text):
    print(f"  {text}", file=sys.stderr, flush=True)


def run(command, stdout=None):
    """Runs a command that must succeed. Returns CPU and wall seconds, peak MB and output."""
    full, used = measuring.small_parent(command)
    done = subprocess.run(full, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          env={**os.environ, "FLIGHTLINE_SQL": str(SQL), "DATAFUSION_EXECUTION_TARGET_PARTITIONS": THREADS})
    if done.returncode:
        raise SystemExit(f"store: {' '.join(map(str, command))[:300]}: status {done.returncode}")
    cpu, wall, peak, _ = used()
    return cpu, wall, peak, done.stdout.decode("utf-8", "replace")


def size(folder, pattern="**/*"):
    return sum(p.stat().st_size for p in folder.glob(pattern) if p.is_file())


def best(rounds, work):
    """Returns the run with the least CPU time."""
    return min((work() for _ in range(rounds)), key=lambda run: run[0])


# Test data. ---------------------------------------------------------------------------------------

def build():
    if "FLIGHTLINE_BIN" not in os.environ:
        subprocess.run(["cargo", "build", "--release", "-q", "-p", "flightline"], cwd=ROOT, check=True)
        subprocess.run(["cargo", "build", "--release", "-q", "-p", "jfr-format", "--example", "make_recordings"], cwd=ROOT, check=True)
        subprocess.run(["cargo", "build", "--release", "-q", "--manifest-path", "consumer/store/Cargo.toml", "--target-dir", "target"],
                       cwd=ROOT, check=True)
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", PEERS], check=True)
    pip = [PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", HERE / "store-engines.txt"]
    subprocess.run([str(x) for x in pip], check=True, stdout=sys.stderr)


def recordings(folder, samples, stacks):
    """Returns the recordings by service: 10 services, 2 days, 4 hosts."""
    if not folder.exists():
        making = folder.with_suffix(".new")
        shutil.rmtree(making, ignore_errors=True)
        subprocess.run([FLIGHTLINE.parent / "examples/make_recordings", making, str(samples), str(stacks), "4"], check=True)
        making.rename(folder)
    return {service.name: sorted(service.glob("*.jfr")) for service in sorted(folder.iterdir())}


def take_in(of, store):
    """Makes a store of all recordings. Returns CPU seconds, wall seconds and peak MB."""
    shutil.rmtree(store, ignore_errors=True)
    cpu = wall = peak = 0
    for service, files in of.items():
        c, w, p, _ = run([SQL, "add", "--store", store, "--service", service, "--jobs", THREADS, *files])
        cpu, wall, peak = cpu + c, wall + w, max(peak, p)
    return cpu, wall, peak


# Layouts. -----------------------------------------------------------------------------------------------------------

def folded(text):
    """Returns folded text as rows in the form of the layouts' query results."""
    counts = Counter()
    for line in text.splitlines():
        stack, n = line.rsplit(" ", 1)
        counts[stack] += int(n)
    return list(counts.items())


def counted(text):
    return [tuple(line.split(",")) for line in text.splitlines()[1:]]


def of_service_and_day(of, ending):
    # The second number in a recording's name is its day.
    return [path for path in of[SERVICE] if path.name.removesuffix(ending).endswith("-0")]


def of_recordings(of, rounds):
    """Returns the results for the recordings themselves, from `flightline fold` and `summary`."""
    every = [path for files in of.values() for path in files]
    told = {}
    for name, files in {"all": every, "service and day": of_service_and_day(of, ".jfr"), "task": every}.items():
        label = ["--label", f"task={TASK}"] if name == "task" else []
        cpu, wall, peak, text = best(rounds, lambda: run([FLIGHTLINE, "fold", "-e", "jdk.ExecutionSample", *label, *files]))
        rows = folded(text)
        told[f"stacks of {name}"] = {"digest": digest(rows), "rows": len(rows), "cpu_s": cpu, "wall_s": wall, "peak_mb": peak}
    runs = []
    for _ in range(rounds):
        cpu, counts = 0, Counter()
        for service, files in of.items():
            for path in files:
                c, _, _, text = run([FLIGHTLINE, "summary", "--top", "0", "--json", path])
                cpu += c
                counts[service] += next(e["count"] for e in json.loads(text)["events"] if e["type"] == "jdk.ExecutionSample")
        runs.append(cpu)
    rows = [(service, "jdk.ExecutionSample", n) for service, n in counts.items()]
    return told | {"counts": {"digest": digest(rows), "rows": len(rows), "cpu_s": min(runs)}}


def raw_pprof(text):
    """Returns stacks and weights from the output of `go tool pprof -raw`."""
    samples, _, rest = text.partition("Samples:\n")[2].partition("Locations\n")
    names = dict(re.findall(r"^ +(\d+): .*s=\d+\((.*)\)$", rest.partition("Mappings\n")[0], re.M))
    counts = Counter()
    for n, ids in re.findall(r"^ +(\d+): ([\d ]+)$", samples, re.M):
        counts[";".join(names[at] for at in reversed(ids.split()))] += int(n)
    return list(counts.items())


def of_pprof(of, rounds):
    """Returns the results for pprof files, from Go's pprof."""
    every = [path for files in of.values() for path in files]
    told = {}
    for name, files in {"all": every, "service and day": of_service_and_day(of, ".pb.gz"), "task": every}.items():
        label = [f"-tagfocus=task=^{TASK}$"] if name == "task" else []
        cpu, wall, peak, text = best(rounds, lambda: run(["go", "tool", "pprof", "-raw", "-sample_index=samples", *label, *files]))
        rows = raw_pprof(text)
        told[f"stacks of {name}"] = {"digest": digest(rows), "rows": len(rows), "cpu_s": cpu, "wall_s": wall, "peak_mb": peak}
    return told


def of_ours(store, rounds):
    """Returns the results of Flightline's command."""
    command = lambda name: [SQL, "flame", "--store", store, "-o", "-", *(["--where", WHERE[name]] if WHERE[name] else [])]
    told = {}
    for name in WHERE:
        cpu, wall, peak, text = best(rounds, lambda: run(command(name)))
        rows = folded(text)
        told[f"stacks of {name}"] = {"digest": digest(rows), "rows": len(rows), "cpu_s": cpu, "wall_s": wall, "peak_mb": peak}
    counts = "SELECT service, event_type, sum(samples) FROM samples GROUP BY service, event_type"
    cpu, wall, peak, text = best(rounds, lambda: run([SQL, "sql", counts, "--store", store, "--format", "csv"]))
    told["counts"] = {"digest": digest(counted(text)), "rows": len(counted(text)), "cpu_s": cpu, "wall_s": wall, "peak_mb": peak}
    return told


def peer(*arguments):
    text = subprocess.run([str(x) for x in [PYTHON, HERE / "store_layouts.py", *arguments]], check=True, stdout=subprocess.PIPE).stdout
    return json.loads(text)


def pprof_files(of, to):
    """Writes a pprof file for each recording. Returns the files, CPU and wall seconds."""
    cpu = wall = 0
    made = {}
    for service, files in of.items():
        (to / service).mkdir(parents=True)
        for path in files:
            made.setdefault(service, []).append(to / service / f"{path.stem}.pb.gz")
            c, w, _, _ = run([FLIGHTLINE, "export", "--format", "pprof", "-e", "jdk.ExecutionSample", "-o", made[service][-1], path])
            cpu, wall = cpu + c, wall + w
    return made, cpu, wall


def layouts(of, store, compact, took, work, rounds):
    """Returns a row for each layout."""
    every = [path for files in of.values() for path in files]
    rows = [{"layout": "raw JFR files", "bytes": sum(p.stat().st_size for p in every), "told": of_recordings(of, rounds), "by": "flightline fold"}]
    say(f"raw JFR: {rows[-1]['bytes']:,} bytes")
    shutil.rmtree(work / "pprof", ignore_errors=True)
    made, cpu, wall = pprof_files(of, work / "pprof")
    rows.append({"layout": "pprof files, one a recording (no times)", "bytes": size(work / "pprof"), "cpu_s": cpu, "wall_s": wall, "by": "go tool pprof",
                 "told": of_pprof(made, rounds)})
    say(f"pprof: {rows[-1]['bytes']:,} bytes")
    for layout in [*ROWS, PYROSCOPE]:
        folder = work / "".join(c for c in layout if c.isalnum())
        shutil.rmtree(folder, ignore_errors=True)
        wrote = peer("write", layout, store, folder)
        rows.append({"layout": layout, **wrote, "told": peer("ask", layout, folder, rounds), "by": "DuckDB"})
        say(f"{layout}: {wrote['bytes']:,} bytes")
    for name, folder, cost in [("flightline's store", store, took), ("flightline's store, compacted", compact, None)]:
        parts = {table.name: size(table) for table in sorted(folder.iterdir()) if table.is_dir() and not table.name.startswith("_")}
        for by, told in [("flightline", of_ours(folder, rounds)), ("DuckDB", peer("ask", "flightline", folder, rounds))]:
            row = {"layout": name, "bytes": sum(parts.values()), "parts": parts, "told": told, "by": by}
            rows.append(row | ({"cpu_s": cost[0], "wall_s": cost[1], "peak_mb": cost[2]} if cost and by == "flightline" else {}))
        say(f"{name}: {sum(parts.values()):,} bytes: {parts}")
    return rows


# Engines. -----------------------------------------------------------------------------------------------------------

def question(engine, where):
    """Returns the query for a flame graph's boxes of 1 % and more, in the engine's dialect."""
    if engine is None:
        return f"flame {where or '1 = 1'}"
    command = [SQL, "flame", "--store", "-", "--sql", "--engine", engine, "--min-percent", "1", *(["--where", where] if where else [])]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def engines(store, work, rounds):
    rows = []
    for name, dialect in ENGINES.items():
        asked = {"counts": COUNTS} | {f"flame graph of {of}": question(dialect, where) for of, where in WHERE.items()}
        (work / "questions.json").write_text(json.dumps(asked))
        command = [PYTHON, HERE / "store_ask.py", name, store.resolve(), str(rounds), work / "questions.json"]
        text = subprocess.run([str(x) for x in command], check=True, stdout=subprocess.PIPE).stdout.decode()
        told = json.loads(text.splitlines()[-1])
        rows.append({"engine": name, "start": told.pop("start"), "peak_mb": told.pop("peak_mb"), "told": told})
    told = {}
    asked = {"counts": COUNTS} | {f"flame graph of {of}": question("datafusion", where) for of, where in WHERE.items()}
    peak = 0
    for name, sql in asked.items():
        cpu, wall, mb, text = best(rounds, lambda: run([SQL, "sql", sql, "--store", store, "--format", "ndjson"]))
        answer = [tuple(json.loads(line).get(column) for column in (BOXES if name != "counts" else COUNTED)) for line in text.splitlines()]
        told[name] = {"digest": rows_digest(answer), "rows": len(answer), "best": [cpu, wall]}
        peak = max(peak, mb)
    rows.insert(0, {"engine": "flightline sql", "peak_mb": peak, "told": told})
    told, peak = {}, 0
    for of, where in WHERE.items():
        # This writes a whole flame graph, not rows, so only its cost is measured here. The comparison of layouts checks its stacks.
        command = [SQL, "flame", "--store", store, "--min-percent", "1", "-o", work / "flame.json", *(["--where", where] if where else [])]
        cpu, wall, mb, _ = best(rounds, lambda: run(command))
        told[f"flame graph of {of}"] = {"best": [cpu, wall]}
        peak = max(peak, mb)
    rows.insert(0, {"engine": "flightline flame", "peak_mb": peak, "told": told})
    return rows


def rows_digest(rows):
    text = lambda value: "" if value is None else str(value)
    return hashlib.md5("\n".join(sorted("\t".join(map(text, row)) for row in rows)).encode()).hexdigest()


# Tables. ------------------------------------------------------------------------------------------------------------

def differing(rows, name):
    """Returns the results that differ from the first one, which is that of the recordings themselves or of Flightline's command."""
    wrong = []
    for question in dict.fromkeys(q for row in rows for q in row["told"]):
        of = [(f"{row[name]} by {row.get('by', '')}", row["told"][question]) for row in rows if question in row["told"]]
        right = next((told["digest"] for _, told in of if "digest" in told), None)
        wrong += [f"{who}: {question}: {told.get('error', '')}" for who, told in of if told.get("digest", right) != right or "error" in told]
    return wrong


def cell(told, key="cpu_s"):
    return "–" if not told else told["error"] if "error" in told else f"{told[key]:.2f}" if key == "cpu_s" else f"{told['best'][0]:.2f} ({told['best'][1]:.2f})"


def layouts_table(rows, samples):
    names = ["counts", *(f"stacks of {of}" for of in WHERE)]
    lines = ["| layout | bytes a sample | written, M samples a CPU second | asked by | " + " | ".join(f"{n}, CPU s" for n in names) + " |",
             "|---|---:|---:|---|" + "---:|" * len(names)]
    for row in rows:
        speed = f"{samples / 1e6 / row['cpu_s']:.2f}" if row.get("cpu_s") else "–"
        lines.append(f"| {row['layout']} | {row['bytes'] / samples:.1f} | {speed} | {row['by']} | " + " | ".join(cell(row["told"].get(n)) for n in names) + " |")
    for row in rows:
        if "parts" in row and row["by"] == "flightline":
            parts = ", ".join(f"{name} {bytes / samples:.1f}" for name, bytes in row["parts"].items())
            lines += ["", f"{row['layout'].capitalize()}, bytes a sample: {parts}."]
    return "\n".join(lines)


def engines_table(rows):
    names = ["counts", *(f"flame graph of {of}" for of in WHERE)]
    lines = ["| engine | start, CPU s | " + " | ".join(f"{n}, CPU s (wall)" for n in names) + " | MB at most |", "|---|---:|" + "---:|" * (len(names) + 1)]
    for row in rows:
        start = f"{row['start'][0]:.2f}" if "start" in row else "in each"
        lines.append(f"| {row['engine']} | {start} | " + " | ".join(cell(row["told"].get(n), "best") for n in names) + f" | {row['peak_mb']:,.0f} |")
    return "\n".join(lines)


def versions():
    pins = (HERE / "store-engines.txt").read_text().split()
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return f"flightline {commit}; " + ", ".join(pin.replace("==", " ") for pin in pins)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ["--quick", "--write", "--json"]:
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--stacks", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", choices=["layouts", "engines"])
    args = parser.parse_args()
    samples = args.samples or (100_000 if args.quick else 1_000_000)
    stacks = args.stacks or (3_000 if args.quick else 5_000)
    rounds = args.rounds or (1 if args.quick else 3)

    started = time.time()
    build()
    work = WORK / f"store-{samples}-{stacks}"
    work.mkdir(parents=True, exist_ok=True)
    of = recordings(work / "recordings", samples, stacks)
    store, compact = work / "store", work / "compact"
    took = take_in(of, store)
    say(f"taken in: {took[0]:.2f} s of CPU, {took[2]:.0f} MB at most")
    shutil.rmtree(compact, ignore_errors=True)
    shutil.copytree(store, compact)
    run([SQL, "maintain", "--store", compact, "--files", "2", "--younger", "0s"])
    told = {"samples": samples, "stacks": stacks}
    if args.only != "engines":
        told["layouts"] = layouts(of, store, compact, took, work, rounds)
    if args.only != "layouts":
        told["engines"] = engines(compact, work, rounds)
    wrong = differing(told.get("layouts", []), "layout") + differing(told.get("engines", []), "engine")

    head = (f"`bench/store.py{' --quick' * args.quick}`, {time.strftime('%Y-%m-%d')}, {(time.time() - started) / 60:.0f} minutes; average load of the machine "
            f"{os.getloadavg()[2]:.1f}. {measuring.machine()}. {versions()}. {samples:,} samples of {stacks:,} stacks in {sum(map(len, of.values()))} "
            f"recordings; {THREADS} threads each; the least of {rounds}.")
    parts = [head, *([layouts_table(told["layouts"], samples)] if "layouts" in told else []), *([engines_table(told["engines"])] if "engines" in told else [])]
    text = "\n\n".join(parts)
    if args.json:
        json.dump(told | {"versions": versions(), "machine": measuring.machine(), "wrong": wrong}, sys.stdout, indent=1)
        print()
    else:
        print(text)
    if args.write and not args.only and not wrong:
        beside.fill(DOCUMENT, "store", f"\n{text}\n")
    for who in wrong:
        print(f"store: DIFFERS: {who}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
