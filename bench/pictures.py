#!/usr/bin/env python3
"""Compares Flightline's flame graphs with those of flamegraph.pl, inferno, async-profiler's converter, d3-flame-graph and speedscope: one run,
two tables.

usage: bench/pictures.py [--quick] [--json] [--write] [--get] [--stacks 1000,100000,1000000] [--rounds N] [--no-browser]

Each tool gets the same folded text. The first table has CPU time, peak memory and file size of generating a graph. The second has the
CPU time of the page's main thread in Chromium until the page is usable, and of a zoom, a search and other actions. If a tool cannot convert
folded text to a file, the figures are those of `flightline convert`; speedscope's page reads the text itself.
--quick   10,000 stacks, one round
--stacks  sizes; a tool is skipped if it would need more than --limit (40) seconds of CPU, extrapolated from the previous size
--write   write the tables to docs/side-by-side/pictures.md
--get     first install missing tools by cargo, npm and Maven into target/bench/peers
Search paths: inferno-flamegraph in the folder of peers and on PATH; flamegraph.pl in the same places, in FLAMEGRAPH_PL, or from Debian's
libdevel-nytprof-perl; jfr-converter as in bench/peers.py; d3-flame-graph, speedscope and playwright-core in the folder of peers.
"""
import argparse, base64, json, os, re, shutil, statistics, subprocess, sys, time
from pathlib import Path
import measuring, peers
from beside import Cell, Table, fill, middle
from measuring import FLIGHTLINE, ROOT, WORK
from flame import run, write_folded
from peers import PEERS

DOCUMENT = ROOT / "docs/side-by-side/pictures.md"
FOLDER = WORK / "pictures"
NODE = PEERS / "node"
TERM = "decode"
PACKAGES = ["playwright-core@1.56.1", "d3@7", "d3-flame-graph@5.0.0", "speedscope@1.25.0"]


def say(*text):
    print(time.strftime("%H:%M:%S"), *text, file=sys.stderr, flush=True)


def get():
    NODE.mkdir(parents=True, exist_ok=True)
    if not (NODE / "node_modules/speedscope").exists():
        (NODE / "package.json").write_text('{"private": true}\n')
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent", *PACKAGES], cwd=NODE, check=True)
    if not found("inferno-flamegraph"):
        subprocess.run(["cargo", "install", "-q", "--locked", "--root", PEERS, "inferno"], check=True)
    peers.get_converter()


def found(name):
    places = [os.environ.get(name.upper().replace(".", "_").replace("-", "_")), PEERS / "bin" / name, shutil.which(name)]
    if name == "flamegraph.pl":
        places.append("/usr/share/perl5/Devel/NYTProf/flamegraph.pl")
    return next((str(p) for p in places if p and Path(p).exists()), None)


class Tool:
    """A tool that draws folded text, and how its page is controlled."""

    def __init__(self, name, kind, ending, command, prints=False, finish=None, most=None):
        """`most`: the largest number of stacks to open in a browser; the page did not finish with more."""
        self.name, self.kind, self.ending, self.command, self.prints, self.finish, self.most = name, kind, ending, command, prints, finish, most

    def make(self, folded):
        """Returns CPU seconds, peak MB, and the file."""
        out = folded.with_suffix(f".{self.ending}")
        with open(out if self.prints else os.devnull, "wb") as printed:
            cpu, peak = run([str(c) for c in self.command(folded, out)], printed)
        return cpu, peak, out


