//! The output of `perf script`, with any selection of fields that has addresses or symbols.
//!
//! ```text
//! prog 1/7 [000] 1.0: 1000 cycles:         header: command, thread, time, period, event
//!         ffff1 leaf+0x8 (/bin/prog)       frames, leaf first
//!         ffff2 main (/bin/prog)
//! ```
//!
//! Without `-g` the only frame is at the end of the header. The form is that of `tools/perf/builtin-script.c` of the kernel.

mod event;
mod frame;
mod header;

use std::collections::HashMap;
use std::io::{BufRead, Write};

use event::{base, short};
pub(super) use frame::{tidy, without_offset};
use header::Header;

use crate::error::Error;
use crate::folded::{Skipped, clean};

/// Lines at the beginning in which the first sample is looked for.
const FIRST_LINES: usize = 64;

/// Selects the frames to add below the stacks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Roots {
    /// The process, before the thread.
    pub process: bool,
    /// The thread with its id instead of the command.
    pub thread: bool,
}

/// All samples, summed up by event and stack.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// In the order of their first samples.
    pub events: Vec<Event>,
    /// Lines that are neither a header, a frame nor the source line of one.
    pub skipped: Skipped,
}

/// The samples of one event.
#[derive(Debug, Default)]
pub(super) struct Event {
    /// Without modifiers: `cycles`, `cpu_core/cycles/`, `sched:sched_switch`.
    pub name: String,
    /// Number of samples.
    pub samples: u64,
    /// Samples without a stack.
    pub no_stack: u64,
    /// Its samples have a period.
    pub has_periods: bool,
    stacks: HashMap<String, Weight>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    samples: u64,
    period: u64,
}

/// Returns true if a text begins like the output of `perf script`.
pub(crate) fn is(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    let lines: Vec<&str> = head
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .take(FIRST_LINES)
        .collect();
    let is_frame = |line: &str| {
        let long =
            line.split_whitespace().next().is_some_and(|address| address.len() >= frame::SHORTEST_ADDRESS);
        line.starts_with(char::is_whitespace)
            && long
            && frame::parse(line).is_some_and(|frame| frame.is_named())
    };
    let has_frame = |pair: &[&str]| !pair[0].starts_with(char::is_whitespace) && is_frame(pair[1]);
    let alone = |line: &&str| {
        let header = Header::parse(line);
        let has_module = || header.frame().is_some_and(|frame| frame.module.is_some());
        match header.event {
            Some(_) => header.has_time || has_module(),
            None => header.has_time && has_module(),
        }
    };
    let stacks_only = lines.first().is_some_and(|line| line.starts_with('\t') && is_frame(line));
    stacks_only || lines.windows(2).any(has_frame) || lines.iter().any(alone)
}

/// The functions, innermost first, of a frame that has an address, a symbol and a module.
pub(super) fn frame_names(line: &str) -> Option<Vec<String>> {
    let frame = frame::parse(line)?;
    (frame.module.is_some() && frame.is_named()).then(|| frame.names())
}

/// Reads all samples.
///
/// # Errors
/// `input` cannot be read.
pub(super) fn read(mut input: impl BufRead, roots: Roots) -> Result<Script, Error> {
    let mut parser = Parser { roots, ..Parser::default() };
    let mut bytes = Vec::new();
    for number in 1.. {
        bytes.clear();
        if input.read_until(b'\n', &mut bytes).map_err(Error::Read)? == 0 {
            break;
        }
        parser.take(number, &String::from_utf8_lossy(&bytes));
    }
    parser.end_sample();
    Ok(parser.script)
}

/// A sample whose lines are being read.
struct Open {
    event: usize,
    root: String,
    period: Option<u64>,
    /// The frame at the end of the header, used if none follows.
    inline: Vec<String>,
}

