//! The query string of Pyroscope's `/ingest`.

use super::{Error, cut, label};
use crate::limits::{LONGEST_LABEL, LONGEST_TEXT};
use crate::wire::Labels;

/// Maximum length of a query.
const LONGEST: usize = 16 << 10;
/// Larger numbers are ms, µs or ns since 1970; as seconds this is the year 5138.
const SECONDS: i64 = 100_000_000_000;

/// An application: `name{key=value,…}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct App {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
}

impl App {
    /// Parses `name{key=value,…}`.
    ///
    /// # Errors
    /// Returns an error if the text has another form or no name.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let form =
            || Error::Bad("Give ?name=app{key=value,…}: the name of the application and its labels.".into());
        let (name, labels) = match text.split_once('{') {
            None => (text, ""),
            Some((name, labels)) => (name, labels.strip_suffix('}').ok_or_else(form)?),
        };
        // Trim after other characters were removed, since these may have hidden blanks.
        let name = cut(name, LONGEST_TEXT).trim().to_owned();
        let mut app = Self { name, labels: Labels::new() };
        if app.name.is_empty() || app.name.contains('}') {
            return Err(form());
        }
        for pair in labels.split(',').filter(|pair| !pair.trim().is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(form)?;
            let [key, value] = [key, value].map(|text| cut(text.trim(), LONGEST_LABEL));
            label(&mut app.labels, key.trim(), value.trim());
        }
        Ok(app)
    }

    /// Formats the app as text; replaces special characters in names.
    pub fn text(&self) -> String {
        let plain = |text: &str| -> String {
            text.chars().map(|c| if "{}=,\"".contains(c) || c.is_control() { '_' } else { c }).collect()
        };
        let labels = self.labels.iter().map(|(key, value)| format!("{}={}", plain(key), plain(value)));
        let labels: Vec<String> = labels.collect();
        match labels.is_empty() {
            true => plain(&self.name),
            false => format!("{}{{{}}}", plain(&self.name), labels.join(",")),
        }
    }
}

/// Format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Jfr,
    Pprof,
    Folded,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) app: App,
    pub(super) from: i64,
    pub(super) until: i64,
    pub(super) format: Format,
    /// Unit of folded text.
    pub(super) unit: String,
    /// Weight of a sample of folded text in ns, if known.
    pub(super) period: Option<u64>,
    /// True if the query has no times.
    pub(super) untimed: bool,
}

impl Query {
    pub(super) fn parse(query: &str, now: i64) -> Result<Self, Error> {
        if query.len() > LONGEST {
            return Err(Error::TooLarge("The query is longer than 16 KiB; give fewer labels.".into()));
        }
        let (mut app, mut from, mut until) = (None, None, None);
        let (mut format, mut unit, mut period) = (Format::Folded, "samples".to_owned(), None);
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*key {
                "name" => app = Some(App::parse(&value)?),
                "from" => from = Some(moment("from", &value)?),
                "until" => until = Some(moment("until", &value)?),
                "format" => format = named(&value)?,
                "units" if ["samples", "bytes"].contains(&&*value) => unit = value.into_owned(),
                "sampleRate" => {
                    let rate: Option<u64> = value.parse().ok().filter(|&rate| rate > 0);
                    period = rate.and_then(|rate| 1_000_000_000_u64.checked_div(rate)).filter(|&ns| ns > 0);
                }
                // Ignore the name of the profiler.
                _ => {}
            }
        }
        let app = app.ok_or_else(|| {
            Error::Bad("Give ?name=app{key=value,…}: the name of the application is missing.".into())
        })?;
        let untimed = from.is_none() && until.is_none();
        let until = until.unwrap_or(now);
        let from = from.unwrap_or(until);
        if from > until {
            return Err(Error::Bad("`from` must not be after `until`.".into()));
        }
        Ok(Self { app, from, until, format, unit, period, untimed })
    }
}

fn named(name: &str) -> Result<Format, Error> {
    match name {
        "jfr" => Ok(Format::Jfr),
        "pprof" => Ok(Format::Pprof),
        // Pyroscope's names for folded text.
        "" | "folded" | "collapsed" | "lines" | "groups" => Ok(Format::Folded),
        other => {
            let other = cut(other, 40);
            Err(Error::Unknown(format!("The format {other:?} is not supported; send jfr, pprof or folded.")))
        }
    }
}

/// Converts a time to UTC ms.
fn moment(which: &str, text: &str) -> Result<i64, Error> {
    let number: i64 = text
        .parse()
        .ok()
        .filter(|&number| number >= 0)
        .ok_or_else(|| Error::Bad(format!("`{which}` is not a time; give seconds since 1970, UTC.")))?;
    Ok(match number {
        ..SECONDS => number * 1000,
        SECONDS..100_000_000_000_000 => number,
        100_000_000_000_000..100_000_000_000_000_000 => number / 1000,
        _ => number / 1_000_000,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn app_name_and_labels_are_parsed() {
        let app = App::parse("shop.cart{env=test, region=eu-1,empty=}").unwrap();
        assert_eq!(app.name, "shop.cart");
        let labels: Vec<_> = app.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(labels, [("empty", ""), ("env", "test"), ("region", "eu-1")]);
        assert_eq!(App::parse(&app.text()).unwrap(), app);
        assert_eq!(App::parse("shop").unwrap().text(), "shop");
        assert_eq!(App::parse("shop{}").unwrap(), App::parse("shop").unwrap());
        for other in ["", "{a=b}", "shop{a=b", "shop{a}", "shop}", "shop{a=b}x", "\u{1}\n"] {
            assert!(App::parse(other).is_err(), "{other:?}");
        }
        // A blank that sanitizing uncovers must not change the name on the next round trip.
        let hidden = App::parse("\u{1} shop {\u{1} k =\u{2} v\u{1} }").unwrap();
        assert_eq!((hidden.text(), hidden), ("shop{k=v}".into(), App::parse("shop{k=v}").unwrap()));
        let many: String = (0..10_000).map(|i| format!("k{i}={},", "v".repeat(10))).collect();
        let app = App::parse(&format!("a{{{many}}}")).unwrap();
        assert_eq!(app.labels.len(), crate::limits::MOST_LABELS);
        let odd = App { name: "a{b}".into(), labels: [("k=".into(), "v,w}".into())].into() };
        assert_eq!(odd.text(), "a_b_{k_=v_w_}");
    }

    #[test]
    fn query_parameters_are_parsed() {
        let of = |query: &str| Query::parse(query, 5_000);
        let query =
            of("name=a%7Bk%3Dv+w%7D&from=1700000000&until=1700000010500&format=jfr&spyName=x").unwrap();
        assert_eq!((query.from, query.until), (1_700_000_000_000, 1_700_000_010_500));
        assert_eq!((query.app.labels["k"].as_str(), query.format), ("v w", Format::Jfr));
        assert_eq!(of("name=a").unwrap().until, 5_000);
        assert_eq!(
            of("name=a&from=1700000000123456789&until=1700000000123456").unwrap().from,
            1_700_000_000_123
        );
        for other in ["", "format=jfr", "name=a&from=now-1h", "name=a&from=-1", "name=a&from=9&until=8"] {
            assert!(matches!(of(other), Err(Error::Bad(_))), "{other}");
        }
        let unknown = of("name=a&format=trie").unwrap_err();
        assert_eq!(unknown.to_string(), "The format \"trie\" is not supported; send jfr, pprof or folded.");
        assert!(matches!(of(&format!("name={}", "a".repeat(20_000))), Err(Error::TooLarge(_))));
    }
}
