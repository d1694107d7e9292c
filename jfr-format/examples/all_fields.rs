//! Decodes every field of every event: `cargo run --release --example all_fields FILE…`
//!
//! Prints the events, their fields, and the UTF-16 lengths of all their strings, for comparison with other readers.

use jfr_format::event::Value;
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
                        for field in event.fields().iter() {
                            let (_, value) = field?;
                            fields += 1;
                            // References are followed, as a reader that shows the event would.
                            let value = std::hint::black_box(value.resolved()?);
                            if let Value::Text(text) = &value {
                                chars += utf16_len(text);
                            }
                        }
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

/// UTF-16 units: one for each first byte of a character, a second one for those of four bytes.
fn utf16_len(text: &str) -> u64 {
    text.bytes().map(|b| u64::from(b & 0xC0 != 0x80) + u64::from(b >= 0xF0)).sum()
}
