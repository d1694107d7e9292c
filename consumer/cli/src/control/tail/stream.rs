//! Follows a stream: prints, aggregates or draws data as it arrives.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use flightline_consumer::live::{Feed, Item, Options};
use flightline_consumer::print::Printer;
use flightline_consumer::warnings::Warnings;
use flightline_recorder::stream::{Address, Token};
use jfr_format::read::{Decoder, Delivery};
use serde_json::json;

use super::hot::Hot;
use super::{Form, Tail, TailArgs, sample};
use crate::Outcome;
use crate::diagnostics::{self, shown};
use crate::input::stream::{Got, Stream};
use crate::signals::Signals;

/// Read size in bytes.
const READ: usize = 256 << 10;
/// Default width if there is no terminal.
const COLUMNS: usize = 100;

/// How data is processed.
enum Way {
    /// Events are printed or aggregated by function.
    Decoded(Box<Decoder>, Option<Box<Printer>>),
    /// Samples are printed as JSON.
    Samples(Box<Feed>, usize),
    /// Samples are aggregated by thread and stack.
    Hot(Box<Feed>, Box<Hot>, Instant),
}

/// Follows a stream to its end.
pub(super) fn run(
    args: &TailArgs,
    tail: &mut Tail,
    address: &Address,
    signals: &Signals,
    out: &mut dyn Write,
) -> Result<()> {
    let token = Token::find(args.token_file.as_deref())?;
    let name = shown(&tail.path);
    let mut stream = Stream::open(address, token.as_ref()).with_context(|| format!("cannot open {name}"))?;
    let mut warnings = Warnings::default();
    let mut way = way(args, tail);
    if let Way::Samples(..) = way {
        writeln!(out, "{}", sample::head()).context("cannot write")?;
    }
    let mut buffer = vec![0; READ];
    loop {
        let got = stream.read(&mut buffer, Some(signals), tail.every);
        let got = got.with_context(|| format!("cannot read {name}"))?;
        let over = got == Got::End;
        if let Got::Bytes(bytes) = got {
            let bytes = buffer.get(..bytes).unwrap_or_default();
            match &mut way {
                Way::Decoded(decoder, _) => decoder.push(Bytes::copy_from_slice(bytes)),
                Way::Samples(feed, _) | Way::Hot(feed, ..) => feed.push(bytes),
            }
        }
        if over {
            match &mut way {
                Way::Decoded(decoder, _) => decoder.close(),
                Way::Samples(feed, _) | Way::Hot(feed, ..) => feed.close(),
            }
        }
        take(&mut way, tail, &mut warnings, out)?;
        show(args, &mut way, tail, over, out)?;
        out.flush().context("cannot write")?;
        if over || signals.wait(Some(Duration::ZERO)).is_some() {
            break;
        }
    }
    if diagnostics::warnings(&tail.path, &warnings) == Outcome::Partial {
        tail.outcome = Outcome::Partial;
    }
    Ok(())
}

fn way(args: &TailArgs, tail: &Tail) -> Way {
    let feed =
        |samples: Vec<String>| Box::new(Feed::new(Options { samples, others: false, ..Options::default() }));
    if args.samples {
        return Way::Samples(feed(args.events.clone()), args.stack_depth.unwrap_or(usize::MAX));
    }
    if args.flame.is_some() || args.per_thread {
        let turns = (args.window.as_nanos() / tail.every.as_nanos()).clamp(1, 10_000) as usize;
        let events = if args.events.is_empty() { vec!["cpu".to_owned()] } else { args.events.clone() };
        return Way::Hot(feed(events), Box::new(Hot::new(turns)), Instant::now() + tail.every);
    }
    let mut decoder = Box::new(Decoder::new(Delivery::Streaming));
    let printer = match &tail.form {
        Form::Events(options, format) => {
            let printer = Printer::new(*format, options.clone());
            printer.select(&mut decoder);
            Some(Box::new(printer))
        }
        Form::Table { top, .. } => {
            top.select(&mut decoder);
            None
        }
        Form::Spans(table) => {
            table.top.select(&mut decoder);
            None
        }
    };
    Way::Decoded(decoder, printer)
}

