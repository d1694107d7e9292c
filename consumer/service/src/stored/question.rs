//! Questions as the command takes them: no word of a client begins an argument.

use std::ffi::{OsStr, OsString};

use super::choice::{Choice, Engine, by};
use crate::fault::Fault;

/// Seconds of a year: rows of a share are no longer.
const LONGEST_STEP: u64 = 366 * 86_400;
/// Functions that are told.
const MOST_FUNCTIONS: u32 = 10_000;
/// Letters of a pattern.
const LONGEST_PATTERN: usize = 1000;

/// What samples weigh, and how their frames are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weighing {
    /// What they stand for, not how many they are.
    pub total: bool,
    /// Lines of the source apart.
    pub lines: bool,
    /// With the library before native functions.
    pub modules: bool,
}

/// A question.
#[derive(Clone, Debug, PartialEq)]
pub enum Question {
    /// A page with a flame graph.
    Flame { choice: Choice, weighing: Weighing, min: f64 },
    /// The SQL of its boxes.
    Sql { choice: Choice, weighing: Weighing, min: f64, engine: Engine },
    /// A page that compares two choices.
    Diff { before: Choice, after: Choice, weighing: Weighing },
    /// The functions that samples fell in most, as text.
    Top { choice: Choice, weighing: Weighing, limit: u32, inclusive: bool },
    /// What share functions had over time, as CSV.
    Share { choice: Choice, weighing: Weighing, function: String, by: String, every: u64 },
    /// Our own SQL, answered by an object of JSON a line.
    Rows(String),
}

impl Question {
    /// What to give to the command; `page`: its output, where only a name says what it is.
    #[must_use]
    pub fn arguments(&self, store: &OsStr, page: &OsStr) -> Vec<OsString> {
        let with = |option: &str, value: &OsStr| {
            let mut argument = OsString::from(option);
            argument.push(value);
            argument
        };
        let condition = |option: &str, choice: &Choice, engine| {
            let condition = choice.condition(engine);
            let condition = if condition.is_empty() { "true" } else { &condition };
            format!("--{option}={condition}").into()
        };
        let usual = Engine::default();
        let mut all: Vec<OsString> = match self {
            Self::Flame { choice, min, .. } => {
                vec![
                    "flame".into(),
                    condition("where", choice, usual),
                    format!("--min-percent={min}").into(),
                    "--format=html".into(),
                ]
            }
            Self::Sql { choice, min, engine, .. } => {
                let engine_name = format!("--engine={}", engine.name()).into();
                let min = format!("--min-percent={min}").into();
                vec!["flame".into(), condition("where", choice, *engine), min, "--sql".into(), engine_name]
            }
            Self::Diff { before, after, .. } => {
                // What is compared is of one type, which the command looks for here.
                let (both, column) = (before.only("event_type"), "event_type");
                vec![
                    "diff".into(),
                    condition("where", &both, usual),
                    condition("before", &before.without(column), usual),
                    condition("after", &after.without(column), usual),
                    with("--output=", page),
                ]
            }
            Self::Top { choice, limit, inclusive, .. } => {
                let mut all =
                    vec!["top".into(), condition("where", choice, usual), format!("--limit={limit}").into()];
                all.extend(inclusive.then(|| "--inclusive".into()));
                all
            }
            Self::Share { choice, function, by, every, .. } => vec![
                "share".into(),
                condition("where", choice, usual),
                format!("--function={function}").into(),
                format!("--by={by}").into(),
                format!("--every={every}").into(),
            ],
            Self::Rows(sql) => vec!["sql".into(), sql.into(), "--format=ndjson".into()],
        };
        all.insert(1, with("--store=", store));
        let weighing = self.weighing();
        let flags =
            [(weighing.total, "--total"), (weighing.lines, "--lines"), (weighing.modules, "--modules")];
        all.extend(flags.iter().filter(|(on, _)| *on).map(|(_, flag)| OsString::from(flag)));
        all
    }

    fn weighing(&self) -> Weighing {
        match self {
            Self::Flame { weighing, .. }
            | Self::Sql { weighing, .. }
            | Self::Diff { weighing, .. }
            | Self::Top { weighing, .. }
            | Self::Share { weighing, .. } => *weighing,
            Self::Rows(_) => Weighing::default(),
        }
    }
}

/// What stands behind a `?`, taken apart.
#[derive(Clone, Debug)]
pub struct Asked {
    /// What was chosen, and what it is compared with (`b.`).
    pub choices: [Choice; 2],
    /// What samples weigh.
    pub weighing: Weighing,
    /// Boxes with less of all samples are left out, in percent.
    pub min: f64,
    /// Whose SQL.
    pub engine: Engine,
    /// Which functions.
    pub function: Option<String>,
    /// The column by which shares are told apart.
    pub by: String,
    /// Seconds of a row.
    pub every: u64,
    /// Functions told.
    pub limit: u32,
    /// By the samples they were in.
    pub inclusive: bool,
    /// What the command told is asked for, not the answer.
    pub told: bool,
}

