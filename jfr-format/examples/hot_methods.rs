//! The methods at the top of most samples: `cargo run --release --example hot_methods FILE…`
//!
//! Samples are added up by the key of their stack; each stack is looked up once, when its chunk ends.

use std::collections::HashMap;
use std::path::Path;

use jfr_format::error::Error;
use jfr_format::event::{self, Reference, Value};
use jfr_format::jfr_view;
use jfr_format::read::{Chunk, Delivery, Filter, Input, Item, StackReader, Views};

jfr_view! {
    /// Fields of a sample.
    struct Sample<'a>: "jdk.ExecutionSample" {
        stack: Option<Reference<'a>> = "stackTrace",
    }
}

#[allow(dead_code)] // a test uses the rest
fn main() -> Result<(), Error> {
    for path in std::env::args_os().skip(1) {
        let mut methods: Vec<(String, u64)> = hot_methods(path.as_ref())?.into_iter().collect();
        methods.sort_by_key(|(name, samples)| (std::cmp::Reverse(*samples), name.clone()));
        for (name, samples) in methods.iter().take(20) {
            println!("{samples:>8} {name}");
        }
    }
    Ok(())
}

/// Samples by the method at the top of the stack.
pub fn hot_methods(path: &Path) -> Result<HashMap<String, u64>, Error> {
    let mut input = Input::open_for(path, Delivery::KeysOnly)?;
    // Other events are passed over, and so are the constants of chunks that have no samples.
    input.decoder().set_filter(|class| match &*class.name {
        "jdk.ExecutionSample" => Filter::Constants,
        _ => Filter::Skip,
    });
    let mut views = Views::default();
    let (mut stacks, mut methods) = (HashMap::<u64, u64>::new(), HashMap::new());
    while let Some(item) = input.next()? {
        match item {
            Item::Events(batch) => {
                for event in batch.events() {
                    if let Some(Sample { stack: Some(stack) }) = views.read::<Sample>(&event)? {
                        *stacks.entry(stack.key()).or_default() += 1;
                    }
                }
            }
            Item::ChunkEnd(end) => {
                for (stack, samples) in stacks.drain() {
                    let name = top(end.chunk, stack)?.unwrap_or_else(|| "?".to_owned());
                    *methods.entry(name).or_default() += samples;
                }
            }
            Item::Warning(warning) => eprintln!("{}: {warning}", path.display()),
            Item::ChunkStart(_) => {}
        }
    }
    Ok(methods)
}

/// The method at the top of a stack.
fn top(chunk: &Chunk, stack: u64) -> Result<Option<String>, Error> {
    let (Some(stacks), Some((methods, _))) =
        (StackReader::new(chunk), chunk.types.by_name("jdk.types.Method"))
    else {
        return Ok(None);
    };
    let mut leaf = None;
    stacks.read(chunk, stack, |frame| {
        leaf.get_or_insert(frame.method);
    })?;
    let Some(leaf) = leaf else { return Ok(None) };
    let Some(Value::Struct(method)) = event::constant(chunk, methods, leaf, 0)? else { return Ok(None) };
    let name = method.field("name")?.map(Value::text).transpose()?.flatten();
    let class = match method.field("type")?.map(Value::record).transpose()?.flatten() {
        Some(class) => class.field("name")?.map(Value::text).transpose()?.flatten(),
        None => None,
    };
    Ok(name.map(|name| format!("{}.{name}", class.unwrap_or_default().replace('/', "."))))
}
