//! Messages, and losses of samples.

use jfr_format::schema;

use super::Recording;

impl Recording {
    /// Records a message for the reader of the recording.
    pub fn notice(&mut self, message: &str, now_ns: u64) {
        let now = self.ticks(now_ns);
        self.event(schema::NOTICE, None, message.len(), |e, _| {
            e.ticks(now).string(message);
        });
    }

    /// Records lost samples of a thread, and the CPU time that they represented.
    pub fn sample_loss(
        &mut self,
        constant: usize,
        cause: &'static str,
        (samples, ns): (u64, u64),
        now_ns: u64,
    ) {
        if self.defer_unread_loss(schema::SAMPLE_LOSS, cause, (samples, ns)) {
            return;
        }
        let now = self.ticks(now_ns);
        self.event(schema::SAMPLE_LOSS, Some(constant), cause.len(), |e, key| {
            e.ticks(now).key(key).string(cause).long(samples as i64).long(ns as i64);
        });
    }
}
