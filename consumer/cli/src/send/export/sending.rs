//! `export --send`: sends files at the receiver's speed, and streams in real time regardless of the receiver.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use flightline_consumer::live::Item;
use flightline_export::hdps::{Part, Rows};
use flightline_export::send::{Request, Sender, Settings, Signal, Target};
use flightline_export::{Collector, Counts, Inferring, otlp};
use flightline_recorder::stream::Address;

use super::following::{follow, followed};
use super::{ExportArgs, read, report_left_out};
use crate::Outcome;
use crate::diagnostics::{self, shown};
use crate::signals::Signals;

/// Number of samples at which a batch is sent.
const MANY: usize = 50_000;

/// State of sending.
struct Sending {
    sender: Sender,
    collector: Collector,
    /// Rows, instead of collected profiles.
    rows: Option<Rows>,
    inferring: Option<Inferring>,
    most_bytes: usize,
    /// Files can wait for the receiver; the writer of a stream cannot.
    waits: bool,
    counts: Counts,
}

impl Sending {
    fn take(&mut self, item: &Item) {
        if let Some(rows) = &mut self.rows {
            let full = rows.take(item);
            return self.hand_over_rows(full);
        }
        self.collector.take(item);
        if let Some(inferring) = &mut self.inferring {
            inferring.take(item);
        }
    }

    fn hand_over_rows(&mut self, part: Option<Part>) {
        let Some((body, count)) = part else { return };
        self.counts.samples += count;
        self.hand_over(Request { signal: Signal::Rows, body, count });
    }

    fn hand_over(&self, request: Request) {
        if self.waits {
            self.sender.put(request);
        } else {
            // The sender counts requests that exceed its queue.
            self.sender.offer(request);
        }
    }

    /// Sends the collected data and starts a new batch.
    fn cut(&mut self, last: bool) {
        if let Some(rows) = &mut self.rows {
            let rest = rows.cut();
            return self.hand_over_rows(rest);
        }
        if let Some(inferring) = &mut self.inferring {
            inferring.give(&mut self.collector, last);
        }
        let batch = if last { self.collector.finish() } else { self.collector.cut() };
        let counts = batch.counts();
        self.counts.samples += counts.samples;
        self.counts.in_spans += counts.in_spans;
        self.counts.spans += counts.spans;
        self.counts.spans_without_trace += counts.spans_without_trace;
        let most = self.most_bytes;
        let hand_over = |signal, body, count| -> Result<(), Infallible> {
            self.hand_over(Request { signal, body, count });
            Ok(())
        };
        let Ok(()) = otlp::parts(&batch, most, |body, count| hand_over(Signal::Profiles, body, count));
        let Ok(()) = otlp::trace_parts(&batch, most, |body, count| hand_over(Signal::Traces, body, count));
    }

    fn report(&self) {
        self.sender.messages().iter().for_each(diagnostics::warning);
    }
}

/// Sends.
pub(super) fn run(args: &ExportArgs, target: &Target, collector: Collector) -> Result<Outcome> {
    // Set up signals before threads are started.
    let followed = followed(args)?;
    let ca_cert = args.ca_cert.as_ref().map(|path| {
        std::fs::read(path).with_context(|| format!("cannot read the certificate {}", shown(path)))
    });
    let queue = usize::try_from(args.queue_size).unwrap_or(usize::MAX);
    // The batch being filled counts towards the queue.
    let part = if target.is_fluentd() { target.most_bytes().min(queue / 2) } else { 0 };
    let settings = Settings {
        ca_cert: ca_cert.transpose()?,
        insecure: args.insecure,
        timeout: args.timeout,
        patience: args.patience,
        queue: queue - part,
        headers: args.headers.clone(),
        gzip: !args.no_gzip,
        shared_key: shared_key(args)?,
        ..Settings::default()
    };
    let settings = Settings { tag: args.tag.clone().unwrap_or(settings.tag), ..settings };
    let sender = Sender::new(target, settings).map_err(|problem| anyhow!(problem))?;
    let mut sending = Sending {
        sender,
        collector,
        rows: target.is_fluentd().then(|| Rows::new(args.attributes.clone(), part)),
        inferring: args.inferring(followed.is_some()),
        most_bytes: target.most_bytes(),
        waits: followed.is_none(),
        counts: Counts::default(),
    };
    let outcome = match &followed {
        Some((address, signals)) => stream(args, address, signals, &mut sending)?,
        None => read(args, |item, _| {
            sending.take(item);
            if sending.collector.len() >= MANY {
                sending.cut(false);
                sending.report();
            }
            Ok(())
        })?,
    };
    sending.cut(true);
    finish(args, target, sending, outcome)
}

fn shared_key(args: &ExportArgs) -> Result<Option<String>> {
    let Some(path) = &args.shared_key_file else { return Ok(None) };
    let key =
        std::fs::read_to_string(path).with_context(|| format!("cannot read the key {}", shown(path)))?;
    Ok(Some(key.trim_end_matches(['\r', '\n']).to_owned()))
}

/// Sends a stream.
fn stream(args: &ExportArgs, address: &Address, signals: &Signals, sending: &mut Sending) -> Result<Outcome> {
    let mut due = Instant::now() + args.every;
    follow(args, address, signals, args.every.min(Duration::from_secs(1)), |item| {
        let Some(item) = item else {
            sending.report();
            return Ok(());
        };
        let between = matches!(item, Item::ChunkStart(_) | Item::Segment(_));
        sending.take(item);
        let now = Instant::now();
        // Without segments, cut the batch anywhere.
        let late = now >= due + args.every;
        if between && now >= due || late || sending.collector.len() >= MANY {
            sending.cut(false);
            due = now + args.every;
        }
        Ok(())
    })
}

/// Waits until everything has been sent, and reports the result.
fn finish(args: &ExportArgs, target: &Target, sending: Sending, outcome: Outcome) -> Result<Outcome> {
    let Sending { sender, counts, collector, rows, .. } = sending;
    let (report, messages) = sender.finish(args.patience);
    let lost = report.failed + report.dropped;
    if report.requests == 0 && lost > 0 {
        let why = messages.last().map_or("the time limit was reached", String::as_str);
        bail!("cannot send; {lost} samples and spans are lost: {why}");
    }
    messages.iter().for_each(diagnostics::warning);
    if report.requests == 0 {
        diagnostics::warning("nothing to send");
        return Ok(outcome);
    }
    let Counts { samples, in_spans, spans, .. } = counts;
    let (requests, retries) = (report.requests, report.retries);
    match target.is_fluentd() {
        true => diagnostics::note(format_args!(
            "{target}: {} of {samples} samples acknowledged, in {requests} messages; {retries} retries",
            report.sent
        )),
        false => diagnostics::note(format_args!(
            "{target}: {samples} samples, {in_spans} of them in spans, and {spans} spans in {requests} messages; \
             {retries} retries"
        )),
    }
    report_left_out(&counts, &collector);
    let beyond = rows.map_or(0, |rows| rows.beyond());
    if beyond > 0 {
        diagnostics::warning(format_args!(
            "{beyond} samples are from before 1970 or after 2106, which Fluentd's timestamps cannot \
             represent; they have the first or last timestamp, and a correct start_time_millis"
        ));
    }
    if lost + report.rejected > 0 {
        diagnostics::warning(format_args!(
            "not delivered: {} samples and spans given up, {} dropped because the queue was full or time ran out, {} rejected",
            report.failed, report.dropped, report.rejected
        ));
        return Ok(Outcome::Partial);
    }
    Ok(outcome)
}
