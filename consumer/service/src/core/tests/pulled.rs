//! Pulled runs: a client waits for the result.

use super::*;

fn pulled() -> RunRequest {
    RunRequest { pulled: true, ..run_request(1) }
}

#[test]
fn pulled_run_is_temporary_and_evicts_no_history() {
    let bench = Bench::new(Settings { history_size: 1, history_bytes: 100, ..on() });
    let agent = bench.agent(1);
    let kept = bench.whole(&agent, 60);
    let run = bench.core.create(&agent.target, &pulled()).unwrap();
    bench.started(&agent, &run);
    bench.pass(1);
    bench.deliver(&agent, &run, 60).unwrap();
    let ids = || -> Vec<String> {
        bench.core.history(&agent.target).unwrap().into_iter().map(|run| run.id).collect()
    };
    assert_eq!(ids(), [run.id.clone(), kept.id.clone()]);
    // The client went away without deleting it.
    bench.core.look();
    assert_eq!(ids().len(), 2, "it is there while its asker may take it");
    bench.hands.running.fetch_add(61_000, SeqCst);
    bench.core.look();
    assert_eq!(ids(), std::slice::from_ref(&kept.id));
    assert_eq!(bench.files(), [format!("{}.jfr", kept.id), format!("{}.json", kept.id)]);
}

#[test]
fn single_target_is_selected_without_name() {
    let bench = Bench::new(on());
    assert_eq!(bench.core.only_one().unwrap_err().status, 404);
    let one = bench.agent(1);
    assert_eq!(bench.core.only_one().unwrap(), one.target);
    let other = bench.agent(2);
    assert_eq!(bench.core.only_one().unwrap_err().status, 400);
    bench.core.gone(&other.target, &other.secret, "killed").unwrap();
    assert_eq!(bench.core.only_one().unwrap(), one.target);
}
