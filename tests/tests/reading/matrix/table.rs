//! The table of kinds of output, readers, and the tests that prove that a reader reads a kind. The tests take
//! their cases from it and the document is generated from it, so every cell in the document is tested.

/// The forms of output; every reader supports some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Recording,
    Folded,
    Svg,
    Html,
    Png,
    Speedscope,
    Firefox,
    Chrome,
    D3,
    Pprof,
    Profiles,
    Traces,
    Rows,
    Fluentd,
    Store,
    Csv,
}

/// A kind of output.
#[derive(Debug)]
pub struct Kind {
    pub name: &'static str,
    pub command: &'static str,
    pub form: Form,
}

const fn kind(name: &'static str, command: &'static str, form: Form) -> Kind {
    Kind { name, command, form }
}

pub const KINDS: [Kind; 35] = [
    kind("file", "record -o run.jfr", Form::Recording),
    kind("aggregated file", "record --aggregate 10s", Form::Recording),
    kind("chunk of a repository", "record --repository DIR", Form::Recording),
    kind("bytes of a pipe", "record -o - > run.jfr", Form::Recording),
    kind("bytes of a socket", "record -o unix:PATH", Form::Recording),
    kind("bytes of a relay", "relay unix:PATH -o unix:OTHER", Form::Recording),
    kind("collected file", "collect unix:PATH -o run.jfr", Form::Recording),
    kind("collected chunk", "collect unix:PATH --repository DIR", Form::Recording),
    kind("dump", "dump -p PID -o now.jfr", Form::Recording),
    kind("cut", "cut run.jfr --from 1 --to 2", Form::Recording),
    kind("scrubbed", "scrub run.jfr --redact", Form::Recording),
    kind("assembled", "assemble a.jfr b.jfr --rebase", Form::Recording),
    kind("disassembled", "disassemble run.jfr", Form::Recording),
    kind("repaired", "repair torn.jfr", Form::Recording),
    kind("symbolized", "symbolize run.jfr", Form::Recording),
    kind("recovered chunk", "recover DIR", Form::Recording),
    kind("file of a killed recorder", "kill -9 while it records", Form::Recording),
    kind(PUSHED, "serve, window of a target", Form::Recording),
    kind("folded stacks", "fold run.jfr", Form::Folded),
    kind("SVG", "flame run.jfr -o run.svg", Form::Svg),
    kind("HTML", "flame run.jfr -o run.html", Form::Html),
    kind("PNG", "flame run.jfr -o run.png", Form::Png),
    kind("speedscope", "convert --format speedscope", Form::Speedscope),
    kind("Firefox Profiler", "convert --format firefox", Form::Firefox),
    kind("trace events", "convert --format chrome", Form::Chrome),
    kind("d3 hierarchy", "convert --format d3", Form::D3),
    kind("pprof, aggregated", "convert --format pprof", Form::Pprof),
    kind("pprof, with labels", "export --format pprof", Form::Pprof),
    kind("OTLP profiles", "export --send URL, --format otlp, otlp-json", Form::Profiles),
    kind("OTLP profiles, aggregated", "convert --format otlp", Form::Profiles),
    kind("OTLP traces", "export --send URL, --format otlp-traces-json", Form::Traces),
    kind("HDPS rows", "export --format hdps", Form::Rows),
    kind("Fluentd events", "export --send fluentd://HOST", Form::Fluentd),
    kind("store", "store add --store DIR", Form::Store),
    kind("events as text", "print --csv, print --ndjson", Form::Csv),
];

/// A program that reads some kinds.
#[derive(Debug)]
pub struct Reader {
    /// The heading of its column.
    pub name: &'static str,
    /// Its names in `tests/readers`.
    pub jobs: &'static [&'static str],
    /// What it is, and where its version is stored.
    pub about: &'static str,
    /// The kinds that it reads, which explains why it does not read the others.
    pub takes: &'static str,
}

const RECORDINGS: &str = "recordings (JFR) only";

