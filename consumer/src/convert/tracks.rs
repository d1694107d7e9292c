//! Single samples by thread, in order of time.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use crate::fold::{
    FoldOptions, Measure, NO_STACK, NO_THREAD, TRUNCATED, UNKNOWN_PROCESS, class_label, label,
};
use crate::live::{self, Sample};
use crate::model::{FrameKind, Model, SampleKey, Thread, Unit};
use crate::reshape::{Reshape, Reshaper};
use crate::tree::{Builder, Label, LabelId, Tree};

/// A sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// ns after [`Tracks::start`].
    pub time: i64,
    /// Position in [`Tracks::stacks`].
    pub stack: u32,
    /// Weight, in [`Tracks::unit`].
    pub weight: u64,
    /// The weight by the other measure: time or bytes if weights are numbers of samples, else the number
    /// of samples.
    pub otherwise: u64,
}

/// The samples of a thread.
#[derive(Clone, Debug, Default)]
pub struct Track {
    /// Its name.
    pub name: String,
    /// Label for a box that represents the thread, e.g. `[worker-0 tid=4711]`.
    pub label: String,
    /// Thread id; the position in [`Tracks::tracks`] if it is not known.
    pub id: u32,
    /// The process's name.
    pub process: String,
    /// Process id; 0 if it is not known.
    pub process_id: u32,
    /// Samples in order of time.
    pub samples: Vec<Moment>,
}

impl Track {
    /// Compares by process and thread id.
    pub fn in_order(&self, other: &Self) -> Ordering {
        let left = (self.process_id, &self.process, self.id, &self.name);
        left.cmp(&(other.process_id, &other.process, other.id, &other.name))
    }
}

/// Threads and their samples.
#[derive(Clone, Debug, Default)]
pub struct Tracks {
    /// Labels by [`LabelId`].
    pub labels: Vec<Label>,
    /// Distinct stacks, root first.
    pub stacks: Vec<Box<[LabelId]>>,
    /// Threads, by process and id.
    pub tracks: Vec<Track>,
    /// Unit of the weights.
    pub unit: String,
    /// Time of the first sample, in ns since 1970. 0 if times are not known: each sample then begins
    /// where the weight of the samples before it ends.
    pub start: i64,
}

impl Tracks {
    /// Converts a profile without times; its stacks follow one another.
    pub fn from_tree(tree: &Tree, name: &str) -> Self {
        let mut tracks = Self { labels: tree.labels.clone(), unit: tree.unit.clone(), ..Self::default() };
        let mut track = Track {
            name: name.to_owned(),
            label: name.to_owned(),
            process: name.to_owned(),
            ..Track::default()
        };
        let mut stacks = tree.stacks();
        let mut time = 0i64;
        while let Some((path, weight)) = stacks.next() {
            track.samples.push(Moment { time, stack: tracks.stacks.len() as u32, weight, otherwise: 0 });
            tracks.stacks.push(path.into());
            time = time.saturating_add_unsigned(weight);
        }
        tracks.tracks.push(track);
        tracks
    }

    /// Labels of a stack's boxes, root first.
    pub fn path(&self, stack: u32) -> &[LabelId] {
        self.stacks.get(stack as usize).map_or(&[], |stack| stack)
    }

    /// Returns true if times are those of the samples.
    pub fn is_timed(&self) -> bool {
        self.start != 0
    }
}

/// Address of a stack, and the class appended to it.
type KnownStack = (usize, Option<Arc<str>>);

/// Maximum number of frames in cached stacks.
const MOST_KEPT: usize = 1 << 18;

/// Collects the selected samples of a recording.
#[derive(Debug)]
pub struct Collecting<'a> {
    options: &'a FoldOptions,
    reshape: Reshaper<'a>,
    builder: Builder,
    /// Stacks by address and class. The stored references keep an address from being reused.
    known: HashMap<KnownStack, (Arc<live::Stack>, Option<u32>)>,
    /// Number of frames in `known`.
    kept: usize,
    /// Samples without a stack, by class.
    without: HashMap<Option<Arc<str>>, Option<u32>>,
    /// Threads by address, stored like stacks. `last` is the latest one, because consecutive samples are
    /// mostly of one thread.
    met: HashMap<usize, (Arc<Thread>, Option<usize>)>,
    last: Option<(usize, Option<usize>)>,
    interned: HashMap<Box<[LabelId]>, u32>,
    stacks: Vec<Box<[LabelId]>>,
    threads: HashMap<Thread, Option<usize>>,
    tracks: Vec<Track>,
    unit: Option<Unit>,
    range: [i64; 2],
}

