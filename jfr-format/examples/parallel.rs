//! Counts events on all processors: `cargo run --release --example parallel FILE…`

use jfr_format::error::Error;
use jfr_format::read::{Delivery, Item, Recording, default_jobs};

fn main() -> Result<(), Error> {
    for path in std::env::args_os().skip(1) {
        let recording = Recording::open(path.as_ref())?;
        let mut events = 0;
        recording.run(
            Delivery::KeysOnly,
            default_jobs(),
            // On the threads, for each chunk …
            |decoder| {
                let mut events = 0;
                while let Some(item) = decoder.next() {
                    match item {
                        Item::ChunkEnd(end) => events += end.counts.events(),
                        Item::Warning(warning) => eprintln!("{warning}"),
                        _ => {}
                    }
                }
                events
            },
            // … and here, chunk after chunk.
            |of_chunk| {
                events += of_chunk;
                Ok::<(), Error>(())
            },
        )?;
        println!("{events} {}", path.display());
    }
    Ok(())
}
