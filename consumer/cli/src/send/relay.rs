//! `flightline relay`: forwards one stream to many readers.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueHint};
use flightline_recorder::stream::{Address, StreamSink, Token};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};

use crate::args::stream::StreamArgs;
use crate::signals::Signals;
use crate::{Outcome, diagnostics, output};

pub const EXAMPLES: &str = "\
Examples:
  flightline record -o - -- ./server | flightline relay - -o unix:/run/user/1000/server.sock
  flightline relay unix:/run/user/1000/server.sock -o tcp:127.0.0.1:4711 --token-file token
  flightline relay tcp:127.0.0.1:4711 -o fifo -o unix:/tmp/x.sock --json

Each reader starts with the next chunk of the stream: after about a second if the input is a socket, \
because a new chunk can be requested, else after 15 s at most. A reader that falls too far behind skips \
to a later chunk and receives flightline.StreamLoss events with the number of lost events. Only the \
owner and root can connect to a Unix socket. TCP clients send the token and a newline first. The input \
is always read immediately. When it ends, readers have ten seconds to receive the rest.";

/// Read size in bytes.
const PIECE: usize = 256 << 10;
/// Maximum wait, after which FIFOs are checked again.
const PAUSE: Duration = Duration::from_millis(50);
/// Time for readers to receive the rest after the end of the input.
const REST: Duration = Duration::from_secs(10);

/// Interval between requests for a new chunk.
const KNOCK: Duration = Duration::from_secs(1);

/// Arguments of `relay`.
#[derive(Debug, Args)]
pub struct RelayArgs {
    /// The stream: `-` for standard input, fd:N, a FIFO, unix:PATH or tcp:HOST:PORT
    #[arg(value_name = "INPUT", value_hint = ValueHint::AnyPath)]
    input: PathBuf,
    /// Outputs for readers: unix:PATH, tcp:HOST:PORT, a FIFO, fd:N or `-` for standard output; repeatable
    #[arg(short, long, value_name = "OUTPUT", required = true, value_hint = ValueHint::AnyPath)]
    output: Vec<PathBuf>,
    /// At the end, print statistics of each output on standard output
    #[arg(long)]
    json: bool,
    /// tcp: as INPUT: the token to send is in this file [default: FLIGHTLINE_TOKEN]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    input_token_file: Option<PathBuf>,
    #[command(flatten)]
    stream: StreamArgs,
}

/// Why forwarding ended.
enum End {
    /// The input ended, between two chunks or within one.
    Input { whole: bool },
    /// A signal arrived.
    Signal,
    /// No output remains.
    Outputs,
}

/// Runs until the input ends or a signal arrives.
pub fn run(args: &RelayArgs) -> Result<Outcome> {
    let options = args.stream.options()?;
    let input = Address::parse(&args.input, 0)?;
    let mut sinks = Vec::new();
    for path in &args.output {
        let address = Address::parse(path, 1)?;
        if args.json && address == Address::Descriptor(1) {
            bail!("--json and the stream cannot both go to standard output; give another output with -o");
        }
        sinks.push(Some(StreamSink::at(&address, &options)?.relaying()));
    }
    let signals = Signals::deadly()?;
    let token = Token::find(args.input_token_file.as_deref())?.or(options.token);
    let mut source =
        input.connect(token.as_ref()).with_context(|| format!("cannot read the stream from {input}"))?;
    let knock = Knock { address: input.clone(), token, begun: None };
    let mut relay = Relay { sinks, gone: Vec::new(), bytes: 0, knock };
    let ended = relay.pass(&mut source, &input, &signals);
    for sink in relay.sinks.iter_mut().flatten() {
        sink.finish();
    }
    if !matches!(ended, Ok(End::Signal)) {
        relay.rest(&signals);
    }
    relay.notices();
    if args.json {
        let report = relay.report(&input);
        output::text("-".as_ref(), |out| writeln!(out, "{report}"))?;
    }
    Ok(match ended? {
        End::Input { whole: false } => {
            diagnostics::warning(format!(
                "{input} ended in the middle of a chunk; readers receive it as a complete chunk"
            ));
            Outcome::Partial
        }
        End::Outputs => {
            diagnostics::warning("all outputs are closed");
            Outcome::Partial
        }
        End::Input { whole: true } | End::Signal => Outcome::Whole,
    })
}

struct Relay {
    /// `None` once its only reader has disconnected.
    sinks: Vec<Option<StreamSink>>,
    /// Statistics of closed outputs.
    gone: Vec<Value>,
    bytes: u64,
    knock: Knock,
}

