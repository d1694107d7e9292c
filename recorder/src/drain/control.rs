//! Controls the recording: the schedule, the requests of the socket's clients, and programs that have not
//! applied a change yet.

use std::{
    collections::HashMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{Drain, outputs::FlushRequest};
use crate::{
    control::{Commander, Request, Server, Until, status},
    error::Error,
    info_events,
    loss::Report,
    os::clock::monotonic_ns,
    session::Session,
    settings::Settings,
    settings::schedule::{Clockwork, Due},
};

/// Time limit for running programs to apply a change. Sleeping programs apply it when they wake.
const APPLY_WAIT: Duration = Duration::from_secs(2);
/// Time limit for symbols when the sampling interval changes.
const CHANGE_WAIT: Duration = Duration::from_secs(1);
/// Time limit for symbols when a client requests a dump.
const NAMES_WAIT: Duration = Duration::from_secs(30);
/// Time limit for symbols when a client is about to copy the output.
const SAVE_NAMES_WAIT: Duration = Duration::from_millis(300);
/// Time between two checks of programs that have not applied a change yet.
const URGE_EVERY: Duration = Duration::from_millis(5);

pub(super) struct Steering {
    server: Option<Server>,
    pub(super) clock: Clockwork,
    pub(super) paused: bool,
    /// Sampling has been stopped.
    pub(super) stopped: bool,
    /// A flush that waits for symbols.
    pub(super) flush: Option<FlushRequest>,
    change: u32,
    commanders: HashMap<PathBuf, Commander>,
    /// The number of samples at the end of the last second, and how many of them it added.
    pub(super) rate: (u64, u64),
    pub(super) since: Instant,
}

impl Steering {
    pub(super) fn new(settings: &Settings, session_dir: &std::path::Path) -> Steering {
        Steering {
            // The recorder works without a socket too.
            server: Server::open(session_dir).ok(),
            clock: Clockwork::new(settings.schedule.clone()),
            paused: settings.schedule.waits(),
            stopped: false,
            flush: None,
            change: 0,
            commanders: HashMap::new(),
            rate: (0, 0),
            since: Instant::now(),
        }
    }

    /// Writes the settings to the session's page, and sends programs a command to apply them.
    pub(super) fn change(&mut self, session: &Session, settings: &Settings, event_ns: u64) {
        self.change = session.change(settings, event_ns, self.paused);
        self.commanders.clear();
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = std::os::fd::BorrowedFd<'_>> {
        self.server.iter().flat_map(Server::descriptors)
    }

    /// Returns the longest pause that misses no deadline.
    pub(super) fn pause(&self) -> Option<Duration> {
        let urging = (!self.commanders.is_empty()).then_some(URGE_EVERY);
        [urging, self.clock.next()].into_iter().flatten().min()
    }
}

impl Drain {
    /// Returns true if recording is paused.
    pub fn paused(&self) -> bool {
        self.steering.paused
    }

    /// Records nothing until [`Drain::resume`]. CPU time used in a pause is counted as stopped.
    pub fn pause(&mut self) {
        if !self.steering.paused {
            self.steering.paused = true;
            self.change("recording paused");
        }
    }

    /// Resumes recording. A program whose threads all sleep resumes when one of them runs.
    pub fn resume(&mut self) {
        self.steering.clock.start(Instant::now());
        if self.steering.paused {
            self.steering.paused = false;
            self.change("recording resumed");
        }
    }

    /// Switches to other engines, in the syntax of [`Settings::add`].
    ///
    /// # Errors
    /// The list is invalid, or an engine in it cannot be changed while recording.
    pub fn set_engines(&mut self, list: &str) -> Result<(), Error> {
        let mut new = self.settings.clone().without_engines();
        new.add(list)?;
        // Traced functions cannot be given in the list.
        new.calls.trace.clone_from(&self.settings.calls.trace);
        let wrong = |problem: String| Err(Error::Setting { name: "event", problem });
        if new.cpu.engine != self.settings.cpu.engine {
            return wrong(
                "the engine for CPU time cannot change during a recording; stop it and start another one"
                    .into(),
            );
        }
        let other_period = new.samples_cpu_time() && new.period_ns() != self.period_ns;
        if other_period && self.outside.watch.as_ref().is_some_and(|watch| !watch.processes().is_empty()) {
            let period = Duration::from_nanos(self.period_ns);
            return wrong(format!(
                "the interval of processes recorded from outside cannot change; it is {period:?}"
            ));
        }
        new.check()?;
        self.session.place_events(&new.events)?;
        self.settings = new;
        if let Some(budget) = &mut self.costs.budget {
            budget.reset();
            self.metrics.every(1);
            self.processes.iter_mut().for_each(|p| p.state.threads.sampled_every(self.period_ns));
        }
        if other_period {
            self.change_period();
        }
        let events = self.session.events();
        self.outputs.recordings.open_mut().for_each(|recording| recording.name_events(events));
        if self.settings.samples_cpu_time() {
            self.report.cpu.off = false;
            self.processes.iter_mut().for_each(|p| p.state.threads.cpu_off = false);
        }
        self.change(&format!("recording {}", self.settings.spec()));
        Ok(())
    }

    /// Changes the time that a sample represents, which requires a new chunk: readers use the settings of
    /// each chunk. The old chunk gets the samples that have been read and whose symbols arrive in time.
    fn change_period(&mut self) {
        let end = Instant::now() + CHANGE_WAIT;
        loop {
            self.drain_all(monotonic_ns());
            self.resolve_all(Instant::now() >= end);
            if !self.processes.any_waiting() {
                break;
            }
            self.symbols.images.take_loaded(self.session.rows(), URGE_EVERY);
        }
        let now = monotonic_ns();
        self.period_ns = self.settings.period_ns();
        for process in self.processes.iter_mut() {
            process.state.change_period(self.period_ns);
        }
        for recording in self.outputs.recordings.open_mut().filter(|recording| !recording.full()) {
            recording.cut(now);
            recording.change_period(self.period_ns);
            info_events::setting(recording, &self.settings, now);
        }
    }

    /// Applies a signal of the schedule. Returns false if the schedule does not use this signal.
    pub fn signalled(&mut self, signal: u8) -> bool {
        let due = self.steering.clock.signal(i32::from(signal), Instant::now());
        let known = self.settings.trigger_signals().iter().any(|s| *s as i32 == i32::from(signal));
        self.dump_signalled(i32::from(signal));
        if let Some(due) = due {
            self.act(due);
        }
        known
    }

    fn act(&mut self, due: Due) {
        match due {
            Due::Start => self.resume(),
            Due::Pause => self.pause(),
            Due::Stop => self.stop_sampling(),
        }
    }

    /// Writes the new state to the session's page and sends a command to running programs.
    fn change(&mut self, message: &str) {
        let settings = self.in_force();
        self.steering.change(&self.session, &settings, self.period_ns);
        let now = monotonic_ns();
        self.change_wall(now);
        self.outputs.notice(message, now);
    }

    /// Runs the schedule and the control socket once per round.
    pub(super) fn steer(&mut self) {
        if !self.steering.stopped
            && let Some(due) = self.steering.clock.due(Instant::now())
        {
            self.act(due);
        }
        self.urge();
        let Some(mut server) = self.steering.server.take() else { return };
        for (client, request) in server.requests() {
            match self.take_request(request) {
                Ok(Answer::Now(answer)) => server.answer(client, &answer),
                Ok(Answer::Later(until)) => server.defer(client, until),
                Err(error) => server.answer(client, &json!({"ok": false, "error": error.to_string()})),
            }
        }
        server.settle(&mut |until| self.settled(until));
        server.push();
        self.steering.server = Some(server);
    }

    fn take_request(&mut self, request: Request) -> Result<Answer, Error> {
        let applied = |drain: &Drain| Answer::Later(Until::Applied(drain.steering.change, Instant::now()));
        Ok(match request {
            Request::Status => Answer::Now(self.status()),
            Request::Pause => {
                self.pause();
                Answer::Now(json!({"ok": true, "state": self.state()}))
            }
            Request::Resume => {
                self.resume();
                applied(self)
            }
            Request::Engines(list) => {
                self.set_engines(&list)?;
                applied(self)
            }
            Request::Dump => Answer::Later(Until::Named(Instant::now() + NAMES_WAIT)),
            Request::Save => Answer::Later(Until::Named(Instant::now() + SAVE_NAMES_WAIT)),
            Request::Stop => {
                self.stop_sampling();
                Answer::Later(Until::Ended)
            }
        })
    }

    fn settled(&self, until: Until) -> Result<Value, Until> {
        let answer = match until {
            Until::Named(latest) => {
                let named = !self.processes.any_waiting();
                let go = named || Instant::now() > latest;
                return Err(if go { Until::Flushed(self.session.ask_flush()) } else { until });
            }
            Until::Flushed(request) => (self.report.flushes_done >= request)
                .then(|| {
                    let recordings = self.describe_recordings();
                    json!({"ok": true, "outputs": self.outputs.names(), "bytes": self.outputs.bytes(), "recordings": recordings})
                }),
            Until::Applied(change, since) => {
                let sleeping: Vec<u32> = self.late().map(|p| p.file.pid).collect();
                let over =
                    change != self.steering.change || sleeping.is_empty() || since.elapsed() > APPLY_WAIT;
                over.then(|| {
                    json!({"ok": true, "state": self.state(), "engines": self.settings.spec(), "sleeping": sleeping})
                })
            }
            // Answered when everything is written.
            Until::Ended => None,
        };
        answer.ok_or(until)
    }

    /// Returns the programs that have not applied the last change yet.
    fn late(&self) -> impl Iterator<Item = &crate::process::Process> {
        let change = self.steering.change;
        let live = self.processes.live().filter(|p| p.file.trusted_pid());
        live.filter(move |p| p.file.controlled().is_some_and(|applied| applied != change))
    }

    /// Sends commands to programs that have not applied the last change. A pause would work without: each
    /// thread's next sample stops it. The command also disables the interposers.
    fn urge(&mut self) {
        if self.steering.change == 0 || self.steering.stopped {
            self.steering.commanders.clear();
            return;
        }
        let late: Vec<(PathBuf, u32)> = self.late().map(|p| (p.file.path.clone(), p.file.pid)).collect();
        self.steering.commanders.retain(|path, _| late.iter().any(|(p, _)| p == path));
        for (path, pid) in late {
            self.steering.commanders.entry(path).or_insert_with(|| Commander::to_apply(pid)).urge();
        }
    }

    /// Updates the rate of CPU samples once a second, over preloaded processes and those recorded from
    /// outside.
    pub(super) fn note_rate(&mut self) {
        let mut report = self.report.clone();
        for process in self.processes.live() {
            report.add(process);
        }
        for (_, _, threads) in self.outside.watch.iter().flat_map(|watch| watch.sampled()) {
            threads.iter().for_each(|thread| report.add_thread(thread));
        }
        let samples = report.cpu.samples.max(self.steering.rate.0);
        self.steering.rate = (samples, samples - self.steering.rate.0);
    }

    /// Sends the last answers when the output is complete.
    pub(super) fn say_goodbye(&mut self) {
        let Some(mut server) = self.steering.server.take() else { return };
        for (client, _) in server.requests() {
            server.answer(client, &json!({"ok": false, "error": "the recording has ended"}));
        }
        let answer = json!({
            "ok": true,
            "state": "stopped",
            "outputs": self.outputs.names(),
            "bytes": self.outputs.bytes(),
            "summary": self.report.to_string(),
        });
        server.settle(&mut |_| Ok(answer.clone()));
        server.push();
    }
}

enum Answer {
    Now(Value),
    Later(Until),
}

impl Drain {
    fn state(&self) -> &'static str {
        match (self.steering.stopped, self.steering.paused) {
            (true, _) => "stopped",
            (_, true) => "paused",
            _ => "recording",
        }
    }

    /// Returns where the recording of each process is; process 0 is the recording of all processes.
    fn describe_recordings(&self) -> Vec<Value> {
        let open = self.outputs.recordings.iter();
        open.map(|(_, pid, recording)| {
            let (path, refused) = (recording.name(), recording.failure());
            json!({"pid": pid, "path": path, "copied": recording.can_be_copied(), "refused": refused})
        })
        .collect()
    }

    /// Returns rates, losses and memory.
    fn status(&mut self) -> Value {
        let mut sum = self.report.clone();
        let mut processes = Vec::new();
        for process in self.processes.live_mut() {
            process.state.threads.read_slots(&process.file, self.period_ns);
            sum.add(process);
            // The process may have chosen its engine since the last second.
            sum.engine(process.file.engine());
            let ring = process.file.ring();
            let mut one = Report::default();
            one.add(process);
            processes.push(json!({
                "pid": process.file.pid,
                "name": process.file.info().called(),
                "threads": process.state.threads.list.iter().filter(|t| t.end_ns.is_none()).count(),
                "samples": one.cpu.samples,
                "cpuSeconds": status::seconds(one.cpu.cpu_ns),
                "lostCpuSeconds": status::seconds(one.cpu.lost.iter().map(|(_, ns)| ns).sum()),
                "waitingForSymbols": process.state.waiting(),
                "ringBytes": process.file.ring_bytes(),
                "ringUsedBytes": ring.map_or(0, |ring| ring.used().saturating_mul(8)),
                "takesCommands": process.file.controlled().is_some(),
            }));
        }
        for (pid, name, threads) in self.outside.watch.iter().flat_map(|watch| watch.sampled()) {
            let mut one = Report::default();
            for thread in &threads {
                one.add_thread(thread);
                sum.add_thread(thread);
            }
            processes.push(json!({
                "pid": pid,
                "name": name,
                "threads": threads.iter().filter(|t| t.end_ns.is_none()).count(),
                "samples": one.cpu.samples,
                "cpuSeconds": status::seconds(one.cpu.cpu_ns),
                "lostCpuSeconds": status::seconds(one.cpu.lost.iter().map(|(_, ns)| ns).sum()),
                "fromOutside": true,
                "takesCommands": false,
            }));
        }
        let mut answer = status::report_json(&sum);
        let own = json!({
            "ok": true,
            "state": self.state(),
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "seconds": self.steering.since.elapsed().as_secs_f64(),
            "engines": self.settings.spec(),
            "samplesPerSecond": self.steering.rate.1,
            "periodNs": self.settings.samples_cpu_time().then_some(self.period_ns),
            "samplingPeriodNs": self.in_force().period_ns(),
            "budget": self.settings.cost.budget,
            "cost": self.cost_so_far(),
            "outputs": self.outputs.names(),
            "bytes": self.outputs.bytes(),
            "processes": processes,
            "recordings": self.describe_recordings(),
            "recorder": {
                "residentBytes": crate::os::system::resident_bytes(std::process::id()),
                "cpuSeconds": status::seconds(crate::os::clock::process_cpu_ns(std::process::id()).unwrap_or(0)),
            },
        });
        if let (Some(answer), Value::Object(own)) = (answer.as_object_mut(), own) {
            answer.extend(own);
        }
        answer
    }
}
