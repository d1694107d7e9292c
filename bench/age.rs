//! Measures the age of events when a reader of the stream receives them. Reads standard input to its end and prints one JSON object.
//!
//! Ages are in ms by the wall clock, which the chunk header and the reader share:
//! `{"events": n, "p50": …, "p99": …, "p999": …, "max": …}`. The first second is excluded, because the recorder reads programs and
//! symbols in it.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use jfr_format::read::{Binding, Input, Item};

const EVENTS: &str = "jdk.ExecutionSample";
const WARM_NS: i64 = 1_000_000_000;

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut input = Input::stream(io::stdin().lock());
    let mut ages = Vec::new();
    let mut begun = None;
    let mut bindings: HashMap<u32, Option<(u64, Binding)>> = HashMap::new();
    while let Some(item) = input.next()? {
        let Item::Events(batch) = item else { continue };
        let chunk = batch.chunk();
        let binding = bindings.entry(chunk.index.0).or_insert_with(|| {
            let (_, class) = chunk.types.by_name(EVENTS)?;
            Some((class.id, Binding::new(chunk, class, &["startTime"])))
        });
        let Some((id, binding)) = binding else { continue };
        let now = now();
        for frame in batch.frames().filter(|frame| frame.type_id == *id) {
            let [start] = binding.values_in::<1>(chunk, &frame).map_err(|e| format!("{e:?}"))?;
            let at = chunk.epoch_nanos(start as i64);
            if at - *begun.get_or_insert(at) > WARM_NS {
                ages.push(now - at);
            }
        }
    }
    ages.sort_unstable();
    let at = |share: f64| {
        let index = (ages.len() as f64 * share) as usize;
        ages.get(index.min(ages.len().saturating_sub(1))).map_or(f64::NAN, |ns| *ns as f64 / 1e6)
    };
    println!(
        "{{\"events\": {}, \"p50\": {:.2}, \"p99\": {:.2}, \"p999\": {:.2}, \"max\": {:.2}}}",
        ages.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
    Ok(())
}
