//! Filters on the store's samples: a client's selection as an SQL condition.

use std::collections::BTreeMap;

use crate::api_error::ApiError;
use crate::clock::iso;

/// Maximum number of selected values.
const MOST_VALUES: usize = 256;
/// Last ms of the year 9999.
const LAST: i64 = 253_402_300_799_999;
/// A day in ms.
const DAY: i64 = 86_400_000;

/// SQL dialect. Here they differ only in string literals; the command handles the function that unnests
/// lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    #[default]
    DataFusion,
    DuckDb,
    Spark,
    Trino,
    Hive,
    ClickHouse,
}

impl Engine {
    /// Returns the engine with this name, as the command spells it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::DataFusion, Self::DuckDb, Self::Spark, Self::Trino, Self::Hive, Self::ClickHouse]
            .into_iter()
            .find(|engine| engine.name() == name)
    }

    /// Name of the engine.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DataFusion => "datafusion",
            Self::DuckDb => "duckdb",
            Self::Spark => "spark",
            Self::Trino => "trino",
            Self::Hive => "hive",
            Self::ClickHouse => "clickhouse",
        }
    }

    /// Quotes a string literal. A backslash is literal only in standard SQL. A doubled quote is an escaped
    /// quote, except in Hive, where it separates two adjacent literals.
    fn literal(self, text: &str) -> String {
        let text = match self {
            Self::DataFusion | Self::DuckDb | Self::Trino => text.replace('\'', "''"),
            Self::ClickHouse => text.replace('\\', r"\\").replace('\'', "''"),
            Self::Spark | Self::Hive => text.replace('\\', r"\\").replace('\'', r"\u0027"),
        };
        format!("'{text}'")
    }
}

/// A filter; by default it selects all samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Accepted values by column; `None` accepts samples without a value.
    columns: BTreeMap<String, Vec<Option<String>>>,
    /// Start and end in UTC ms.
    from: Option<i64>,
    to: Option<i64>,
    /// Free-form condition; the command checks that it is a single condition.
    free: String,
}

