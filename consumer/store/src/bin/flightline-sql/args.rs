//! Command-line definitions for clap.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use flightline_store::layout::Table;
use flightline_store::query::dialect::Engine;
use regex::Regex;

/// Ask a store of samples: SQL, flame graphs, differences, shares over time.
#[derive(Debug, Parser)]
#[command(name = "flightline-sql", version, arg_required_else_help = true, subcommand_required = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const SQL_EXAMPLES: &str = "\
Examples:
  flightline sql 'SELECT service, event_type, count(*) FROM samples GROUP BY ALL' --store DIR
  flightline sql --store DIR --table tasks=tasks.csv \"SELECT t.task, t.seconds, count(*) AS samples
    FROM samples s JOIN tasks t ON s.label_task = t.task WHERE t.seconds > 10 GROUP BY ALL ORDER BY 3 DESC\"

Tables: samples, stacks, nodes, frames; `flightline store info --store DIR` lists their columns. Questions cannot change anything.";

const FLAME_EXAMPLES: &str = "\
Examples:
  flightline flame --store DIR --where \"service = 'api' AND day = '2026-01-31'\" -o flame.html
  flightline flame --store DIR --where \"label_task IN (SELECT task FROM tasks WHERE seconds > 10)\" --table tasks=tasks.csv -o slow.html
  flightline flame --store DIR --min-percent 1 -o flame.json      for d3-flame-graph, without what is narrower than 1 %
  flightline flame --store DIR --sql --engine spark               the same as SQL, for other engines";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer a question in SQL
    #[command(after_help = SQL_EXAMPLES)]
    Sql(SqlArgs),
    /// Take in recordings, repositories and streams
    #[command(after_help = ADD_EXAMPLES)]
    Add(AddArgs),
    /// Make few files of many, sums by minute, hour and day, and an end to what is old
    #[command(after_help = MAINTAIN_EXAMPLES)]
    Maintain(MaintainArgs),
    /// Draw a flame graph of any samples: HTML, SVG, d3-flame-graph's JSON or folded text by the output's name
    #[command(after_help = FLAME_EXAMPLES)]
    Flame(FlameArgs),
    /// Compare two sets of samples, function by function
    Diff(DiffArgs),
    /// The functions that samples fell in most
    Top(TopArgs),
    /// What share a function had, over time and by version, host or any other label
    Share(ShareArgs),
    /// What is in a store: tables, columns, rows
    Info(InfoArgs),
}

const ADD_EXAMPLES: &str = "\
Examples:
  flightline store add --store DIR --service api run.jfr
  flightline store add --store DIR --service api --label host=h7 --label version=1.4 /var/lib/flightline/api
  flightline store add --store DIR --service api --live unix:/run/api.sock       rows every 10 s, until the stream ends
  flightline store add --store s3://bucket/profiles --service api run.jfr        credentials from AWS_ACCESS_KEY_ID, …

What is in the store already is passed over, so taking in a directory again takes in what is new. Chunks that are still being written are
left out; so is one whose program died less than a minute ago.

URLs of object stores need a flightline-sql that was built with `--features aws`, `azure` or `gcp`.";

/// `flightline store add`
#[derive(Args, Debug)]
pub struct AddArgs {
    /// Recordings, or directories of them
    #[arg(value_name = "RECORDING", required_unless_present = "live", value_hint = ValueHint::AnyPath)]
    pub recordings: Vec<PathBuf>,
    /// The store: a directory, created if missing, or a URL such as s3://bucket/path
    #[arg(long, value_name = "DIR", env = "FLIGHTLINE_STORE", value_hint = ValueHint::DirPath)]
    pub store: String,
    /// Whose samples they are
    #[arg(long, value_name = "NAME")]
    pub service: String,
    /// A label of all of them: NAME=VALUE
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Samples of these types only, by name or as cpu, wall, alloc, …
    #[arg(short, long = "event", value_name = "EVENT", value_delimiter = ',')]
    pub events: Vec<String>,
    /// Leave out source lines: fewer stacks
    #[arg(long)]
    pub no_lines: bool,
    /// Take in chunks that nobody has ended, too: what comes behind counts as another chunk
    #[arg(long)]
    pub unfinished: bool,
    /// Recordings taken in at a time; as many as there are processors
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Take in a stream as it comes: unix:PATH, tcp:HOST:PORT, fd:N, a pipe's path, or `-`
    #[arg(long, value_name = "STREAM", conflicts_with = "recordings")]
    pub live: Option<String>,
    /// Seconds between files of a stream
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600), requires = "live")]
    pub every: u64,
    /// Tell the result as JSON
    #[arg(long)]
    pub json: bool,
}

