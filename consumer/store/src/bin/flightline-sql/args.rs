//! Command-line definitions for clap.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use flightline_store::layout::Table;
use flightline_store::query::dialect::Engine;
use regex::Regex;

/// Query a profile store: SQL, flame graphs, comparisons, shares over time.
#[derive(Debug, Parser)]
#[command(name = "flightline-sql", version, arg_required_else_help = true, subcommand_required = true)]
pub struct Cli {
    /// The command.
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
    /// Run an SQL query
    #[command(after_help = SQL_EXAMPLES)]
    Sql(SqlArgs),
    /// Add recordings, repositories and streams
    #[command(after_help = ADD_EXAMPLES)]
    Add(AddArgs),
    /// Compact files, aggregate samples by minute, hour and day, and remove old data
    #[command(after_help = MAINTAIN_EXAMPLES)]
    Maintain(MaintainArgs),
    /// Draw a flame graph of selected samples: HTML, SVG, d3-flame-graph's JSON or folded text, by the
    /// output's extension
    #[command(after_help = FLAME_EXAMPLES)]
    Flame(FlameArgs),
    /// Compare two sets of samples, function by function
    Diff(DiffArgs),
    /// List the functions with the most samples
    Top(TopArgs),
    /// Show the share of a function over time and by version, host or any other label
    Share(ShareArgs),
    /// Show the tables, columns and rows of a store
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
    /// Name of the recorded service
    #[arg(long, value_name = "NAME")]
    pub service: String,
    /// Label for all samples: NAME=VALUE
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
    pub labels: Vec<(String, String)>,
    /// Only samples of these types, by name or as cpu, wall, alloc, …
    #[arg(short, long = "event", value_name = "EVENT", value_delimiter = ',')]
    pub events: Vec<String>,
    /// Omit source lines, which reduces the number of stacks
    #[arg(long)]
    pub no_lines: bool,
    /// Also add chunks that are not finished; if they grow later, they are added again as different chunks
    #[arg(long)]
    pub unfinished: bool,
    /// Number of recordings to add in parallel [default: the number of CPUs]
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<usize>,
    /// Add a live stream: unix:PATH, tcp:HOST:PORT, fd:N, a pipe's path, or `-`
    #[arg(long, value_name = "STREAM", conflicts_with = "recordings")]
    pub live: Option<String>,
    /// Seconds between deliveries of a stream
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600), requires = "live")]
    pub every: u64,
    /// Print the result as JSON
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
    /// Aggregate samples by these intervals
    #[arg(long, value_name = "TIME", value_enum, value_delimiter = ',')]
    pub sums: Vec<Sums>,
    /// Labels to keep in aggregated rows [default: those with at most 32 values per day]
    #[arg(long = "label", value_name = "NAME")]
    pub labels: Vec<String>,
    /// Retention of rows, such as raw=7d,hour=90d; by default nothing is removed. Samples remain until all
    /// requested aggregations include them
    #[arg(long, value_name = "WHAT=TIME", value_parser = keep, value_delimiter = ',')]
    pub keep: Vec<(Table, Duration)>,
    /// Compact a day and service with at least this many files
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub files: usize,
    /// Ignore files younger than this, such as 5m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5m")]
    pub younger: Duration,
    /// Repeat at this interval until stopped
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub every: Option<Duration>,
    /// Only print what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Print a report as JSON
    #[arg(long)]
    pub json: bool,
}

/// The store to query.
#[derive(Args, Debug)]
pub struct StoreArgs {
    /// The store: a directory
    #[arg(long, value_name = "DIR", env = "FLIGHTLINE_STORE", value_hint = ValueHint::DirPath)]
    pub store: String,
    /// An additional table to join with: CSV, TSV, Parquet or JSON lines
    #[arg(long = "table", value_name = "NAME=FILE", value_parser = table, value_hint = ValueHint::FilePath)]
    pub tables: Vec<(String, PathBuf)>,
    /// Number of threads [default: the number of CPUs]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
}