impl Filter {
    /// Applies a query parameter. Returns false if it does not belong to a filter.
    ///
    /// # Errors
    /// Returns an error if the value is invalid.
    pub fn take(&mut self, name: &str, value: &str) -> Result<bool, ApiError> {
        if value.contains('\0') {
            return Err(ApiError::bad("Names and values must not contain NUL."));
        }
        match name {
            "service" => self.add("service".into(), Some(value))?,
            "event" => self.add("event_type".into(), Some(value))?,
            "label" => {
                let (key, value) = value.split_once('=').ok_or_else(unclear_label)?;
                self.add(column(key)?, Some(value))?;
            }
            "unset" => self.add(column(value)?, None)?,
            "from" => once(&mut self.from, moment(value)?)?,
            "to" => once(&mut self.to, moment(value)?)?,
            "where" if self.free.is_empty() => value.trim().clone_into(&mut self.free),
            "where" => return Err(ApiError::bad("Give `where` only once.")),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn add(&mut self, column: String, value: Option<&str>) -> Result<(), ApiError> {
        if self.columns.values().map(Vec::len).sum::<usize>() >= MOST_VALUES {
            return Err(ApiError::bad(format!("At most {MOST_VALUES} values can be selected.")));
        }
        self.columns.entry(column).or_default().push(value.map(str::to_owned));
        Ok(())
    }

    /// Checks that the time range is not empty and brackets are balanced.
    ///
    /// # Errors
    /// Returns an error if not.
    pub fn check(&self) -> Result<(), ApiError> {
        if self.from.zip(self.to).is_some_and(|(from, to)| from >= to) {
            return Err(ApiError::bad("`from` must be before `to`, in UTC ms."));
        }
        balanced(&self.free)
    }

    /// Returns the filter without its restriction of `column`, to list the alternatives.
    #[must_use]
    pub fn without(&self, column: &str) -> Self {
        let mut other = self.clone();
        other.columns.remove(column);
        other
    }

    /// Returns only the restriction of `column`.
    #[must_use]
    pub fn only(&self, column: &str) -> Self {
        let columns = self.columns.get_key_value(column).map(|(name, values)| (name.clone(), values.clone()));
        Self { columns: columns.into_iter().collect(), ..Self::default() }
    }

    /// Returns the filter without its time range.
    #[must_use]
    pub fn timeless(&self) -> Self {
        Self { from: None, to: None, ..self.clone() }
    }

    /// Returns the SQL condition; empty if all samples are selected.
    #[must_use]
    pub fn condition(&self, engine: Engine) -> String {
        let mut parts = Vec::new();
        for (column, values) in &self.columns {
            let texts: Vec<String> = values.iter().flatten().map(|text| engine.literal(text)).collect();
            let set = match &texts[..] {
                [] => None,
                [one] => Some(format!("{column} = {one}")),
                _ => Some(format!("{column} IN ({})", texts.join(", "))),
            };
            let unset = values.iter().any(Option::is_none).then(|| format!("{column} IS NULL"));
            parts.extend(match (set, unset) {
                (Some(set), Some(unset)) => Some(format!("({set} OR {unset})")),
                (set, unset) => set.or(unset),
            });
        }
        parts.extend(self.time());
        if !self.free.is_empty() {
            // On a line of its own, since it may end in a comment.
            parts.push(format!("({}\n)", self.free));
        }
        parts.join(" AND ")
    }

    /// Folders are named after the day of their samples, so a condition on `day` skips most files. For whole
    /// days it suffices alone.
    fn time(&self) -> Vec<String> {
        let first = self.from.map(day);
        let last = self.to.map(|to| day(to - 1));
        let is_fine = |moment: &i64| moment % DAY != 0;
        let days = match (&first, &last) {
            (Some(first), Some(last)) if first == last => vec![format!("day = '{first}'")],
            _ => {
                let first = first.map(|first| format!("day >= '{first}'"));
                let last = last.map(|last| format!("day <= '{last}'"));
                first.into_iter().chain(last).collect()
            }
        };
        let from = self.from.filter(is_fine).map(|from| format!("ts >= {}", timestamp(from)));
        let to = self.to.filter(is_fine).map(|to| format!("ts < {}", timestamp(to)));
        days.into_iter().chain(from).chain(to).collect()
    }
}

/// Returns the column of a label.
fn column(key: &str) -> Result<String, ApiError> {
    let is_key = |key: &str| key.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_');
    match !key.is_empty() && key.len() <= 256 && is_key(key) {
        true => Ok(format!("label_{key}")),
        false => Err(unclear_label()),
    }
}

/// Returns the column by which shares are grouped.
pub(super) fn by(name: &str) -> Result<String, ApiError> {
    match name {
        "service" | "day" | "event_type" | "thread" | "state" => Ok(name.to_owned()),
        _ => column(name.strip_prefix("label:").unwrap_or_default()),
    }
}

fn unclear_label() -> ApiError {
    ApiError::bad(
        "Give a label as label=KEY=VALUE (or unset=KEY), with a key from GET /v1/store: a to z, 0 to 9 and _.",
    )
}

fn moment(text: &str) -> Result<i64, ApiError> {
    let moment = text.parse().ok().filter(|moment| (0..=LAST).contains(moment));
    moment.ok_or_else(|| ApiError::bad("Give `from` and `to` in UTC ms, in years up to 9999."))
}

fn once<T>(into: &mut Option<T>, value: T) -> Result<(), ApiError> {
    match into.replace(value) {
        None => Ok(()),
        Some(_) => Err(ApiError::bad("Give `from` and `to` only once.")),
    }
}

fn day(ms: i64) -> String {
    iso(ms).chars().take(10).collect()
}

fn timestamp(ms: i64) -> String {
    format!("TIMESTAMP '{}'", iso(ms).trim_end_matches('Z').trim_end_matches(".000").replace('T', " "))
}

/// Checks brackets and quotes. The command rejects anything that is not one condition; this prevents `free`
/// from closing the brackets around it.
fn balanced(free: &str) -> Result<(), ApiError> {
    let mut depth = 0_usize;
    let mut letters = free.chars().peekable();
    let unbalanced = || ApiError::bad("Unbalanced brackets or quotes in `where`.");
    while let Some(c) = letters.next() {
        match c {
            '\'' | '"' | '`' => {
                // A doubled quote ends a string and starts another.
                letters.by_ref().find(|&other| other == c).ok_or_else(unbalanced)?;
            }
            '-' if letters.peek() == Some(&'-') => {
                letters.by_ref().find(|&other| other == '\n');
            }
            '/' if letters.peek() == Some(&'*') => {
                return Err(ApiError::bad("Comments (/* … */) are not allowed in `where`."));
            }
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1).ok_or_else(unbalanced)?,
            _ => {}
        }
    }
    if depth == 0 { Ok(()) } else { Err(unbalanced()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(parts: &[(&str, &str)]) -> Result<Filter, ApiError> {
        let mut filter = Filter::default();
        for (name, value) in parts {
            assert!(filter.take(name, value)?, "{name}");
        }
        filter.check().map(|()| filter)
    }

    fn condition(parts: &[(&str, &str)]) -> String {
        chosen(parts).unwrap().condition(Engine::DataFusion)
    }

    #[test]
    fn filter_becomes_sql_condition() {
        assert_eq!(condition(&[]), "");
        assert_eq!(
            condition(&[("service", "api"), ("event", "cpu")]),
            "event_type = 'cpu' AND service = 'api'"
        );
        assert_eq!(
            condition(&[("label", "host=h1"), ("label", "host=h=2"), ("unset", "host"), ("unset", "zone")]),
            "(label_host IN ('h1', 'h=2') OR label_host IS NULL) AND label_zone IS NULL"
        );
        assert_eq!(
            condition(&[("from", "1795420800001"), ("to", "1795507200000"), ("where", "a OR b -- c")]),
            "day >= '2026-11-23' AND day <= '2026-11-24' AND ts >= TIMESTAMP '2026-11-23 08:00:00.001' AND \
             ts < TIMESTAMP '2026-11-24 08:00:00' AND (a OR b -- c\n)"
        );
    }

    #[test]
    fn whole_days_are_matched_by_day_column() {
        let midnight = 1_795_392_000_000_i64;
        let between = |from: i64, to: i64| condition(&[("from", &from.to_string()), ("to", &to.to_string())]);
        assert_eq!(between(midnight, midnight + DAY), "day = '2026-11-23'");
        assert_eq!(between(midnight, midnight + 2 * DAY), "day >= '2026-11-23' AND day <= '2026-11-24'");
        assert_eq!(
            between(midnight, midnight + 1000),
            "day = '2026-11-23' AND ts < TIMESTAMP '2026-11-23 00:00:01'"
        );
        assert_eq!(condition(&[("from", &midnight.to_string())]), "day >= '2026-11-23'");
        assert_eq!(
            condition(&[("to", "1795420800000")]),
            "day <= '2026-11-23' AND ts < TIMESTAMP '2026-11-23 08:00:00'"
        );
    }

    #[test]
    fn filter_values_are_quoted_for_each_engine() {
        for (value, quoted) in [
            ("' OR 1=1 --", "''' OR 1=1 --'"),
            ("'; DROP TABLE samples; --", "'''; DROP TABLE samples; --'"),
            ("''", "''''''"),
            ("", "''"),
            (r"\", r"'\'"),
            ("a\nb", "'a\nb'"),
            ("$(id) `id`", "'$(id) `id`'"),
        ] {
            assert_eq!(condition(&[("service", value)]), format!("service = {quoted}"));
            let label = format!("k={value}");
            assert_eq!(condition(&[("label", &label)]), format!("label_k = {quoted}"));
        }
        let tricky = chosen(&[("service", r"\' OR 1=1 --")]).unwrap();
        for (engine, want) in [
            (Engine::DuckDb, r"service = '\'' OR 1=1 --'"),
            (Engine::Trino, r"service = '\'' OR 1=1 --'"),
            (Engine::ClickHouse, r"service = '\\'' OR 1=1 --'"),
            (Engine::Spark, r"service = '\\\u0027 OR 1=1 --'"),
            (Engine::Hive, r"service = '\\\u0027 OR 1=1 --'"),
        ] {
            assert_eq!(tricky.condition(engine), want, "{engine:?}");
        }
    }

    #[test]
    fn invalid_filters_are_rejected() {
        for bad in [
            ("label", "host"),
            ("label", "Host=x"),
            ("label", "=x"),
            ("label", "a b=x"),
            ("label", "a\" OR 1=1 --=x"),
            ("unset", "x;y"),
            ("from", "-1"),
            ("from", "2026-01-01"),
            ("to", "253402300800000"),
            ("service", "a\0b"),
            ("where", "a) OR (b"),
            ("where", "(a"),
            ("where", "'a"),
            ("where", "a /* ) "),
        ] {
            assert_eq!(chosen(&[bad]).unwrap_err().status, 400, "{bad:?}");
        }
        assert!(chosen(&[("from", "5"), ("to", "5")]).is_err());
        assert!(chosen(&[("from", "5"), ("from", "6")]).is_err());
        let many: Vec<_> = (0..=MOST_VALUES).map(|_| ("service", "x")).collect();
        assert!(chosen(&many).is_err() && chosen(&many[1..]).is_ok());
        assert!(chosen(&[("where", "a = ')' AND (b = '''(') AND \"c(\" = 1 -- )")]).is_ok());
        assert!(!Filter::default().take("engine", "spark").unwrap());
    }
}
