//! Continuous profiles of several targets: queries by label, and the load of each target.

use axum::http::StatusCode;

use super::targets::short;
use super::windows::{LOAD_STEP, LOAD_STEPS};
use super::{Core, State};
use crate::api_error::ApiError;
use crate::render::Source;
use crate::window::MOST_SELECTED;
use crate::wire::{Load, Target, Targets};

/// Maximum number of targets in one query.
const MOST_TOGETHER: usize = 64;
/// Recordings of several targets for one interval.
#[derive(Debug)]
pub struct LabelGroup {
    /// The files.
    pub sources: Vec<Source>,
    /// Description of the targets.
    pub of: String,
}

impl Core {
    /// Returns the files that cover an interval (UTC ms) of all targets with a label. The description counts
    /// the targets without data for that interval.
    ///
    /// # Errors
    /// Returns an error if there is no data or too much.
    pub fn label_group(&self, key: &str, value: &str, from: i64, to: i64) -> Result<LabelGroup, ApiError> {
        if from >= to {
            return Err(ApiError::bad("Give `from` and `to` in UTC ms, with `from` before `to`."));
        }
        let label = short(&format!("{key}={value}"));
        let ids = self.state().labelled(key, value);
        if ids.is_empty() {
            return Err(ApiError::missing(format!(
                "No target has the label {label}; GET /v1/targets lists the labels."
            )));
        }
        let with = ids.len();
        let there: Vec<String> = ids.into_iter().filter(|id| self.windows.overlaps(id, from, to)).collect();
        if there.len() > MOST_TOGETHER {
            return Err(too_large(format!(
                "{} targets with the label {label} have data in this interval, but at most \
                 {MOST_TOGETHER} can be drawn together; choose a label with fewer targets.",
                there.len()
            )));
        }
        let mut sources = Vec::new();
        let mut of = 0;
        for id in &there {
            // A target that was removed in the meantime has no data.
            let found = match self.interval(id, from, to) {
                Ok((found, _)) => found,
                Err(fault) if fault.status == StatusCode::NOT_FOUND => continue,
                Err(fault) => return Err(fault),
            };
            of += 1;
            sources.extend(found);
            if sources.len() > MOST_SELECTED {
                return Err(too_large(format!(
                    "The interval has more than {MOST_SELECTED} chunks of targets with the label \
                     {label}, which is the limit; choose a shorter interval."
                )));
            }
        }
        if sources.is_empty() {
            return Err(ApiError::missing(format!(
                "No data of targets with the label {label} in this interval; GET their windows for the available intervals."
            )));
        }
        let of = match (of, with) {
            (1, 1) => "1 target".to_owned(),
            (of, with) if of == with => format!("{of} targets"),
            (of, with) => format!("{of} of {with} targets"),
        };
        Ok(LabelGroup { sources, of: format!("{label} ({of})") })
    }

    /// Adds to each target its load over the last ten minutes, if it is profiled continuously.
    pub fn add_loads(&self, targets: &mut Targets) {
        let end = self.now().utc.div_euclid(LOAD_STEP).saturating_mul(LOAD_STEP);
        for target in &mut targets.targets {
            target.load = self.load(target, end);
        }
    }

    fn load(&self, target: &Target, end: i64) -> Option<Load> {
        let bounds = target.continuous?;
        let from = end.saturating_sub(LOAD_STEPS * LOAD_STEP);
        let line = self.windows.recent(&target.id)?;
        let samples: Vec<Option<u32>> = (0..LOAD_STEPS)
            .map(|at| {
                // A step with partial data would understate the load.
                let begin = from.saturating_add(at * LOAD_STEP);
                let known = begin >= bounds.from && begin.saturating_add(LOAD_STEP) <= bounds.to;
                let step =
                    usize::try_from((begin - line.from).div_euclid(LOAD_STEP)).ok().filter(|_| known)?;
                let rate = line.rates.get(step).copied().flatten()?;
                Some((rate * LOAD_STEP as f64 / 1000.0).round() as u32)
            })
            .collect();
        samples.iter().any(Option::is_some).then_some(Load { from, step: LOAD_STEP, samples })
    }
}

impl State {
    fn labelled(&self, key: &str, value: &str) -> Vec<String> {
        let with = |target: &&Target| target.labels.get(key).is_some_and(|has| has == value);
        self.targets
            .values()
            .map(|joined| &joined.target)
            .filter(with)
            .map(|target| target.id.clone())
            .collect()
    }
}