/// Selection and weight of samples.
#[derive(Args, Clone, Debug)]
pub struct SelectArgs {
    /// Condition on samples, such as "service = 'x' AND day = '2026-01-31'"
    #[arg(long = "where", value_name = "CONDITION", default_value = "", hide_default_value = true)]
    pub condition: String,
    /// Sum up values (ns, bytes) instead of counting samples
    #[arg(long)]
    pub total: bool,
    /// Prefix native functions with their library: lib.so`function
    #[arg(long)]
    pub modules: bool,
    /// Distinguish source lines
    #[arg(long)]
    pub lines: bool,
    /// Only samples of this type, by name or as cpu, wall, alloc, … [default: the type in --where, else the
    /// best available, CPU samples first]
    #[arg(short, long, value_name = "EVENT")]
    pub event: Option<String>,
    /// Query aggregated rows instead of samples: fewer rows, with fewer labels
    #[arg(long, value_name = "TIME", value_enum)]
    pub sums: Option<Sums>,
}

impl Sums {
    /// Returns the table.
    pub fn table(self) -> Table {
        match self {
            Self::Minute => Table::Minutes,
            Self::Hour => Table::Hours,
            Self::Day => Table::Days,
        }
    }
}

/// Aggregated tables.
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
    /// The query; `-` reads it from standard input
    pub sql: String,
    #[command(flatten)]
    pub store: StoreArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: RowFormat,
    /// Output file
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
    /// Omit frames with less than this percentage of the selected samples, and report how much was omitted
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "0", hide_default_value = true)]
    pub min_percent: f64,
    /// Output file; its extension determines the format: .html, .svg, .json (d3-flame-graph), else folded
    /// text
    #[arg(short, long, default_value = "-", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// Output format, regardless of the extension
    #[arg(long, value_enum)]
    pub format: Option<TreeFormat>,
    /// Print the SQL of the flame graph instead of drawing it
    #[arg(long)]
    pub sql: bool,
    /// SQL dialect
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
    /// Condition on samples of the first profile, in addition to --where
    #[arg(long, value_name = "CONDITION")]
    pub before: String,
    /// Condition on samples of the second profile, in addition to --where
    #[arg(long, value_name = "CONDITION")]
    pub after: String,
    /// Compare absolute weights instead of shares
    #[arg(long)]
    pub no_normalize: bool,
    /// Maximum number of functions
    #[arg(long, default_value_t = 20)]
    pub limit: usize,
    /// Output file; its extension determines the format: .html, .svg, .folded, else a table
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
    /// Maximum number of functions
    #[arg(short = 'n', long, default_value_t = 20)]
    pub limit: usize,
    /// Rank functions by the samples that contain them, not by those that end in them
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
    /// Functions whose name matches this expression
    #[arg(long, value_name = "REGEX")]
    pub function: Regex,
    /// Group shares by this column or expression
    #[arg(long, value_name = "COLUMN", default_value = "service")]
    pub by: String,
    /// Seconds per row
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub every: u64,
}

/// `flightline store info`
#[derive(Args, Debug)]
pub struct InfoArgs {
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Output formats of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RowFormat {
    /// For people; all rows are held in memory
    #[default]
    Table,
    /// Comma-separated, with a header line
    Csv,
    /// One JSON object per line
    Ndjson,
}

/// Output formats of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TreeFormat {
    /// One page
    Html,
    /// An image
    Svg,
    /// d3-flame-graph's JSON
    D3,
    /// The same as in Treasure Data's HDPS: below `<ROOT>`, frames called "Class.method: line
    /// (Native|Non-native)"
    Hdps,
    /// `root;caller;leaf count`
    Folded,
}

/// SQL dialects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineArg {
    /// Apache DataFusion: the engine of this command
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
    fn command_line_is_valid_and_rejects_invalid_values() {
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