def tools():
    made = [Tool("flightline, HTML", "flightline", "html", lambda f, o: [FLIGHTLINE, "flame", f, "-o", o]),
            Tool("flightline, SVG", "svg", "svg", lambda f, o: [FLIGHTLINE, "flame", f, "-o", o])]
    for name in ("inferno-flamegraph", "flamegraph.pl"):
        if path := found(name):
            made.append(Tool(name, "svg", f"{name}.svg", lambda f, o, path=path: [path, f], prints=True))
        else:
            say(f"LEFT OUT: {name} is not here")
    converter = peers.jar("jfr-converter")
    if converter and shutil.which("java"):
        made.append(Tool("async-profiler", "async-profiler", "ap.html", lambda f, o: ["java", "-jar", converter, "-o", "html", f, o]))
    else:
        say("LEFT OUT: async-profiler's converter is not here")
    if (NODE / "node_modules/d3-flame-graph").exists():
        made.append(Tool("d3-flame-graph", "d3", "d3.json", lambda f, o: [FLIGHTLINE, "convert", f, "--format", "d3", "-o", o], finish=d3_page, most=20_000))
    else:
        say("LEFT OUT: d3-flame-graph is not here")
    if (NODE / "node_modules/speedscope").exists():
        made.append(Tool("speedscope", "speedscope", "speedscope.json",
                         lambda f, o: [FLIGHTLINE, "convert", f, "--format", "speedscope", "-o", o], finish=speedscope_page, most=200_000))
    else:
        say("LEFT OUT: speedscope is not here")
    return made


def versions(chosen):
    """Returns the versions of the tools."""
    told = {}
    for t in chosen:
        if t.name.startswith("flightline"):
            told["flightline"] = peers.Flightline().version()
        elif t.name == "inferno-flamegraph":
            listed = Path(found(t.name)).parents[1] / ".crates.toml"
            version = re.search(r'"inferno ([\d.]+)', listed.read_text() if listed.exists() else "")
            told[t.name] = version[1] if version else "?"
        elif t.name == "async-profiler":
            told["jfr-converter"] = re.search(r"(\d+\.\d+)", peers.jar("jfr-converter").name)[1]
        elif t.kind in ("d3", "speedscope"):
            told[t.name] = json.loads((NODE / "node_modules" / t.name / "package.json").read_text())["version"]
        else:
            told[t.name] = "of " + time.strftime("%Y", time.gmtime(os.path.getmtime(found(t.name)))) if "NYTProf" in found(t.name) else "1.0"
    return "; ".join(f"{name} {version}" for name, version in told.items())


def d3_page(made, folded):
    """Writes a page that contains the library and the data."""
    package = NODE / "node_modules"
    page = made.with_suffix(".html")
    parts = [f"<!doctype html><meta charset=utf-8><style>{(package / 'd3-flame-graph/dist/d3-flamegraph.css').read_text()}</style><div id=chart></div>",
             f"<script>{(package / 'd3/dist/d3.min.js').read_text()}</script>",
             f"<script>{(package / 'd3-flame-graph/dist/d3-flamegraph.umd.js').read_text()}</script>",
             "<script>const data = ", made.read_text().replace("</", "<\\/"), ";",
             "const chart = window.chart = (flamegraph.default ?? flamegraph)().width(1580).transitionDuration(0);",
             "chart.setSearchHandler((_, sum, total) => { window.matched = (100 * sum / total).toFixed(2) + '%'; });",
             "d3.select('#chart').datum(data).call(chart); window.drawn = true;</script>"]
    page.write_text("".join(parts))
    return page.resolve().as_uri()


def speedscope_page(made, folded):
    """Returns the URL of speedscope's page with a script that contains the folded text, as speedscope's command makes it."""
    script = folded.with_suffix(".speedscope.js")
    text = base64.b64encode(folded.read_bytes()).decode()
    script.write_text(f"speedscope.loadFileFromBase64({json.dumps(folded.name)}, {json.dumps(text)})")
    page = NODE / "node_modules/speedscope/dist/release/index.html"
    return f"{page.resolve().as_uri()}#localProfilePath={script.resolve()}&view=left-heavy"


def truth(folded):
    """Returns the percentage of samples with the search term in any frame."""
    total = matched = 0
    for line in open(folded):
        stack, _, n = line.rpartition(" ")
        total += int(n)
        matched += int(n) if TERM in stack else 0
    return 100 * matched / total


def boxes(path):
    return f"{max(0, path.read_text(errors='replace').count('<title>') - 1):,}" if path.suffix == ".svg" else "all"