#[derive(Default)]
struct Parser {
    roots: Roots,
    script: Script,
    /// Positions in the script's events, by names with modifiers.
    events: HashMap<String, usize>,
    open: Option<Open>,
    /// Frames of the open sample, leaf first.
    frames: Vec<String>,
    /// Names of frames by the text after the address, so that each is cleaned up only once.
    names: HashMap<String, Vec<String>>,
    stack: String,
}

/// Maximum number of cached names: more than a program has functions, but a limit for hostile input.
const MOST_NAMES: usize = 1 << 20;

impl Parser {
    fn take(&mut self, number: u64, line: &str) {
        if line.starts_with('#') {
            return;
        }
        let text = line.trim_end();
        // `--show-mmap-events` and the like write records between the samples.
        if text.trim_start().is_empty() || !line.starts_with('\t') && text.contains(" PERF_RECORD_") {
            self.end_sample();
            return;
        }
        // Without -g, commands are aligned to the right; a frame has no time, and its line begins with a tab.
        let indented = line.starts_with(char::is_whitespace);
        let header = (!indented || !line.starts_with('\t')).then(|| Header::parse(text));
        let header = header.filter(|header| !indented || header.has_time);
        match header {
            Some(header) => self.begin_sample(&header),
            // Without any field for the header, a stack begins a sample.
            None if self.open.is_none() && frame::parse(text).is_some_and(|frame| frame.is_named()) => {
                self.begin_sample(&Header::default());
                self.push_frame(text);
            }
            None if self.open.is_some() && self.push_frame(text) => {}
            None if self.open.is_some() && !self.frames.is_empty() && frame::is_detail(text) => {}
            None => {
                self.script.skipped.add(number);
            }
        }
    }

    fn begin_sample(&mut self, header: &Header<'_>) {
        self.end_sample();
        let full = header.event.unwrap_or_default();
        let event = match self.events.get(full) {
            Some(event) => *event,
            None => self.new_event(full),
        };
        let root = self.root(header);
        let inline = header.frame().map(|frame| frame.names()).unwrap_or_default();
        self.open = Some(Open { event, root, period: header.period, inline });
    }

    fn new_event(&mut self, full: &str) -> usize {
        let name = short(full);
        let known = self.script.events.iter().position(|event| event.name == name);
        let at = known.unwrap_or_else(|| {
            self.script.events.push(Event { name: name.to_owned(), ..Event::default() });
            self.script.events.len() - 1
        });
        self.events.insert(full.to_owned(), at);
        at
    }

    /// Returns the frames below the stack.
    fn root(&self, header: &Header<'_>) -> String {
        let command = clean(if header.command.is_empty() { "[unknown]" } else { header.command });
        let thread = match header.tid {
            Some(tid) if self.roots.thread => format!("[{command} tid={tid}]"),
            _ => command,
        };
        match header.pid.or(header.tid) {
            Some(pid) if self.roots.process => format!("[process {pid}];{thread}"),
            _ => thread,
        }
    }

    fn push_frame(&mut self, text: &str) -> bool {
        let Some(frame) = frame::parse(text) else { return false };
        if let Some(names) = self.names.get(frame.text) {
            self.frames.extend_from_slice(names);
            return true;
        }
        let names = frame.names();
        self.frames.extend_from_slice(&names);
        if frame.is_named() && self.names.len() < MOST_NAMES {
            self.names.insert(frame.text.to_owned(), names);
        }
        true
    }

    fn end_sample(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        if self.frames.is_empty() {
            self.frames.append(&mut open.inline);
        }
        let event = &mut self.script.events[open.event];
        event.samples += 1;
        event.no_stack += u64::from(self.frames.is_empty());
        event.has_periods |= open.period.is_some();
        self.stack.clear();
        self.stack.push_str(&open.root);
        for frame in self.frames.drain(..).rev() {
            self.stack.push(';');
            self.stack.push_str(&frame);
        }
        let weight = match event.stacks.get_mut(&self.stack) {
            Some(weight) => weight,
            None => event.stacks.entry(self.stack.clone()).or_default(),
        };
        weight.samples += 1;
        weight.period = weight.period.saturating_add(open.period.unwrap_or(1));
    }
}

