//! `flightline store maintain`

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use flightline_consumer::amount::bytes;
use flightline_store::maintain::{Done, Maintainer, Options};
use flightline_store::place::Place;

use crate::args::MaintainArgs;
use crate::output;

/// Does what a store needs.
pub async fn run(args: &MaintainArgs) -> Result<()> {
    let place = Place::open(&args.store)?;
    let options = Options {
        sums: args.sums.iter().map(|sums| sums.table()).collect(),
        labels: if args.labels.is_empty() { None } else { Some(args.labels.clone()) },
        files: args.files,
        younger: args.younger,
        keep: args.keep.iter().copied().collect(),
        dry_run: args.dry_run,
    };
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
        let done = Maintainer::new(place.clone(), options.clone(), now).run().await?;
        told(args, &done)?;
        let Some(every) = args.every else {
            return if done.failed.is_empty() {
                Ok(())
            } else {
                bail!("{} folders are left as they were", done.failed.len())
            };
        };
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

fn told(args: &MaintainArgs, done: &Done) -> Result<()> {
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
