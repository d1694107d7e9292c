//! `flightline store maintain`

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use flightline_consumer::amount::bytes;
use flightline_store::maintain::{Done, Maintainer, Options};
use flightline_store::storage::Storage;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::MaintainArgs;
use crate::output;

/// Runs the maintenance.
pub async fn run(args: &MaintainArgs) -> Result<()> {
    let place = Storage::open(&args.store)?;
    let options = Options {
        sums: args.sums.iter().map(|sums| sums.table()).collect(),
        labels: if args.labels.is_empty() { None } else { Some(args.labels.clone()) },
        files: args.files,
        younger: args.younger,
        keep: args.keep.iter().copied().collect(),
        dry_run: args.dry_run,
    };
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let signals = signals()?;
    tokio::spawn(async move {
        signals.await;
        stop.send_replace(true);
    });
    let stopped = || {
        let mut stopping = stopping.clone();
        async move {
            // If the sender is gone, wait forever.
            if stopping.wait_for(|stop| *stop).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        let done = Maintainer::new(place.clone(), options.clone(), now).run(stopped()).await?;
        if done.stopped {
            bail!("stopped before it was through; what was done is whole, and the next run goes on");
        }
        print_done(args, &done)?;
        let Some(every) = args.every else {
            return if done.failed.is_empty() {
                Ok(())
            } else {
                bail!("{} folders are left as they were", done.failed.len())
            };
        };
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = stopped() => return Ok(()),
        }
    }
}

/// Completes on SIGINT or SIGTERM.
fn signals() -> Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

fn print_done(args: &MaintainArgs, done: &Done) -> Result<()> {
    for failed in &done.failed {
        output::note(format_args!("warning: {} is left as it was", output::plain(failed)));
    }
    if args.json {
        let json = serde_json::json!({
            "summed_rows": done.summed,
            "compacted_files": done.compacted,
            "into_files": done.into,
            "expired_files": done.expired,
            "expired_bytes": done.expired_bytes,
            "failed": done.failed,
            "notes": done.notes,
            "dry_run": args.dry_run,
        });
        return output::text(Path::new("-"), |out| Ok(writeln!(out, "{json}")?));
    }
    for note in &done.notes {
        output::note(output::plain(note));
    }
    let would = if args.dry_run { "would be: " } else { "" };
    output::note(format_args!(
        "{would}{} rows of sums made; {} files made {}; {} files removed, {}",
        done.summed,
        done.compacted,
        done.into,
        done.expired,
        bytes(done.expired_bytes)
    ));
    Ok(())
}
