//! Decodes every field of every event: `cargo run --release --example all_fields FILE…`
//!
//! Prints the events, their fields, and the UTF-16 lengths of all their strings, for comparison with other readers.

use std::hint::black_box;

use jfr_format::event::{StructRef, TextRef, Value, Visitor};
use jfr_format::read::{Field, Input, Item};

fn main() -> Result<(), jfr_format::error::Error> {
    for path in std::env::args_os().skip(1) {
        let mut events = 0u64;
        let mut sums = Sums::default();
        let mut input = Input::open(path.as_ref())?;
        while let Some(item) = input.next()? {
            match item {
                Item::Events(batch) => {
                    for event in batch.events() {
                        events += 1;
                        event.accept(&mut sums)?;
                    }
                }
                Item::Warning(warning) => eprintln!("{}: {warning}", path.display()),
                _ => {}
            }
        }
        println!("{events} {} {}", sums.fields, sums.chars);
    }
    Ok(())
}

#[derive(Default)]
struct Sums {
    fields: u64,
    chars: u64,
}

impl<'a> Visitor<'a> for Sums {
    #[inline]
    fn integer(&mut self, _: &'a Field, value: i64) {
        self.fields += 1;
        black_box(value);
    }

    #[inline]
    fn boolean(&mut self, _: &'a Field, value: bool) {
        self.fields += 1;
        black_box(value);
    }

    #[inline]
    fn text(&mut self, _: &'a Field, text: TextRef<'a>) {
        self.fields += 1;
        self.chars += text.utf16_len() as u64;
    }

    #[inline]
    fn record(&mut self, _: &'a Field, record: StructRef<'a>) {
        self.fields += 1;
        black_box(&record);
    }

    #[inline]
    fn other(&mut self, _: &'a Field, value: Value<'a>) {
        self.fields += 1;
        black_box(&value);
    }
}