impl<'a> Collecting<'a> {
    /// Creates a collector for samples selected by `options` and `reshape` within `range` (inclusive, in
    /// ns since 1970). Processes and threads do not become frames.
    pub fn new(options: &'a FoldOptions, reshape: &'a Reshape, range: [i64; 2]) -> Self {
        Self {
            options,
            reshape: Reshaper::new(reshape),
            builder: Builder::default(),
            known: HashMap::new(),
            kept: 0,
            without: HashMap::new(),
            met: HashMap::new(),
            last: None,
            interned: HashMap::new(),
            stacks: Vec::new(),
            threads: HashMap::new(),
            tracks: Vec::new(),
            unit: None,
            range,
        }
    }

    /// Adds a sample if it is selected.
    pub fn take(&mut self, sample: &Sample) {
        if let Some((track, moment)) = self.select(sample) {
            self.tracks[track].samples.push(moment);
        }
    }

    /// Returns a sample, with its time in ns since 1970, and its thread's position in
    /// [`Collecting::threads`]; `None` if it is not selected.
    pub fn select(&mut self, sample: &Sample) -> Option<(usize, Moment)> {
        let time = sample.time.epoch_nanos;
        let state = sample.state.as_deref().unwrap_or("");
        let filter = &self.options.filter;
        if !(self.range[0]..=self.range[1]).contains(&time) || !filter.matches_state(state) {
            return None;
        }
        let track = self.met(sample.thread.as_ref())?;
        let class = if self.options.classes { sample.class() } else { None };
        let stack = self.stack(sample.stack.as_ref(), class)?;
        let (weight, otherwise) = match self.options.measure {
            Measure::Samples => (sample.weight.samples, sample.weight.value),
            Measure::Total => {
                self.unit = Some(sample.weight.unit);
                (sample.weight.value, sample.weight.samples)
            }
        };
        Some((track, Moment { time, stack, weight, otherwise }))
    }

    /// Returns the position of the thread in [`Collecting::threads`] and of the stack in [`Tracks::stacks`] for
    /// samples of a model with this key; `None` if they are not selected.
    pub(crate) fn select_key(&mut self, model: &Model, key: &SampleKey) -> Option<(usize, u32)> {
        let state = key.state.map_or("", |state| &**model.states.get(state));
        if !self.options.filter.matches_state(state) {
            return None;
        }
        let track = self.track(key.thread.map(|thread| model.threads.get(thread)))?;
        let stack = key.stack.map(|stack| model.stacks.get(stack)).filter(|stack| !stack.frames.is_empty());
        let class =
            key.class.filter(|_| self.options.classes).map(|class| class_label(model.classes.get(class)));
        let mut path: Vec<Label> = Vec::new();
        match stack {
            Some(stack) => {
                path.extend(stack.truncated.then(|| marker(TRUNCATED)));
                let frames = stack.frames.iter().rev();
                path.extend(frames.map(|&frame| label(model.frames.get(frame), self.options)));
            }
            None => path.push(marker(NO_STACK)),
        }
        path.extend(class);
        Some((track, self.place(&path)?))
    }

    /// Returns a thread's position in [`Collecting::threads`]; `None` if it is not selected.
    pub(crate) fn thread(&mut self, thread: Option<&Arc<Thread>>) -> Option<usize> {
        self.met(thread)
    }

    /// Threads in order of first appearance.
    pub(crate) fn met_threads(&self) -> &[Track] {
        &self.tracks
    }

    /// Returns true if an interval, in ns since 1970, overlaps the selected range.
    pub(crate) fn meets(&self, start: i64, end: i64) -> bool {
        start <= self.range[1] && end >= self.range[0]
    }

