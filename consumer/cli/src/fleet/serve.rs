//! `flightline serve`: the profiling service.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum, ValueHint};
use flightline_export::send::Target;
use flightline_recorder::settings::units::{bytes, duration};
use flightline_service::forward::{Destination, Kind};
use flightline_service::local::Agents;
use flightline_service::log::{self, Level, Log};
use flightline_service::profile_store::StoreSettings;
use flightline_service::server::{self, Tls};
use flightline_service::settings::Settings;

use crate::args::help;
use crate::fleet::store::engine;
use crate::{Outcome, diagnostics};

pub mod token;

pub const EXAMPLES: &str = "\
Examples:
  flightline serve --profiling --local                                profile processes of this machine; prints the URL
  flightline agent --join http://127.0.0.1:7070 -p redis-server       add a process as a target
  flightline remote targets; flightline remote profile redis-server --duration 30s -o redis.html
  curl -d '{\"mode\":\"CPU\",\"duration\":30}' http://127.0.0.1:7070/v1/targets/ID/runs
  flightline serve --store DIR                                        show a profile store (flightline store add)
  flightline serve --profiling --listen 0.0.0.0:7070 --token-file token --tls-cert cert.pem --tls-key key.pem

Without --profiling, profiles cannot be requested. Every request needs the service's token. It is \
created at the first start and stored in the service's directory. The printed URL contains it; \
`flightline agent` and `flightline remote` find it if they run as the same user. GET /openapi.json \
describes the API. /metrics is for Prometheus; /healthz and /readyz are for health checks.";

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Enable on-demand profiling
    #[arg(long)]
    profiling: bool,
    /// Offer the processes of this machine that the service's user may record; the service starts an agent
    /// for each selected one
    #[arg(long)]
    local: bool,
    /// Address to listen on
    #[arg(short, long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7070")]
    listen: SocketAddr,
    /// Directory for runs [default: flightline/serve in the user's state directory; for root
    /// /var/lib/flightline/serve]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: Option<PathBuf>,
    /// File whose first line is the token that every request must carry [default: `token` in --dir, created
    /// if missing]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    #[arg(help_heading = help::SECURITY)]
    token_file: Option<PathBuf>,
    /// File with a separate token for agents and for programs that push profiles: it is valid only for these,
    /// and the first token is not
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "no_token")]
    #[arg(help_heading = help::SECURITY)]
    agent_token_file: Option<PathBuf>,
    /// Accept all users of this machine without a token; only on the loopback
    #[arg(long, conflicts_with = "token_file")]
    #[arg(help_heading = help::SECURITY)]
    no_token: bool,
    /// Certificate chain (PEM): use TLS
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = ValueHint::FilePath)]
    #[arg(help_heading = help::SECURITY)]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = ValueHint::FilePath)]
    #[arg(help_heading = help::SECURITY)]
    tls_key: Option<PathBuf>,
    /// Additional host name of this service, besides localhost, if it has no token
    #[arg(long, value_name = "NAME")]
    #[arg(help_heading = help::SECURITY)]
    host: Vec<String>,
    /// Maximum duration of a run
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    #[arg(help_heading = help::LIMITS)]
    max_duration: Duration,
    /// Number of runs to keep per target; the oldest are removed
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    #[arg(help_heading = help::LIMITS)]
    history_size: u64,
    /// Maximum bytes of recordings to keep per target
    #[arg(long, value_name = "SIZE", default_value = "256m", value_parser = bytes)]
    #[arg(help_heading = help::LIMITS)]
    history_bytes: u64,
    /// Maximum bytes of a target's continuous profile
    #[arg(long, value_name = "SIZE", default_value = "64m", value_parser = bytes)]
    #[arg(help_heading = help::LIMITS)]
    window_size: u64,
    /// Maximum age of a continuous profile
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = duration)]
    #[arg(help_heading = help::LIMITS)]
    window_age: Duration,
    /// Maximum number of concurrent runs over all targets
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    #[arg(help_heading = help::LIMITS)]
    max_concurrent: u64,
    /// Maximum size of a recording
    #[arg(long, value_name = "SIZE", default_value = "128m", value_parser = bytes)]
    #[arg(help_heading = help::LIMITS)]
    max_recording: u64,
    /// Refuse runs if less disk space is free
    #[arg(long, value_name = "SIZE", default_value = "512m", value_parser = bytes)]
    #[arg(help_heading = help::LIMITS)]
    min_free: u64,
    /// Maximum number of targets
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    #[arg(help_heading = help::LIMITS)]
    max_targets: u64,
    /// Interval at which agents must report; after twice that a target counts as gone
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    #[arg(help_heading = help::LIMITS)]
    heartbeat: Duration,
    /// Forward agents' recordings, with labels, to this Pyroscope: http://HOST:4040 or https://HOST
    #[arg(long, value_name = "URL", value_parser = Target::pyroscope)]
    #[arg(help_heading = help::FORWARDING)]
    forward_pyroscope: Option<Target>,
    /// File with headers for it, one per line, such as `Authorization: Bearer …` or `X-Scope-OrgID: …`
    #[arg(long, value_name = "FILE", requires = "forward_pyroscope", value_hint = ValueHint::FilePath)]
    #[arg(help_heading = help::FORWARDING)]
    forward_pyroscope_headers: Option<PathBuf>,
    /// Forward agents' recordings to this receiver of OTLP profiles: http://HOST:4318, grpc://HOST:4317, with
    /// TLS https:// and grpcs://
    #[arg(long, value_name = "URL", value_parser = Target::parse)]
    #[arg(help_heading = help::FORWARDING)]
    forward_otlp: Option<Target>,
    /// File with headers for it, one per line
    #[arg(long, value_name = "FILE", requires = "forward_otlp", value_hint = ValueHint::FilePath)]
    #[arg(help_heading = help::FORWARDING)]
    forward_otlp_headers: Option<PathBuf>,
    /// Make this profile store available on the page: a directory, or a URL such as s3://bucket/path
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    store: Option<OsString>,
    /// Format of the log of targets, runs and requests: text, or one JSON object per line
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    #[arg(help_heading = help::ADVANCED)]
    log_format: LogFormat,
    /// Log level; debug includes every request
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "info")]
    #[arg(help_heading = help::ADVANCED)]
    log_level: LogLevel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

