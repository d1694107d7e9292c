//! Marks the less exact samples of chunks with two types of CPU samples. They get the variant
//! [`COVERED`], as in a model. The other type may follow later in the chunk, so the recording is read
//! twice.

use std::io::{self, Read};
use std::sync::Arc;

use super::Options;
use super::feed::Feed;
use super::item::Item;
use crate::model::{COVERED, CPU_TIME_SAMPLE, EXECUTION_SAMPLE};

/// Bytes read at a time.
const READ: usize = 256 << 10;

/// Marks the samples of `jdk.ExecutionSample` in chunks that have samples of `jdk.CPUTimeSample` too.
#[derive(Debug, Default)]
pub struct Covering {
    /// For each chunk, whether it has samples of `jdk.CPUTimeSample`.
    exact: Vec<bool>,
    chunk: usize,
    variant: Option<Arc<str>>,
}

impl Covering {
    /// Finds the chunks of a recording that have samples of `jdk.CPUTimeSample`.
    ///
    /// # Errors
    /// The recording cannot be read. Damage is not an error here.
    pub fn scan(mut recording: impl Read) -> io::Result<Self> {
        let samples = vec![CPU_TIME_SAMPLE.to_owned()];
        let mut feed = Feed::new(Options { samples, others: false, ..Options::default() });
        let mut exact = Vec::new();
        let (mut buffer, mut chunk) = (vec![0; READ], 0);
        loop {
            let bytes = recording.read(&mut buffer)?;
            feed.push(buffer.get(..bytes).unwrap_or_default());
            if bytes == 0 {
                feed.close();
            }
            while let Some(item) = feed.next() {
                match item {
                    Item::ChunkStart(start) => chunk = start.index as usize,
                    Item::Sample(_) => {
                        exact.resize(exact.len().max(chunk + 1), false);
                        exact[chunk] = true;
                    }
                    _ => {}
                }
            }
            if bytes == 0 {
                return Ok(Self { exact, chunk: 0, variant: Some(COVERED.into()) });
            }
        }
    }

    fn is_exact(&self) -> bool {
        self.exact.get(self.chunk).is_some_and(|&exact| exact)
    }

    /// Marks the next item of the same recording.
    pub fn mark(&mut self, item: &mut Item) {
        match item {
            Item::ChunkStart(start) => self.chunk = start.index as usize,
            Item::Sample(sample) if &*sample.event == EXECUTION_SAMPLE && self.is_exact() => {
                sample.variant.clone_from(&self.variant);
            }
            _ => {}
        }
    }
}
