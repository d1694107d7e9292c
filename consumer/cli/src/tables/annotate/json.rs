//! The report as JSON.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::machine::Machine;
use super::{Report, View};

pub(super) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let functions: Vec<Value> = report.views.iter().map(function).collect();
    let report = json!({
        "events": report.events,
        "unit": report.unit,
        "total": report.total,
        "functions": functions,
    });
    serde_json::to_writer_pretty(&mut *out, &report)?;
    writeln!(out)
}

fn function(view: &View) -> Value {
    let of = &view.function;
    let lines: Vec<Value> = of
        .lines
        .iter()
        .map(|(line, weights)| {
            let text = view.source.as_ref().and_then(|source| source.line(*line));
            json!({ "line": line, "total": weights.total, "self": weights.own, "text": text })
        })
        .collect();
    let definitions: Vec<Value> = view
        .declarations
        .iter()
        .map(|one| json!({ "file": one.file.display().to_string(), "line": one.line }))
        .collect();
    json!({
        "name": of.name,
        "class": if of.is_java { Some(&*of.class) } else { None },
        "library": if of.is_java { None } else { Some(&*of.class) },
        "path": of.file.as_ref().map(|file| &file.path),
        "buildId": of.file.as_ref().map(|file| &file.build_id),
        "total": of.all.total,
        "self": of.all.own,
        "definitions": definitions,
        "source": view.source.as_ref().map(|source| source.path.display().to_string()),
        "lines": lines,
        "unknownLine": { "total": of.no_line.total, "self": of.no_line.own },
        "machine": view.machine.as_ref().map(machine),
    })
}

/// The instructions of a function, all of them; addresses are hexadecimal.
fn machine(machine: &Machine) -> Value {
    let instructions: Vec<Value> = machine
        .instructions
        .iter()
        .map(|one| {
            json!({
                "address": format!("{:x}", one.address),
                "text": one.text,
                "line": if one.line > 0 { Some(one.line) } else { None },
                "total": one.total,
                "self": one.own,
            })
        })
        .collect();
    json!({ "file": machine.file.display().to_string(), "instructions": instructions, "elsewhere": machine.elsewhere })
}
