//! Programs of other projects, as the distribution ships them (stripped, without frame pointers): at least
//! 99.5 % of all their CPU time must be on stacks that the walk followed to the root, within five standard
//! deviations of the samples.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use flightline_tests::record::Record;
use flightline_tests::recording::Recording;
use flightline_tests::run::{beside, collect, run, signal, spawn, until, wait};
use flightline_tests::{skip, victim, whole};

const LIMIT: Duration = Duration::from_secs(180);
const RATE: u32 = 2000;
const PERIOD_NS: f64 = 1e9 / RATE as f64;

/// How to count the time before the recorder is loaded: the dynamic loader takes some 10 ms, in ffmpeg's
/// hundred libraries 100. It is sampled from outside in the started program, but not in the programs that it
/// starts.
#[derive(Clone, Copy, PartialEq)]
enum Loading {
    Counts,
    /// In programs that start others, or are executed by another one.
    IsToldOnly,
}

#[track_caller]
fn check(recording: &Recording, name: &str, least_seconds: f64) {
    check_with(recording, name, least_seconds, Loading::Counts);
}

#[track_caller]
fn check_with(recording: &Recording, name: &str, least_seconds: f64, loading: Loading) {
    let whole::Share { seconds, whole } = whole::share(recording, PERIOD_NS);
    let unloaded: f64 =
        recording.losses.iter().filter(|l| l.cause == "not armed").map(|l| l.cpu_ns as f64 / 1e9).sum();
    let of = if loading == Loading::Counts { seconds } else { seconds - unloaded };
    let share = 100.0 * whole / of;
    eprintln!(
        "{name}: {share:.3} % of {of:.2} s CPU time to the root ({:.3} % of all {seconds:.2} s), {} samples",
        100.0 * whole / seconds,
        recording.samples.len()
    );
    assert!(seconds >= least_seconds, "{name}: only {seconds:.2} s of CPU time in the ledgers");
    // A complete stack ends in code without a caller: the same few functions for every thread of a process.
    let roots = whole::roots(recording);
    eprintln!("{name}: roots {roots:?}");
    assert!((1..=12).contains(&roots.len()), "{name}: stacks end in too many places to be roots: {roots:?}");
    // Five standard deviations of the number of truncated stacks among these samples.
    let tolerance = 500.0 * (0.005 / recording.samples.len() as f64).sqrt();
    assert!(
        share >= 99.5 - tolerance,
        "{name}: {share:.3} % of the CPU time reaches the root, the goal is 99.5 % within {tolerance:.3} %\n{}",
        whole::cut(recording, 12)
    );
    assert!(share <= 101.0, "{name}: {share:.3} %: more was sampled than the threads used");
}

fn record(program: &str, args: &[&str], least_seconds: f64) {
    let _place = beside();
    if !skip::have(program) {
        return skip::skip(&format!("{program} is not installed"));
    }
    let recorded = Record::new().rate(RATE).limit(LIMIT).run(program, args).expect_code(0);
    check(&recorded.read(), program, least_seconds);
}

#[test]
fn sqlite3_stacks_reach_root() {
    let query = "with recursive n(i) as (select 1 union all select i + 1 from n where i < 4800000) \
                 select count(*), sum(length(s)) from (select i % 977 as k, printf('%08d-%s', i * 7919 % 1000003, \
                 hex(i)) as s from n order by s) group by k order by 2 desc limit 3;";
    record("sqlite3", &[":memory:", query], 3.0);
}

#[test]
fn xz_stacks_reach_root() {
    let input = victim::target_dir().join("victims/xz-input");
    if !input.exists() {
        // Text-like, compressible, the same on every machine.
        let mut x = 88172645463325252u64;
        let words: Vec<String> = (0..4000).map(|i| format!("word{}", i * 7919 % 65537)).collect();
        let mut text = String::new();
        while text.len() < 12 << 20 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            text.push_str(&words[(x % 4000) as usize]);
            text.push(if x.is_multiple_of(11) { '\n' } else { ' ' });
        }
        std::fs::write(&input, text).unwrap();
    }
    record("xz", &["-6", "-T2", "--block-size=2MiB", "-k", "-c", input.to_str().unwrap()], 1.0);
}

