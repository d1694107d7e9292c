//! Writes the recording or an interval of it. Chunks inside the interval are copied; those that overlap its
//! edge are cut.

use std::io::{BufWriter, Write};

use flightline_consumer::cut;
use jfr_format::edit;
use jfr_format::read::Recording;

use super::input::{Inputs, Range};
use super::{Error, Outcome};

pub(super) fn write(inputs: &Inputs<'_>, range: Range, out: &mut impl Write) -> Result<Outcome, Error> {
    let mut sources = inputs.editable()?;
    let mut unread = 0;
    if !range.is_all() {
        let recordings = inputs.recordings()?;
        let mut kept = Vec::new();
        for (source, recording) in sources.into_iter().zip(&recordings) {
            if lies_in(recording, range) {
                kept.push(source);
                continue;
            }
            let (part, left) = part(&source, range)?;
            unread += left;
            kept.extend(part);
        }
        if kept.is_empty() {
            return Err(Error::Refused("No data was recorded in this interval; choose another one.".into()));
        }
        sources = kept;
    }
    match sources.as_slice() {
        [one] => one.copy(0..one.bytes().len(), out).map_err(Error::Write)?,
        _ => {
            let named = |(at, source)| edit::Part { name: format!("part {at}"), source };
            let parts: Vec<edit::Part> = (1..).zip(sources).map(named).collect();
            // The chunks may come from successive recorders, so rewrite ids and clocks that readers would mix
            // up.
            edit::assemble(&parts, true, out).map_err(Error::Write)?;
        }
    }
    let mut outcome = Outcome { whole: unread == 0, ..Outcome::default() };
    if unread > 0 {
        outcome.notes.push(format!("{unread} bytes could not be read and are omitted."));
    }
    Ok(outcome)
}

/// Returns true if all events lie in the interval.
fn lies_in(recording: &Recording, range: Range) -> bool {
    let [first, last] = range.both();
    let mut inside = true;
    let checked = recording.validate(|event| {
        inside &= event.time.is_none_or(|(start, end)| start >= first && end <= last);
    });
    inside && checked.is_ok_and(|whole| whole.start_nanos >= first && whole.end_nanos <= last)
}

/// Writes the events in the interval to an unnamed file, if there are any. Also returns the number of
/// unreadable bytes.
fn part(source: &edit::Source, range: Range) -> Result<(Option<edit::Source>, u64), Error> {
    let aside = |error| {
        Error::Read(format!("The recording cannot be cut, because the part cannot be stored: {error}."))
    };
    let file = tempfile::tempfile().map_err(aside)?;
    let mut out = BufWriter::new(&file);
    let [first, last] = range.both();
    let report = cut::part(source, first, last.saturating_add(1), false, &mut out);
    let report = report.and_then(|report| out.flush().map(|()| report)).map_err(aside)?;
    drop(out);
    let part = (report.written > 0).then(|| edit::Source::file(&file)).transpose()?;
    Ok((part, report.unread))
}