pub const READERS: [Reader; 17] = [
    Reader {
        name: "jfr 17",
        jobs: &["jdk17"],
        about: "`RecordingFile` of JDK 17 and its tool `jfr`",
        takes: RECORDINGS,
    },
    Reader {
        name: "jfr 25",
        jobs: &["jdk25"],
        about: "`RecordingFile` of JDK 25 and its tool `jfr`",
        takes: RECORDINGS,
    },
    Reader {
        name: "EventStream",
        jobs: &["stream17", "stream25"],
        about: "`jdk.jfr.consumer.EventStream` of JDK 17 and of JDK 25: `openFile`, `openRepository`",
        takes: RECORDINGS,
    },
    Reader {
        name: "JMC",
        jobs: &["jmc"],
        about: "JDK Mission Control's parser (`tests/readers/pom.xml`); it does not return thread IDs",
        takes: RECORDINGS,
    },
    Reader {
        name: "async-profiler",
        jobs: &["converter"],
        about: "async-profiler's `JfrReader` and its command line `jfrconv` (`tests/readers/pom.xml`); it does not return thread IDs",
        takes: "recordings, folded stacks and its own HTML",
    },
    Reader {
        name: "Grafana",
        jobs: &["go"],
        about: "grafana/jfr-parser (`tests/readers/go/go.mod`)",
        takes: RECORDINGS,
    },
    Reader {
        name: "Pyroscope",
        jobs: &["pyroscope"],
        about: "the conversion that Pyroscope applies to pushed JFR files: package `pprof` of grafana/jfr-parser \
                (`tests/readers/pyroscope/go.mod`); the server itself is not run",
        takes: "recordings; the column of `go tool pprof` covers pprof, which the same library reads",
    },
    Reader { name: "jafar", jobs: &["jafar"], about: "jafar's untyped parser", takes: RECORDINGS },
    Reader {
        name: "jfrs",
        jobs: &["jfrs"],
        about: "the crate jfrs (`tests/readers/jfrs/Cargo.lock`)",
        takes: RECORDINGS,
    },
    Reader {
        name: "go tool pprof",
        jobs: &[],
        about: "`go tool pprof -raw` of the installed Go",
        takes: "pprof only",
    },
    Reader {
        name: "speedscope",
        jobs: &[],
        about: "speedscope's own page in Chromium (`tests/browser/package.json`); its export is compared",
        takes: "its own files, folded stacks, trace events, pprof, old files of the Firefox Profiler, and files of other profilers",
    },
    Reader {
        name: "Firefox Profiler",
        jobs: &[],
        about: "the Firefox Profiler's importer and queries, `@firefox-devtools/profiler-cli` (`tests/browser/package.json`)",
        takes: "its own files, folded stacks, trace events, and files of other profilers",
    },
    Reader {
        name: "d3-flame-graph",
        jobs: &[],
        about: "d3-flame-graph in Chromium (`tests/browser/package.json`)",
        takes: "a hierarchy of names and values; our pages do not use it",
    },
    Reader {
        name: "Collector",
        jobs: &[],
        about: "an OpenTelemetry Collector with its receivers for OTLP (gRPC and HTTP) and Fluentd's protocol (`tests/readers/collector/go.mod`)",
        takes: "OTLP and Fluentd's protocol",
    },
    Reader {
        name: "DuckDB",
        jobs: &[],
        about: "DuckDB from PyPI (`tests/store/setup.sh`)",
        takes: "tables: Parquet, lines of JSON, CSV",
    },
    Reader {
        name: "Spark",
        jobs: &[],
        about: "Spark from PyPI (`tests/store/setup.sh`)",
        takes: "tables: Parquet, lines of JSON, CSV",
    },
    Reader {
        name: "Chromium",
        jobs: &[],
        about: "the installed browser",
        takes: "pages and pictures; pages that open other formats have columns of their own",
    },
];

/// The extent of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Sample for sample: time, thread, state, stack and weight.
    Same,
    /// The sums by stack, function or row.
    Sums,
    /// It opens and shows the expected contents.
    Opens,
    /// The same number of samples, and a difference that a note explains.
    But,
    /// Sample for sample, seen by hand: no run of `.ci/run` can have the reader.
    ByHand,
}

impl Mark {
    pub fn sign(self) -> &'static str {
        match self {
            Mark::Same => "=",
            Mark::Sums => "Σ",
            Mark::Opens => "○",
            Mark::But => "!",
            Mark::ByHand => "(=)",
        }
    }
}

