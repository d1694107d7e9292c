//! Constants that events refer to: threads, their groups, classes, event names. Each is written once per
//! chunk.
//!
//! If there are many, constants that were not referenced for a whole chunk are dropped, because a program may
//! start threads for months. Keys are never reused; a thread that is referenced again gets its previous key.

use jfr_format::schema;

use super::{Recording, current_chunk::CurrentChunk};
use crate::{
    names::intern::{ClassIndex, MethodIndex, TraceIndex},
    settings::PerfEvent,
};

/// A thread in the output.
struct ThreadConstant {
    /// The chunk that contains it.
    chunk: u32,
    /// The chunk in which an event last referenced it.
    since: u32,
    key: u64,
    tid: u32,
    name: String,
    group: u32,
}

struct Group {
    chunk: u32,
    key: u64,
    name: String,
    /// Key and text of the process's title, which is the parent of the group; see [`crate::process::title`].
    title: Option<(u64, String)>,
    /// Its process may still start threads.
    open: bool,
}

/// A network interface.
struct Interface {
    chunk: u32,
    key: u64,
    name: String,
}

/// A reference to a thread's constant, with its key in case the constant is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadHandle {
    /// The index for events.
    pub index: usize,
    key: u64,
}

/// The first key for threads that cannot use their TID as key.
const FIRST_FREE_KEY: u64 = 1 << 22;
/// Number of thread constants up to which none is dropped, and the number of further ones that causes a new
/// chunk.
const MANY_THREADS: [usize; 2] = [4096, 16_384];

/// Slots of thread constants. An index consists of the slot and, above [`PLACE`] bits, the number of times
/// that the slot was used before, so that an index never refers to another thread.
#[derive(Default)]
struct ThreadTable {
    places: Vec<(u32, Option<ThreadConstant>)>,
    free: Vec<u32>,
    /// Bitmap of the TIDs that are used as keys, at most 512 KiB.
    keys_taken: Vec<u64>,
    last_key: u64,
    /// Number of constants left when some were last dropped.
    limit: usize,
}

const PLACE: u32 = 32;
/// Upper bound of a title's constant, without its text, bytes.
const TITLE_COST: usize = 64;
/// Number of network interfaces up to which none is dropped. Each container has one.
const MANY_INTERFACES: usize = 64;

impl ThreadTable {
    fn add(&mut self, constant: ThreadConstant) -> usize {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let Some((used, slot)) = self.places.get_mut(place as usize) else { return usize::MAX };
        *slot = Some(constant);
        (*used as usize) << PLACE | place as usize
    }

    fn get(&self, index: usize) -> Option<&ThreadConstant> {
        let (used, slot) = self.places.get(index & ((1 << PLACE) - 1))?;
        slot.as_ref().filter(|_| *used as usize == index >> PLACE)
    }

    fn get_mut(&mut self, index: usize) -> Option<&mut ThreadConstant> {
        let (used, slot) = self.places.get_mut(index & ((1 << PLACE) - 1))?;
        slot.as_mut().filter(|_| *used as usize == index >> PLACE)
    }

    fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Returns a new key: the TID for the first thread with it, otherwise a key above all TIDs.
    fn new_key(&mut self, tid: u32) -> u64 {
        let (word, bit) = (tid as usize / 64, 1 << (tid % 64));
        if tid > 0 && u64::from(tid) < FIRST_FREE_KEY {
            if self.keys_taken.len() <= word {
                self.keys_taken.resize(word + 1, 0);
            }
            if self.keys_taken[word] & bit == 0 {
                self.keys_taken[word] |= bit;
                return u64::from(tid);
            }
        }
        self.last_key = self.last_key.max(FIRST_FREE_KEY) + 1;
        self.last_key
    }

    /// Drops threads that no event referenced in the chunk before `chunk`.
    fn trim(&mut self, chunk: u32) {
        if self.len() <= MANY_THREADS[0] {
            return;
        }
        for (place, (used, slot)) in self.places.iter_mut().enumerate() {
            if slot.as_ref().is_some_and(|t| t.since + 1 < chunk) {
                *slot = None;
                // A slot with no indices left remains empty.
                if let Some(next) = used.checked_add(1) {
                    *used = next;
                    self.free.push(place as u32);
                }
            }
        }
        self.limit = self.len();
    }
}

/// Constants of threads and of their groups.
#[derive(Default)]
pub(super) struct ThreadConstants {
    table: ThreadTable,
    groups: Vec<Option<Group>>,
    last_group: u64,
}

impl ThreadConstants {
    fn group(&self, index: u32) -> Option<&Group> {
        self.groups.get(index as usize).and_then(Option::as_ref)
    }