/// Processes the available data.
fn take(way: &mut Way, tail: &mut Tail, warnings: &mut Warnings, out: &mut dyn Write) -> Result<()> {
    match way {
        Way::Decoded(decoder, printer) => {
            while let Some(item) = decoder.next() {
                match (&mut tail.form, &mut *printer) {
                    (Form::Table { top, .. }, _) => top.item(item).with_context(|| shown(&tail.path))?,
                    (Form::Spans(table), _) => table.top.item(item).with_context(|| shown(&tail.path))?,
                    (_, Some(printer)) => printer.item(item, warnings, &mut *out)?,
                    _ => {}
                }
            }
        }
        Way::Samples(feed, depth) => {
            while let Some(item) = feed.next() {
                print_item(&item, tail);
                if let Some(object) = sample::object(&item, *depth) {
                    writeln!(out, "{object}").context("cannot write")?;
                }
            }
        }
        Way::Hot(feed, hot, _) => {
            while let Some(item) = feed.next() {
                print_item(&item, tail);
                if let Item::Sample(sample) = &item {
                    hot.take(sample);
                }
            }
        }
    }
    Ok(())
}

fn print_item(item: &Item, tail: &mut Tail) {
    if let Item::Warning(warning) = item {
        diagnostics::warning(format_args!("{}: offset {}: {warning}", shown(&tail.path), warning.offset));
        if warning.damage {
            tail.outcome = Outcome::Partial;
        }
    }
}

/// Prints tables and flame graphs when due.
fn show(args: &TailArgs, way: &mut Way, tail: &mut Tail, over: bool, out: &mut dyn Write) -> Result<()> {
    let Way::Hot(_, hot, due) = way else { return tail.table(over, out) };
    if !over && Instant::now() < *due {
        return Ok(());
    }
    *due = Instant::now() + tail.every;
    let (lines, total) = (args.top.unwrap_or(10), hot.total());
    if args.ndjson {
        let threads: Vec<_> = hot
            .threads()
            .into_iter()
            .map(|(thread, samples, rows)| {
                let functions: Vec<_> = rows
                    .iter()
                    .take(lines)
                    .map(|(function, own, total)| json!({"function": function, "self": own, "total": total}))
                    .collect();
                json!({"thread": thread, "samples": samples, "functions": functions})
            })
            .collect();
        let line = json!({"windowSeconds": args.window.as_secs_f64(), "total": total, "threads": threads});
        hot.turn();
        return writeln!(out, "{line}").context("cannot write");
    }
    let terminal = io::stdout().is_terminal();
    let size = terminal_size::terminal_size().filter(|_| terminal);
    let columns = size.map_or(COLUMNS, |(width, _)| usize::from(width.0));
    let mut text = format!("{total} samples in {} s of {}\n", args.window.as_secs_f64(), shown(&tail.path));
    if let Some(most) = args.flame {
        let room = size.map_or(most, |(_, height)| usize::from(height.0).saturating_sub(3).max(1));
        let colours = terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        text.push_str(&hot.flame(columns, most.min(room), args.per_thread, colours));
    } else {
        for (thread, samples, rows) in hot.threads() {
            threads_text(&thread, samples, total, rows.into_iter().take(lines), &mut text);
        }
    }
    hot.turn();
    let clear = if terminal { "\x1b[H\x1b[2J" } else { "" };
    write!(out, "{clear}{text}").context("cannot write")
}

fn threads_text(
    thread: &str,
    samples: u64,
    all: u64,
    rows: impl Iterator<Item = (String, u64, u64)>,
    text: &mut String,
) {
    use std::fmt::Write;
    let percent = |part: u64| 100.0 * part as f64 / all.max(1) as f64;
    let _ = writeln!(text, "{:5.1}%  {}", percent(samples), diagnostics::plain(thread));
    for (function, own, total) in rows {
        let _ = writeln!(
            text,
            "  {:6.1}% {:5.1}%  {}",
            percent(own),
            percent(total),
            diagnostics::plain(&function)
        );
    }
}