#[test]
fn python3_stacks_reach_root() {
    // The run's length is set by its CPU time, so the start is the same share of it on every machine.
    let script = "
import json, re, threading, time
def work():
    words = {}
    i = 0
    while time.process_time() < 5:
        i += 1
        s = json.dumps({'i': i, 'list': list(range(i % 17)), 'text': 'x' * (i % 31)})
        for m in re.finditer(r'[0-9]+', s):
            words[m.group()] = words.get(m.group(), 0) + 1
    return sorted(words, key=words.get)
threads = [threading.Thread(target=work) for _ in range(2)]
[t.start() for t in threads]
work()
[t.join() for t in threads]
";
    record("/usr/bin/python3", &["-c", script], 5.0);
}

#[test]
fn rust_program_stacks_reach_root() {
    let program = victim::rust("rust_program", &["-O", "-Cstrip=symbols", "-Cforce-frame-pointers=no"]);
    record(program.to_str().unwrap(), &["2.5"], 5.0);
}

#[test]
fn redis_stacks_reach_root_under_benchmark() {
    let _place = beside();
    if !skip::have("redis-server") || !skip::have("redis-benchmark") {
        return skip::skip("redis is not installed");
    }
    let record = Record::new().rate(RATE);
    let socket = record.folder().join("redis.sock");
    let socket_name = socket.to_str().unwrap();
    let args = ["--port", "0", "--unixsocket", socket_name, "--save", "", "--appendonly", "no"];
    let mut drain = spawn(record.command("redis-server", &args).stdout(Stdio::null()).stderr(Stdio::piped()));
    let stderr = collect(drain.stderr.take().unwrap());
    until(LIMIT, "redis answers", || {
        assert!(drain.try_wait().unwrap().is_none(), "flightline ended before redis answered");
        socket.exists().then_some(())
    });
    let mut benchmark = Command::new("redis-benchmark");
    benchmark.args([
        "-s",
        socket_name,
        "-q",
        "-n",
        "600000",
        "-t",
        "set,get,lpush,lrange_100,zadd",
        "-P",
        "4",
    ]);
    run(&mut benchmark, LIMIT).expect_success("redis-benchmark");
    signal(drain.id(), libc::SIGTERM);
    let status = wait(&mut drain, LIMIT, "redis after SIGTERM");
    let stderr = String::from_utf8_lossy(&stderr.join().unwrap()).into_owned();
    // Redis catches SIGTERM and leaves by exit(0); that is its own status.
    assert!(matches!(status.code(), Some(0 | 143)), "{status}: {stderr}");
    check(&Recording::read(Path::new(&record.path())).unwrap(), "redis-server", 1.0);
}

/// Machine code that V8 generates at run time, its embedded builtins, and C++ and assembly below.
#[test]
fn node_stacks_reach_root() {
    let _place = beside();
    let script = "
let m = new Map(), n = 0;
class P { constructor(x) { this.x = x; } get d() { return this.x * 2; } }
while (process.cpuUsage().user < 5e6) {
  for (let i = 0; i < 2000; i++, n++) {
    const s = JSON.stringify({ i: n, list: [...Array(n % 17).keys()], text: 'x'.repeat(n % 31) });
    for (const x of s.matchAll(/[0-9]+/g)) m.set(x[0], (m.get(x[0]) || 0) + 1);
    Array.from({ length: 20 }, (_, k) => new P((k * 7919 + n) % 101)).sort((a, b) => a.d - b.d);
    if (n % 5000 == 0) {
      m = new Map();
      require('zlib').deflateSync(s.repeat(1000));
      require('crypto').createHash('sha256').update(s.repeat(1000)).digest();
    }
    try { if (n % 100 == 0) throw new Error('x' + n); } catch (e) { e.stack; }
  }
}";
    record("node", &["-e", script], 5.0);
}

/// Codecs: assembly without unwind information and without frame pointers.
#[test]
fn ffmpeg_stacks_reach_root() {
    let _place = beside();
    if !skip::have("ffmpeg") {
        return skip::skip("ffmpeg is not installed");
    }
    let args = "-nostdin -v error -f lavfi -i testsrc2=duration=15:size=640x360:rate=30 -f lavfi -i sine=duration=15 \
                -c:v libx264 -preset medium -threads 3 -c:a aac -f null -";
    let args: Vec<&str> = args.split_whitespace().collect();
    let recorded = Record::new().rate(RATE).limit(LIMIT).run("ffmpeg", &args).expect_code(0);
    check(&recorded.read(), "ffmpeg", 1.5);
}