def label(stacks):
    return f"{stacks // 1_000_000} M" if stacks >= 1_000_000 else f"{stacks // 1000} k"


def making(table, chosen, stacks, rounds, limit, slow):
    folded = FOLDER / f"{stacks}.folded"
    if not folded.exists():
        say(f"writing {stacks} stacks")
        write_folded(folded, stacks)
    seen = {t.name: [] for t in chosen}
    for turn in range(rounds):
        for tool in chosen if turn % 2 == 0 else reversed(chosen):
            # Skip a tool that was too slow with the smaller size; run a slow one only once.
            if slow.get(tool.name, 0) * stacks > limit or (turn and seen[tool.name] and seen[tool.name][0][0] > limit / 4):
                continue
            try:
                seen[tool.name].append(tool.make(folded))
            except SystemExit as why:
                say(f"{tool.name}: {why}")
        say(f"{stacks} stacks: round {turn + 1} of {rounds}")
    for tool in chosen:
        # With a small text, most of the time is the start of the program.
        if seen[tool.name] and stacks >= 50_000:
            slow[tool.name] = seen[tool.name][0][0] / stacks
    cells = lambda of: {n: of(runs) if runs else Cell("too slow") for n, runs in seen.items()}
    size = label(stacks)
    table.add(f"{size} stacks: s of CPU", "less", cells(lambda runs: middle([r[0] for r in runs], "{:.2f}")), 0.02)
    table.add(f"{size} stacks: peak memory, MB", "less", cells(lambda runs: middle([r[1] for r in runs][:1], "{:.0f}")), 2)
    table.add(f"{size} stacks: file, MB", "less", cells(lambda runs: Cell(f"{runs[0][2].stat().st_size / 1e6:.2f}", runs[0][2].stat().st_size / 1e6)), 0.01)
    table.add(f"{size} stacks: boxes in it", None, cells(lambda runs: Cell(boxes(runs[0][2]))))
    return {t.name: seen[t.name][0][2] for t in chosen if seen[t.name]}, folded


def in_browser(tool, made, folded, times, features):
    address = tool.finish(made, folded) if tool.finish else made.resolve().as_uri()
    env = {**os.environ, **({"FEATURES": "1"} if features else {})}
    try:
        done = subprocess.run(["node", ROOT / "bench/pictures_page.mjs", tool.kind, address, NODE, str(times)], capture_output=True, text=True,
                              timeout=150, env=env)
    except subprocess.TimeoutExpired:
        say(f"{tool.name}: two and a half minutes were not enough in the browser")
        return None
    try:
        told = json.loads(done.stdout)
    except json.JSONDecodeError:
        say(f"{tool.name} in the browser: {done.stderr.strip()[-300:]}")
        return None
    for why in (k for k in told if k.startswith("why ")):
        say(f"{tool.name}: {why}: {told[why]}")
    return told


def using(table, chosen, files, folded, stacks, times, features):
    """Adds the costs of the pages to the table. Returns the results from the browser."""
    told = {}
    for tool in chosen:
        if tool.most and stacks > tool.most:
            say(f"{tool.name}: not opened with {stacks} stacks")
        elif tool.name in files and (page := in_browser(tool, files[tool.name], folded, times, features)):
            told[tool.name] = page
            say(f"{tool.name}, {stacks} stacks in the browser: {page}")
    size = label(stacks)
    for key, name, same in (("open", "until it can be used, ms of CPU", 15), ("zoom", "zoom", 3), ("reset", "reset", 3), ("search", "search", 3),
                            ("first search", "first search", 3), ("hover", "hover", 3), ("heap", "JavaScript heap, MB", 1)):
        cells = {t.name: Cell(f"{told[t.name][key]:.0f}", told[t.name][key]) if told.get(t.name, {}).get(key) is not None else missing(t, stacks, t.name in told, t.name in files)
                 for t in chosen}
        table.add(f"{size} stacks: {name}", "less", cells, same)
    should, cells = truth(folded), {}
    for tool in chosen:
        number = re.search(r"([\d.]+)\s*%", told.get(tool.name, {}).get("matched") or "")
        # The cell nearest to the correct percentage is the best.
        cells[tool.name] = Cell(f"{number[1]} %", abs(float(number[1]) - should)) if number else Cell("not told" if tool.name in told else "–")
    table.add(f"{size} stacks: samples said to match the search (truly {should:.2f} %)", "less", cells, 0.011)
    return told


