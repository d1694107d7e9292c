use std::io::Write;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

use super::*;
use crate::api_error::ApiError;
use crate::wire::{Capability, Command, Hello, Mode, Progress, Welcome};

mod pulled;

/// A clock that tests advance.
#[derive(Debug, Default)]
struct Hands {
    utc: AtomicI64,
    running: AtomicU64,
}

impl Clock for Hands {
    fn utc(&self) -> i64 {
        self.utc.load(SeqCst)
    }

    fn running(&self) -> Duration {
        Duration::from_millis(self.running.load(SeqCst))
    }
}

pub(super) struct Bench {
    pub(super) core: Arc<Core>,
    hands: Arc<Hands>,
    pub(super) folder: tempfile::TempDir,
}

impl Bench {
    pub(super) fn new(settings: Settings) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let hands = Arc::new(Hands { utc: AtomicI64::new(1_700_000_000_000), ..Hands::default() });
        let core = Core::open(folder.path(), settings, hands.clone()).unwrap().0;
        Self { core, hands, folder }
    }

    pub(super) fn pass(&self, seconds: u64) {
        self.hands.running.fetch_add(seconds * 1000, SeqCst);
        self.hands.utc.fetch_add(i64::try_from(seconds).unwrap() * 1000, SeqCst);
    }

    pub(super) fn agent(&self, pid: u32) -> Welcome {
        self.core.hello(hello(pid), None).unwrap()
    }

    /// Takes the commands that the agent has not received yet.
    fn commands(&self, agent: &Welcome) -> Vec<Command> {
        let (commands, _) = self.core.commands(&agent.target, &agent.secret, 0).unwrap();
        let after = commands.commands.last().map_or(0, |last| last.number);
        let _ = self.core.commands(&agent.target, &agent.secret, after).unwrap();
        commands.commands.into_iter().map(|numbered| numbered.command).collect()
    }

    pub(super) fn started(&self, agent: &Welcome, run: &Run) {
        let progress = Progress::Started { effective_mode: String::new(), message: String::new() };
        self.core.progress(&agent.target, &agent.secret, &run.id, progress).unwrap();
    }

    pub(super) fn deliver(&self, agent: &Welcome, run: &Run, bytes: usize) -> Result<(), ApiError> {
        let mut delivery = self.core.deliver(&agent.target, &agent.secret, &run.id)?;
        delivery.file().unwrap().write_all(&vec![7; bytes]).unwrap();
        let (message, ended) = Default::default();
        delivery.complete(Delivered { bytes: bytes as u64, events: vec!["cpu".into()], message, ended })
    }

    /// Creates, records and delivers a run.
    fn whole(&self, agent: &Welcome, bytes: usize) -> Run {
        let run = self.core.create(&agent.target, &run_request(1)).unwrap();
        self.started(agent, &run);
        self.pass(1);
        self.deliver(agent, &run, bytes).unwrap();
        run
    }

    fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "lock" && name != "windows")
            .collect();
        names.sort();
        names
    }
}

pub(super) fn on() -> Settings {
    Settings { profiling: true, min_free: 0, ..Settings::default() }
}

pub(super) fn hello(pid: u32) -> Hello {
    let modes = [Mode::Cpu, Mode::Itimer, Mode::Wall].map(|mode| Capability {
        mode,
        available: true,
        reason: String::new(),
    });
    Hello {
        protocol: 1,
        key: format!("host/boot/{pid}/1"),
        name: "redis-server".into(),
        host: "db1".into(),
        pid,
        start_time: 1,
        labels: BTreeMap::new(),
        modes: modes.to_vec(),
    }
}

pub(super) fn run_request(duration: u64) -> RunRequest {
    let (labels, interval) = (BTreeMap::new(), None);
    RunRequest {
        mode: Mode::Cpu,
        duration,
        interval,
        engines: vec![],
        labels,
        targets: vec![],
        pulled: false,
    }
}