/// Repacks a repository of 300 versions.
#[test]
fn git_stacks_reach_root() {
    if !skip::have("git") {
        return skip::skip("no git here: packing a repository");
    }
    let _place = beside();
    let record = Record::new().rate(RATE).limit(LIMIT);
    let folder = record.folder().join("repository");
    let folder = folder.to_str().unwrap();
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-C", folder, "-c", "user.name=t", "-c", "user.email=t@example.org"]).args(args);
        git
    };
    run(Command::new("git").args(["init", "-q", "--bare", folder]), LIMIT).expect_success("git init");
    let mut import = spawn(git(&["fast-import", "--quiet"]).stdin(Stdio::piped()));
    let mut to = std::io::BufWriter::new(import.stdin.take().unwrap());
    let mut lines: Vec<String> =
        (0..40 * 400).map(|i| format!("line {} {}\n", i, i * 7919 % 10007)).collect();
    for version in 0..300usize {
        write!(to, "commit refs/heads/main\ncommitter T <t@example.org> {} +0000\ndata 1\nx\n", version + 1)
            .unwrap();
        for file in 0..12 {
            let file = (version * 7 + file * 5) % 40;
            let at = file * 400 + version * 31 % 400;
            lines[at] = format!("changed in {version}: {}\n", version * 104_729 % 65_537);
            let text = lines[file * 400..(file + 1) * 400].concat();
            write!(to, "M 644 inline f{file}.txt\ndata {}\n{text}\n", text.len()).unwrap();
        }
    }
    drop(to);
    assert!(wait(&mut import, LIMIT, "git fast-import").success());
    let args = ["-C", folder, "-c", "pack.threads=2", "repack", "-adfq", "--depth=50", "--window=150"];
    let recorded = record.run("git", &args).expect_code(0);
    check_with(&recorded.read(), "git", 0.3, Loading::IsToldOnly);
}

/// The compiler, whose libraries were optimised after linking (BOLT), and the linker.
#[test]
fn rustc_stacks_reach_root() {
    let _place = beside();
    let sysroot = run(Command::new("rustc").args(["--print", "sysroot"]), LIMIT).expect_success("rustc");
    let compiler = Path::new(sysroot.stdout_text().trim()).join("bin/rustc");
    let record = Record::new().rate(RATE).limit(LIMIT);
    let (source, out) = (record.folder().join("many.rs"), record.folder().join("many"));
    let functions: String = (0..60)
        .map(|i| {
            format!(
                "pub fn f{i}(v: &[u64]) -> usize {{
                    let mut m: HashMap<String, Vec<BTreeMap<u64, String>>> = HashMap::new();
                    for x in v.iter().map(|x| x.wrapping_mul({i})) {{
                        m.entry(format!(\"{{x:?}}-{i}\")).or_default().push(BTreeMap::from([(x, format!(\"{{x:#x}}\"))]));
                    }}
                    let mut all: Vec<_> = m.into_iter().collect();
                    all.sort_by_key(|e| e.0.clone());
                    all.iter().map(|e| e.1.len() + {i}).sum()
                }}\n"
            )
        })
        .collect();
    let calls: String = (0..60).map(|i| format!("f{i}(&v) + ")).collect();
    let text = format!(
        "use std::collections::{{BTreeMap, HashMap}};\n{functions}fn main() {{
            let v: Vec<u64> = (0..100).collect();
            println!(\"{{}}\", {calls}0);
        }}\n"
    );
    std::fs::write(&source, text).unwrap();
    let args = ["-O", "-o", out.to_str().unwrap(), source.to_str().unwrap()];
    let recorded = record.run(&compiler, &args).expect_code(0);
    check_with(&recorded.read(), "rustc", 1.5, Loading::IsToldOnly);
}