const MAINTAIN_EXAMPLES: &str = "\
Examples:
  flightline store maintain --store DIR                                            few files of many; nothing is removed
  flightline store maintain --store DIR --sums minute,hour,day --keep raw=7d,minute=7d,hour=90d,day=3y
  flightline store maintain --store DIR --every 10m …                              goes on
  flightline store maintain --store DIR --keep raw=7d --dry-run                    tells what would go";

/// `flightline store maintain`
#[derive(Args, Debug)]
pub struct MaintainArgs {
    /// The store: a directory or a URL
    #[arg(long, value_name = "DIR", env = "FLIGHTLINE_STORE", value_hint = ValueHint::DirPath)]
    pub store: String,
    /// Add samples up by these times
    #[arg(long, value_name = "TIME", value_enum, value_delimiter = ',')]
    pub sums: Vec<Sums>,
    /// Labels that sums have; else those of at most 32 values in a day
    #[arg(long = "label", value_name = "NAME")]
    pub labels: Vec<String>,
    /// How long rows are kept, as raw=7d,hour=90d; without it nothing is removed. Samples stay until all sums asked for have them
    #[arg(long, value_name = "WHAT=TIME", value_parser = keep, value_delimiter = ',')]
    pub keep: Vec<(Table, Duration)>,
    /// Files of a day and service from which on they become one
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub files: usize,
    /// Leave files alone that are younger, as 5m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5m")]
    pub younger: Duration,
    /// Do it again after this time, until ended
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub every: Option<Duration>,
    /// Only tell what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Tell what was done as JSON
    #[arg(long)]
    pub json: bool,
}

/// The store that is asked.
#[derive(Args, Debug)]
pub struct StoreArgs {
    /// The store: a directory
    #[arg(long, value_name = "DIR", env = "FLIGHTLINE_STORE", value_hint = ValueHint::DirPath)]
    pub store: String,
    /// A table of your own to join with: CSV, TSV, Parquet or JSON lines
    #[arg(long = "table", value_name = "NAME=FILE", value_parser = table, value_hint = ValueHint::FilePath)]
    pub tables: Vec<(String, PathBuf)>,
    /// Threads to work with; as many as there are processors
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
}

/// Which samples, and what they weigh.
#[derive(Args, Clone, Debug)]
pub struct SelectArgs {
    /// Condition on samples, as "service = 'x' AND day = '2026-01-31'"
    #[arg(long = "where", value_name = "CONDITION", default_value = "", hide_default_value = true)]
    pub condition: String,
    /// Add up what samples stand for (ns, bytes) instead of counting them
    #[arg(long)]
    pub total: bool,
    /// Put the library before native functions: lib.so`function
    #[arg(long)]
    pub modules: bool,
    /// Lines of the source apart
    #[arg(long)]
    pub lines: bool,
    /// Samples of this type, by name or as cpu, wall, alloc, …; else what --where says, or the best type there is, CPU samples first
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,
    /// Ask sums by time instead of samples: fewer rows, without the labels that they do not have
    #[arg(long, value_name = "TIME", value_enum)]
    pub sums: Option<Sums>,
}

impl Sums {
    /// The table that they are.
    pub fn table(self) -> Table {
        match self {
            Self::Minute => Table::Minutes,
            Self::Hour => Table::Hours,
            Self::Day => Table::Days,
        }
    }
}

/// Sums of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sums {
    /// By minute
    Minute,
    /// By hour
    Hour,
    /// By day
    Day,
}

/// `flightline sql`
#[derive(Args, Debug)]
pub struct SqlArgs {
    /// The question; `-` reads it from standard input
    pub sql: String,
    #[command(flatten)]
    pub store: StoreArgs,
    /// How rows are written
    #[arg(long, value_enum, default_value_t)]
    pub format: RowFormat,
    /// Output
    #[arg(short, long, default_value = "-", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
}

/// `flightline flame --store`
#[derive(Args, Debug)]
pub struct FlameArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub select: SelectArgs,
    /// Leave out boxes that have less than this share of the chosen samples, and tell how much that was
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "0", hide_default_value = true)]
    pub min_percent: f64,
    /// Output; what is written goes by its ending: .html, .svg, .json (d3-flame-graph), else folded text
    #[arg(short, long, default_value = "-", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// What is written, whatever the output is called
    #[arg(long, value_enum)]
    pub format: Option<TreeFormat>,
    /// Do not draw: print the SQL of the boxes
    #[arg(long)]
    pub sql: bool,
    /// Whose SQL
    #[arg(long, value_enum, default_value = "datafusion", requires = "sql")]
    pub engine: EngineArg,
}

/// `flightline store diff`
#[derive(Args, Debug)]
pub struct DiffArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub select: SelectArgs,
    /// Condition on samples of the first profile, beside --where
    #[arg(long, value_name = "CONDITION")]
    pub before: String,
    /// Condition on samples of the second profile, beside --where
    #[arg(long, value_name = "CONDITION")]
    pub after: String,
    /// Compare weights as they are, not as shares
    #[arg(long)]
    pub no_normalize: bool,
    /// Functions told
    #[arg(long, default_value_t = 20)]
    pub limit: usize,
    /// Output; what is written goes by its ending: .html, .svg, .folded, else a table
    #[arg(short, long, default_value = "-", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
}