    fn add_titled_group(&mut self, process_group: u32, title: &str) -> u32 {
        let name = self.group(process_group).map(|group| group.name.clone());
        self.last_group += 1;
        let title = (self.last_group, title.to_owned());
        self.add_group(name.unwrap_or_default(), Some(title))
    }

    fn add_group(&mut self, name: String, title: Option<(u64, String)>) -> u32 {
        self.last_group += 1;
        let group = Group { chunk: 0, key: self.last_group, name, title, open: true };
        match self.groups.iter().position(Option::is_none) {
            Some(free) => {
                self.groups[free] = Some(group);
                free as u32
            }
            None => {
                self.groups.push(Some(group));
                self.groups.len() as u32 - 1
            }
        }
    }

    fn end_group(&mut self, group: u32) {
        if let Some(Some(group)) = self.groups.get_mut(group as usize) {
            group.open = false;
        }
    }

    /// Adds a thread. `key` is its previous key, if it has one.
    fn add(&mut self, key: Option<u64>, tid: u32, name: &str, group: u32, since: u32) -> ThreadHandle {
        let key = key.unwrap_or_else(|| self.table.new_key(tid));
        let name = name.to_owned();
        let index = self.table.add(ThreadConstant { chunk: 0, since, key, tid, name, group });
        ThreadHandle { index, key }
    }

    /// Returns true if there are so many threads that a new chunk is worthwhile.
    pub(super) fn are_many(&self) -> bool {
        self.table.len() > self.table.limit + MANY_THREADS[1]
    }

    /// In a new chunk: drops constants that the previous chunk did not reference, if there are many.
    pub(super) fn trim(&mut self, chunk: u32) {
        self.table.trim(chunk);
        if self.groups.iter().flatten().any(|group| !group.open) {
            let mut named = vec![false; self.groups.len()];
            for thread in self.table.places.iter().filter_map(|(_, slot)| slot.as_ref()) {
                if let Some(named) = named.get_mut(thread.group as usize) {
                    *named = true;
                }
            }
            for (group, named) in self.groups.iter_mut().zip(named) {
                if !named && group.as_ref().is_some_and(|group| !group.open) {
                    *group = None;
                }
            }
            while self.groups.pop_if(|last| last.is_none()).is_some() {}
        }
    }

    /// Returns an upper bound of the bytes of a thread's constant in a chunk that does not have it yet.
    fn most_bytes(&self, thread: usize) -> usize {
        self.table.get(thread).map_or(0, |t| t.name.len() + self.group_name_bytes(t.group) + 160)
    }

    /// Returns an upper bound of the bytes of a thread's constant in this chunk.
    fn cost(&self, thread: usize, chunk: u32) -> usize {
        match self.table.get(thread) {
            Some(t) if t.chunk != chunk => self.most_bytes(thread),
            _ => 0,
        }
    }

    fn group_name_bytes(&self, group: u32) -> usize {
        self.group(group).map_or(0, |group| {
            group.name.len() + group.title.as_ref().map_or(0, |(_, title)| title.len() + TITLE_COST)
        })
    }

    /// Returns the thread's key, and queues its constant if this chunk does not have it yet.
    fn key(&mut self, thread: usize, chunk: &mut CurrentChunk) -> u64 {
        let Some(t) = self.table.get_mut(thread) else { return 0 };
        if t.chunk == chunk.number {
            return t.key;
        }
        let mut group_key = 0;
        if let Some(Some(group)) = self.groups.get_mut(t.group as usize) {
            group_key = group.key;
            if group.chunk != chunk.number {
                let mut title_key = 0;
                if let Some((key, title)) = &group.title {
                    let written = chunk.writer.constant(schema::THREAD_GROUP, *key, |g| {
                        g.key(0).string(title);
                    });
                    title_key = if written.is_ok() { *key } else { 0 };
                }
                let written = chunk.writer.constant(schema::THREAD_GROUP, group_key, |g| {
                    g.key(title_key).string(&group.name);
                });
                if written.is_ok() {
                    group.chunk = chunk.number;
                }
            }
        }
        let written = chunk.writer.constant(schema::THREAD, t.key, |c| {
            c.string(&t.name).long(i64::from(t.tid)).null().long(0).key(group_key);
        });
        if written.is_ok() {
            t.chunk = chunk.number;
        }
        t.key
    }
}

/// Names as constants: of perf events and of network interfaces.
#[derive(Default)]
pub(super) struct NameConstants {
    /// Names of the perf events other than CPU time, by index, and the chunk that has their constant.
    perf_events: Vec<(String, u32)>,
    interfaces: Vec<Interface>,
    last_interface: u64,
}

impl NameConstants {
    /// In a new chunk: drops constants that the previous chunk did not reference, if there are many.
    pub(super) fn trim(&mut self, chunk: u32) {
        if self.interfaces.len() > MANY_INTERFACES {
            self.interfaces.retain(|interface| interface.chunk + 1 >= chunk);
        }
    }