/// Two workers that compress their responses.
#[test]
fn nginx_stacks_reach_root() {
    let _place = beside();
    if !skip::have("nginx") {
        return skip::skip("nginx is not installed");
    }
    let record = Record::new().rate(RATE).limit(LIMIT);
    let folder = record.folder().to_str().unwrap().to_owned();
    let socket = record.folder().join("socket");
    let page: String = (0..3000).map(|i| format!("{}\n", i * 7919 % 10007)).collect();
    std::fs::write(record.folder().join("page.txt"), page).unwrap();
    // SAFETY: no pointers.
    let user = if unsafe { libc::geteuid() } == 0 { "user root;" } else { "" };
    let configuration = format!(
        "worker_processes 2; daemon off; pid {folder}/pid; error_log {folder}/errors; {user}
        events {{ worker_connections 64; }}
        http {{ access_log off; gzip on; gzip_min_length 1; gzip_comp_level 6; gzip_types *; keepalive_requests 1000000;
            client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
            uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
            server {{ listen unix:{folder}/socket; root {folder}; }} }}"
    );
    std::fs::write(record.folder().join("nginx.conf"), configuration).unwrap();
    let file = format!("{folder}/nginx.conf");
    let errors = format!("{folder}/errors");
    let mut command = record.command("nginx", &["-p", &folder, "-c", &file, "-e", &errors]);
    let mut drain = spawn(command.stdout(Stdio::null()).stderr(Stdio::piped()));
    let stderr = collect(drain.stderr.take().unwrap());
    until(LIMIT, "nginx answers", || {
        assert!(drain.try_wait().unwrap().is_none(), "flightline ended before nginx answered");
        UnixStream::connect(&socket).ok()
    });
    let client = |_| {
        let socket = socket.clone();
        std::thread::spawn(move || {
            let mut stream = UnixStream::connect(socket).unwrap();
            let mut got = vec![0; 1 << 16];
            for _ in 0..6000 {
                stream
                    .write_all(b"GET /page.txt HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n")
                    .unwrap();
                let mut end = [0; 5];
                while end != *b"0\r\n\r\n" {
                    let n = stream.read(&mut got).unwrap();
                    assert!(n > 0, "nginx closed the connection");
                    for byte in &got[n.saturating_sub(5)..n] {
                        end.rotate_left(1);
                        end[4] = *byte;
                    }
                }
            }
        })
    };
    let clients: Vec<_> = (0..3).map(client).collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    let pid = std::fs::read_to_string(record.folder().join("pid")).unwrap();
    signal(pid.trim().parse().unwrap(), libc::SIGQUIT);
    let status = wait(&mut drain, LIMIT, "nginx after SIGQUIT");
    let stderr = String::from_utf8_lossy(&stderr.join().unwrap()).into_owned();
    assert_eq!(status.code(), Some(0), "{stderr}");
    check(&Recording::read(&record.path()).unwrap(), "nginx", 1.0);
}

/// The directory of PostgreSQL's programs, newest version first.
fn postgres_programs() -> Option<std::path::PathBuf> {
    let mut found: Vec<_> =
        std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|e| e.path().join("bin")).collect();
    found.sort();
    found.into_iter().rev().find(|bin| bin.join("initdb").exists() && bin.join("postgres").exists())
}

/// A command of PostgreSQL, which refuses to run as root: a user namespace makes it another user.
fn postgres_words(bin: &Path, program: &str, args: &[&str]) -> Vec<String> {
    // SAFETY: no pointers.
    let root = unsafe { libc::geteuid() } == 0;
    let outer = ["unshare", "--user", "--map-user=1000", "--map-group=1000"].map(str::to_owned);
    let own = [bin.join(program).to_str().unwrap().to_owned()];
    let args = args.iter().map(|a| (*a).to_owned());
    outer.into_iter().filter(|_| root).chain(own).chain(args).collect()
}

/// Creates a database cluster; prints SKIPPED and returns false if that is not possible.
fn postgres_cluster(bin: &Path, data: &str) -> bool {
    let init = postgres_words(bin, "initdb", &["-D", data, "-A", "trust", "-N", "-U", "postgres"]);
    let made = run(Command::new(&init[0]).args(&init[1..]), LIMIT);
    if init[0] == "unshare" && !made.status.success() && made.stderr.contains("unshare") {
        skip::skip("no user namespaces here, and PostgreSQL does not run as root");
        return false;
    }
    made.expect_success("initdb");
    true
}

