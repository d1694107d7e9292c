//! Reads the allocation events of a recording.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use jfr_format::event::{EventRef, Value};
use jfr_format::read::{Input, Item};

/// A `profiler.Malloc` or `flightline.LiveAllocation`.
#[derive(Clone, Debug)]
pub struct Block {
    /// Functions, leaf first.
    pub stack: Vec<String>,
    /// Kernel thread id.
    pub tid: i64,
    /// Ticks.
    pub time: i64,
    /// Address.
    pub address: i64,
    /// The requested size in bytes; in `profiler.Malloc`, the bytes that the sample represents.
    pub size: i64,
    /// The bytes that the sample represents.
    pub weight: i64,
    /// Age in ticks, of a live one.
    pub age: i64,
}

/// All allocation data of a recording.
#[derive(Clone, Debug, Default)]
pub struct Allocations {
    /// `profiler.Malloc`.
    pub sampled: Vec<Block>,
    /// `flightline.Allocation`: time, address, size, weight, function.
    pub exact: Vec<(i64, i64, i64, i64, String)>,
    /// `profiler.Free`: time and address.
    pub freed: Vec<(i64, i64)>,
    /// Allocations and frees in file order: time, address, true for an allocation.
    pub in_order: Vec<(i64, i64, bool)>,
    /// `flightline.LiveAllocation`.
    pub live: Vec<Block>,
    /// `flightline.LiveMemory`: its bytes as the weight, its number of allocations as the size.
    pub alive: Vec<Block>,
    /// `flightline.EventLoss` of any kind: its name and the number.
    pub lost: Vec<(String, i64)>,
}

impl Allocations {
    /// Reads a recording.
    #[track_caller]
    pub fn read(path: &Path) -> Allocations {
        let mut input = Input::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut all = Allocations::default();
        while let Some(item) = input.next().unwrap() {
            match item {
                Item::Events(batch) => batch.events().for_each(|event| all.take(&event)),
                Item::Warning(warning) => panic!("{}: {warning}", path.display()),
                Item::ChunkStart(_) | Item::ChunkEnd(_) => {}
            }
        }
        all
    }

    fn take(&mut self, event: &EventRef<'_>) {
        let long = |name: &str| event.field(name).unwrap().and_then(|v| v.as_i64()).unwrap_or(0);
        match &*event.class().name {
            "profiler.Malloc" => {
                self.in_order.push((long("startTime"), long("address"), true));
                self.sampled.push(Block { weight: long("size"), ..block(event) });
            }
            "flightline.LiveAllocation" => {
                self.live.push(Block { weight: long("weight"), age: long("age"), ..block(event) });
            }
            "flightline.LiveMemory" => self.alive.push(Block {
                weight: long("bytes"),
                size: long("allocations"),
                age: long("oldest"),
                stack: stack(event),
                time: long("startTime"),
                tid: 0,
                address: 0,
            }),
            "flightline.Allocation" => self.exact.push((
                long("startTime"),
                long("address"),
                long("size"),
                long("weight"),
                text(event, "function"),
            )),
            "profiler.Free" => {
                self.in_order.push((long("startTime"), long("address"), false));
                self.freed.push((long("startTime"), long("address")));
            }
            "flightline.EventLoss" => self.lost.push((text(event, "event"), long("count"))),
            _ => {}
        }
    }

    /// The addresses that are live at the end for a reader that sorts by time; events of one tick stay in
    /// file order.
    pub fn alive_by_time(&self) -> HashSet<i64> {
        let mut events = self.in_order.clone();
        events.sort_by_key(|(time, _, _)| *time);
        let mut alive = HashSet::new();
        for (_, address, allocated) in events {
            if allocated {
                alive.insert(address)
            } else {
                alive.remove(&address)
            };
        }
        alive
    }

    /// The bytes that the samples represent, by function anywhere in the stack.
    pub fn by_function(&self) -> BTreeMap<String, i64> {
        by_function(&self.sampled)
    }
}

/// The bytes that the blocks represent, by function anywhere in the stack.
pub fn by_function(blocks: &[Block]) -> BTreeMap<String, i64> {
    let mut sum: BTreeMap<String, i64> = BTreeMap::new();
    for block in blocks {
        for name in block.stack.iter().collect::<HashSet<_>>() {
            *sum.entry(name.clone()).or_default() += block.weight;
        }
    }
    sum
}

fn text(event: &EventRef<'_>, name: &str) -> String {
    event.field(name).unwrap().and_then(|v| v.text().unwrap()).unwrap_or_default().into_owned()
}

fn block(event: &EventRef<'_>) -> Block {
    let long = |name: &str| event.field(name).unwrap().and_then(|v| v.as_i64()).unwrap_or(0);
    let thread = event.field("eventThread").unwrap().and_then(|v| v.record().unwrap());
    let tid = thread.and_then(|t| t.field("osThreadId").unwrap()).and_then(|v| v.as_i64()).unwrap_or(0);
    Block {
        stack: stack(event),
        tid,
        time: long("startTime"),
        address: long("address"),
        size: long("size"),
        weight: 0,
        age: 0,
    }
}

fn stack(event: &EventRef<'_>) -> Vec<String> {
    let Some(trace) = event.field("stackTrace").unwrap().and_then(|v| v.record().unwrap()) else {
        return Vec::new();
    };
    let Some(Value::Array(frames)) = trace.field("frames").unwrap() else { return Vec::new() };
    let name = |frame: Value<'_>| {
        let method = frame.record().unwrap()?.field("method").unwrap()?.record().unwrap()?;
        Some(method.field("name").unwrap()?.text().unwrap()?.into_owned())
    };
    frames.iter().map(|frame| name(frame.unwrap()).unwrap_or_default()).collect()
}
