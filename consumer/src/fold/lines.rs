//! The samples of single functions by source line and by address of the code.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jfr_format::pool::KeyHash;

use super::{FoldOptions, Folder, choose, label, measure, scaled, unit};
use crate::error::Error;
use crate::model::{CodeFile, Frame, Id, Model, Stack};
use crate::reshape::Names;
use crate::view::similar;

/// The samples of the functions with one name, by line and address.
#[derive(Debug)]
pub struct Annotation {
    /// The functions, heaviest first. Functions of one name in different files are different functions.
    pub functions: Vec<Annotated>,
    /// Weight of all selected samples, in `unit`.
    pub total: u64,
    /// The unit of weights: `samples`, `ns`, `bytes` or `events`.
    pub unit: &'static str,
    /// If no function has this name: at most five similar names.
    pub similar: Vec<String>,
}

/// A function and the weight of its lines.
#[derive(Debug)]
pub struct Annotated {
    /// Function name; for Java with package and class, as `java.util.HashMap.get`.
    pub name: String,
    /// Java class with package, or the file name of the library; may be empty.
    pub class: Arc<str>,
    /// True for methods of Java classes.
    pub is_java: bool,
    /// The program or library, if it is recorded and was loaded.
    pub file: Option<Arc<CodeFile>>,
    /// Weight of the function.
    pub all: Weights,
    /// Weights by source line, from 1.
    pub lines: BTreeMap<u32, Weights>,
    /// Weight of the frames without a known line.
    pub no_line: Weights,
    /// Weights by address in the file, where addresses were recorded.
    pub addresses: BTreeMap<u32, Weights>,
}

/// Weight of the stacks with a function, line or address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weights {
    /// Weight of the stacks that end there.
    pub own: u64,
    /// Weight of all stacks that contain it, each counted once.
    pub total: u64,
    /// The stack that was counted last.
    latest: Option<usize>,
}

impl Weights {
    fn add(&mut self, stack: usize, weight: u64, is_leaf: bool) {
        if is_leaf {
            self.own = self.own.saturating_add(weight);
        }
        if self.latest != Some(stack) {
            self.latest = Some(stack);
            self.total = self.total.saturating_add(weight);
        }
    }
}

/// A frame of a selected function.
struct Hit {
    function: usize,
    line: u32,
    address: u32,
}

/// Adds up the selected samples by line and by address of the functions called `name`. The name has the
/// form of flame graphs, with `library.so` and a backtick before it, or lacks the package, namespace and
/// parameters. `line_of` returns the line of an address in a file for frames that have an address instead
/// of a line; 0 if it is not known.
///
/// # Errors
/// As for [`super::fold`].
pub fn annotate(
    model: &Model,
    options: &FoldOptions,
    name: &str,
    line_of: &mut dyn FnMut(&CodeFile, u32) -> u32,
) -> Result<Annotation, Error> {
    let kinds = choose(model, options)?;
    let options = &FoldOptions { measure: measure(model, options, &kinds), ..options.clone() };
    let unit = unit(model, options, &kinds)?;
    let samples = model.samples.iter().filter(|(key, _)| kinds.contains(&key.kind));
    let weighed = samples.map(|(key, weight)| (key, scaled(model, options, key, *weight)));
    let weights = Folder::new(model, options).weights(weighed);
    let total = weights.values().copied().fold(0, u64::saturating_add);
    let mut stacks: Vec<(usize, &Stack, u64)> = Vec::new();
    for (id, weight) in weights.into_iter().filter_map(|(id, weight)| Some((id?, weight))) {
        stacks.push((id.index(), model.stacks.get(id), weight));
    }
    let names = Naming::new(model, &stacks);
    let mut functions: Vec<Annotated> = Vec::new();
    let hits = names.hits(name, &mut functions, line_of);
    for &(id, stack, weight) in &stacks {
        // The leaf comes first.
        for (at, frame) in stack.frames.iter().enumerate() {
            let Some(hit) = hits.get(&frame.index()) else { continue };
            let function = &mut functions[hit.function];
            let is_leaf = at == 0;
            function.all.add(id, weight, is_leaf);
            match hit.line {
                0 => function.no_line.add(id, weight, is_leaf),
                line => function.lines.entry(line).or_default().add(id, weight, is_leaf),
            }
            if hit.address != 0 {
                function.addresses.entry(hit.address).or_default().add(id, weight, is_leaf);
            }
        }
    }
    functions.retain(|function| function.all.total > 0);
    functions.sort_by(|a, b| {
        let key = |of: &Annotated| (std::cmp::Reverse(of.all.total), of.name.clone(), of.file.clone());
        key(a).cmp(&key(b))
    });
    let similar = if functions.is_empty() { names.similar(name) } else { Vec::new() };
    Ok(Annotation { functions, total, unit, similar })
}