/// PostgreSQL's own engine on one connection.
#[test]
fn postgres_stacks_reach_root() {
    let _place = beside();
    let Some(bin) = postgres_programs() else { return skip::skip("postgresql is not installed") };
    let record = Record::new().rate(RATE).limit(LIMIT);
    let data = record.folder().join("data");
    let data = data.to_str().unwrap();
    if !postgres_cluster(&bin, data) {
        return;
    }
    let queries = "create table t as select i, md5(i::text) as h, i % 977 as k from generate_series(1, 300000) i;\n\
                   create index on t (h);\n\
                   select k, count(*), sum(length(h)), max(h) from t group by k order by 2 desc, 4 limit 3;\n\
                   select count(*) from t a join t b on a.h = md5((b.i + 1)::text);\n\
                   select count(distinct substr(h, 1, 5)), avg(ascii(h)) from t;\n";
    let file = record.folder().join("queries.sql");
    std::fs::write(&file, queries).unwrap();
    let single = postgres_words(&bin, "postgres", &["--single", "-F", "-D", data, "postgres"]);
    let args: Vec<&str> = single[1..].iter().map(String::as_str).collect();
    let mut command = record.command(&single[0], &args);
    let finished = run(command.stdin(std::fs::File::open(file).unwrap()), LIMIT);
    assert_eq!(finished.code(), 0, "{}", finished.stderr);
    assert!(finished.stdout_text().contains("count = \"299999\""), "{}", finished.stdout_text());
    check_with(&Recording::read(&record.path()).unwrap(), "postgres", 1.0, Loading::IsToldOnly);
}

/// A server whose backends write their activity into their titles, preloaded and from outside: samples have
/// the title.
fn postgres_backends(outside: bool) {
    let _place = beside();
    let Some(bin) = postgres_programs() else { return skip::skip("postgresql is not installed") };
    if outside && !skip::perf_allowed(false) {
        return skip::skip("perf_event_open is not allowed: recording from outside");
    }
    let record = Record::new().rate(500).limit(LIMIT);
    let folder = record.folder().to_str().unwrap().to_owned();
    let data = format!("{folder}/data");
    if !postgres_cluster(&bin, &data) {
        return;
    }
    let server = postgres_words(&bin, "postgres", &["-D", &data, "-k", &folder, "-h", ""]);
    let words: Vec<&str> = server[1..].iter().map(String::as_str).collect();
    let mut started = match outside {
        true => spawn(Command::new(&server[0]).args(words).stderr(Stdio::null())),
        false => spawn(record.command(&server[0], &words).stderr(Stdio::null())),
    };
    let psql = |query: &str| {
        let args = ["-h", &folder, "-U", "postgres", "-q", "-c", query];
        run(Command::new(bin.join("psql")).args(args), LIMIT)
    };
    until(LIMIT, "the server answers", || psql("select 1").status.success().then_some(()));
    let mut recorder = outside.then(|| {
        let mut command = Command::new(victim::flightline());
        command.args(["record", "-F", "500", "-p", &started.id().to_string(), "-o"]).arg(record.path());
        let recorder = spawn(command.stderr(Stdio::null()));
        until(LIMIT, "the recording begins", || record.path().exists().then_some(()));
        recorder
    });
    psql("select count(*) from generate_series(1, 3000000) i where md5(i::text) like 'ab%'")
        .expect_success("select");
    psql("create table t as select md5(i::text) from generate_series(1, 1500000) i").expect_success("create");
    if let Some(recorder) = &mut recorder {
        signal(recorder.id(), libc::SIGINT);
        assert!(wait(recorder, LIMIT, "the recorder").success());
    }
    signal(started.id(), libc::SIGTERM);
    assert!(wait(&mut started, LIMIT, "the server").success());
    let mut fold = Command::new(victim::flightline());
    let folded = run(fold.args(["fold", "--process-title"]).arg(record.path()), LIMIT).expect_success("fold");
    let (mut all, mut select, mut create) = (0, 0, 0);
    for line in folded.stdout_text().lines() {
        let samples: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        all += samples;
        select += if line.starts_with("postgres: postgres postgres [local] SELECT;") { samples } else { 0 };
        create += if line.starts_with("postgres: postgres postgres [local] CREATE TABLE AS;") {
            samples
        } else {
            0
        };
    }
    eprintln!("outside {outside}: {all} samples, {select} in SELECT, {create} in CREATE TABLE AS");
    assert!(select * 100 >= all * 10 && create * 100 >= all * 10, "{}", folded.stdout_text());
    assert!((select + create) * 100 >= all * 60, "{select} and {create} of {all}");
}

#[test]
fn postgres_backends_have_titles() {
    postgres_backends(false);
}

#[test]
fn postgres_backends_have_titles_from_outside() {
    postgres_backends(true);
}
