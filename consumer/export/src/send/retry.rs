//! Retries with exponential backoff.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use super::{Accepted, Failure, Request, Settings, Transport};

/// Sends a request until it is accepted, permanently rejected, or its time limit is over. `pause` waits,
/// at most until its caller's deadline; `left` returns the time until then.
pub(super) fn deliver(
    transport: &mut dyn Transport,
    request: &Request,
    settings: &Settings,
    mut left: impl FnMut() -> Duration,
    mut pause: impl FnMut(Duration),
) -> (Result<Accepted, Failure>, u64) {
    let begun = Instant::now();
    let mut next = settings.first_pause;
    let mut tries = 0;
    loop {
        let time = left().min(settings.patience.saturating_sub(begun.elapsed()));
        tries += 1;
        let failure = match transport.send(request, settings.timeout.min(time)) {
            Err(failure) if failure.passing => failure,
            result => return (result, tries),
        };
        // Random jitter, so that rejected clients do not all return at once.
        let share = 0.5 + RandomState::new().hash_one(tries) as f64 / u64::MAX as f64 / 2.0;
        let wait = failure.after.unwrap_or_else(|| next.mul_f64(share));
        next = (next * 2).min(settings.longest_pause);
        let time = left().min(settings.patience.saturating_sub(begun.elapsed()));
        if wait >= time {
            return (Err(failure), tries);
        }
        pause(wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::send::Signal;

    struct Scripted(Vec<Result<Accepted, Failure>>);

    impl Transport for Scripted {
        fn send(&mut self, _: &Request, _: Duration) -> Result<Accepted, Failure> {
            self.0.remove(0)
        }
    }

    fn run(answers: Vec<Result<Accepted, Failure>>) -> (Result<Accepted, Failure>, u64, Vec<Duration>) {
        let request = Request { signal: Signal::Profiles, body: Vec::new(), count: 1 };
        let mut pauses = Vec::new();
        let hour = || Duration::from_secs(3_600);
        let settings = Settings::default();
        let (result, tries) =
            deliver(&mut Scripted(answers), &request, &settings, hour, |pause| pauses.push(pause));
        (result, tries, pauses)
    }

    #[test]
    fn retry_pauses_grow_unless_receiver_sets_them() {
        let passing = || Err(Failure::passing("busy"));
        let after =
            |seconds| Err(Failure { after: Some(Duration::from_secs(seconds)), ..Failure::passing("busy") });
        let (result, tries, pauses) =
            run(vec![passing(), passing(), after(7), passing(), Ok(Accepted::default())]);
        assert_eq!((result, tries), (Ok(Accepted::default()), 5));
        let within = |at: usize, most: u64| {
            let most = Duration::from_millis(most);
            assert!((most / 2..=most).contains(&pauses[at]), "{pauses:?}");
        };
        within(0, 500);
        within(1, 1_000);
        assert_eq!(pauses[2], Duration::from_secs(7));
        within(3, 4_000);
    }

    #[test]
    fn permanent_failure_or_excessive_pause_ends_retries() {
        let (result, tries, pauses) = run(vec![Err(Failure::lasting("no"))]);
        assert_eq!((result, tries, pauses.len()), (Err(Failure::lasting("no")), 1, 0));
        // A receiver cannot request a pause beyond the time limit.
        let long = Failure { after: Some(Duration::from_secs(1 << 40)), ..Failure::passing("later") };
        let (result, tries, pauses) = run(vec![Err(long.clone())]);
        assert_eq!((result, tries, pauses.len()), (Err(long), 1, 0));
    }
}
