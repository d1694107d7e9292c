//! Recordings → what is downloaded or shown.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};

use axum::http::StatusCode;
use bytes::Bytes;
use flightline_consumer::Error as ConsumerError;
use flightline_consumer::difference::{Difference, Scale};
use flightline_consumer::fold::{self, FoldOptions, Measure};
use flightline_consumer::folded;
use flightline_consumer::load::{LoadOptions, load_recording};
use flightline_consumer::model::Model;
use flightline_consumer::render::difference::{self, DifferenceOptions};
use flightline_consumer::render::svg::SvgOptions;
use flightline_consumer::render::{PictureOptions, html};
use flightline_consumer::tree::Tree;
use flightline_export::{otlp, pprof};
use jfr_format::read::Recording;
use prost::Message;

/// What can be had of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A flame graph as a page.
    Html,
    /// The recording.
    Jfr,
    /// Folded stacks.
    Folded,
    /// gzipped profile.proto.
    Pprof,
    /// OpenTelemetry's profiles, protobuf.
    Otlp,
}

impl Format {
    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Html, Self::Jfr, Self::Folded, Self::Pprof, Self::Otlp]
            .into_iter()
            .find(|format| format.name() == name)
    }

    /// As paths have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::Jfr => "jfr",
            Self::Folded => "folded",
            Self::Pprof => "pprof",
            Self::Otlp => "otlp",
        }
    }

    /// How names of files end.
    pub fn ending(self) -> &'static str {
        if self == Self::Pprof { "pb.gz" } else { self.name() }
    }

    /// For HTTP.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Html => "text/html; charset=utf-8",
            Self::Folded => "text/plain; charset=utf-8",
            Self::Otlp => "application/x-protobuf",
            Self::Jfr | Self::Pprof => "application/octet-stream",
        }
    }
}

/// An open recording.
#[derive(Debug)]
pub struct Source(File);

impl Source {
    /// Of a file.
    pub fn new(file: File) -> Self {
        Self(file)
    }

    fn recording(&self) -> Result<Recording, Error> {
        whole(&self.0).map(Recording::bytes).map_err(Error::Read)
    }
}

/// What is to be shown.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Which events; `None`: the best there are.
    pub event: Option<String>,
    /// Above the picture.
    pub title: String,
}

/// Why there is no picture.
#[derive(Debug)]
pub enum Error {
    /// The file cannot be read.
    Read(std::io::Error),
    /// It is no recording, or nothing in it can be drawn.
    Draw(ConsumerError),
}

impl Error {
    /// By HTTP.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Read(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Draw(_) => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read(error) => write!(f, "cannot read the recording: {error}"),
            Self::Draw(error) => write!(f, "{error}"),
        }
    }
}

impl<E: Into<ConsumerError>> From<E> for Error {
    fn from(error: E) -> Self {
        Self::Draw(error.into())
    }
}

/// Makes what is wanted of recordings.
///
/// # Errors
/// They cannot be read, or have nothing of the kind.
pub fn make(format: Format, sources: &[Source], wanted: &Wanted, mut out: &mut Vec<u8>) -> Result<(), Error> {
    let model = model(sources, wanted)?;
    let tree = tree(&model, wanted, Measure::Samples)?;
    match format {
        Format::Html => {
            let total = tree_of_other(&model, wanted, &tree);
            let measures: Vec<&Tree> = std::iter::once(&tree).chain(&total).collect();
            html::write_measures(&measures, None, &options(wanted, &tree), out)?;
        }
        Format::Folded => folded::write(&tree, &mut out)?,
        Format::Pprof => pprof::write(&pprof::of_tree(&tree), out).map_err(Error::Read)?,
        Format::Otlp => out.write_all(&otlp::tree::of_tree(&tree).encode_to_vec()).map_err(Error::Read)?,
        Format::Jfr => {
            for source in sources {
                out.extend_from_slice(&whole(&source.0).map_err(Error::Read)?);
            }
        }
    }
    Ok(())
}

/// Makes a picture of what changed.
///
/// # Errors
/// They cannot be read, or have nothing of the kind.
pub fn compare(before: &[Source], after: &[Source], wanted: &Wanted, out: &mut Vec<u8>) -> Result<(), Error> {
    let [one, other] = [before, after].map(|sources| {
        let model = model(sources, wanted)?;
        tree(&model, wanted, Measure::Samples)
    });
    let (one, other) = (one?, other?);
    let difference = Difference::new(&one, &other, Scale::Normalized);
    let svg = SvgOptions { picture: options(wanted, &other), ..SvgOptions::default() };
    difference::page(&difference, &DifferenceOptions { svg, ..DifferenceOptions::default() }, out)?;
    Ok(())
}

/// What an uploaded recording is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Groups of events with stacks, most first.
    pub events: Vec<String>,
}

/// Whether a file is a whole recording.
///
/// # Errors
/// It is not; says where.
pub fn check(file: &File) -> Result<Checked, String> {
    let bytes = whole(file).map_err(|error| format!("it cannot be read again ({error})"))?;
    // One thread: others are for those who look at pictures meanwhile.
    let loaded = load_recording(&Recording::bytes(bytes), &LoadOptions::default(), 1, |_| {});
    let loaded = loaded.map_err(|error| error.to_string())?;
    if loaded.warnings.damage() {
        let first = loaded.warnings.kept().first().map(ToString::to_string);
        return Err(first.unwrap_or_else(|| "it is damaged".into()));
    }
    if loaded.model.chunks == 0 {
        return Err("it has no chunk".into());
    }
    let mut counts: Vec<(String, u64)> = Vec::new();
    for (key, weight) in &loaded.model.samples {
        let name = &loaded.model.kinds.get(key.kind).name;
        let name = fold::alias_of(name).unwrap_or(name);
        match counts.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += weight.count,
            None => counts.push((name.to_owned(), weight.count)),
        }
    }
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    Ok(Checked { events: counts.into_iter().map(|(name, _)| name).collect() })
}

/// All of a file, from its beginning: it has been let in, so it is not larger than may be.
fn whole(file: &File) -> std::io::Result<Bytes> {
    let mut file = file.try_clone()?;
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

fn model(sources: &[Source], wanted: &Wanted) -> Result<Model, Error> {
    let asked: Vec<String> = wanted.event.iter().cloned().collect();
    let options = LoadOptions { events: fold::event_names(&asked), ..LoadOptions::default() };
    let mut loader = flightline_consumer::load::Loader::new(options);
    for source in sources {
        loader.take_recording(&source.recording()?, 1, |_| {})?;
    }
    Ok(loader.finish().model)
}

fn tree(model: &Model, wanted: &Wanted, measure: Measure) -> Result<Tree, Error> {
    let options = FoldOptions {
        events: wanted.event.iter().cloned().collect(),
        measure,
        split_modules: true,
        ..FoldOptions::default()
    };
    let tree = fold::fold(model, &options)?;
    if tree.total == 0 {
        return Err(Error::Draw(ConsumerError::NoSamples));
    }
    Ok(tree)
}

/// The same by what samples stand for, if they say it.
fn tree_of_other(model: &Model, wanted: &Wanted, first: &Tree) -> Option<Tree> {
    tree(model, wanted, Measure::Total).ok().filter(|tree| tree.unit != first.unit)
}

fn options(wanted: &Wanted, tree: &Tree) -> PictureOptions {
    let subtitle = Some(format!("{} {}", tree.total, tree.unit));
    PictureOptions { title: wanted.title.clone(), subtitle, inverted: false }
}