    /// Returns the track of a thread. Avoids a lookup if the same [`Arc`] was seen before.
    fn met(&mut self, thread: Option<&Arc<Thread>>) -> Option<usize> {
        let Some(thread) = thread else { return self.track(None) };
        let address = Arc::as_ptr(thread).addr();
        if let Some((_, track)) = self.last.filter(|&(last, _)| last == address) {
            return track;
        }
        let track = match self.met.get(&address) {
            Some(&(_, track)) => track,
            None => {
                let track = self.track(Some(thread));
                if self.met.len() > MOST_KEPT / 16 {
                    self.met.clear();
                }
                self.met.insert(address, (thread.clone(), track));
                track
            }
        };
        self.last = Some((address, track));
        track
    }

    fn track(&mut self, thread: Option<&Thread>) -> Option<usize> {
        let none = Thread::default();
        if let Some(known) = self.threads.get(thread.unwrap_or(&none)) {
            return *known;
        }
        let label = thread.map_or_else(|| NO_THREAD.to_owned(), Thread::label);
        let thread = thread.cloned().unwrap_or_default();
        let filter = &self.options.filter;
        let process = thread.group.as_deref().unwrap_or(UNKNOWN_PROCESS);
        let wanted = filter.matches_thread(&label, process);
        let all_virtual = thread.all_virtual().filter(|_| !self.options.each_virtual_thread);
        let track = match all_virtual {
            _ if !wanted => None,
            Some(all) => match self.threads.get(&all) {
                Some(&known) => known,
                None => {
                    let track = Some(self.new_track(&all));
                    self.threads.insert(all, track);
                    track
                }
            },
            None => Some(self.new_track(&thread)),
        };
        self.threads.insert(thread, track);
        track
    }

    fn new_track(&mut self, thread: &Thread) -> usize {
        let process = thread.group.as_deref().unwrap_or(UNKNOWN_PROCESS);
        // `name (pid)`; a group of another form is a JVM's thread group, such as `main`.
        let (name, id) = match process.strip_suffix(')').and_then(|of| of.rsplit_once(" (")) {
            Some((name, id)) => (name, id.parse().unwrap_or(0)),
            None if process == UNKNOWN_PROCESS => (process, 0),
            None => ("java", 0),
        };
        let position = self.tracks.len();
        self.tracks.push(Track {
            name: thread.name().to_owned(),
            // An event without a thread has a thread without name and id.
            label: if *thread == Thread::default() { NO_THREAD.to_owned() } else { thread.label() },
            id: u32::try_from(thread.os_id).ok().filter(|id| *id > 0).unwrap_or(position as u32),
            process: name.to_owned(),
            process_id: id,
            samples: Vec::new(),
        });
        position
    }

    fn stack(&mut self, stack: Option<&Arc<live::Stack>>, class: Option<Arc<str>>) -> Option<u32> {
        let Some(stack) = stack.filter(|stack| !stack.frames.is_empty()) else {
            if let Some(known) = self.without.get(&class) {
                return *known;
            }
            let path: Vec<Label> =
                [marker(NO_STACK)].into_iter().chain(class.as_ref().map(class_label)).collect();
            let found = self.place(&path);
            if self.without.len() < MOST_KEPT {
                self.without.insert(class, found);
            }
            return found;
        };
        let known = (Arc::as_ptr(stack).addr(), class);
        if let Some((_, place)) = self.known.get(&known) {
            return *place;
        }
        let mut path: Vec<Label> = Vec::with_capacity(stack.frames.len() + 1);
        path.extend(stack.truncated.then(|| marker(TRUNCATED)));
        path.extend(stack.frames.iter().rev().map(|frame| label(&frame.to_model(), self.options)));
        path.extend(known.1.as_ref().map(class_label));
        let place = self.place(&path);
        // Each chunk has its own stacks, most of them equal to those of the chunk before.
        if self.kept > MOST_KEPT {
            self.known.clear();
            self.kept = 0;
        }
        self.kept += stack.frames.len();
        self.known.insert(known, (stack.clone(), place));
        place
    }

    fn place(&mut self, path: &[Label]) -> Option<u32> {
        if !self.options.filter.frames(path.iter().map(|label| &*label.text)) {
            return None;
        }
        let path: Box<[LabelId]> = self.reshape.path(path, &mut self.builder)?.into();
        let next = self.stacks.len() as u32;
        let place = *self.interned.entry(path.clone()).or_insert(next);
        if place == next {
            self.stacks.push(path);
        }
        Some(place)
    }

