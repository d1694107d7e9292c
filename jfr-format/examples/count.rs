//! Counts the events of recordings by type: `cargo run --release --example count FILE…`

use std::collections::BTreeMap;

use jfr_format::read::{Input, Item};

fn main() -> Result<(), jfr_format::error::Error> {
    for path in std::env::args_os().skip(1) {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        let mut input = Input::open(path.as_ref())?;
        while let Some(item) = input.next()? {
            match item {
                Item::ChunkEnd(end) => {
                    for (type_id, count) in end.counts.iter() {
                        let class = end.chunk.types.by_id(type_id);
                        let name = class.map_or_else(|| format!("type {type_id}"), |c| c.name.to_string());
                        *counts.entry(name).or_default() += count.events;
                    }
                }
                Item::Warning(warning) => eprintln!("{}: {warning}", path.display()),
                _ => {}
            }
        }
        for (name, count) in counts {
            println!("{count:>10} {name}");
        }
    }
    Ok(())
}
