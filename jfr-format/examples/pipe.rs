//! Prints events as they come through a pipe: `… | cargo run --release --example pipe`
//!
//! The decoder does no I/O: bytes are pushed as they come, in pieces of any size.

use std::io::{Read, Write};

use jfr_format::event::Value;
use jfr_format::read::{Decoder, Delivery, Item};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut decoder = Decoder::new(Delivery::Streaming);
    let (mut stdin, mut stdout) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = stdin.read(&mut buffer)?;
        if read == 0 {
            decoder.close();
        } else {
            decoder.push(buffer[..read].to_vec().into());
        }
        print(&mut decoder, &mut stdout)?;
        if read == 0 {
            return Ok(());
        }
    }
}

/// All that can be decoded of what was pushed so far.
fn print(decoder: &mut Decoder, out: &mut impl Write) -> Result<(), Box<dyn std::error::Error>> {
    while let Some(item) = decoder.next() {
        match item {
            Item::Events(batch) => {
                for event in batch.events() {
                    write!(out, "{} {}", event.start_nanos().unwrap_or(0), event.class().name)?;
                    for field in event.fields().iter() {
                        match field? {
                            (field, Value::Reference(to)) => write!(out, " {}=#{}", field.name, to.key())?,
                            (field, Value::Text(text)) => write!(out, " {}={text:?}", field.name)?,
                            (field, value) => {
                                if let Some(number) = value.as_i64() {
                                    write!(out, " {}={number}", field.name)?;
                                }
                            }
                        }
                    }
                    writeln!(out)?;
                }
            }
            Item::Warning(warning) => eprintln!("{warning}"),
            _ => {}
        }
    }
    Ok(())
}
