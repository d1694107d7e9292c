//! Tests of limits: agents that occupy run slots or disk space.

use super::tests::{Bench, on, run_request};
use crate::clock::Machine;
use crate::core::Core;
use crate::settings::Settings;
use crate::wire::Status;

/// An agent cannot hold a run slot forever by repeatedly reporting a start or beginning an upload.
#[test]
fn run_without_completed_upload_times_out() {
    let bench = Bench::new(Settings { max_recording: 1 << 20, ..on() });
    let agent = bench.agent(1);
    let run = bench.core.create(&agent.target, &run_request(30)).unwrap();
    // 40 s until the upload must begin, two minutes to upload, and a second per 64 KiB.
    let longest = 40 + 120 + 16;
    let mut delivery = None;
    for second in (0..longest - 5).step_by(5) {
        if second % 2 == 0 {
            delivery = None;
            bench.started(&agent, &run);
        } else {
            delivery = Some(bench.core.deliver(&agent.target, &agent.secret, &run.id).unwrap());
        }
        bench.pass(5);
        bench.core.heard(&agent.target, &agent.secret).unwrap();
        bench.core.look();
        assert_eq!(bench.core.run(&run.id).unwrap().status, Status::Running, "after {second} s");
    }
    bench.pass(5);
    bench.core.heard(&agent.target, &agent.secret).unwrap();
    bench.core.look();
    let run = bench.core.run(&run.id).unwrap();
    assert_eq!((run.status, &*run.message), (Status::Failed, "The agent did not finish the recording."));
    assert!(delivery.is_none_or(|delivery| !delivery.goes_on()));
    bench.core.create(&agent.target, &run_request(30)).unwrap();
}

/// Existing windows stay within their size; no new window is created.
#[test]
fn full_disk_prevents_window_growth() {
    let path = format!("{}recordings/flightline.jfr", crate::render::tests::FIXTURES);
    let bytes = std::fs::read(path).unwrap();
    let Bench { core, folder, .. } = Bench::new(on());
    let hello = |pid: u32| super::tests::hello(pid);
    let agent = core.hello(hello(1), None).unwrap();
    for _ in 0..3 {
        core.put(&agent.target, &agent.secret, bytes.clone().into()).unwrap();
    }
    let kept = core.window(&agent.target, 1).unwrap().bounds.bytes;
    drop(core);
    let full = Settings { min_free: u64::MAX, ..on() };
    let core = Core::open(folder.path(), full, std::sync::Arc::new(Machine::default())).unwrap().0;
    let agents = [1, 2].map(|pid| core.hello(hello(pid), None).unwrap());
    for _ in 0..5 {
        core.put(&agents[0].target, &agents[0].secret, bytes.clone().into()).unwrap();
        assert_eq!(core.window(&agents[0].target, 1).unwrap().bounds.bytes, kept);
    }
    let refused = core.put(&agents[1].target, &agents[1].secret, bytes.into()).unwrap_err();
    assert_eq!(refused.status, 507);
    assert!(core.window(&agents[1].target, 1).is_err());
}