    fn interface_key(&mut self, name: &str, chunk: &mut CurrentChunk) -> u64 {
        let at = self.interfaces.iter().position(|interface| interface.name == name).unwrap_or_else(|| {
            self.last_interface += 1;
            self.interfaces.push(Interface { chunk: 0, key: self.last_interface, name: name.to_owned() });
            self.interfaces.len() - 1
        });
        let Some(interface) = self.interfaces.get_mut(at) else { return 0 };
        if interface.chunk != chunk.number {
            let written = chunk.writer.constant(schema::NETWORK_INTERFACE_NAME, interface.key, |c| {
                c.string(name);
            });
            if written.is_err() {
                return 0;
            }
            interface.chunk = chunk.number;
        }
        interface.key
    }

    fn perf_event_key(&mut self, index: u16, chunk: &mut CurrentChunk) -> u64 {
        let Some((name, written_in)) = self.perf_events.get_mut(usize::from(index)) else { return 0 };
        let key = u64::from(index) + 1;
        if *written_in == chunk.number {
            return key;
        }
        let written = chunk.writer.constant(schema::EVENT_NAME, key, |c| {
            c.string(name);
        });
        if written.is_ok() {
            *written_in = chunk.number;
        }
        key
    }
}

impl Recording {
    /// Adds a group for the threads of a process.
    pub fn add_group(&mut self, name: String) -> u32 {
        self.threads.add_group(name, None)
    }

    /// Adds a group for the threads of a process while it has this title. Its name is that of
    /// `process_group`.
    pub fn add_titled_group(&mut self, process_group: u32, title: &str) -> u32 {
        self.threads.add_titled_group(process_group, title)
    }

    /// Notes that the process of a group has ended, so that the group gets no more threads.
    pub fn end_group(&mut self, group: u32) {
        self.threads.end_group(group);
    }

    /// Adds a thread. Its key is its TID for the first thread with that TID; otherwise, or after a rename, a
    /// new key above all TIDs.
    pub fn add_thread(&mut self, tid: u32, name: &str, group: u32) -> ThreadHandle {
        self.threads.add(None, tid, name, group, self.chunk.number)
    }

    /// Returns the index of a thread for events. Adds the thread again if it has been dropped.
    #[inline]
    pub fn thread_index(&mut self, handle: &mut ThreadHandle, tid: u32, name: &str, group: u32) -> usize {
        match self.threads.table.get_mut(handle.index) {
            Some(thread) => thread.since = self.chunk.number,
            None => *handle = self.threads.add(Some(handle.key), tid, name, group, self.chunk.number),
        }
        handle.index
    }

    /// Returns the numbers of known threads and groups.
    pub fn counts(&self) -> [usize; 2] {
        [self.threads.table.len(), self.threads.groups.len()]
    }

    /// Returns the key of a class, and queues it if this chunk does not have it yet. The caller must make
    /// room for it: see [`Interner::class_cost`](crate::names::intern::Interner::class_cost).
    pub fn class_key(&mut self, class: ClassIndex) -> u64 {
        self.interner.write_class(class, &mut self.chunk.writer)
    }

    /// Returns the key of a method, and queues it if this chunk does not have it yet. The caller must make
    /// room for it: see [`Interner::method_cost`](crate::names::intern::Interner::method_cost).
    pub fn method_key(&mut self, method: MethodIndex) -> u64 {
        self.interner.write_method(method, &mut self.chunk.writer)
    }

    /// Returns the key of a second thread of an event, and queues it if this chunk does not have it yet. The
    /// caller must make room for it: see [`Recording::other_thread_bytes`].
    pub fn other_thread_key(&mut self, thread: Option<usize>) -> u64 {
        thread.map_or(0, |thread| self.thread_key(thread))
    }

    /// Returns an upper bound of the bytes of a second thread of an event.
    pub fn other_thread_bytes(&self, thread: Option<usize>) -> usize {
        thread.map_or(0, |thread| self.threads.most_bytes(thread))
    }

    /// Returns the key of a second stack of an event, and queues it if this chunk does not have it yet. The
    /// caller must make room for it: see [`Interner::most_cost`](crate::names::intern::Interner::most_cost).
    pub fn other_stack_key(&mut self, trace: Option<TraceIndex>) -> u64 {
        let Some(trace) = trace else { return 0 };
        let key = self.interner.key(trace);
        if self.interner.write(trace, &mut self.chunk.writer).is_ok() { key } else { 0 }
    }

    /// Returns the key of a network interface, and queues it if this chunk does not have it yet. The caller
    /// must make room for it.
    pub(super) fn interface_key(&mut self, name: &str) -> u64 {
        self.names.interface_key(name, &mut self.chunk)
    }