/// A frame, its name, and the library if it is native code.
type Named<'m> = (Id<Frame>, &'m Frame, Arc<str>, Option<Arc<str>>);

/// Names of the frames on the selected stacks.
struct Naming<'m> {
    frames: Vec<Named<'m>>,
}

impl<'m> Naming<'m> {
    fn new(model: &'m Model, stacks: &[(usize, &'m Stack, u64)]) -> Self {
        let mut met = vec![false; model.frames.len()];
        for (_, stack, weight) in stacks {
            stack.frames.iter().filter(|_| *weight > 0).for_each(|frame| met[frame.index()] = true);
        }
        let options = FoldOptions { split_modules: true, ..FoldOptions::default() };
        let frames = model.frames.iter().filter(|(id, _)| met[id.index()]).map(|(id, frame)| {
            let label = label(frame, &options);
            (id, frame, label.text, label.module)
        });
        Self { frames: frames.collect() }
    }

    /// Returns the frames of the functions with this name, by index, and adds the functions.
    fn hits(
        &self,
        name: &str,
        functions: &mut Vec<Annotated>,
        line_of: &mut dyn FnMut(&CodeFile, u32) -> u32,
    ) -> HashMap<usize, Hit, KeyHash> {
        let (library, function) = name.split_once('`').map_or((None, name), |(l, f)| (Some(l), f));
        let in_library =
            |module: &Option<Arc<str>>| library.is_none_or(|name| module.as_deref() == Some(name));
        let mut same: Vec<_> = self
            .frames
            .iter()
            .filter(|(.., text, module)| **text == *function && in_library(module))
            .collect();
        if same.is_empty() {
            let is_short = |text: &Arc<str>| {
                let short = Names::Simple.apply(text);
                let last = short.rsplit(['.', ':']).next().unwrap_or_default();
                *short == *function || *last == *function
            };
            same = self
                .frames
                .iter()
                .filter(|(.., text, module)| is_short(text) && in_library(module))
                .collect();
        }
        let mut hits = HashMap::default();
        let mut known: HashMap<_, usize> = HashMap::new();
        for (id, frame, text, module) in same {
            let file = frame.place.as_ref().map(|place| place.file.clone());
            let function = *known.entry((text, module, file.clone())).or_insert_with(|| {
                functions.push(Annotated {
                    name: text.to_string(),
                    class: frame.class.clone(),
                    is_java: !frame.kind.in_library() && !frame.class.is_empty(),
                    file,
                    all: Weights::default(),
                    lines: BTreeMap::new(),
                    no_line: Weights::default(),
                    addresses: BTreeMap::new(),
                });
                functions.len() - 1
            });
            let address = frame.place.as_ref().map_or(0, |place| place.address);
            let line = match (u32::try_from(frame.line), &frame.place) {
                (Ok(0) | Err(_), Some(place)) if address != 0 => line_of(&place.file, address),
                (line, _) => line.unwrap_or(0),
            };
            hits.insert(id.index(), Hit { function, line, address });
        }
        hits
    }

    fn similar(&self, name: &str) -> Vec<String> {
        let (_, name) = name.split_once('`').unwrap_or(("", name));
        let mut texts: Vec<&str> = self.frames.iter().map(|(.., text, _)| &**text).collect();
        texts.sort_unstable();
        texts.dedup();
        let mut found: Vec<String> =
            similar(name, texts.iter().copied()).into_iter().map(str::to_owned).collect();
        // A misspelt short name is not similar to a long one.
        let short: Vec<(Arc<str>, &str)> =
            texts.iter().map(|text| (Names::Simple.apply(&Arc::from(*text)), *text)).collect();
        let last = |short: &Arc<str>| short.rsplit(['.', ':']).next().unwrap_or_default().to_owned();
        let lasts: Vec<(String, &str)> = short.iter().map(|(short, text)| (last(short), *text)).collect();
        for near in similar(name, lasts.iter().map(|(last, _)| last.as_str())) {
            let same = lasts.iter().filter(|(last, _)| last == near).map(|(_, text)| (*text).to_owned());
            found.extend(same.filter(|text| !found.contains(text)).collect::<Vec<_>>());
        }
        found.truncate(5);
        found
    }
}