    /// Returns the collected samples.
    pub fn finish(self) -> Tracks {
        let mut all = self.threads();
        all.tracks.retain(|track| !track.samples.is_empty());
        let start = all.tracks.iter().flat_map(|track| &track.samples).map(|sample| sample.time).min();
        all.start = start.unwrap_or(0);
        for track in &mut all.tracks {
            track.samples.iter_mut().for_each(|sample| sample.time = sample.time.saturating_sub(all.start));
            track.samples.sort_by_key(|sample| sample.time);
        }
        all.tracks.sort_by(Track::in_order);
        all
    }

    /// Returns the threads in order of first appearance, and the stacks of all samples, including those
    /// that were only passed to [`Self::select`].
    pub fn threads(self) -> Tracks {
        let unit = self.unit.unwrap_or(Unit::Samples).name().to_owned();
        Tracks {
            labels: self.builder.into_labels(),
            stacks: self.stacks,
            tracks: self.tracks,
            unit,
            start: 0,
        }
    }
}

fn marker(text: &str) -> Label {
    Label { text: text.into(), module: None, kind: FrameKind::Marker }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::{Filter, fold};
    use crate::model::{EventKind, Model, SampleKey, Weight};

    fn threads() -> [Thread; 3] {
        let of_java = |name: Option<&str>, java_id, os_id| Thread {
            java_name: name.map(Arc::from),
            java_id,
            os_id,
            is_virtual: os_id == 0,
            ..Thread::default()
        };
        [of_java(None, 31, 0), of_java(Some("order"), 33, 0), of_java(Some("main"), 1, 7)]
    }

    fn roots(options: &FoldOptions) -> Vec<(String, u64)> {
        let mut model = Model::default();
        let kind = EventKind {
            name: "jdk.ExecutionSample".into(),
            variant: None,
            unit: Unit::Samples,
            period_nanos: None,
        };
        let kind = model.kinds.intern(kind);
        for (thread, count) in threads().into_iter().zip([1, 2, 4]) {
            let key = SampleKey {
                kind,
                thread: Some(model.threads.intern(thread)),
                stack: None,
                state: None,
                class: None,
                title: None,
            };
            model.samples.insert(key, Weight { count, value: 0 });
        }
        let tree = fold(&model, &FoldOptions { by_thread: true, ..options.clone() }).unwrap();
        let roots = tree.nodes.iter().map(|node| (node, node.total)).filter(|(node, _)| node.depth == 0);
        roots.map(|(node, total)| (tree.labels[node.label.index()].text.to_string(), total)).collect()
    }

    fn tracks(options: &FoldOptions) -> Vec<String> {
        let reshape = Reshape::default();
        let mut collecting = Collecting::new(options, &reshape, [i64::MIN, i64::MAX]);
        threads().iter().for_each(|thread| _ = collecting.track(Some(thread)));
        collecting.threads().tracks.into_iter().map(|track| track.label).collect()
    }

    #[test]
    fn virtual_threads_are_grouped_by_default() {
        let together = FoldOptions::default();
        assert_eq!(roots(&together), [("[main tid=7]".to_owned(), 4), ("[virtual threads]".to_owned(), 3)]);
        assert_eq!(tracks(&together), ["[virtual threads]", "[main tid=7]"]);
        let apart = FoldOptions { each_virtual_thread: true, ..FoldOptions::default() };
        let names = ["[main tid=7]", "[order virtual #33]", "[virtual #31]"];
        assert_eq!(roots(&apart).into_iter().map(|(name, _)| name).collect::<Vec<_>>(), names);
        assert_eq!(tracks(&apart), ["[virtual #31]", "[order virtual #33]", "[main tid=7]"]);
        // A filter is applied to each of them.
        let thread = regex::Regex::new("virtual #33").ok();
        let one = FoldOptions { filter: Filter { thread, ..Filter::default() }, ..FoldOptions::default() };
        assert_eq!(roots(&one), [("[virtual threads]".to_owned(), 2)]);
        assert_eq!(tracks(&one), ["[virtual threads]"]);
    }
}