/// A test, by file and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown(pub &'static str, pub &'static str);

pub const EVERY_READER: Shown =
    Shown("tests/tests/reading/matrix.rs", "every_recording_reader_sees_every_sample");
pub const ON_NO_REGISTRY: Shown = Shown("tests/tests/reading/matrix.rs", "jafar_sees_every_sample");
pub const KILLED_STREAM: Shown =
    Shown("tests/tests/reading/matrix.rs", "jdk_stream_from_killed_recorder_has_all_samples_and_stays_open");
pub const TOOLS: Shown = Shown("tests/tests/reading/matrix.rs", "jfr_tool_counts_same_samples");
pub const FOLDED: Shown = Shown("tests/tests/reading/matrix.rs", "jfrconv_reads_folded_stacks");
pub const ROWS: Shown = Shown("tests/tests/reading/matrix.rs", "duckdb_and_spark_read_rows_and_text");
const KILLED: Shown = Shown("tests/tests/reading/readers_agree.rs", "killed_recorder_leaves_a_readable_file");
const LIVE_FILE: Shown =
    Shown("tests/tests/reading/readers_agree.rs", "jdk_streams_receive_samples_within_seconds");
const LIVE_COLLECTED: Shown = Shown("tests/tests/streaming/live_readers.rs", "all_live_stream_readers_agree");
pub const LIVE_REPOSITORY: Shown =
    Shown("tests/tests/reading/matrix.rs", "jdk_follows_repository_while_it_is_written");
const CONVERTER_CLI: Shown =
    Shown("tests/tests/reading/readers_agree.rs", "readers_agree_on_xz_file_and_pipe");
const COLLECTOR: Shown =
    Shown("tests/tests/fleet/export.rs", "opentelemetry_collector_accepts_all_exported_data");
const COLLECTOR_SUMS: Shown =
    Shown("tests/tests/fleet/export.rs", "opentelemetry_collector_accepts_converted_totals");
const FLUENTD: Shown = Shown("tests/tests/fleet/export.rs", "fluent_forward_receiver_accepts_every_row");
const PPROF: Shown = Shown("tests/tests/fleet/export.rs", "go_pprof_reads_exported_profile");
const ENGINES: Shown = Shown("consumer/store/tests/engines.rs", "three_engines_return_equal_rows");
const SPEEDSCOPE: Shown =
    Shown("tests/browser/interop.test.mjs", "speedscope shows the weight of every stack");
const BOXES: Shown =
    Shown("tests/browser/interop.test.mjs", "speedscope and the Firefox Profiler show every box of a trace");
const FOLDED_FIREFOX: Shown =
    Shown("tests/browser/interop.test.mjs", "the Firefox Profiler shows the weight of every folded stack");
const FIREFOX: Shown = Shown(
    "tests/browser/convert.test.mjs",
    "Firefox Profiler finds each thread and the self time of its functions",
);
const D3: Shown = Shown("tests/browser/convert.test.mjs", "d3-flame-graph draws every frame");
const SVG: Shown = Shown("tests/browser/interop.test.mjs", "Chromium draws the SVG images");
const HTML: Shown = Shown(
    "tests/browser/flame.test.mjs",
    "boxes have the position and width of their weights, with counts and percentages",
);

/// A cell of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    Read {
        mark: Mark,
        by: Vec<Shown>,
        note: Option<&'static str>,
    },
    /// A form that the reader does not support.
    NotTaken,
}

fn read(mark: Mark, by: &[Shown]) -> Cell {
    Cell::Read { mark, by: by.to_vec(), note: None }
}

fn noted(mark: Mark, by: &[Shown], note: &'static str) -> Cell {
    Cell::Read { mark, by: by.to_vec(), note: Some(note) }
}

pub const PUSHED: &str = "pushed profiles, as a recording";
pub const KILLED_FILE: &str = "file of a killed recorder";

/// The cell of a kind and a reader.
pub fn cell(kind: &Kind, reader: &Reader) -> Cell {
    match kind.form {
        Form::Recording => recording(kind.name, reader.name),
        form => other(form, kind.name, reader.name),
    }
}

