//! Follows a recorder and prints its samples as they arrive:
//! `flightline record -o unix:/run/user/1000/app.sock -- ./app`, then
//! `cargo run -p flightline-consumer --example follow -- unix:/run/user/1000/app.sock`.
//! Also: `tcp:HOST:PORT` (FLIGHTLINE_TOKEN), `fd:N`, a FIFO or file, `-` for standard input.

use flightline_consumer::live::{self, Item, Options};

fn main() -> std::io::Result<()> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "-".into());
    let mut stream = live::open(&name, Options { others: false, ..Options::default() })?;
    for item in stream.by_ref() {
        match item? {
            Item::Sample(sample) => {
                let thread = sample.thread.as_ref().map_or_else(String::new, |thread| thread.label());
                let frames = sample.stack.iter().flat_map(|stack| stack.frames.iter());
                let stack: Vec<&str> = frames.map(|frame| &*frame.function).collect();
                let kind = sample.variant.as_deref().unwrap_or(sample.kind.name());
                println!("{} {kind} {thread} {}", sample.time.epoch_nanos, stack.join(" < "));
            }
            Item::Loss(loss) => eprintln!("lost: {} ({:?} events)", loss.cause, loss.events),
            Item::Warning(warning) => eprintln!("{warning}"),
            _ => {}
        }
    }
    eprintln!("{:?}", stream.stats());
    Ok(())
}
