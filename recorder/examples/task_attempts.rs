//! A job like those of Hive on Tez or Spark: two vertices of twelve tasks, whose attempts share the threads
//! of one process, each in its own [`Recorder::scope`]. One attempt is slow although it has no more records
//! than others; its stacks show why. One attempt fails and is retried.
//!
//! ```text
//! cargo run --release -p flightline-recorder --example task_attempts -- job.jfr tasks.csv
//! flightline spans job.jfr --by label=attempt          the time of each attempt
//! flightline flame job.jfr --label task=TASK           a flame graph of one task
//! ```
//! Usage: task_attempts [--size RECORDS] [--events LIST] [--in-process] RECORDING TASKS.csv. With `-` for
//! RECORDING, another recorder records the program. The table can be joined with the samples, which have
//! application, vertex, task, attempt and host as labels.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, fs, process, thread};

use flightline_recorder::{Recorder, Scope};

const SESSION: &str = "session_1763856000000";
const APPLICATION: &str = "application_1763856000000_0042";
const DAG: &str = "dag_1763856000000_0042_1";
const TASKS: usize = 12;
const WORKERS: usize = 4;
const HOSTS: [&str; 3] = ["node-1", "node-2", "node-3"];
/// Limit of attempts of a task before the job fails.
const ATTEMPTS: usize = 4;
/// The task of the first vertex whose records are the worst case for its pattern.
const SLOW_TASK: usize = 7;
/// The task of the second vertex whose first attempt reads a damaged block.
const FAILING_TASK: usize = 5;
/// The pattern for pages. Matching tries all positions for each star.
const CART_PAGES: &[u8] = b"*/cart/*item=*&*ref=*";

/// Key and value.
type Record = (u64, u64);

/// A task of a vertex: its input and its function.
struct Task<'a> {
    vertex: usize,
    number: usize,
    work: &'a (dyn Fn(usize, usize, &Scope) -> Result<Output, String> + Sync),
}

struct Output {
    input_records: usize,
    partitions: Vec<Vec<Record>>,
}

/// A line of the table.
struct Row {
    task: String,
    attempt: String,
    vertex: &'static str,
    host: &'static str,
    start: SystemTime,
    took: Duration,
    state: &'static str,
    input_records: usize,
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

/// Writes the page of a record, as in a web server's log.
fn page_of(random: &mut Random, slow: bool, page: &mut String) {
    page.clear();
    let (user, item) = (random.next() % 5000, random.next() % 900);
    let written = if slow && user < 25 {
        // A crawler's page: many possible matches for each star, but no match at the end.
        write!(page, "/shop{}ref", "/cart/item=1&".repeat(26))
    } else {
        write!(page, "/shop/{user}/cart/add?item={item}&from=list&ref=mail")
    };
    written.expect("a text has room");
}

/// Returns true if a pattern matches. It uses backtracking, so each star multiplies the positions to try.
#[inline(never)]
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, rest) => rest.is_none(),
        (Some((b'*', after)), rest) => {
            fits(after, text) || rest.is_some_and(|(_, text)| black_box(fits(pattern, text)))
        }
        (Some((wanted, pattern)), Some((byte, text))) => wanted == byte && fits(pattern, text),
        (Some(_), None) => false,
    }
}