fn recording(kind: &str, reader: &str) -> Cell {
    match (kind, reader) {
        (KILLED_FILE, "jfr 25") => noted(
            Mark::But,
            &[KILLED],
            "all samples except the last, then an error, because the mark of a finished file is missing. `flightline repair` sets the mark; JDK 17 does not require it",
        ),
        (KILLED_FILE, "EventStream") => noted(
            Mark::But,
            &[KILLED_STREAM],
            "all samples; then it waits for more, as with any growing file",
        ),
        ("file", "EventStream") => read(Mark::Same, &[EVERY_READER, LIVE_FILE]),
        ("chunk of a repository", "EventStream") => read(Mark::Same, &[EVERY_READER, LIVE_REPOSITORY]),
        ("collected chunk", "EventStream") => read(Mark::Same, &[EVERY_READER, LIVE_COLLECTED]),
        ("file" | "bytes of a pipe", "async-profiler") => read(Mark::Same, &[EVERY_READER, CONVERTER_CLI]),
        (_, "jfr 17" | "jfr 25") => read(Mark::Same, &[EVERY_READER, TOOLS]),
        (_, "EventStream" | "JMC" | "async-profiler" | "Grafana" | "jfrs") => {
            read(Mark::Same, &[EVERY_READER])
        }
        (_, "Pyroscope") => read(Mark::Sums, &[EVERY_READER]),
        (PUSHED, "jafar") => noted(
            Mark::But,
            &[ON_NO_REGISTRY],
            "it refused empty names, which are no longer written; it was not available for a second comparison",
        ),
        (_, "jafar") => read(Mark::ByHand, &[ON_NO_REGISTRY]),
        _ => Cell::NotTaken,
    }
}

fn other(form: Form, kind: &str, reader: &str) -> Cell {
    match (form, reader) {
        (Form::Folded, "async-profiler") => read(Mark::Sums, &[FOLDED]),
        (Form::Folded, "Firefox Profiler") => read(Mark::Sums, &[FOLDED_FIREFOX]),
        (Form::Folded | Form::Speedscope, "speedscope") => read(Mark::Sums, &[SPEEDSCOPE]),
        (Form::Pprof, "speedscope") => read(Mark::Sums, &[SPEEDSCOPE]),
        (Form::Firefox, "Firefox Profiler") => read(Mark::Sums, &[FIREFOX]),
        (Form::Chrome, "speedscope") => read(Mark::Sums, &[BOXES]),
        (Form::Chrome, "Firefox Profiler") => noted(
            Mark::Same,
            &[BOXES],
            "it shows trace events as markers; `--format firefox` contains stacks",
        ),
        (Form::D3, "d3-flame-graph") => read(Mark::Sums, &[D3]),
        (Form::Pprof, "go tool pprof") => read(Mark::Sums, &[PPROF]),
        (Form::Profiles, "Collector") if kind == "OTLP profiles, aggregated" => {
            read(Mark::Sums, &[COLLECTOR_SUMS])
        }
        (Form::Profiles | Form::Traces, "Collector") => read(Mark::Same, &[COLLECTOR]),
        (Form::Fluentd, "Collector") => read(Mark::Same, &[FLUENTD]),
        (Form::Store, "DuckDB" | "Spark") => read(Mark::Sums, &[ENGINES]),
        (Form::Rows | Form::Csv, "DuckDB" | "Spark") => read(Mark::Sums, &[ROWS]),
        (Form::Svg | Form::Png, "Chromium") => read(Mark::Opens, &[SVG]),
        (Form::Html, "Chromium") => read(Mark::Opens, &[SVG, HTML]),
        _ => Cell::NotTaken,
    }
}

/// The readers that a test has to show a kind with.
pub fn shown_by(test: Shown, kind: &Kind) -> Vec<&'static Reader> {
    let by = |reader: &&Reader| matches!(cell(kind, reader), Cell::Read { by, .. } if by.contains(&test));
    READERS.iter().filter(by).collect()
}

/// Every test that the table names.
pub fn tests() -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    for kind in &KINDS {
        for reader in &READERS {
            if let Cell::Read { by, .. } = cell(kind, reader) {
                let new: Vec<Shown> = by.into_iter().filter(|test| !all.contains(test)).collect();
                all.extend(new);
            }
        }
    }
    all
}