fn too_large(message: String) -> ApiError {
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::tests::{Bench, hello, on};
    use super::*;
    use crate::render::tests::FIXTURES;
    use crate::render::{Format, RenderOptions, check_bytes, make};
    use crate::window::Bounds;
    use crate::wire::Hello;

    fn joined(bench: &Bench, pid: u32, version: &str) -> String {
        let labels = BTreeMap::from([("version".to_owned(), version.to_owned())]);
        bench.core.hello(Hello { labels, ..hello(pid) }, None).unwrap().target
    }

    /// Creates a target of this version with one recording.
    fn recorded_target(bench: &Bench, pid: u32, version: &str) -> (String, Bounds) {
        let labels = BTreeMap::from([("version".to_owned(), version.to_owned())]);
        let agent = bench.core.hello(Hello { labels, ..hello(pid) }, None).unwrap();
        let bytes = std::fs::read(format!("{FIXTURES}recordings/flightline.jfr")).unwrap();
        bench.core.put(&agent.target, &agent.secret, bytes.into()).unwrap();
        let bounds = bench.core.target(&agent.target).unwrap().continuous.unwrap();
        (agent.target, bounds)
    }

    fn samples(sources: &[Source]) -> u64 {
        let wanted = RenderOptions { event: Some("cpu".into()), ..RenderOptions::default() };
        make(Format::Folded, sources, &wanted, &mut Vec::new()).unwrap().total
    }

    #[test]
    fn targets_with_same_label_are_merged_and_omissions_reported() {
        let bench = Bench::new(on());
        let (one, bounds) = recorded_target(&bench, 1, "1:2");
        recorded_target(&bench, 2, "1:2");
        recorded_target(&bench, 3, "2");
        let (from, to) = (bounds.from, bounds.to + 1);
        let both = bench.core.label_group("version", "1:2", from, to).unwrap();
        assert_eq!((both.sources.len(), both.of.as_str()), (2, "version=1:2 (2 targets)"));
        let alone = bench.core.interval(&one, from, to).unwrap().0;
        assert!(samples(&alone) > 0);
        assert_eq!(samples(&both.sources), 2 * samples(&alone));
        joined(&bench, 4, "1:2");
        assert_eq!(
            bench.core.label_group("version", "1:2", from, to).unwrap().of,
            "version=1:2 (2 of 3 targets)"
        );
        let fails = |key, value, from, to| bench.core.label_group(key, value, from, to).unwrap_err().status;
        assert_eq!(fails("version", "3", from, to), 404);
        assert_eq!(fails("other", "2", from, to), 404);
        assert_eq!(fails("version", "2", to + 1, to + 2), 404);
        assert_eq!(fails("version", "2", to, from), 400);
    }

    #[test]
    fn merged_target_count_is_limited() {
        let bench = Bench::new(on());
        let most = MOST_TOGETHER as u32;
        let (_, bounds) = recorded_target(&bench, 1, "1");
        (2..=most).for_each(|pid| drop(recorded_target(&bench, pid, "1")));
        let ask = || bench.core.label_group("version", "1", bounds.from, bounds.to + 1);
        assert_eq!(ask().unwrap().sources.len(), MOST_TOGETHER);
        recorded_target(&bench, most + 1, "1");
        let fault = ask().unwrap_err();
        assert!(fault.status == 413 && fault.message.contains("at most 64"), "{fault:?}");
    }

    #[test]
    fn target_load_covers_only_complete_steps() {
        let bench = Bench::new(on());
        let agent = bench.core.hello(hello(1), None).unwrap();
        joined(&bench, 2, "1");
        // Only the middle recording lies in fully covered steps.
        let mut counted = Vec::new();
        for name in ["jdk17", "ap-java-multichunk", "ap-native-mem"] {
            let bytes: bytes::Bytes =
                std::fs::read(format!("{FIXTURES}recordings/{name}.jfr")).unwrap().into();
            counted.push(check_bytes(bytes.clone()).unwrap().line.total());
            bench.core.put(&agent.target, &agent.secret, bytes).unwrap();
        }
        let bounds = bench.core.target(&agent.target).unwrap().continuous.unwrap();
        let ahead = u64::try_from(bounds.to - bench.core.utc()).unwrap();
        bench.pass(ahead / 1000 + 60);
        let mut targets = bench.core.targets();
        assert!(targets.targets.iter().all(|target| target.load.is_none()), "only on request");
        bench.core.add_loads(&mut targets);
        let loads: Vec<_> = targets.targets.iter().filter_map(|target| target.load.as_ref()).collect();
        let [load] = loads[..] else { panic!("{loads:?}") };
        assert_eq!((load.samples.len(), load.step, load.from % load.step), (60, LOAD_STEP, 0));
        let known: Vec<u32> = load.samples.iter().copied().flatten().collect();
        assert!(counted[1] > 0);
        assert_eq!(known, [u32::try_from(counted[1]).unwrap()]);
    }
}
