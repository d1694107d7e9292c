//! Measures the resources that the profiling service uses with many agents. Each agent polls for commands and sends a chunk with unique
//! stacks every ten seconds, like eight busy threads at 99 Hz. At the same time, clients request lists, flame graphs, comparisons and runs.
//!
//! `cargo build --release && taskset -c 2,3 cargo bench -p flightline-service --bench service_load -- --agents 100,250,500,1000`
//!
//! The service runs on the processors `--cpus` (set with taskset); the load runs on the processors of this process.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use agent::{join, poll, stream, utc};
use chunk::{SAMPLES, chunk};
use client::Client;
use figures::{Kind, Load, Process};

mod agent;
mod asking;
mod chunk;
mod client;
mod figures;

/// By then all agents have sent a chunk, so that flame graphs have samples.
const WARM_UP: Duration = Duration::from_secs(15);

struct Options {
    agents: Vec<u64>,
    seconds: u64,
    cpus: String,
    flightline: PathBuf,
    dir: Option<PathBuf>,
    window: u64,
}

impl Options {
    fn read() -> Result<Self, Box<dyn Error>> {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut options = Self {
            agents: vec![1000],
            seconds: 60,
            cpus: "0,1".into(),
            flightline: root.join("target/release/flightline"),
            dir: None,
            window: 3 << 20,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} has a value"));
            match word.as_str() {
                "--agents" => {
                    options.agents = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?
                }
                "--seconds" => options.seconds = value()?.parse()?,
                "--cpus" => options.cpus = value()?,
                "--flightline" => options.flightline = value()?.into(),
                "--dir" => options.dir = Some(value()?.into()),
                "--window-size" => options.window = value()?.parse()?,
                // `cargo bench` passes an option for its own harness.
                "--bench" => {}
                _ => {
                    return Err(format!(
                        "{word}: --agents N,N… --seconds --cpus --flightline --dir --window-size"
                    )
                    .into());
                }
            }
        }
        Ok(options)
    }
}

