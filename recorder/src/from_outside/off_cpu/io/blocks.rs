//! Requests to block devices. A completion carries the device and first sector of the request that was
//! queued, which gives the thread and its stack.

use std::{borrow::Cow, collections::HashMap, fs, sync::Arc};

use super::{
    points::BlockAddress,
    written_calls::{IoDetails, IoEvent},
};
use crate::{
    from_outside::off_cpu::OffCpu, from_outside::off_cpu::ledger::Cause, from_outside::outputs::Outputs,
    perf_events::record::Traced,
};

/// Limits of concurrent requests, and of remembered devices.
const MOST: usize = 1 << 14;
/// Bytes of a sector in the kernel's units, whatever the device uses.
const SECTOR: u64 = 512;

/// Requests in progress.
#[derive(Default)]
pub struct Requests {
    going_on: HashMap<BlockAddress, IoEvent>,
    devices: HashMap<u32, Arc<str>>,
}

impl Requests {
    /// Removes all requests in progress. Returns their processes and start times.
    pub fn take_all(&mut self) -> Vec<(u32, u64)> {
        self.going_on.drain().map(|(_, event)| (event.pid, event.start_ns)).collect()
    }

    /// Returns the name of a device, such as `vda`, or its numbers.
    fn device(&mut self, number: u32) -> Arc<str> {
        if self.devices.len() > MOST {
            self.devices.clear();
        }
        let name = || {
            let (major, minor) = (number >> 20, number & 0xfffff);
            let link = fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok();
            let name = link.and_then(|link| Some(link.file_name()?.to_string_lossy().into_owned()));
            name.unwrap_or_else(|| format!("{major}:{minor}")).into()
        };
        self.devices.entry(number).or_insert_with(name).clone()
    }
}

/// Returns the operation for flags in blktrace's notation: `WS`, `RA`, `FF`, ….
pub fn operation(flags: &[u8]) -> &'static str {
    // A leading F requests a flush of earlier data first.
    match flags {
        [b'F', rest @ ..] if !matches!(rest, [] | [b'F', ..]) => operation(rest),
        [b'R', ..] => "read",
        [b'W', ..] => "write",
        [b'D', ..] => "discard",
        [b'F', ..] => "flush",
        [b'Z', ..] => "zone",
        _ => "other",
    }
}

impl OffCpu {
    /// Adds a request, queued by the sampled thread.
    pub(in crate::from_outside::off_cpu) fn queued(
        &mut self,
        outputs: &mut dyn Outputs,
        sample: &Traced<'_>,
        bytes: &[u8],
    ) {
        let Some(points) = self.kernel.points.as_ref().and_then(|points| points.blocks.as_ref()) else {
            return;
        };
        let Some((place, sectors, flags)) = points.started(sample.raw) else { return };
        let flags: Cow<'_, str> = String::from_utf8_lossy(flags);
        let operation = operation(flags.as_bytes());
        let flags = flags.as_ref().into();
        let Some(name) = self.records_io(sample) else { return };
        self.guard.took();
        let device = self.io.requests.device(place.device);
        let bytes_wanted = sectors.saturating_mul(SECTOR);
        let what = IoDetails::Block {
            device,
            operation,
            flags,
            sector: place.sector,
            bytes: bytes_wanted,
            error: 0,
        };
        let stack = self.keep(outputs, sample.pid, bytes, false);
        let event = IoEvent::new((sample.pid, sample.tid), name, stack, (sample.time_ns, 0), what);
        if self.io.requests.going_on.len() >= MOST {
            for (pid, began_ns) in self.io.requests.take_all() {
                self.lose(outputs, pid, Cause::CallUnseen, sample.time_ns.saturating_sub(began_ns));
            }
        }
        if let Some(before) = self.io.requests.going_on.insert(place, event) {
            let took_ns = sample.time_ns.saturating_sub(before.start_ns);
            self.lose(outputs, before.pid, Cause::CallUnseen, took_ns);
        }
    }

    /// Completes a request, or its first sectors.
    pub(in crate::from_outside::off_cpu) fn completed(
        &mut self,
        outputs: &mut dyn Outputs,
        sample: &Traced<'_>,
    ) {
        let Some(points) = self.kernel.points.as_ref().and_then(|points| points.blocks.as_ref()) else {
            return;
        };
        let Some((place, sectors, failed)) = points.done(sample.raw) else { return };
        let Some(mut event) = self.io.requests.going_on.remove(&place) else { return };
        event.took_ns = sample.time_ns.saturating_sub(event.start_ns);
        if event.took_ns < self.options.selected.block_ns() {
            if let Some(id) = self.output(outputs, event.pid) {
                self.ledger.short("block-io", id, event.took_ns);
            }
            return;
        }
        if let IoDetails::Block { bytes, error, .. } = &mut event.what {
            // Other requests may have been merged into it since.
            *bytes = (*bytes).max(sectors.saturating_mul(SECTOR));
            *error = failed;
        }
        self.write_call_event(outputs, event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blktrace_flags_are_decoded() {
        let table = [("R", "read"), ("RAM", "read"), ("WS", "write"), ("FWFS", "write"), ("FF", "flush")];
        let more = [("F", "flush"), ("DS", "discard"), ("ZR", "zone"), ("N", "other"), ("", "other")];
        for (flags, means) in table.into_iter().chain(more) {
            assert_eq!(operation(flags.as_bytes()), means, "{flags}");
        }
    }

    #[test]
    fn unknown_device_is_named_by_numbers() {
        let mut requests = Requests::default();
        assert_eq!(&*requests.device(4095 << 20 | 77), "4095:77");
        assert_eq!(requests.devices.len(), 1);
    }
}
