//! The memory layout of a context: a record of OpenTelemetry's thread context (OTEP 4947), and directly
//! before it the data that only Flightline's recorder reads.

use core::mem::offset_of;
use core::sync::atomic::AtomicU64;

use crate::key_table::Keys;

/// Bytes of labels in a record: the proposal recommends at most 640 bytes for the whole record.
pub const ATTRS_MAX: usize = 612;
/// The value of [`Record::valid`] in a readable record.
pub const VALID: u8 = 1;
/// [`SideCar::magic`].
pub const MAGIC: u32 = 0x5843_4c46; // "FLCX"

/// A thread's context in the layout of OTEP 4947.
#[repr(C)]
#[derive(Debug)]
pub struct Record {
    /// W3C Trace Context; zeros: none.
    pub trace_id: [u8; 16],
    /// W3C Trace Context.
    pub span_id: [u8; 8],
    /// [`VALID`], else readers must ignore the record.
    pub valid: u8,
    /// Trace flags of W3C Trace Context.
    pub flags: u8,
    /// Number of used bytes of `attrs`.
    pub attrs_size: u16,
    /// Labels, one after the other: index of the key, length, that many bytes of UTF-8. If a key occurs
    /// several times, the last label counts.
    pub attrs: [u8; ATTRS_MAX],
}

/// The data directly before every record of this project.
#[repr(C)]
#[derive(Debug)]
pub struct SideCar {
    /// [`MAGIC`].
    pub magic: u32,
    /// Length of `name` in bytes.
    pub name_len: u32,
    /// Changes with each new contents of the record; 0 while they are written. A reader in another thread or
    /// process reads it before and after the record. The thread's own handlers need not.
    pub version: AtomicU64,
    /// Number of the activation, unique in the process, never 0. A change of labels does not change it.
    pub seq: u64,
    /// The outermost span of this trace in this process, as a number (big-endian bytes are W3C's).
    pub local_root_span_id: u64,
    /// Its parent span; 0: none or unknown.
    pub parent_span_id: u64,
    /// The slot's previous value: the record of the span that was active on this thread before; null: none.
    pub previous: *const u8,
    /// Start of the activation, `CLOCK_MONOTONIC` ns; 0 if no recording was active then.
    pub start_ns: u64,
    /// The span's name, UTF-8; valid while the record is active. Null: unknown.
    pub name: *const u8,
}

/// A record of this project; the slot points to `record`.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct OwnedRecord {
    /// The additional data for the recorder.
    pub car: SideCar,
    /// The record that all readers use.
    pub record: Record,
}

/// Distance from the side-car to the record.
pub const SIDE_CAR_BEFORE: usize = 64;

const _: () = {
    assert!(size_of::<Record>() == 640 && offset_of!(Record, attrs) == 28);
    assert!(size_of::<SideCar>() == SIDE_CAR_BEFORE && offset_of!(OwnedRecord, record) == SIDE_CAR_BEFORE);
};

/// Iterates over the labels in the bytes of [`Record::attrs`]: index of the key, value. Stops at the first
/// incomplete label.
pub fn labels(mut attrs: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    core::iter::from_fn(move || {
        let (&[key, len], rest) = attrs.split_first_chunk::<2>()?;
        let (value, rest) = rest.split_at_checked(usize::from(len))?;
        attrs = rest;
        Some((key, value))
    })
}

/// Returns the longest prefix of a text within `max` bytes that does not cut a character.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

impl Record {
    /// Creates a record without labels that readers ignore.
    pub(crate) fn empty() -> Record {
        Record {
            trace_id: [0; 16],
            span_id: [0; 8],
            valid: 0,
            flags: 0,
            attrs_size: 0,
            attrs: [0; ATTRS_MAX],
        }
    }

    /// Returns the bytes of its labels.
    pub(crate) fn labels(&self) -> &[u8] {
        &self.attrs[..usize::from(self.attrs_size).min(ATTRS_MAX)]
    }

    fn put(&mut self, bytes: &[u8]) -> bool {
        let from = usize::from(self.attrs_size);
        let Some(room) = self.attrs.get_mut(from..from + bytes.len()) else { return false };
        room.copy_from_slice(bytes);
        self.attrs_size += bytes.len() as u16;
        true
    }

    /// Adds a label. Returns false if there is no room for it. A value is cut at 255 bytes.
    pub(crate) fn append(&mut self, key: u8, value: &str) -> bool {
        let value = cut(value, 255);
        let room = ATTRS_MAX - usize::from(self.attrs_size);
        room >= 2 + value.len() && self.put(&[key, value.len() as u8]) && self.put(value.as_bytes())
    }

    /// Adds all labels of `attrs` except those of one key.
    pub(crate) fn append_without(&mut self, attrs: &[u8], without: u8) -> bool {
        labels(attrs)
            .filter(|(key, _)| *key != without)
            .all(|(key, value)| self.put(&[key, value.len() as u8]) && self.put(value))
    }

    /// Sets the labels to `own` and to those `inherited` ones whose keys are in `keys`, like
    /// [`Record::set_labels`].
    #[cold]
    pub(crate) fn set_labels_for_keys(&mut self, keys: &Keys, inherited: &[u8], own: &[u8]) {
        let mut copied = Record::empty();
        for (key, value) in labels(inherited).filter(|(key, _)| keys.has(*key)) {
            copied.put(&[key, value.len() as u8]);
            copied.put(value);
        }
        self.set_labels(copied.labels(), own);
    }

    /// Sets the labels to `own` and, as far as there is room, to those `inherited` ones whose keys are not in
    /// `own`.
    pub(crate) fn set_labels(&mut self, inherited: &[u8], own: &[u8]) {
        self.attrs_size = 0;
        let own = if own.len() > ATTRS_MAX { &[] } else { own };
        let room = ATTRS_MAX - own.len();
        if own.is_empty() {
            self.put(inherited);
            return;
        }
        for (key, value) in labels(inherited) {
            if labels(own).all(|(other, _)| other != key)
                && usize::from(self.attrs_size) + 2 + value.len() <= room
            {
                self.put(&[key, value.len() as u8]);
                self.put(value);
            }
        }
        self.put(own);
    }
}

impl SideCar {
    /// Returns the side-car of the record at `record`, if it is a record of this project.
    ///
    /// # Safety
    /// `record` is readable memory.
    pub(crate) unsafe fn from_record<'a>(record: *const u8) -> Option<&'a SideCar> {
        // Records of this project are aligned and never start a page (`thread::LEVELS_AT`), so the memory
        // before them is readable if they are.
        let at = record as usize;
        if !at.is_multiple_of(align_of::<OwnedRecord>()) || at.is_multiple_of(crate::sys::PAGE) {
            return None;
        }
        // SAFETY: readable as explained above, and every bit pattern is valid.
        let car = unsafe { &*record.sub(SIDE_CAR_BEFORE).cast::<SideCar>() };
        (car.magic == MAGIC).then_some(car)
    }

    /// Copies everything except the version.
    pub(crate) fn copy_from(&mut self, other: &SideCar) {
        self.magic = other.magic;
        self.name_len = other.name_len;
        self.seq = other.seq;
        self.local_root_span_id = other.local_root_span_id;
        self.parent_span_id = other.parent_span_id;
        self.previous = other.previous;
        self.start_ns = other.start_ns;
        self.name = other.name;
    }
}