/// Requests a new chunk for readers that connect late. Whenever a client connects to the input, its recorder
/// starts a chunk, which all readers of the relay receive.
struct Knock {
    address: Address,
    token: Option<Token>,
    begun: Option<(Instant, JoinHandle<io::Result<std::fs::File>>)>,
}

impl Knock {
    /// Connects in a thread while a chunk is required, since that may block. The connection stays open until
    /// the chunk arrives.
    fn look(&mut self, wanted: bool) {
        if !wanted {
            self.begun = None;
            return;
        }
        let listens = matches!(self.address, Address::Unix(_) | Address::Tcp(_));
        let soon = self.begun.as_ref().is_some_and(|(since, _)| since.elapsed() < KNOCK);
        let waits = self.begun.as_ref().is_some_and(|(_, connecting)| !connecting.is_finished());
        if listens && !soon && !waits {
            let (address, token) = (self.address.clone(), self.token.clone());
            let connecting = thread::Builder::new().name("knock".into());
            let connecting = connecting.spawn(move || address.connect(token.as_ref()));
            self.begun = connecting.ok().map(|connecting| (Instant::now(), connecting));
        }
    }
}

impl Relay {
    fn pass(&mut self, source: &mut std::fs::File, input: &Address, signals: &Signals) -> Result<End> {
        let mut buffer = vec![0; PIECE];
        let mut whole = true;
        loop {
            let ready = self.wait(Some(source), PAUSE)?;
            if signals.wait(Some(Duration::ZERO)).is_some() {
                return Ok(End::Signal);
            }
            if ready {
                let len = match source.read(&mut buffer) {
                    Ok(0) => return Ok(End::Input { whole }),
                    Ok(len) => len,
                    Err(error)
                        if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) =>
                    {
                        0
                    }
                    Err(error) => return Err(error).with_context(|| format!("cannot read {input}")),
                };
                self.bytes += len as u64;
                for sink in self.sinks.iter_mut().flatten() {
                    let taken = sink.take(&buffer[..len]);
                    taken.with_context(|| format!("cannot forward the stream from {input}"))?;
                    whole = sink.is_at_chunk_end();
                }
            }
            self.push();
            let wanted = self.sinks.iter().flatten().any(StreamSink::wants_chunk);
            self.knock.look(wanted);
            self.notices();
            if self.sinks.iter().all(Option::is_none) {
                return Ok(End::Outputs);
            }
        }
    }

    /// Waits for activity; returns true if there is input.
    fn wait(&self, source: Option<&std::fs::File>, most: Duration) -> Result<bool> {
        let mut fds: Vec<PollFd<'_>> =
            source.iter().map(|file| PollFd::new(file.as_fd(), PollFlags::POLLIN)).collect();
        let (come, behind): (Vec<_>, Vec<_>) = self.sinks.iter().flatten().map(StreamSink::wakes).unzip();
        fds.extend(come.into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        fds.extend(behind.into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::POLLOUT)));
        match poll(&mut fds, PollTimeout::try_from(most).unwrap_or(PollTimeout::ZERO)) {
            Ok(_) => Ok(source.is_some() && fds[0].any().unwrap_or(true)),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error).context("cannot wait for readers"),
        }
    }

    fn push(&mut self) {
        for sink in &mut self.sinks {
            if let Some(open) = sink
                && let Err(error) = open.push()
            {
                diagnostics::warning(format!("{}: {error}", open.path().display()));
                self.gone.push(report(open));
                *sink = None;
            }
        }
    }

    /// Gives readers time to receive queued data.
    fn rest(&mut self, signals: &Signals) {
        let until = Instant::now() + REST;
        while self.sinks.iter().flatten().any(|sink| sink.waiting() > 0)
            && Instant::now() < until
            && signals.wait(Some(Duration::ZERO)).is_none()
        {
            if self.wait(None, PAUSE).is_err() {
                return;
            }
            self.push();
        }
    }

    fn notices(&mut self) {
        for sink in self.sinks.iter_mut().flatten() {
            sink.take_notices().into_iter().for_each(diagnostics::warning);
        }
    }

    fn report(&mut self, input: &Address) -> Value {
        let mut outputs = std::mem::take(&mut self.gone);
        outputs.extend(self.sinks.iter().flatten().map(report));
        json!({ "input": input.to_string(), "bytes": self.bytes, "outputs": outputs })
    }
}

fn report(sink: &StreamSink) -> Value {
    let status = sink.status();
    json!({
        "output": sink.path(),
        "readers": status.ever,
        "bytesWritten": status.accepted_bytes,
        "lost": { "bytes": status.lost.0, "events": status.lost.1 },
        "readByNobody": { "bytes": status.nobody.0, "events": status.nobody.1 },
    })
}
