//! Queue of the service's commands. Performs no I/O, so that tests can try any order of events.
//!
//! A run is done once, even if the service repeats it under another command number. A stop ends only
//! the run that it names.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use flightline_service::wire::{Command, Numbered};
use serde_json::Value;

use super::run_request::{RunRequest, is_id};

/// Number of run ids remembered to avoid executing a run twice: a restarted service numbers its commands from
/// one again.
const REMEMBERED: usize = 64;
/// Maximum number of runs waiting for one that is being stopped.
const IN_LINE: usize = 4;

/// An accepted run.
#[derive(Clone, Debug)]
pub struct Running {
    run: Arc<str>,
    stopped: Arc<AtomicBool>,
    recorded: Arc<AtomicBool>,
}

impl Running {
    fn new(run: &str) -> Self {
        Self { run: run.into(), stopped: Arc::default(), recorded: Arc::default() }
    }

    /// Requests an early end.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    /// Returns true if an early end was requested.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Marks the recording as finished; the upload follows.
    pub fn recorded(&self) {
        self.recorded.store(true, Relaxed);
    }

    fn is_ending(&self) -> bool {
        self.is_stopped() || self.recorded.load(Relaxed)
    }
}

/// Id of a refused run and the reason.
pub type Refusal = (String, String);

/// See the module documentation.
#[derive(Debug, Default)]
pub struct CommandQueue {
    heard: u64,
    known: VecDeque<String>,
    line: VecDeque<(RunRequest, Running)>,
    current: Option<Running>,
    over: bool,
}

impl CommandQueue {
    /// Number of the last command received.
    pub fn heard(&self) -> u64 {
        self.heard
    }

    /// Expects command numbers to start from one again.
    pub fn count_anew(&mut self) {
        self.heard = 0;
    }

    /// Processes a command; ignores duplicates and stops of other runs.
    pub fn take(&mut self, command: Value) -> Option<Refusal> {
        let number = command["number"].as_u64()?;
        if number <= self.heard {
            return None;
        }
        self.heard = number;
        let run = command["run"].as_str().filter(|run| is_id(run)).map(str::to_owned);
        let command = match serde_json::from_value::<Numbered>(command) {
            Ok(numbered) => numbered.command,
            // A command of another version; later ones are still processed.
            Err(error) => {
                return run.map(|run| (run, format!("This agent does not understand the command: {error}.")));
            }
        };
        match command {
            Command::Start { run, mode, duration, interval, engines } => {
                // The id becomes part of request paths. A genuine service sends only valid ids.
                if !is_id(&run) || self.known.contains(&run) {
                    return None;
                }
                if self.known.len() >= REMEMBERED {
                    self.known.pop_front();
                }
                self.known.push_back(run.clone());
                let work = RunRequest { run, mode, duration, interval, engines };
                let refused = match work.check() {
                    Ok(()) => self.no_room(),
                    Err(why) => Some(why),
                };
                match refused {
                    Some(why) => Some((work.run, why)),
                    None => {
                        let running = Running::new(&work.run);
                        self.line.push_back((work, running));
                        None
                    }
                }
            }
            Command::Stop { run } => {
                let in_line = self.line.iter().map(|(_, running)| running);
                in_line.chain(&self.current).filter(|running| *running.run == *run).for_each(Running::stop);
                None
            }
        }
    }

    /// Returns why no run can be accepted now. A run that is being stopped or uploaded does not prevent
    /// another.
    fn no_room(&self) -> Option<String> {
        if self.over {
            return Some("The process or its agent has ended.".into());
        }
        let mut all = self.line.iter().map(|(_, running)| running).chain(&self.current);
        match all.find(|running| !running.is_ending()) {
            Some(other) => Some(format!("The agent is still recording run {}.", other.run)),
            None if self.line.len() >= IN_LINE => Some("The agent is still finishing other runs.".into()),
            None => None,
        }
    }

    /// Returns the next run if none is in progress.
    pub fn next(&mut self) -> Option<(RunRequest, Running)> {
        if self.current.is_some() {
            return None;
        }
        let next = self.line.pop_front()?;
        self.current = Some(next.1.clone());
        Some(next)
    }

    /// Marks the run in progress as done.
    pub fn done(&mut self) {
        self.current = None;
    }

    /// Returns true if no run is in progress.
    pub fn is_idle(&self) -> bool {
        self.current.is_none()
    }

    /// Accepts no more runs and drops waiting ones. With `stop`, the run in progress ends early.
    pub fn end(&mut self, stop: bool) {
        self.over = true;
        self.line.clear();
        if stop {
            self.current.iter().for_each(Running::stop);
        }
    }

    /// Returns true if no more runs are accepted.
    pub fn is_over(&self) -> bool {
        self.over
    }
}

#[cfg(test)]
mod tests {
    use flightline_service::wire::Mode;
    use serde_json::json;

    use super::*;

    fn start(number: u64, run: &str) -> Value {
        let (run, mode) = (run.to_owned(), Mode::Cpu);
        let command = Command::Start { run, mode, duration: 30, interval: None, engines: Vec::new() };
        serde_json::to_value(Numbered { number, command }).unwrap()
    }