#[test]
fn concurrent_requests_start_one_run() {
    let bench = Bench::new(Settings { max_concurrent: 1000, ..on() });
    let (one, other) = (bench.agent(1), bench.agent(2));
    let barrier = std::sync::Barrier::new(64);
    let results: Vec<Result<Run, ApiError>> = std::thread::scope(|scope| {
        let ask = || {
            barrier.wait();
            bench.core.create(&one.target, &run_request(30))
        };
        let threads: Vec<_> = (0..64).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let refused: Vec<&ApiError> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    assert_eq!(refused.len(), 63);
    let message = format!("{} is still under profiling.", one.target);
    assert!(refused.iter().all(|fault| fault.status == 409 && fault.message == message), "{refused:?}");
    assert_eq!(bench.commands(&one).len(), 1);
    bench.core.create(&other.target, &run_request(30)).unwrap();
}

#[test]
fn completed_run_does_not_change() {
    let bench = Bench::new(on());
    let agent = bench.agent(1);
    let run = bench.core.create(&agent.target, &run_request(30)).unwrap();
    assert_eq!((run.status, run.trigger_time, run.finished_time), (Status::Running, 1_700_000_000_000, 0));
    let Command::Start { run: started, duration: 30, mode: Mode::Cpu, .. } = &bench.commands(&agent)[0]
    else {
        panic!()
    };
    assert_eq!(*started, run.id);
    bench.started(&agent, &run);
    bench.pass(12);
    assert_eq!(bench.core.run(&run.id).unwrap().elapsed, 12_000);
    bench.pass(18);
    bench.deliver(&agent, &run, 100).unwrap();
    let ended = bench.core.run(&run.id).unwrap();
    assert_eq!((ended.status, ended.message.as_str()), (Status::Finished, "Profiling Successful"));
    assert_eq!((ended.finished_time, ended.elapsed, ended.bytes), (1_700_000_030_000, 30_000, 100));
    assert!(
        ended.output_file.starts_with(&format!("{}_CPU_2023-11-14_22_13_20_000_", agent.target)),
        "{ended:?}"
    );
    let late = Progress::Failed { message: "late".into() };
    assert_eq!(bench.core.progress(&agent.target, &agent.secret, &run.id, late).unwrap_err().status, 409);
    assert_eq!(bench.deliver(&agent, &run, 5).unwrap_err().status, 409);
    assert_eq!(bench.core.cancel(&run.id).unwrap_err().status, 409);
    bench.pass(1000);
    bench.core.look();
    let later = bench.core.run(&run.id).unwrap();
    assert_eq!(later, ended);
}

#[test]
fn clock_set_back_does_not_shorten_run() {
    let bench = Bench::new(on());
    let agent = bench.agent(1);
    let run = bench.core.create(&agent.target, &run_request(30)).unwrap();
    bench.started(&agent, &run);
    bench.pass(30);
    bench.hands.utc.fetch_sub(3_600_000, SeqCst);
    bench.deliver(&agent, &run, 1).unwrap();
    assert_eq!(bench.core.run(&run.id).unwrap().finished_time, run.trigger_time + 30_000);
}

#[test]
fn failed_starts_are_in_history_and_free_the_run_slot() {
    let bench = Bench::new(Settings { history_size: 4, ..on() });
    let agent = bench.agent(1);
    for number in 0..50 {
        let run = bench.core.create(&agent.target, &run_request(30)).unwrap();
        let why = Progress::Failed { message: format!("no perf events, {number}") };
        bench.core.progress(&agent.target, &agent.secret, &run.id, why).unwrap();
        let run = bench.core.run(&run.id).unwrap();
        assert_eq!(run.status, Status::Failed);
        assert_eq!(run.message, format!("Start profiler failed. no perf events, {number}"));
    }
    assert_eq!(bench.core.history(&agent.target).unwrap().len(), 4);
    assert_eq!(bench.files().len(), 4);
}

#[test]
fn oldest_runs_are_deleted_and_running_ones_retained() {
    let bench = Bench::new(Settings { history_size: 2, ..on() });
    let agent = bench.agent(1);
    let runs: Vec<Run> = (0..5).map(|_| bench.whole(&agent, 10)).collect();
    let kept: Vec<String> =
        bench.core.history(&agent.target).unwrap().into_iter().map(|run| run.id).collect();
    assert_eq!(kept, [runs[4].id.clone(), runs[3].id.clone()]);
    let expected: Vec<String> = runs[3..]
        .iter()
        .flat_map(|run| ["jfr", "json"].map(|ending| format!("{}.{ending}", run.id)))
        .collect();
    let mut expected = expected;
    expected.sort();
    assert_eq!(bench.files(), expected);
    let bench = Bench::new(Settings { history_size: 1, ..on() });
    let agent = bench.agent(1);
    let first = bench.whole(&agent, 10);
    let running = bench.core.create(&agent.target, &run_request(30)).unwrap();
    assert!(bench.core.run(&first.id).is_err());
    assert_eq!(bench.core.history(&agent.target).unwrap()[0].id, running.id);
}

#[test]
fn history_is_limited_by_bytes() {
    let bench = Bench::new(Settings { history_bytes: 1 << 20, ..on() });
    let agent = bench.agent(1);
    let runs: Vec<Run> = (0..3).map(|_| bench.whole(&agent, 600 << 10)).collect();
    let kept = bench.core.history(&agent.target).unwrap();
    assert_eq!(kept.iter().map(|run| &run.id).collect::<Vec<_>>(), [&runs[2].id]);
    assert_eq!(bench.files(), [format!("{}.jfr", runs[2].id), format!("{}.json", runs[2].id)]);
}

#[test]
fn restart_restores_history_and_fails_interrupted_runs() {
    let bench = Bench::new(on());
    let agent = bench.agent(1);
    let whole = bench.whole(&agent, 10);
    let running = bench.core.create(&agent.target, &run_request(30)).unwrap();
    let mut delivery = bench.core.deliver(&agent.target, &agent.secret, &running.id).unwrap();
    delivery.file().unwrap().write_all(b"half").unwrap();
    // Simulate kill -9: no cleanup runs.
    let Bench { core, hands, folder } = bench;
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        std::fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    drop((delivery, core));
    for stranger in ["notes.txt", "1700000000000-0123456789abcdef.jfr", "x.tmp"] {
        std::fs::write(copy.path().join(stranger), "mine").unwrap();
    }
    std::fs::write(copy.path().join("1700000000000-0123456789abcdee.json"), "{").unwrap();
    assert!(copy.path().join(format!("{}.jfr.tmp", running.id)).exists());
    let (core, unreadable) = Core::open(copy.path(), on(), hands.clone()).unwrap();
    let bench = Bench { core, hands, folder: copy };
    assert_eq!(unreadable.len(), 1, "{unreadable:?}");
    let history = bench.core.history(&agent.target).unwrap();
    assert_eq!(
        history.iter().map(|run| (&run.id, run.status)).collect::<Vec<_>>(),
        [(&running.id, Status::Failed), (&whole.id, Status::Finished)]
    );
    assert_eq!(history[0].message, "service restarted");
    let target = bench.core.target(&agent.target).unwrap();
    assert_eq!(target.state, TargetState::Gone);
    assert!(bench.core.recording(&whole.id).is_ok());
    let files = bench.files();
    assert!(!files.contains(&format!("{}.jfr.tmp", running.id)), "{files:?}");
    for stranger in ["notes.txt", "1700000000000-0123456789abcdef.jfr", "x.tmp"] {
        assert!(files.contains(&stranger.to_owned()), "{files:?}");
    }
    // The agent rejoins and gets the same target.
    assert_eq!(bench.core.commands(&agent.target, &agent.secret, 0).unwrap_err().status, 404);
    assert_eq!(bench.agent(1).target, agent.target);
    assert_eq!(bench.core.history(&agent.target).unwrap().len(), 2);
}

#[test]
fn cancelled_run_stores_partial_recording() {
    let bench = Bench::new(on());
    let agent = bench.agent(1);
    let run = bench.core.create(&agent.target, &run_request(30)).unwrap();
    bench.started(&agent, &run);
    bench.commands(&agent);
    assert!(!bench.core.delete(&run.id).unwrap());
    bench.core.cancel(&run.id).unwrap();
    assert_eq!(bench.commands(&agent), [Command::Stop { run: run.id.clone() }]);
    bench.deliver(&agent, &run, 9).unwrap();
    let ended = bench.core.run(&run.id).unwrap();
    assert_eq!((ended.status, ended.bytes), (Status::Cancelled, 9));
    assert!(bench.core.delete(&run.id).unwrap());
    assert!(bench.core.run(&run.id).is_err() && bench.files().is_empty());
}

#[test]
fn silent_agent_is_gone_while_others_continue() {
    let bench = Bench::new(on());
    let (silent, lively, dead) = (bench.agent(1), bench.agent(2), bench.agent(3));
    let all = [&silent, &lively, &dead];
    let runs = all.map(|agent| {
        let run = bench.core.create(&agent.target, &run_request(60)).unwrap();
        bench.started(agent, &run);
        run
    });
    bench.core.gone(&dead.target, &dead.secret, "killed by signal 9").unwrap();
    for _ in 0..2 {
        bench.pass(5);
        bench.core.heard(&lively.target, &lively.secret).unwrap();
        bench.core.look();
    }
    let [one, two, three] = runs.map(|run| bench.core.run(&run.id).unwrap());
    assert_eq!((one.status, two.status, three.status), (Status::Failed, Status::Running, Status::Failed));
    assert_eq!(one.message, "The target has ended: its agent stopped responding.");
    assert_eq!(three.message, "The target has ended: killed by signal 9.");
    let states =
        bench.core.targets().targets.into_iter().map(|target| (target.pid, target.state)).collect::<Vec<_>>();
    assert_eq!(states, [(1, TargetState::Gone), (2, TargetState::Live), (3, TargetState::Gone)]);
    assert_eq!(bench.core.create(&silent.target, &run_request(1)).unwrap_err().status, 409);
    bench.core.heard(&silent.target, &silent.secret).unwrap();
    bench.core.create(&silent.target, &run_request(1)).unwrap();
}

#[test]
fn run_fails_if_its_agent_makes_no_progress() {
    let bench = Bench::new(on());
    let agent = bench.agent(1);
    let heard = |seconds: u64| {
        for _ in 0..seconds {
            bench.pass(1);
            bench.core.heard(&agent.target, &agent.secret).unwrap();
            bench.core.look();
        }
    };
    let never = bench.core.create(&agent.target, &run_request(60)).unwrap();
    heard(10);
    let ended = bench.core.run(&never.id).unwrap();
    assert_eq!(
        (ended.status, ended.message.as_str()),
        (Status::Failed, "The agent did not start the recording within 10 s.")
    );
    let silent = bench.core.create(&agent.target, &run_request(60)).unwrap();
    bench.started(&agent, &silent);
    heard(99);
    assert_eq!(bench.core.run(&silent.id).unwrap().status, Status::Running);
    heard(1);
    assert_eq!(bench.core.run(&silent.id).unwrap().status, Status::Failed);
    let stopped = bench.core.create(&agent.target, &run_request(60)).unwrap();
    bench.core.cancel(&stopped.id).unwrap();
    heard(10);
    assert_eq!(bench.core.run(&stopped.id).unwrap().status, Status::Cancelled);
    let broken = bench.core.create(&agent.target, &run_request(60)).unwrap();
    bench.started(&agent, &broken);
    let delivery = bench.core.deliver(&agent.target, &agent.secret, &broken.id).unwrap();
    heard(29);
    assert!(delivery.goes_on());
    heard(30);
    assert!(!delivery.goes_on());
    assert_eq!(bench.core.run(&broken.id).unwrap().message, "The upload of the recording stalled for 30 s.");
}

#[test]
fn group_has_one_run_per_target() {
    let bench = Bench::new(on());
    let agents: Vec<Welcome> = (1..=5).map(|pid| bench.agent(pid)).collect();
    bench.core.gone(&agents[2].target, &agents[2].secret, "exit status 1").unwrap();
    let targets = agents.iter().map(|agent| agent.target.clone()).chain(["nobody".to_owned()]).collect();
    let (group, runs) = bench.core.create_group(&RunRequest { targets, ..run_request(30) }).unwrap();
    let statuses: Vec<Status> = runs.iter().map(|run| run.status).collect();
    let (r, f) = (Status::Running, Status::Failed);
    assert_eq!(statuses, [r, r, f, r, r, f]);
    assert_eq!(runs[2].message, "redis-server has ended: exit status 1.");
    assert_eq!(bench.core.all(Some(&group)).unwrap().len(), 5);
}

#[test]
fn runs_are_limited_by_concurrency_and_free_space() {
    let bench = Bench::new(Settings { max_concurrent: 2, ..on() });
    let agents: Vec<Welcome> = (1..=3).map(|pid| bench.agent(pid)).collect();
    bench.core.create(&agents[0].target, &run_request(30)).unwrap();
    bench.core.create(&agents[1].target, &run_request(30)).unwrap();
    assert_eq!(bench.core.create(&agents[2].target, &run_request(30)).unwrap_err().status, 429);
    let full = Bench::new(Settings { min_free: u64::MAX, ..on() });
    let agent = full.agent(1);
    assert_eq!(full.core.create(&agent.target, &run_request(30)).unwrap_err().status, 507);
}

#[test]
fn disabled_profiling_returns_not_found() {
    let bench = Bench::new(Settings { profiling: false, ..on() });
    let agent = bench.agent(1);
    assert!(!bench.core.targets().profiling);
    assert_eq!(bench.core.create(&agent.target, &run_request(30)).unwrap_err().status, 404);
    assert_eq!(bench.core.history(&agent.target).unwrap_err().status, 404);
}

#[test]
fn agent_can_only_change_its_own_runs() {
    let bench = Bench::new(on());
    let (one, other) = (bench.agent(1), bench.agent(2));
    let run = bench.core.create(&one.target, &run_request(30)).unwrap();
    let lie = || Progress::Failed { message: "lie".into() };
    assert_eq!(bench.core.progress(&other.target, &other.secret, &run.id, lie()).unwrap_err().status, 404);
    assert_eq!(bench.core.progress(&one.target, &other.secret, &run.id, lie()).unwrap_err().status, 404);
    assert_eq!(bench.core.hello(hello(1), None).unwrap_err().status, 409);
    let again = bench.core.hello(hello(1), Some(&one.secret)).unwrap();
    assert_eq!(again.target, one.target);
    assert_eq!(bench.core.heard(&one.target, &one.secret).unwrap_err().status, 404);
    let other_name = Hello { name: "worker".into(), ..hello(1) };
    let again = bench.core.hello(other_name, Some(&again.secret)).unwrap();
    assert_eq!(again.target, one.target);
    assert_eq!(bench.core.target(&one.target).unwrap().name, "worker");
    // After one silent heartbeat the agent may have been restarted.
    bench.pass(5);
    bench.core.hello(hello(1), None).unwrap();
    // Earlier commands are still pending.
    assert_eq!(bench.core.run(&run.id).unwrap().status, Status::Running);
}

#[test]
fn target_limit_evicts_only_gone_targets() {
    let bench = Bench::new(Settings { max_targets: 2, ..on() });
    let (one, _two) = (bench.agent(1), bench.agent(2));
    assert_eq!(bench.core.hello(hello(3), None).unwrap_err().status, 429);
    bench.core.gone(&one.target, &one.secret, "exit").unwrap();
    let three = bench.agent(3);
    assert!(bench.core.target(&one.target).is_err());
    // Its recordings are deleted too.
    bench.whole(&three, 10);
    assert_eq!(bench.files().len(), 2);
    bench.core.gone(&three.target, &three.secret, "exit").unwrap();
    bench.agent(4);
    assert!(bench.core.target(&three.target).is_err() && bench.files().is_empty(), "{:?}", bench.files());
    assert!(bench.core.history(&three.target).is_err());
}

/// A window has the right times, survives a restart, and is deleted with its target.
#[test]
fn continuous_window_survives_restart() {
    let bench = Bench::new(on());
    let agent = bench.agent(1);
    let (id, secret) = (agent.target.as_str(), agent.secret.as_str());
    assert_eq!(bench.core.window(id, 10).unwrap_err().status, 404);
    let bytes =
        std::fs::read(format!("{}recordings/flightline.jfr", crate::render::tests::FIXTURES)).unwrap();
    assert_eq!(bench.core.put(id, "lie", bytes.clone().into()).unwrap_err().status, 404);
    let torn = bytes[..bytes.len() - 9].to_vec();
    assert_eq!(bench.core.put(id, secret, torn.into()).unwrap_err().status, 422);
    bench.core.put(id, secret, bytes.clone().into()).unwrap();
    let kept = bench.core.window(id, 10).unwrap();
    assert_eq!((kept.bounds.bytes, kept.chunks.len()), (bytes.len() as u64, 1));
    let counted: f64 = kept.timeline.rates.iter().flatten().sum();
    assert!(counted > 0.0, "{kept:?}");
    assert_eq!(bench.core.target(id).unwrap().continuous, Some(kept.bounds));
    let (from, to) = (kept.bounds.from, kept.bounds.to + 1);
    assert_eq!(bench.core.interval(id, from, to).unwrap().0.len(), 1);
    assert_eq!(bench.core.interval(id, to + 1, to + 2).unwrap_err().status, 404);
    assert_eq!(bench.core.interval(id, to, from).unwrap_err().status, 400);
    let Bench { core, hands, folder } = bench;
    drop(core);
    // A directory without a description is ignored.
    std::fs::create_dir(folder.path().join("windows/other-1-00000000")).unwrap();
    let core = Core::open(folder.path(), on(), hands.clone()).unwrap().0;
    assert_eq!(core.targets().targets.len(), 1);
    assert_eq!(core.target(id).unwrap().state, TargetState::Gone);
    core.look();
    assert_eq!(core.window(id, 10).unwrap(), kept);
    core.forget(id).unwrap();
    assert_eq!(core.window(id, 10).unwrap_err().status, 404);
    let left: Vec<_> = std::fs::read_dir(folder.path().join("windows"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["other-1-00000000"]);
}

/// Valid requests with random damage are either accepted or refused with a message.
#[test]
fn damaged_request_bodies_are_accepted_or_rejected_with_message() {
    let bench = Bench::new(Settings { max_targets: 64, ..on() });
    let create = br#"{"mode":"CPU","duration":30,"interval":"10ms","engines":["alloc@1m"],"labels":{"a":"b"},"targets":["x"]}"#;
    let hello_body = serde_json::to_vec(&hello(1)).unwrap();
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random % below as u64).unwrap()
    };
    let pieces: [&[u8]; 12] = [
        b"{",
        b"}",
        b"\"",
        b"[",
        b"\\u0000",
        b"\\ud800",
        b"-1",
        b"1e999",
        b"null",
        b"\xff\xfe",
        b",",
        b"99999999999999999999",
    ];
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..10_000 {
        let mut body = if next(2) == 0 { create.to_vec() } else { hello_body.clone() };
        for _ in 0..next(4) {
            let (at, end) = (next(body.len()), next(body.len()) + 1);
            match next(3) {
                0 => drop(body.splice(at..at, pieces[next(pieces.len())].iter().copied())),
                1 => body[at] = u8::try_from(next(256)).unwrap(),
                _ => drop(body.drain(at.min(end)..at.max(end))),
            }
            body.push(b' ');
        }
        let asked =
            RunRequest::parse(&body, &bench.core.settings).map_err(|fault| assert_eq!(fault.status, 400));
        let hello = serde_json::from_slice::<Hello>(&body).map_err(drop);
        let hello = hello.and_then(|hello| {
            bench
                .core
                .hello(hello, None)
                .map_err(|fault| assert!(matches!(fault.status.as_u16(), 400 | 409 | 429)))
        });
        if asked.is_ok() || hello.is_ok() { taken += 1 } else { refused += 1 }
    }
    assert!(taken > 500 && refused > 5000, "{taken} taken, {refused} refused");
    assert!(bench.core.targets().targets.len() <= 64);
}
