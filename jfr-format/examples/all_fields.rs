//! Decodes every field of every event: `cargo run --release --example all_fields FILE…`
//!
//! Prints the events, their fields, and the UTF-16 lengths of all their strings, for comparison with other readers.

use jfr_format::event::ValueRef;
use jfr_format::read::{Input, Item};

fn main() -> Result<(), jfr_format::error::Error> {
    for path in std::env::args_os().skip(1) {
        let (mut events, mut fields, mut chars) = (0u64, 0u64, 0u64);
        let mut input = Input::open(path.as_ref())?;
        while let Some(item) = input.next()? {
            match item {
                Item::Events(batch) => {
                    for event in batch.events() {
                        events += 1;
                        event.visit(|field| {
                            fields += 1;
                            // References are followed, as a reader that shows the event would.
                            let value = field.resolved();
                            match &value {
                                ValueRef::Text(text) => chars += text.utf16_len() as u64,
                                shown => drop(std::hint::black_box(shown)),
                            }
                        })?;
                    }
                }
                Item::Warning(warning) => eprintln!("{}: {warning}", path.display()),
                _ => {}
            }
        }
        println!("{events} {fields} {chars}");
    }
    Ok(())
}
