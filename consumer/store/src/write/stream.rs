//! Writes a stream as a delivery every few seconds.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use flightline_consumer::live::Item;
use twox_hash::XxHash3_64;

use super::delivery::{Added, Parts, Writer};
use super::rows::Rows;
use crate::footer::Id;
use crate::layout::Day;

/// Rows of a stream since the last delivery. A stream cannot be read twice, so deliveries are named after the
/// time and host.
pub struct Stream<'w> {
    writer: &'w Writer,
    /// Unique name of this stream.
    name: String,
    rows: Rows,
    /// Number of deliveries.
    pieces: u64,
}

impl<'w> Stream<'w> {
    /// Starts the stream from `source`.
    pub fn begin(writer: &'w Writer, source: &str) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let host = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let name = format!("{host} {} {since_epoch:?} {source}", std::process::id());
        let mut stream = Self { writer, name, rows: Rows::default(), pieces: 0 };
        stream.rows.chunk(stream.id());
        stream
    }

    /// Adds an item.
    pub fn take(&mut self, item: &Item) {
        match item {
            // Constant pool keys change; the delivery continues.
            Item::ChunkStart(_) => self.rows.keys_change(),
            Item::Sample(sample) => self.rows.sample(sample, &self.writer.shared),
            Item::Loss(loss) => self.rows.loss(loss),
            _ => {}
        }
    }

    /// Returns true if there are enough rows for a file.
    pub fn full(&self) -> bool {
        self.rows.full()
    }

    /// Writes a delivery.
    ///
    /// # Errors
    /// Returns an error if the store cannot be written, or timestamps span too many days.
    pub async fn put(&mut self, added: &mut Added) -> Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let day = Day::from_micros(i64::try_from(now.as_micros()).unwrap_or(i64::MAX));
        let mut parts = Parts::new(self.writer, day, self.id());
        parts.rows = std::mem::take(&mut self.rows);
        parts.finish(added).await?;
        added.chunks += 1;
        self.pieces += 1;
        self.rows.chunk(self.id());
        Ok(())
    }

    fn id(&self) -> Id {
        Id(XxHash3_64::oneshot(format!("{} {}", self.name, self.pieces).as_bytes()))
    }
}