/// The result for one number of agents.
struct Row {
    agents: f64,
    cpu: f64,
    peak: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::read()?;
    let size = chunk(1, utc()).map_err(|error| error.to_string())?.len();
    println!(
        "{} CPUs, {} of them the service's; chunks of {SAMPLES} samples, {size} bytes; {} s each",
        std::thread::available_parallelism()?.get() + options.cpus.split(',').count(),
        options.cpus.split(',').count(),
        options.seconds
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut rows = Vec::new();
    for &agents in &options.agents {
        rows.push(runtime.block_on(measure(&options, agents))?);
    }
    law("CPUs", &rows, |row| row.cpu);
    law("MB", &rows, |row| row.peak);
    Ok(())
}

/// Prints `value` as a linear function and as a power of the number of agents (least squares).
fn law(unit: &str, rows: &[Row], value: fn(&Row) -> f64) {
    if rows.len() < 3 {
        return;
    }
    let line = |points: Vec<(f64, f64)>| {
        let n = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let with = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>();
        let slope = with / points.iter().map(|point| (point.0 - x).powi(2)).sum::<f64>();
        (slope, y - slope * x)
    };
    let (slope, base) = line(rows.iter().map(|row| (row.agents, value(row))).collect());
    let (power, _) = line(rows.iter().map(|row| (row.agents.ln(), value(row).ln())).collect());
    println!("{unit}: {base:.3} + {:.3} for each 1,000 agents; agents^{power:.2}", slope * 1e3);
}

/// A running `flightline serve`; it is ended on drop.
struct Service {
    child: Child,
    address: SocketAddr,
}

impl Service {
    fn start(options: &Options, dir: &std::path::Path) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new("taskset");
        command.args(["-c", &options.cpus]).arg(&options.flightline);
        command.args([
            "serve",
            "--no-token",
            "--profiling",
            "--listen",
            "127.0.0.1:0",
            "--max-targets",
            "100000",
        ]);
        // Without this level, the log has a line for each agent that joins.
        command
            .args(["--log-level", "warn", "--dir"])
            .arg(dir)
            .args(["--window-size", &options.window.to_string()]);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut said = BufReader::new(child.stderr.take().ok_or("no stderr")?);
        let mut line = String::new();
        said.read_line(&mut line)?;
        let port = line.split("127.0.0.1:").nth(1).unwrap_or_default();
        let port = port.split(|c: char| !c.is_ascii_digit()).next().and_then(|port| port.parse().ok());
        let address = port.map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        // Keep reading, so that the pipe stays open.
        std::thread::spawn(move || said.lines().for_each(|line| eprintln!("{}", line.unwrap_or_default())));
        Ok(Self { child, address: address.ok_or(line)? })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn measure(options: &Options, agents: u64) -> Result<Row, Box<dyn Error>> {
    let folder = match &options.dir {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let service = Service::start(options, folder.path())?;
    let pid = service.child.id();
    let load = Arc::new(Load::new(service.address));
    let empty = Process::of(pid);
    let began = Instant::now();
    let joins: Vec<_> = (0..agents)
        .map(|number| {
            let load = Arc::clone(&load);
            tokio::spawn(async move { join(&load, number).await })
        })
        .collect();
    let (mut targets, mut streams) = (Vec::new(), Vec::new());
    for (number, join) in (0..).zip(joins) {
        let (target, secret) = join.await??;
        tokio::spawn(poll(Arc::clone(&load), number, target.clone(), secret.clone()));
        streams.push(tokio::spawn(stream(Arc::clone(&load), number, target.clone(), secret)));
        targets.push(target);
    }
    let (joined, after_joining) = (began.elapsed(), Process::of(pid));
    let targets = Arc::new(targets);
    sleep(WARM_UP).await;
    asking::begin(&load, &targets);
    let (before, own, began) = (Process::of(pid), Process::of(std::process::id()), Instant::now());
    load.count();
    sleep(Duration::from_secs(options.seconds)).await;
    let (after, seconds) = (Process::of(pid), began.elapsed().as_secs_f64());
    let own_after = Process::of(std::process::id());
    load.end();
    let used = |before: Process, after: Process| [0, 1].map(|of| (after.cpu[of] - before.cpu[of]) / seconds);
    let ([user, system], load_cpu) = (used(before, after), used(own, own_after).iter().sum::<f64>());
    println!("\n## {agents} agents");
    println!(
        "joined in {:.2} s, {:.2} s of CPU; CPU {:.3} = {user:.3} user + {system:.3} kernel, {:.3} for each 1,000 agents (load {load_cpu:.2})",
        joined.as_secs_f64(),
        after_joining.cpu.iter().sum::<f64>() - empty.cpu.iter().sum::<f64>(),
        user + system,
        (user + system) * 1e3 / agents as f64
    );
    println!(
        "memory {:.0} MB at most, {:.0} now, {:.0} of it its own (empty {:.0}, joined {:.0}); {} threads, {} descriptors; {:.1} MB/s in, {:.1} MB/s to the disk",
        after.rss[1],
        after.rss[0],
        after.rss[2],
        empty.rss[0],
        after_joining.rss[0],
        after.threads,
        after.files,
        load.bytes() as f64 / 1e6 / seconds,
        (after.written - before.written) / seconds
    );
    println!("{:10} {:>8} {:>6} {:>9} {:>9} {:>9}", "ms", "times", "failed", "p50", "p99", "max");
    for kind in Kind::ALL {
        let times = load.times(kind);
        let name = format!("{kind:?}").to_lowercase();
        println!(
            "{name:10} {:8} {:6} {:9.2} {:9.2} {:9.2}",
            times.count, times.bad, times.p50, times.p99, times.max
        );
    }
    let mut taken = Vec::new();
    for stream in streams {
        taken.push(stream.await?);
    }
    lost(options, &load, &targets, &taken).await?;
    load.said().iter().for_each(|line| println!("! {line}"));
    Ok(Row { agents: agents as f64, cpu: user + system, peak: after.rss[1] })
}

/// Checks that the service has stored everything it accepted, within the size of a window: the chunks of all targets, and the samples
/// of some.
async fn lost(
    options: &Options,
    load: &Load,
    targets: &[String],
    taken: &[Vec<u64>],
) -> Result<(), Box<dyn Error>> {
    let mut client = Client::new(load.address, "");
    let (mut wrong, mut chunks, mut samples) = (0, 0, 0u64);
    for (number, (target, sizes)) in targets.iter().zip(taken).enumerate() {
        let kept = client.ask("GET", &format!("/v1/targets/{target}/window"), b"").await?.json();
        let found = kept["chunks"].as_array().map_or(0, Vec::len);
        let mut room = options.window;
        let fits = sizes.iter().rev().take_while(|&&size| {
            let fits = size <= room;
            room -= size.min(room);
            fits
        });
        let right = fits.count();
        wrong += usize::from(found != right);
        chunks += found;
        if number % (targets.len() / 20).max(1) == 0 {
            let (from, to) = (kept["from"].as_i64().unwrap_or(0), kept["to"].as_i64().unwrap_or(0) + 1);
            let path = format!("/v1/targets/{target}/window/files/folded?from={from}&to={to}");
            let folded = client.ask("GET", &path, b"").await?.body;
            let text = String::from_utf8_lossy(&folded);
            let sum: u64 = text.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum();
            wrong +=
                usize::from(sum != right as u64 * SAMPLES || !text.contains(&format!("service_{number}::")));
            samples += sum;
        }
    }
    println!(
        "{chunks} chunks are there, {samples} samples of some were counted; {wrong} targets differ from what was sent"
    );
    Ok(())
}
