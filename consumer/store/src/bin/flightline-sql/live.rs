//! `flightline store add --live`: adds a stream, one set of files at a time.

use std::time::Duration;

use anyhow::{Context, Result};
use flightline_consumer::live::{self, Item};
use flightline_store::write::{Added, Stream, Writer};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Capacity of the channel of items. When it is full, the reader waits for the store; the recorded program
/// never waits.
const ON_THE_WAY: usize = 4096;

/// Adds a stream until it ends or a signal arrives.
pub async fn run(writer: Writer, at: &str, every: Duration) -> Result<Added> {
    let options = writer.feed_options();
    let source = live::open(at, options).with_context(|| format!("cannot open {at}"))?;
    let (items, mut received) = mpsc::channel(ON_THE_WAY);
    let reader = std::thread::spawn(move || {
        for item in source {
            if items.blocking_send(item).is_err() {
                break;
            }
        }
    });
    let mut stream = Stream::begin(&writer, at);
    let mut added = Added::default();
    let mut due = Instant::now() + every;
    let ended = async { tokio::signal::ctrl_c().await.is_ok() };
    tokio::pin!(ended);
    loop {
        tokio::select! {
            item = received.recv() => match item {
                Some(item) => {
                    let item = item.with_context(|| format!("cannot read {at}"))?;
                    if let Item::Warning(warning) = &item {
                        crate::output::note(format_args!("warning: byte {}: {}", warning.offset, crate::output::plain(&warning.message)));
                    }
                    stream.take(&item);
                    if stream.full() {
                        stream.put(&mut added).await?;
                    }
                }
                None => break,
            },
            () = sleep_until(due) => {
                stream.put(&mut added).await?;
                due = Instant::now() + every;
            }
            _ = &mut ended => break,
        }
    }
    stream.put(&mut added).await?;
    drop(received);
    // A reader that is still blocked on its stream ends with the process.
    if reader.is_finished() {
        let _ = reader.join();
    }
    Ok(added)
}