    /// Adds the names of perf events other than CPU time, by index. Known names remain.
    pub fn name_events(&mut self, events: &[PerfEvent]) {
        let perf_events = &mut self.names.perf_events;
        let new = events.iter().skip(perf_events.len());
        perf_events.extend(new.map(|event| (event.name.clone(), 0)));
    }

    /// Returns the key of a perf event's name, and queues its constant if this chunk does not have it yet.
    /// The caller must make room for it: see [`Recording::event_name_bytes`].
    pub fn event_name_key(&mut self, index: u16) -> u64 {
        self.names.perf_event_key(index, &mut self.chunk)
    }

    /// Returns an upper bound of the bytes of a perf event's name.
    pub fn event_name_bytes(&self, index: u16) -> usize {
        self.names.perf_events.get(usize::from(index)).map_or(0, |(name, _)| name.len() + 32)
    }

    pub(super) fn thread_cost(&self, thread: usize) -> usize {
        self.threads.cost(thread, self.chunk.number)
    }

    /// Returns the thread's key, and queues its constant if this chunk does not have it yet.
    pub(super) fn thread_key(&mut self, thread: usize) -> u64 {
        self.threads.key(thread, &mut self.chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{output::repository::Owner, output::sink::Target, settings::Settings};
    use std::path::Path;

    fn open(dir: &Path) -> Recording {
        Recording::open(&Target::Path(dir.join("x.jfr")), &Owner::default(), &Settings::default()).unwrap()
    }

    #[test]
    fn thread_keys_are_tids_or_above_all_tids() {
        let dir = tempfile::tempdir().unwrap();
        let mut recording = open(dir.path());
        let group = recording.add_group("prog (1)".into());
        let keys: Vec<u64> = [(17, "a"), (18, "b"), (17, "renamed"), (0, "none")]
            .iter()
            .map(|(tid, name)| {
                let thread = recording.add_thread(*tid, name, group);
                recording.thread_key(thread.index)
            })
            .collect();
        assert_eq!(keys[..2], [17, 18]);
        assert!(keys[2] > FIRST_FREE_KEY && keys[3] > keys[2]);
    }

    #[test]
    fn titled_group_has_the_process_name_and_the_title_as_parent() {
        let dir = tempfile::tempdir().unwrap();
        let mut recording = open(dir.path());
        let group = recording.add_group("postgres (7)".into());
        let titled = recording.add_titled_group(group, "postgres: bench [local] UPDATE");
        let mut thread = crate::process::thread::Thread::outside(7, "postgres".into(), 1, 0);
        let plain = thread.named_constant(group, &mut recording);
        let other = thread.titled_constant(titled, &mut recording);
        assert_eq!(thread.titled_constant(titled, &mut recording), other, "the constant is used again");
        assert_ne!(recording.thread_key(plain), recording.thread_key(other));
        let now_ns = recording.chunk.start_ns;
        [plain, other].into_iter().for_each(|thread| recording.sample(thread, 0, now_ns, 1));
        recording.finish();
        let written = std::fs::read(dir.path().join("x.jfr")).unwrap();
        let times =
            |text: &str| written.windows(text.len()).filter(|bytes| *bytes == text.as_bytes()).count();
        assert_eq!((times("postgres (7)"), times("postgres: bench [local] UPDATE")), (2, 1));
    }

    #[test]
    fn thread_keys_are_never_reused() {
        let dir = tempfile::tempdir().unwrap();
        let mut recording = open(dir.path());
        let group = recording.add_group("prog (1)".into());
        let mut first = recording.add_thread(7, "first", group);
        let old = first.index;
        let mut keys = std::collections::HashSet::from([recording.thread_key(old)]);
        for round in 0..6 {
            for i in 0..20_000u32 {
                let thread = recording.add_thread(100 + i, "short", group);
                assert!(keys.insert(recording.thread_key(thread.index)), "round {round}: a key given twice");
            }
            assert!(recording.threads.are_many(), "round {round}");
            recording.cut(round);
        }
        assert!(recording.counts()[0] <= 20_000, "{}", recording.counts()[0]);
        assert_eq!(recording.thread_key(old), 0, "what is forgotten names nobody");
        let again = recording.thread_index(&mut first, 7, "first", group);
        assert!(again != old && recording.thread_key(again) == 7);
        let (ended, other) = (recording.add_group("ended".into()), recording.add_group("other".into()));
        recording.end_group(ended);
        recording.cut(7);
        assert!(recording.threads.group(ended).is_none() && recording.threads.group(other).is_some());
        assert_eq!(recording.add_group("new".into()), ended, "its place is used again, its key is not");
    }
}