    fn stop(number: u64, run: &str) -> Value {
        serde_json::to_value(Numbered { number, command: Command::Stop { run: run.to_owned() } }).unwrap()
    }

    #[test]
    fn invalid_command_is_rejected_and_later_command_runs() {
        let mut orders = CommandQueue::default();
        let later = [
            json!({"number": 1, "command": "start", "run": "a", "mode": "HEAP", "duration": 1}),
            json!({"number": 2, "command": "fly", "run": "a"}),
            json!({"number": 3, "command": "start", "run": "a", "mode": "CPU", "duration": -1}),
            json!({"number": 4, "command": "start", "run": "a", "mode": ["CPU"]}),
        ];
        for command in later {
            let (run, why) = orders.take(command).unwrap();
            assert!(run == "a" && why.contains("does not understand"), "{why}");
        }
        for nothing in
            [json!(null), json!({"number": "x"}), json!({"number": 5, "run": "../x"}), json!([[[]]])]
        {
            assert_eq!(orders.take(nothing), None);
        }
        assert_eq!(orders.take(start(6, "a")), None);
        assert_eq!(orders.next().unwrap().0.run, "a");
    }

    #[test]
    fn repeated_command_number_or_run_is_ignored() {
        let mut orders = CommandQueue::default();
        assert_eq!(orders.take(start(1, "a")), None);
        let (work, a) = orders.next().unwrap();
        assert_eq!((work.run.as_str(), orders.heard()), ("a", 1));
        assert_eq!(orders.take(start(1, "b")), None, "an old number");
        orders.take(stop(1, "a"));
        assert!(!a.is_stopped(), "an old number");
        orders.done();
        assert!(orders.next().is_none());
        // A restarted service numbers from one, and repeats commands that it does not know to be
        // acknowledged.
        orders.count_anew();
        assert_eq!(orders.take(start(1, "a")), None);
        assert!(orders.next().is_none(), "a run is done once, whatever its number");
        assert_eq!(orders.take(start(2, "b")), None);
        assert_eq!(orders.next().unwrap().0.run, "b");
    }

    #[test]
    fn stop_affects_only_named_run() {
        let mut orders = CommandQueue::default();
        orders.take(start(1, "a"));
        let (_, a) = orders.next().unwrap();
        orders.take(stop(2, "another"));
        assert!(!a.is_stopped());
        orders.take(stop(3, "a"));
        assert!(a.is_stopped());
        // The next run may arrive while the first is being stopped; a repeated stop of the first must not
        // affect it.
        assert_eq!(orders.take(start(4, "b")), None);
        orders.take(stop(5, "a"));
        assert!(orders.next().is_none(), "one at a time");
        orders.done();
        let (work, b) = orders.next().unwrap();
        orders.take(stop(6, "a"));
        assert!(work.run == "b" && !b.is_stopped());
    }

    #[test]
    fn queued_run_can_be_stopped() {
        let mut orders = CommandQueue::default();
        orders.take(start(1, "a"));
        orders.next().unwrap().1.recorded();
        assert_eq!(orders.take(start(2, "b")), None, "the first is on its way to the service");
        orders.take(stop(3, "b"));
        orders.done();
        assert!(orders.next().unwrap().1.is_stopped());
    }

    #[test]
    fn second_run_is_rejected_while_one_records() {
        let mut orders = CommandQueue::default();
        orders.take(start(1, "a"));
        let sentence = Some(("b".to_owned(), "The agent is still recording run a.".to_owned()));
        assert_eq!(orders.take(start(2, "b")), sentence, "not begun yet");
        let (_, a) = orders.next().unwrap();
        assert!(orders.take(start(3, "c")).is_some());
        a.stop();
        let mut number = 3;
        let mut taken = 0;
        while taken < 10 {
            number += 1;
            let run = format!("d{number}");
            if orders.take(start(number, &run)).is_some() {
                break;
            }
            orders.take(stop(number + 100, &run));
            number += 100;
            taken += 1;
        }
        assert_eq!(taken, IN_LINE, "those that are stopped before they begin do not grow without bound");
    }

    #[test]
    fn no_run_is_accepted_after_process_end() {
        let mut orders = CommandQueue::default();
        orders.take(start(1, "a"));
        let (_, a) = orders.next().unwrap();
        orders.end(false);
        assert!(!a.is_stopped(), "the recorder sees the end of the process itself");
        assert!(orders.take(start(2, "b")).unwrap().1.contains("ended"));
        orders.end(true);
        assert!(a.is_stopped() && !orders.is_idle());
        orders.done();
        assert!(orders.is_idle() && orders.is_over());
    }

    #[test]
    fn remembered_run_count_is_bounded() {
        let mut orders = CommandQueue::default();
        for number in 1..=10_000 {
            orders.take(start(number, &format!("run-{number}")));
        }
        assert!(orders.known.len() <= REMEMBERED && orders.line.len() == 1);
        // Without a valid id there is no answer, since its path would contain the id.
        for bad in ["", "../../x", "a b", "a\nb", &"x".repeat(1 << 20)] {
            assert_eq!(orders.take(start(orders.heard() + 1, bad)), None);
            assert!(!orders.known.iter().any(|known| known == bad));
        }
    }
}