/// `flightline store top`
#[derive(Args, Debug)]
pub struct TopArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub select: SelectArgs,
    /// Functions told
    #[arg(short = 'n', long, default_value_t = 20)]
    pub limit: usize,
    /// By the samples that a function was in, not by those that ended in it
    #[arg(long)]
    pub inclusive: bool,
}

/// `flightline store share`
#[derive(Args, Debug)]
pub struct ShareArgs {
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub select: SelectArgs,
    /// Functions whose name matches this
    #[arg(long, value_name = "REGEX")]
    pub function: Regex,
    /// What shares are told apart by: a column of samples, or an expression
    #[arg(long, value_name = "COLUMN", default_value = "service")]
    pub by: String,
    /// Seconds of a row
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub every: u64,
}

/// `flightline store info`
#[derive(Args, Debug)]
pub struct InfoArgs {
    #[command(flatten)]
    pub store: StoreArgs,
}

/// How rows are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RowFormat {
    /// For people; all rows are held
    #[default]
    Table,
    /// Comma-separated, with a line of names
    Csv,
    /// A JSON object a line
    Ndjson,
}

/// How a tree is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TreeFormat {
    /// One page
    Html,
    /// A picture
    Svg,
    /// d3-flame-graph's JSON
    D3,
    /// The same as Treasure Data's HDPS has it: under `<ROOT>`, boxes called "Class.method: line (Native|Non-native)"
    Hdps,
    /// `root;caller;leaf count`
    Folded,
}

/// Whose SQL is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineArg {
    /// Apache DataFusion: what this command is
    #[value(name = "datafusion")]
    DataFusion,
    /// DuckDB
    #[value(name = "duckdb")]
    DuckDb,
    /// Apache Spark
    Spark,
    /// Trino
    Trino,
    /// Apache Hive
    Hive,
    /// ClickHouse
    #[value(name = "clickhouse")]
    ClickHouse,
}

impl From<EngineArg> for Engine {
    fn from(engine: EngineArg) -> Self {
        match engine {
            EngineArg::DataFusion => Self::DataFusion,
            EngineArg::DuckDb => Self::DuckDb,
            EngineArg::Spark => Self::Spark,
            EngineArg::Trino => Self::Trino,
            EngineArg::Hive => Self::Hive,
            EngineArg::ClickHouse => Self::ClickHouse,
        }
    }
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    let number = number.filter(|number| (0.0..=100.0).contains(number));
    number.ok_or_else(|| "give a share of all, as 1 or 0.5%".into())
}

fn keep(text: &str) -> Result<(Table, Duration), String> {
    let (what, time) = text.split_once('=').ok_or("give what and how long, as raw=7d")?;
    let table = match what {
        "raw" => Table::Samples,
        "minute" => Table::Minutes,
        "hour" => Table::Hours,
        "day" => Table::Days,
        _ => return Err(format!("{what} is not raw, minute, hour or day")),
    };
    Ok((table, duration(time)?))
}

fn duration(text: &str) -> Result<Duration, String> {
    let unit = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let seconds = match &text[unit..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        "y" => 365 * 86_400,
        _ => 0,
    };
    let number =
        text[..unit].parse::<u64>().ok().filter(|_| seconds > 0).and_then(|n| n.checked_mul(seconds));
    number.map(Duration::from_secs).ok_or_else(|| format!("{text:?} is no time, as 10m, 7d or 3y"))
}

fn label(text: &str) -> Result<(String, String), String> {
    let named = text.split_once('=').filter(|(name, _)| !name.trim().is_empty());
    let (name, value) = named.ok_or("give a name and a value, as host=h7")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

fn table(text: &str) -> Result<(String, PathBuf), String> {
    let named = text.split_once('=').filter(|(name, file)| !name.is_empty() && !file.is_empty());
    let (name, file) = named.ok_or("give a name and a file, as tasks=tasks.csv")?;
    Ok((name.to_owned(), file.into()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
        for wrong in ["101", "-1", "x", "NaN"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
        assert_eq!(percent("0.5%"), Ok(0.5));
        for wrong in ["", "d", "7", "-1d", "99999999999999999999d", "7 d", "é"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!(keep("hour=90d"), Ok((Table::Hours, Duration::from_secs(90 * 86_400))));
        assert!(keep("week=1d").is_err() && keep("raw").is_err());
        assert!(table("=x").is_err() && table("x=").is_err());
        assert_eq!(table("a=b=c"), Ok(("a".to_owned(), "b=c".into())));
    }
}