/// Serves until a signal.
pub fn run(args: &ServeArgs) -> Result<Outcome> {
    if args.no_token && !args.listen.ip().is_loopback() {
        bail!(
            "other machines can reach {}; --no-token is only allowed on the loopback, such as --listen 127.0.0.1:{}",
            args.listen,
            args.listen.port()
        );
    }
    let tls =
        args.tls_cert.clone().zip(args.tls_key.clone()).map(|(certificate, key)| Tls { certificate, key });
    if tls.is_none() && !args.listen.ip().is_loopback() && !args.is_json() {
        diagnostics::warning("without --tls-cert, the token and all recordings are sent unencrypted");
    }
    if args.heartbeat < Duration::from_secs(1) {
        bail!("--heartbeat must be at least 1s");
    }
    let log = args.log().context("cannot write a log")?;
    let as_json = args.is_json();
    let directory = match &args.dir {
        Some(directory) => directory.clone(),
        None => token::home()?,
    };
    let token_file = match &args.token_file {
        _ if args.no_token => None,
        Some(file) => Some(file.clone()),
        None => Some(token::make(&directory)?),
    };
    let token = token_file.as_deref().map(token::read).transpose()?;
    let agent_token = args.agent_token_file.as_deref().map(token::read).transpose()?;
    for warning in [&args.token_file, &args.agent_token_file]
        .into_iter()
        .flatten()
        .filter_map(|file| token::warning(file))
    {
        match as_json {
            true => log.write(Level::Warn, "token", &[("why", (&warning).into())]),
            false => diagnostics::warning(warning),
        }
    }
    if agent_token.is_some() && agent_token == token {
        bail!(
            "--agent-token-file and --token-file contain the same token, which would give agents and \
             viewers the same rights; use different tokens"
        );
    }
    let settings = Settings {
        profiling: args.profiling,
        max_duration: args.max_duration,
        history_size: usize::try_from(args.history_size)?,
        history_bytes: args.history_bytes,
        window_bytes: args.window_size,
        window_age: args.window_age,
        max_concurrent: usize::try_from(args.max_concurrent)?,
        min_free: args.min_free,
        max_recording: args.max_recording,
        heartbeat: args.heartbeat,
        max_targets: usize::try_from(args.max_targets)?,
        token: token.clone(),
        agent_token,
        hosts: args.host.clone(),
        log: log.clone(),
        forward: args.forward()?,
        store: args.store()?,
        ..Settings::default()
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let ready = |address: SocketAddr, unreadable: Vec<String>| {
        if as_json {
            let tell = |why: &String| log.write(Level::Warn, "history", &[("why", why.into())]);
            unreadable.iter().for_each(tell);
            return;
        }
        unreadable.iter().for_each(|why| diagnostics::warning(format_args!("{}/{why}", directory.display())));
        let off =
            if args.profiling { "" } else { "; on-demand profiling is off, enable it with --profiling" };
        // The terminal of the user who started the service may show the token; a log of the machine must not
        // contain it.
        let link = match (&token, &token_file) {
            (Some(token), _) if std::io::stderr().is_terminal() => format!("/#token={token}"),
            (_, Some(file)) => format!(", token in {}", file.display()),
            _ => ", without a token".to_owned(),
        };
        diagnostics::note(format_args!(
            "{scheme}://{address}{link}, history in {}{off}",
            directory.display()
        ));
    };
    let agents = args.agents(&log, token_file.as_deref())?;
    let served = server::serve_until_signal(args.listen, &directory, settings, tls.as_ref(), agents, ready);
    served.with_context(|| format!("cannot serve with {}", directory.display()))?;
    if !as_json {
        diagnostics::note("ended");
    }
    Ok(Outcome::Whole)
}

impl ServeArgs {
    /// Returns the receivers to forward recordings to.
    fn forward(&self) -> Result<Vec<Destination>> {
        let mut all = Vec::new();
        for (kind, target, file) in [
            (Kind::Pyroscope, &self.forward_pyroscope, &self.forward_pyroscope_headers),
            (Kind::Otlp, &self.forward_otlp, &self.forward_otlp_headers),
        ] {
            let Some(target) = target else { continue };
            let headers = file.as_deref().map(headers).transpose()?.unwrap_or_default();
            if !headers.is_empty() && !target.is_encrypted() && !self.is_json() {
                diagnostics::warning(format_args!("headers for {target} are sent unencrypted; use https://"));
            }
            all.push(Destination::new(kind, target.clone(), headers));
        }
        Ok(all)
    }

    /// Returns the store to query.
    fn store(&self) -> Result<Option<StoreSettings>> {
        let Some(store) = &self.store else { return Ok(None) };
        let is_url = store.to_str().is_some_and(|store| store.contains("://"));
        if !is_url && !Path::new(store).is_dir() {
            bail!(
                "--store: directory {} does not exist; create a store with `flightline store add`",
                store.display()
            );
        }
        Ok(Some(StoreSettings::new(engine()?, store.clone())))
    }

    /// Returns true if all output must be JSON lines.
    fn is_json(&self) -> bool {
        self.log_format == LogFormat::Json
    }

    fn log(&self) -> std::io::Result<Log> {
        let format = match self.log_format {
            LogFormat::Text => log::Format::Text,
            LogFormat::Json => log::Format::Json,
        };
        let level = match self.log_level {
            LogLevel::Error => Level::Error,
            LogLevel::Warn => Level::Warn,
            LogLevel::Info => Level::Info,
            LogLevel::Debug => Level::Debug,
        };
        Log::new(format, level, std::io::stderr())
    }

    /// Returns how to start agents for local processes.
    fn agents(&self, log: &Log, token_file: Option<&Path>) -> Result<Option<Agents>> {
        if !self.local {
            return Ok(None);
        }
        let program = std::env::current_exe().context("cannot find the flightline program")?;
        let mut arguments: Vec<OsString> = vec!["agent".into()];
        if let Some(file) = self.agent_token_file.as_deref().or(token_file) {
            arguments.extend(["--token-file".into(), file.into()]);
        }
        if let Some(certificate) = &self.tls_cert {
            arguments.extend(["--ca-file".into(), certificate.into()]);
        }
        Ok(Some(Agents { program, arguments, log: self.is_json().then(|| log.clone()) }))
    }
}

/// Reads headers from a file, one per line, since secrets must not appear on a command line.
fn headers(path: &Path) -> Result<Vec<(String, String)>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read headers of {}", path.display()))?;
    let mut headers = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once(':') {
            Some((name, value)) => headers.push((name.trim().to_lowercase(), value.trim().to_owned())),
            // Do not print the line, which may contain a secret.
            None => bail!("{}: line {number} is not a header; write `Name: value`", path.display()),
        }
    }
    Ok(headers)
}