/// The selected events and the unit of their weights.
pub(super) struct Chosen<'s> {
    events: Vec<&'s Event>,
    by_period: bool,
    /// Unit, as in [`Tree`](crate::tree::Tree).
    pub unit: Option<String>,
    /// Number of samples.
    pub samples: u64,
    /// Remarks for the user, one sentence each.
    pub notes: Vec<String>,
}

impl Script {
    /// Selects events by name. `cycles` also selects `cpu_core/cycles/` and `cpu_atom/cycles/`. Without names, it selects the event of the
    /// first sample.
    ///
    /// # Errors
    /// The script has no sample of one of the events.
    pub fn choose(&self, asked: &[impl AsRef<str>]) -> Result<Chosen<'_>, Error> {
        let called = |event: &Event, name: &str| base(&event.name) == base(short(name));
        let exact = |name: &str| self.events.iter().any(|event| event.name == name);
        let is =
            |event: &Event, name: &str| if exact(name) { event.name == name } else { called(event, name) };
        let mut notes = Vec::new();
        let events: Vec<&Event> = if asked.is_empty() {
            let first = self.events.first().map_or("", |event| base(&event.name));
            self.events.iter().filter(|event| base(&event.name) == first).collect()
        } else {
            if let Some(asked) =
                asked.iter().find(|asked| !self.events.iter().any(|event| is(event, asked.as_ref())))
            {
                let present = self.events.iter().map(|event| event.name.clone()).collect();
                return Err(Error::NoSuchEvent { asked: asked.as_ref().to_owned(), present });
            }
            self.events.iter().filter(|event| asked.iter().any(|asked| is(event, asked.as_ref()))).collect()
        };
        let samples = events.iter().map(|event| event.samples).sum();
        if asked.is_empty() && events.len() < self.events.len() {
            let is_chosen = |event: &&Event| events.iter().any(|chosen| chosen.name == event.name);
            let shown = counts(self.events.iter().filter(is_chosen));
            let others = counts(self.events.iter().filter(|event| !is_chosen(event)));
            notes.push(format!("shown: {shown}; -e NAME selects another event: {others}"));
        }
        let mut bases: Vec<&str> = events.iter().map(|event| base(&event.name)).collect();
        bases.dedup();
        let periods = events.iter().any(|event| event.has_periods);
        let by_period = periods && bases.len() == 1;
        if periods && bases.len() > 1 {
            notes.push(format!("counting samples, because {} count different things", bases.join(" and ")));
        }
        let unit = bases.first().filter(|_| by_period).map(|base| event::unit(base).to_owned());
        let no_stack: u64 = events.iter().map(|event| event.no_stack).sum();
        if no_stack > 0 {
            notes.push(format!("{no_stack} of {samples} samples have no stack"));
        }
        notes.extend(self.skipped.note("lines that perf script does not write"));
        Ok(Chosen { events, by_period, unit, samples, notes })
    }
}

/// `cycles (1000), instructions (77)`
fn counts<'e>(events: impl Iterator<Item = &'e Event>) -> String {
    let counts: Vec<String> = events.map(|event| format!("{} ({})", event.name, event.samples)).collect();
    counts.join(", ")
}

impl Chosen<'_> {
    /// Returns the samples as folded text with the command as the root. Suffixes mark kernel code
    /// (`_[k]`), code generated at run time (`_[j]`) and inlined functions (`_[i]`).
    pub fn folded(&self) -> Result<Vec<u8>, Error> {
        let mut text = Vec::new();
        for (stack, weight) in self.events.iter().flat_map(|event| &event.stacks) {
            let weight = if self.by_period { weight.period } else { weight.samples };
            writeln!(text, "{stack} {weight}").map_err(Error::Write)?;
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests;
