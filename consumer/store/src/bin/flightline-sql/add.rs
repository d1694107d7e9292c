//! `flightline store add`

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use flightline_consumer::amount::bytes;
use flightline_store::storage::Storage;
use flightline_store::write::{Added, Options, Writer};
use futures::{StreamExt, TryStreamExt};
use jfr_format::read::Recording;

use crate::args::AddArgs;
use crate::output;

/// A recording that has not changed for this long is assumed to be complete.
const AT_REST: Duration = Duration::from_secs(60);
/// Maximum depth of the directory search.
const DEEPEST: usize = 8;

/// Adds recordings.
pub async fn run(args: &AddArgs) -> Result<()> {
    let place = Storage::create(&args.store)?;
    let options = Options {
        service: args.service.clone(),
        labels: args.labels.clone(),
        events: args.events.clone(),
        lines: !args.no_lines,
        unfinished: args.unfinished,
    };
    let begun = std::time::Instant::now();
    let added = match &args.live {
        Some(stream) => {
            let writer = Writer::new(place, options)?;
            crate::live::run(writer, stream, Duration::from_secs(args.every)).await?
        }
        None => recordings(args, place, options).await?,
    };
    print_added(args, &added, begun.elapsed())
}

async fn recordings(args: &AddArgs, place: Storage, options: Options) -> Result<Added> {
    let mut files = Vec::new();
    for path in &args.recordings {
        find(path, &mut files, DEEPEST)?;
    }
    if files.is_empty() {
        bail!("{} contains no recordings (*.jfr)", args.recordings[0].display());
    }
    let ended = Arc::new(Writer::new(place.clone(), options.clone())?);
    let any = Arc::new(Writer::new(place, Options { unfinished: true, ..options })?);
    let jobs = args.jobs.unwrap_or_else(jfr_format::read::default_jobs).max(1);
    let take = |file: PathBuf| {
        let (ended, any) = (ended.clone(), any.clone());
        let task = tokio::spawn(async move {
            let cannot = || format!("cannot take in {}", file.display());
            let metadata = fs::metadata(&file).with_context(cannot)?;
            let at_rest = metadata
                .modified()
                .ok()
                .and_then(|then| then.elapsed().ok())
                .is_some_and(|age| age >= AT_REST);
            let recording = Recording::open(&file).with_context(cannot)?;
            let mut added = Added::default();
            // A recording that has just been created is still empty.
            if recording.size() > 0 {
                let writer = if at_rest { any } else { ended };
                added = writer.add(recording.as_bytes()).await.with_context(cannot)?;
            }
            for warning in &mut added.warnings {
                *warning = format!("{}: {warning}", file.display());
            }
            anyhow::Ok(added)
        });
        async move { task.await? }
    };
    let mut done = futures::stream::iter(files).map(take).buffered(jobs);
    let mut all = Added::default();
    while let Some(added) = done.try_next().await? {
        all.add(added);
    }
    Ok(all)
}

/// Returns the file itself, or all *.jfr files in a directory and its subdirectories.
fn find(path: &Path, files: &mut Vec<PathBuf>, deepest: usize) -> Result<()> {
    let cannot = || format!("cannot read {}", path.display());
    if !fs::metadata(path).with_context(cannot)?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let entries: Result<Vec<_>, _> = fs::read_dir(path).with_context(cannot)?.collect();
    let mut entries = entries.with_context(cannot)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type().with_context(cannot)?;
        let path = entry.path();
        if kind.is_dir() && deepest > 0 {
            find(&path, files, deepest - 1)?;
        } else if kind.is_file() && path.extension().is_some_and(|ending| ending == "jfr") {
            files.push(path);
        }
    }
    Ok(())
}

fn print_added(args: &AddArgs, added: &Added, took: Duration) -> Result<()> {
    for warning in &added.warnings {
        output::note(format_args!("warning: {}", output::plain(warning)));
    }
    let more = added.warned.saturating_sub(added.warnings.len() as u64);
    if more > 0 {
        output::note(format_args!("warning: {more} more could not be read"));
    }
    if args.json {
        return output::text(Path::new("-"), |out| Ok(writeln!(out, "{}", json(added, took))?));
    }
    let mut text = format!(
        "{} samples and {} losses of {} chunks taken in, {} in {} files",
        added.rows,
        added.losses,
        added.chunks,
        bytes(added.bytes),
        added.files
    );
    if added.known > 0 {
        text += &format!("; {} chunks were there already", added.known);
    }
    if added.unfinished > 0 {
        text += &format!(
            "; {} left out that are being written (--unfinished takes them as they are)",
            added.unfinished
        );
    }
    output::note(text);
    Ok(())
}

fn json(added: &Added, took: Duration) -> serde_json::Value {
    serde_json::json!({
        "samples": added.rows,
        "losses": added.losses,
        "chunks": added.chunks,
        "chunks_known": added.known,
        "chunks_unfinished": added.unfinished,
        "files": added.files,
        "bytes": added.bytes,
        "warnings": added.warned,
        "seconds": took.as_secs_f64(),
    })
}