#[inline(never)]
fn parse_pages(records: usize, number: usize, slow: bool) -> Vec<Record> {
    let mut random = Random(number as u64);
    let mut page = String::new();
    let mut found = Vec::new();
    for record in 0..records {
        page_of(&mut random, slow, &mut page);
        if fits(CART_PAGES, page.as_bytes()) {
            let key = page.bytes().fold(7u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
            found.push((key, record as u64));
        }
    }
    found
}

#[inline(never)]
fn sort_and_spill(mut records: Vec<Record>) -> Vec<Vec<Record>> {
    records.sort_by_key(|(key, _)| key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut partitions = vec![Vec::new(); TASKS];
    for record in records {
        partitions[(record.0 % TASKS as u64) as usize].push(record);
    }
    partitions
}

#[inline(never)]
fn merge_partition(records: &[Record]) -> BTreeMap<u64, u64> {
    let mut sums = BTreeMap::new();
    for round in 0..4u64 {
        for (key, value) in records {
            *sums.entry(key % 100_000 + round).or_insert(0u64) += black_box(value ^ round);
        }
    }
    sums
}

/// A step of an attempt: its samples have one more label.
#[inline(never)]
fn fetch(records: &[Record]) -> BTreeMap<u64, u64> {
    let _step = Recorder::scope([("step", "fetch")]);
    black_box(merge_partition(records))
}

/// Merges half of it on a helper thread, which enters the attempt's scope too.
fn reduce(records: &[Record], damaged: bool, attempt: &Scope) -> Result<Output, String> {
    let (here, there) = records.split_at(records.len() / 2);
    let sums = thread::scope(|threads| {
        let helper = threads.spawn(move || {
            let _inside = attempt.enter();
            fetch(there)
        });
        let mut sums = merge_partition(here);
        let fetched = helper.join().map_err(|_| "the helper's thread panicked".to_owned())?;
        if damaged {
            return Err("a block of the shuffle has a wrong checksum".to_owned());
        }
        fetched.into_iter().for_each(|(key, sum)| *sums.entry(key).or_insert(0) += sum);
        Ok(sums)
    })?;
    Ok(Output { input_records: records.len(), partitions: vec![sums.into_iter().collect()] })
}

/// Runs an attempt of a task completely in its scope.
fn attempt(task: &Task<'_>, number: usize, host: &'static str) -> (Row, Option<Output>) {
    let vertex = ["Map 1", "Reducer 2"][task.vertex];
    let id = format!("{}_{:02}_{:06}", DAG.trim_start_matches("dag_"), task.vertex, task.number);
    let (task_id, attempt_id) = (format!("task_{id}"), format!("attempt_{id}_{number}"));
    let labels = [
        ("session", SESSION),
        ("application", APPLICATION),
        ("dag", DAG),
        ("vertex", vertex),
        ("task", &task_id),
        ("attempt", &attempt_id),
        ("host", host),
    ];
    let (start, clock) = (SystemTime::now(), Instant::now());
    let scope = Recorder::scope(labels);
    let result = (task.work)(task.number, number, &scope);
    drop(scope);
    let (state, output) = match result {
        Ok(output) => ("SUCCEEDED", Some(output)),
        Err(problem) => {
            eprintln!("{attempt_id}: {problem}");
            ("FAILED", None)
        }
    };
    let input_records = output.as_ref().map_or(0, |output| output.input_records);
    let took = clock.elapsed();
    (Row { task: task_id, attempt: attempt_id, vertex, host, start, took, state, input_records }, output)
}

/// Runs a vertex's tasks on the pool, and queues failed ones again. Returns the outputs by task.
fn run_vertex(tasks: &[Task<'_>], rows: &Mutex<Vec<Row>>) -> Result<Vec<Output>, String> {
    let queue: Mutex<VecDeque<(usize, usize)>> = Mutex::new((0..tasks.len()).map(|task| (task, 0)).collect());
    let outputs: Mutex<BTreeMap<usize, Output>> = Mutex::default();
    let lock = || queue.lock().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|pool| {
        for worker in 0..WORKERS {
            let (lock, outputs) = (&lock, &outputs);
            let work = move || {
                loop {
                    let Some((number, tried)) = lock().pop_front() else { break };
                    let (row, output) = attempt(&tasks[number], tried, HOSTS[worker % HOSTS.len()]);
                    rows.lock().unwrap_or_else(PoisonError::into_inner).push(row);
                    match output {
                        Some(output) => {
                            outputs.lock().unwrap_or_else(PoisonError::into_inner).insert(number, output);
                        }
                        None if tried + 1 < ATTEMPTS => lock().push_back((number, tried + 1)),
                        None => {}
                    }
                }
            };
            let spawned = thread::Builder::new().name(format!("worker-{worker}")).spawn_scoped(pool, work);
            spawned.map_err(|e| format!("start a worker: {e}"))?;
        }
        Ok::<(), String>(())
    })?;
    let outputs: Vec<Output> =
        outputs.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect();
    if outputs.len() == tasks.len() { Ok(outputs) } else { Err("a task failed in all attempts".into()) }
}

fn run_job(size: usize, rows: &Mutex<Vec<Row>>) -> Result<usize, String> {
    let map = |number: usize, _: usize, _: &Scope| {
        let found = parse_pages(size, number, number == SLOW_TASK);
        Ok(Output { input_records: size, partitions: sort_and_spill(found) })
    };
    let vertex =
        |vertex, work| (0..TASKS).map(|number| Task { vertex, number, work }).collect::<Vec<Task<'_>>>();
    let maps = run_vertex(&vertex(0, &map), rows)?;
    let inputs: Vec<Vec<Record>> =
        (0..TASKS).map(|n| maps.iter().flat_map(|map| map.partitions[n].iter().copied()).collect()).collect();
    let reduce = |number: usize, tried: usize, attempt: &Scope| {
        reduce(&inputs[number], number == FAILING_TASK && tried == 0, attempt)
    };
    let reduced = run_vertex(&vertex(1, &reduce), rows)?;
    Ok(reduced.iter().flat_map(|output| &output.partitions).map(Vec::len).sum())
}

fn table(rows: &mut [Row]) -> String {
    rows.sort_by(|a, b| a.attempt.cmp(&b.attempt));
    let mut table =
        "application,vertex,task,attempt,host,start_ms,end_ms,seconds,state,input_records\n".to_owned();
    for Row { task, attempt, vertex, host, start, took, state, input_records } in rows {
        let since = start.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (from, to, seconds) = (since.as_millis(), (since + *took).as_millis(), took.as_secs_f64());
        let line = format!(
            "{APPLICATION},{vertex},{task},{attempt},{host},{from},{to},{seconds:.3},{state},{input_records}\n"
        );
        table.push_str(&line);
    }
    table
}

fn main() {
    if let Err(problem) = job() {
        eprintln!("task_attempts: {problem}");
        process::exit(1);
    }
}

fn job() -> Result<(), String> {
    let (mut size, mut events, mut in_process, mut places) =
        (400_000, "cpu@5ms".to_owned(), false, Vec::new());
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--size" => size = value()?.parse().map_err(|e| format!("--size: {e}"))?,
            "--events" => events = value()?,
            "--in-process" => in_process = true,
            _ => places.push(argument),
        }
    }
    let [recording, tasks] = &places[..] else {
        return Err(
            "usage: task_attempts [--size RECORDS] [--events LIST] [--in-process] RECORDING|- TASKS.csv"
                .into(),
        );
    };
    let recorded = match recording.as_str() {
        "-" => None,
        path => {
            let builder = Recorder::builder().events(&events).map_err(|e| e.to_string())?.output(path);
            let builder = if in_process { builder.in_process() } else { builder };
            Some(builder.start().map_err(|e| e.to_string())?)
        }
    };
    let rows = Mutex::default();
    let result = run_job(size, &rows);
    let mut rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
    fs::write(tasks, table(&mut rows)).map_err(|e| format!("write {tasks}: {e}"))?;
    if let Some(recorded) = recorded {
        recorded.stop().map_err(|e| e.to_string())?;
    }
    let keys = result?;
    let slowest = rows.iter().max_by_key(|row| row.took).ok_or("there is no attempt")?;
    println!(
        "{} attempts, {keys} keys; the slowest: {}, {:.2} s",
        rows.len(),
        slowest.attempt,
        slowest.took.as_secs_f64()
    );
    Ok(())
}