impl Asked {
    /// Takes a query apart.
    ///
    /// # Errors
    /// A parameter is none of ours, or makes no sense.
    pub fn parse(query: &str) -> Result<Self, Fault> {
        let mut asked = Self {
            choices: Default::default(),
            weighing: Weighing::default(),
            min: 0.0,
            engine: Engine::default(),
            function: None,
            by: "service".into(),
            every: 3600,
            limit: 100,
            inclusive: false,
            told: false,
        };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match name.strip_prefix("b.") {
                // What is compared is of one type.
                Some(name) if name != "event" && asked.choices[1].take(name, &value)? => {}
                None if asked.choices[0].take(&name, &value)? || asked.take(&name, &value)? => {}
                _ => {
                    let name: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
                    return Err(Fault::bad(format!(
                        "There is no parameter {name}; GET /openapi.json lists them."
                    )));
                }
            }
        }
        asked.choices.iter().try_for_each(Choice::check)?;
        Ok(asked)
    }

    fn take(&mut self, name: &str, value: &str) -> Result<bool, Fault> {
        match name {
            "measure" => {
                self.weighing.total = match value {
                    "samples" => false,
                    "total" => true,
                    _ => return Err(Fault::bad("measure is samples or total.")),
                }
            }
            "lines" => self.weighing.lines = flag(value)?,
            "modules" => self.weighing.modules = flag(value)?,
            "inclusive" => self.inclusive = flag(value)?,
            "told" => self.told = flag(value)?,
            "min" => {
                let min = value.parse().ok().filter(|min| (0.0..=100.0).contains(min));
                self.min =
                    min.ok_or_else(|| Fault::bad("min is a share of all samples in percent, 0 to 100."))?;
            }
            "engine" => {
                let engine = Engine::named(value);
                self.engine = engine.ok_or_else(|| {
                    Fault::bad("engine is datafusion, duckdb, spark, trino, hive or clickhouse.")
                })?;
            }
            "function" => {
                if value.is_empty() || value.len() > LONGEST_PATTERN || value.contains('\0') {
                    return Err(Fault::bad("function is a regular expression of 1 to 1000 letters."));
                }
                self.function = Some(value.to_owned());
            }
            "by" => self.by = by(value).map_err(|_| unclear_by())?,
            "every" => {
                let every = value.parse().ok().filter(|every| (1..=LONGEST_STEP).contains(every));
                self.every =
                    every.ok_or_else(|| Fault::bad("every is a number of seconds, a year at most."))?;
            }
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=MOST_FUNCTIONS).contains(limit));
                self.limit = limit.ok_or_else(|| Fault::bad("limit is 1 to 10000 functions."))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn flag(value: &str) -> Result<bool, Fault> {
    match value {
        "1" => Ok(true),
        "0" | "" => Ok(false),
        _ => Err(Fault::bad("lines, modules, inclusive and told are 1 or 0.")),
    }
}

fn unclear_by() -> Fault {
    Fault::bad(
        "by is service, day, event_type, thread, state or label:KEY, with a key as GET /v1/store lists it.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(question: &Question) -> Vec<String> {
        let words = question.arguments(OsStr::new("/store"), OsStr::new("/tmp/out.html"));
        words.into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn no_word_of_a_client_begins_an_argument() {
        let query = "service=--help&where=-1%20%3C%200&function=--x&by=label:k&every=60&b.label=k%3D--y&lines=1&measure=total&min=0.5";
        let Asked { choices: [a, b], weighing, min, function, by, every, .. } = Asked::parse(query).unwrap();
        let function = function.unwrap();
        let condition = "service = '--help' AND (-1 < 0\n)";
        assert_eq!(
            words(&Question::Flame { choice: a.clone(), weighing, min }),
            [
                "flame",
                "--store=/store",
                &format!("--where={condition}"),
                "--min-percent=0.5",
                "--format=html",
                "--total",
                "--lines"
            ]
        );
        assert_eq!(
            words(&Question::Share { choice: b.clone(), weighing: Weighing::default(), function, by, every }),
            [
                "share",
                "--store=/store",
                "--where=label_k = '--y'",
                "--function=--x",
                "--by=label_k",
                "--every=60"
            ]
        );
        let diff = Question::Diff { before: a, after: b, weighing: Weighing::default() };
        let before = format!("--before={condition}");
        assert_eq!(
            words(&diff),
            [
                "diff",
                "--store=/store",
                "--where=true",
                &before,
                "--after=label_k = '--y'",
                "--output=/tmp/out.html"
            ]
        );
    }

    #[test]
    fn what_is_compared_is_of_one_type() {
        let asked = Asked::parse("event=jdk.ExecutionSample&service=a&b.service=b").unwrap();
        let [before, after] = asked.choices;
        let words = words(&Question::Diff { before, after, weighing: asked.weighing });
        assert_eq!(
            words[2..5],
            ["--where=event_type = 'jdk.ExecutionSample'", "--before=service = 'a'", "--after=service = 'b'"]
        );
        assert!(Asked::parse("b.event=x").is_err());
    }

    #[test]
    fn parameters_that_are_none_are_told() {
        for bad in [
            "sql=DROP",
            "b.min=1",
            "b.b.service=x",
            "measure=x",
            "lines=2",
            "min=101",
            "min=NaN",
            "engine=mysql",
            "function=",
            "by=stack_id",
            "by=label:X",
            "by=1%3B",
            "every=0",
            "limit=0",
            "limit=-1",
            "told=x",
        ] {
            assert_eq!(Asked::parse(bad).unwrap_err().status, 400, "{bad}");
        }
        let sql = Asked::parse("service=a%27b&engine=spark").unwrap();
        let [choice, _] = sql.choices;
        let words =
            words(&Question::Sql { choice, weighing: sql.weighing, min: sql.min, engine: sql.engine });
        assert_eq!(
            words[2..],
            [r"--where=service = 'a\u0027b'", "--min-percent=0", "--sql", "--engine=spark"]
        );
    }
}
