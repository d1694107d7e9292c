//! Tables for programs, with plain numbers in the unit of their column.

use std::io::{self, Write};

use serde_json::{Map, Value as Json, json};

use super::datum::{Datum, Unit};
use super::table::{Heading, Table};
use crate::print::clock;

/// Writes the tables as a JSON array of the objects that [`write_json`] writes.
///
/// # Errors
/// `out` cannot be written.
pub fn write_json_list(tables: &[Table], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"[")?;
    for (at, table) in tables.iter().enumerate() {
        out.write_all(if at > 0 { b",\n" } else { b"\n" })?;
        write_json(table, out)?;
    }
    out.write_all(b"]\n")
}

/// Writes a table as `{view, title, events, columns: [{title, unit}], rows: [{title: value}], more}`.
///
/// Times are in ISO 8601 in UTC, durations in ns, shares fractions of 1, stacks arrays of frames.
///
/// # Errors
/// `out` cannot be written.
pub fn write_json(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    let titles = distinct_titles(table);
    let columns: Vec<Json> = table
        .headings
        .iter()
        .zip(&titles)
        .map(|(heading, title)| json!({"title": title, "unit": heading.unit.name()}))
        .collect();
    write!(
        out,
        "{{\"view\": {}, \"title\": {}, \"events\": {}, \"columns\": {}, \"rows\": [",
        json!(table.name),
        json!(table.title),
        table.events,
        json!(columns)
    )?;
    for (at, row) in table.rows.iter().enumerate() {
        let cells: Map<String, Json> = titles.iter().cloned().zip(row.iter().map(datum_json)).collect();
        out.write_all(if at > 0 { b",\n  " } else { b"\n  " })?;
        serde_json::to_writer(&mut *out, &cells)?;
    }
    writeln!(out, "], \"more\": {}}}", table.more)
}

/// Labels of an event type's fields may be equal.
fn distinct_titles(table: &Table) -> Vec<String> {
    let mut titles: Vec<String> = Vec::new();
    for heading in &table.headings {
        let mut title = heading.title.clone();
        let mut number = 2;
        while titles.contains(&title) {
            title = format!("{} {number}", heading.title);
            number += 1;
        }
        titles.push(title);
    }
    titles
}

fn datum_json(datum: &Datum) -> Json {
    match datum {
        Datum::Null => Json::Null,
        Datum::Bool(v) => json!(v),
        Datum::Int(v, Unit::Time) => json!(clock::iso(*v)),
        Datum::Int(i64::MAX, Unit::Span) => json!("Forever"),
        Datum::Int(v, Unit::Unsigned) => json!(*v as u64),
        Datum::Int(v, Unit::Address) => json!(format!("0x{v:x}")),
        Datum::Int(v, _) => json!(v),
        Datum::Real(v, Unit::Time) => json!(clock::iso(*v as i64)),
        Datum::Real(v, _) => json!(v),
        Datum::Text(v) | Datum::Named(v, _) => json!(&**v),
        Datum::Stack(frames) => json!(frames.iter().map(|frame| &**frame).collect::<Vec<_>>()),
    }
}

/// Writes a table as CSV: a header with titles and units, then the rows. Stacks are joined by `;`, leaf
/// first.
///
/// # Errors
/// `out` cannot be written.
pub fn write_csv(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    let head: Vec<String> = table.headings.iter().map(|heading| field(&title(heading))).collect();
    writeln!(out, "{}", head.join(","))?;
    for row in &table.rows {
        let cells: Vec<String> = row.iter().map(|datum| field(&datum_csv(datum))).collect();
        writeln!(out, "{}", cells.join(","))?;
    }
    Ok(())
}

fn title(heading: &Heading) -> String {
    match heading.unit.name() {
        Some(unit) => format!("{} ({unit})", heading.title),
        None => heading.title.clone(),
    }
}

fn datum_csv(datum: &Datum) -> String {
    match datum {
        Datum::Null => String::new(),
        Datum::Text(v) | Datum::Named(v, _) => v.to_string(),
        Datum::Stack(frames) => frames.join(";"),
        other => match datum_json(other) {
            Json::String(text) => text,
            number => number.to_string(),
        },
    }
}

fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_fields_are_quoted() {
        assert_eq!(field("plain"), "plain");
        assert_eq!(field("a,b"), "\"a,b\"");
        assert_eq!(field("say \"x\"\n"), "\"say \"\"x\"\"\n\"");
        assert_eq!(datum_csv(&Datum::Int(-1, Unit::Unsigned)), u64::MAX.to_string());
        assert_eq!(datum_csv(&Datum::Int(255, Unit::Address)), "0xff");
    }
}
