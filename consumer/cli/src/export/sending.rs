//! `export --send`: files as fast as the receiver takes them, streams in time, whatever the receiver does.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use flightline_consumer::live::{Choice, Item};
use flightline_export::hdps::Rows;
use flightline_export::send::{Request, Sender, Settings, Signal, Target};
use flightline_export::{Collector, Counts, Inferring, otlp};
use flightline_recorder::sink::stream::{Address, Token};

use super::{ExportArgs, READ, feed, read, take, tell_left_out};
use crate::signals::Signals;
use crate::stream::{self, Got, Stream};
use crate::talk::{self, shown};
use crate::{Outcome, range};

/// Samples that make a batch worth sending.
const MANY: usize = 50_000;

/// Batches on their way.
struct Sending {
    sender: Sender,
    collector: Collector,
    /// Instead of what is collected.
    rows: Option<Rows>,
    inferring: Option<Inferring>,
    most_bytes: usize,
    /// A file can wait; whoever writes a stream cannot.
    waits: bool,
    counts: Counts,
}

impl Sending {
    fn take(&mut self, item: &Item) {
        if let Some(rows) = &mut self.rows {
            return rows.take(item);
        }
        self.collector.take(item);
        if let Some(inferring) = &mut self.inferring {
            inferring.take(item);
        }
    }

    /// Samples that wait for the next message.
    fn len(&self) -> usize {
        self.rows.as_ref().map_or_else(|| self.collector.len(), Rows::len)
    }

    /// Sends what has been collected and begins anew.
    fn cut(&mut self, last: bool) {
        if let Some(rows) = &mut self.rows {
            for (body, count) in rows.cut() {
                self.counts.samples += count;
                let request = Request { signal: Signal::Rows, body, count };
                if self.waits {
                    self.sender.put(request);
                } else {
                    self.sender.offer(request);
                }
            }
            return;
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
        let (sender, waits, most) = (&self.sender, self.waits, self.most_bytes);
        let hand_over = |signal, body, count| -> Result<(), Infallible> {
            let request = Request { signal, body, count };
            if waits {
                sender.put(request);
            } else {
                // What has no room is counted by the sender.
                sender.offer(request);
            }
            Ok(())
        };
        let Ok(()) = otlp::parts(&batch, most, |body, count| hand_over(Signal::Profiles, body, count));
        let Ok(()) = otlp::trace_parts(&batch, most, |body, count| hand_over(Signal::Traces, body, count));
    }

    fn tell(&self) {
        self.sender.messages().iter().for_each(talk::warning);
    }
}

/// Sends.
pub(super) fn run(args: &ExportArgs, target: &Target, collector: Collector) -> Result<Outcome> {
    let address = match args.inputs.as_slice() {
        [only] => stream::address(only)?,
        _ => None,
    };
    // Signals are taken before there is another thread.
    let signals = address.is_some().then(Signals::of_user).transpose()?;
    let ca_cert = args.ca_cert.as_ref().map(|path| {
        std::fs::read(path).with_context(|| format!("cannot read the certificate {}", shown(path)))
    });
    let settings = Settings {
        ca_cert: ca_cert.transpose()?,
        insecure: args.insecure,
        timeout: args.timeout,
        patience: args.patience,
        queue: usize::try_from(args.queue_size).unwrap_or(usize::MAX),
        headers: args.headers.clone(),
        gzip: !args.no_gzip,
        tag: args.tag.clone(),
        shared_key: shared_key(args)?,
        ..Settings::default()
    };
    let sender = Sender::new(target, settings).map_err(|problem| anyhow!(problem))?;
    let mut sending = Sending {
        sender,
        collector,
        rows: target.is_fluentd().then(|| Rows::new(args.attributes.clone(), target.most_bytes())),
        inferring: args.inferring(address.is_some()),
        most_bytes: target.most_bytes(),
        waits: signals.is_none(),
        counts: Counts::default(),
    };
    let outcome = match (&address, &signals) {
        (Some(address), Some(signals)) => follow(args, address, signals, &mut sending)?,
        _ => read(args, |item, _| {
            sending.take(item);
            if sending.len() >= MANY {
                sending.cut(false);
                sending.tell();
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

/// Follows a stream to its end, or until a signal comes.
fn follow(args: &ExportArgs, address: &Address, signals: &Signals, sending: &mut Sending) -> Result<Outcome> {
    let path = &args.inputs[0];
    let token = Token::find(args.token_file.as_deref())?;
    let mut stream =
        Stream::open(address, token.as_ref()).with_context(|| format!("cannot open {}", shown(path)))?;
    let mut outcome = Outcome::Whole;
    let (mut feed, mut buffer) = (feed(args), vec![0; READ]);
    let mut choice = Choice::new(args.samples.filter(), range::nanos(&args.inputs, &args.samples)?);
    let mut due = Instant::now() + args.every;
    loop {
        let got = stream.read(&mut buffer, Some(signals), args.every.min(Duration::from_secs(1)));
        let got = got.with_context(|| format!("cannot read {}", shown(path)))?;
        match got {
            Got::Bytes(bytes) => feed.push(buffer.get(..bytes).unwrap_or_default()),
            Got::Nothing => {}
            Got::End => feed.close(),
        }
        take(&mut feed, path, &mut outcome, &mut choice, &mut |item, _| {
            let between = matches!(item, Item::ChunkStart(_) | Item::Segment(_));
            sending.take(item);
            let now = Instant::now();
            // What has no segments is cut where it is.
            let late = now >= due + args.every;
            if between && now >= due || late || sending.len() >= MANY {
                sending.cut(false);
                due = now + args.every;
            }
            Ok(())
        })?;
        sending.tell();
        if got == Got::End || signals.wait(Some(Duration::ZERO)).is_some() {
            return Ok(outcome);
        }
    }
}

/// Waits until what was handed over is sent, and says what became of all.
fn finish(args: &ExportArgs, target: &Target, sending: Sending, outcome: Outcome) -> Result<Outcome> {
    let Sending { sender, counts, collector, .. } = sending;
    let (report, messages) = sender.finish(args.patience);
    let lost = report.failed + report.dropped;
    if report.requests == 0 && lost > 0 {
        let why = messages.last().map_or("no time was left", String::as_str);
        bail!("nothing could be sent: {why}");
    }
    messages.iter().for_each(talk::warning);
    if report.requests == 0 {
        talk::warning("there was nothing to send");
        return Ok(outcome);
    }
    let Counts { samples, in_spans, spans, .. } = counts;
    talk::note(format_args!(
        "{target}: {samples} samples, {in_spans} of them in spans, and {spans} spans in {} messages; {} tries again",
        report.requests, report.retries
    ));
    tell_left_out(&counts, &collector);
    if lost + report.rejected > 0 {
        talk::warning(format_args!(
            "not taken: {} samples and spans given up, {} dropped as the queue was full or time was over, {} rejected",
            report.failed, report.dropped, report.rejected
        ));
        return Ok(Outcome::Partial);
    }
    Ok(outcome)
}