def missing(tool, stacks, opened, made):
    if opened or not made:
        return Cell("–")
    return Cell("not tried" if tool.most and stacks > tool.most else "did not finish")


def seen_features(table, chosen, told):
    yes = lambda value: Cell("yes" if value else "no", 1 if value else 0)
    rows = [("asks the network for nothing", lambda t: t["requests"] == 0),
            ("shows the picture without JavaScript", lambda t: t.get("no script, bytes of a screenshot", 0) > 60_000),
            ("dark where the reader's system is", lambda t: t.get("dark", False)),
            ("what is pointed at is told to screen readers (live region)", lambda t: t["live"] > 0),
            ("controls that the keyboard reaches", None)]
    for name, of in rows:
        if of is None:
            table.add(name, "more", {t.name: Cell(str(told[t.name]["tabs"]), told[t.name]["tabs"]) for t in chosen if t.name in told})
        else:
            table.add(name, "more", {t.name: yes(of(told[t.name])) for t in chosen if t.name in told})


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--quick", action="store_true")
    parse.add_argument("--json", action="store_true")
    parse.add_argument("--write", action="store_true")
    parse.add_argument("--get", action="store_true")
    parse.add_argument("--no-browser", action="store_true")
    parse.add_argument("--stacks", type=lambda text: [int(n) for n in text.split(",")], default=[1000, 100_000, 1_000_000])
    parse.add_argument("--rounds", type=int, default=3)
    parse.add_argument("--limit", type=float, default=40)
    args = parse.parse_args()
    if args.quick:
        args.stacks, args.rounds = [10_000], 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    if "FLIGHTLINE_BIN" not in os.environ:
        subprocess.run(["cargo", "build", "--release", "-q", "-p", "flightline"], cwd=ROOT, check=True)
    if args.get:
        get()
    chosen, begun, load = tools(), time.monotonic(), os.getloadavg()[0]
    names = [t.name for t in chosen]
    files, pages, slow, told = Table(names), Table(names), {}, {}
    browser = not args.no_browser and (NODE / "node_modules/playwright-core").exists()
    for stacks in args.stacks:
        made, folded = making(files, chosen, stacks, args.rounds if stacks < 500_000 else 1, args.limit, slow)
        if browser:
            first = stacks == args.stacks[0]
            seen = using(pages, chosen, made, folded, stacks, 1 if args.quick else 3, first)
            told = seen if first else told
    if browser:
        seen_features(pages, chosen, told)
    text = report(files, pages if browser else None, chosen, args, begun, load)
    print(json.dumps({"files": files.plain(), "pages": pages.plain()}, indent=1) if args.json else text)
    if args.write:
        fill(DOCUMENT, "table", text)


def report(files, pages, chosen, args, begun, load):
    head = (f"{time.strftime('%Y-%m-%d')}, {measuring.machine()}, load average {load:.1f} at the start, {args.rounds} rounds, "
            f"{time.monotonic() - begun:.0f} s, `bench/pictures.py {' '.join(sys.argv[1:])}`. {versions(chosen)}.")
    parts = [head, "### Making it", files.markdown()]
    # The files for other tools' pages are made by flightline, so their costs are its own.
    behind = files.behind(["flightline, HTML", "flightline, SVG", "d3-flame-graph", "speedscope"])
    if pages:
        parts += ["### Using it", pages.markdown()]
        behind += pages.behind(["flightline, HTML"])
    parts += ["**Bold**: the best, or not significantly different from it in this run. Rows in which Flightline is neither:", "\n".join(behind) or "* nothing"]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
