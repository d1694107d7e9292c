//! Constants that events name: threads, their groups, classes, events, each once a chunk.
//!
//! Constants that were not named for a whole chunk are forgotten where there are many: a program may start threads for months.
//! Keys are never given twice; a thread that is named again has the key that it had.

use jfr_format::schema;

use super::{Recording, current_chunk::CurrentChunk};
use crate::{
    names::intern::{ClassIndex, MethodIndex, TraceIndex},
    settings::PerfEvent,
};

/// A thread as the output knows it.
struct ThreadConstant {
    /// The chunk that has it.
    chunk: u32,
    /// The chunk in which an event named it last.
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
    /// Key and text of the title that the process has, which is the parent of the group; see [`crate::process::title`].
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

/// Where a thread's constant is, and its key for when it is there no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadHandle {
    /// The number that events are given.
    pub index: usize,
    key: u64,
}

/// Where the first key for threads that cannot have their tid as key is.
const FIRST_FREE_KEY: u64 = 1 << 22;
/// Thread constants below which none is forgotten, and how many more there may be before a chunk is closed for that.
const MANY_THREADS: [usize; 2] = [4096, 16_384];

/// The places of threads, by number and, above [`PLACE`] bits, how often the place was used before: a
/// number given once never means another thread.
#[derive(Default)]
struct ThreadTable {
    places: Vec<(u32, Option<ThreadConstant>)>,
    free: Vec<u32>,
    /// Tids that are keys: a bit each, at most 512 KiB.
    keys_taken: Vec<u64>,
    last_key: u64,
    /// How many were left when some were forgotten last.
    limit: usize,
}

const PLACE: u32 = 32;
/// Most bytes of a title's constant, without its text.
const TITLE_COST: usize = 64;
/// Network interfaces below which none is forgotten: containers have one each.
const MANY_INTERFACES: usize = 64;

impl ThreadTable {
    fn add(&mut self, constant: ThreadConstant) -> usize {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let Some((used, held)) = self.places.get_mut(place as usize) else { return usize::MAX };
        *held = Some(constant);
        (*used as usize) << PLACE | place as usize
    }

    fn get(&self, index: usize) -> Option<&ThreadConstant> {
        let (used, held) = self.places.get(index & ((1 << PLACE) - 1))?;
        held.as_ref().filter(|_| *used as usize == index >> PLACE)
    }

    fn get_mut(&mut self, index: usize) -> Option<&mut ThreadConstant> {
        let (used, held) = self.places.get_mut(index & ((1 << PLACE) - 1))?;
        held.as_mut().filter(|_| *used as usize == index >> PLACE)
    }

    fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Its tid for the first thread that has it, one above all tids for any other.
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

    /// Forgets threads that no event named in the chunk before `chunk`.
    fn trim(&mut self, chunk: u32) {
        if self.len() <= MANY_THREADS[0] {
            return;
        }
        for (place, (used, held)) in self.places.iter_mut().enumerate() {
            if held.as_ref().is_some_and(|t| t.since + 1 < chunk) {
                *held = None;
                // A place whose numbers are used up stays empty.
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

    /// Adds a thread; `key` is the one that it had before, if there is one.
    fn add(&mut self, key: Option<u64>, tid: u32, name: &str, group: u32, since: u32) -> ThreadHandle {
        let key = key.unwrap_or_else(|| self.table.new_key(tid));
        let name = name.to_owned();
        let index = self.table.add(ThreadConstant { chunk: 0, since, key, tid, name, group });
        ThreadHandle { index, key }
    }

    /// Returns true if so many threads are remembered that a new chunk is worth while.
    pub(super) fn are_many(&self) -> bool {
        self.table.len() > self.table.limit + MANY_THREADS[1]
    }

    /// In a new chunk: forgets what the one before did not name, if it is much.
    pub(super) fn trim(&mut self, chunk: u32) {
        self.table.trim(chunk);
        if self.groups.iter().flatten().any(|group| !group.open) {
            let mut named = vec![false; self.groups.len()];
            for thread in self.table.places.iter().filter_map(|(_, held)| held.as_ref()) {
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

    /// Returns the most bytes that a thread's constant may take in a chunk that does not have it yet.
    fn most_bytes(&self, thread: usize) -> usize {
        self.table.get(thread).map_or(0, |t| t.name.len() + self.group_name_bytes(t.group) + 160)
    }

    /// Returns the most bytes that a thread's constant may take in this chunk.
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

    /// The thread's key; its constant is queued if this chunk does not have it yet.
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

/// Constants that are names: of perf events and of network interfaces.
#[derive(Default)]
pub(super) struct NameConstants {
    /// Names of the perf events other than CPU time, by index, and the chunk that has their constant.
    perf_events: Vec<(String, u32)>,
    interfaces: Vec<Interface>,
    last_interface: u64,
}

impl NameConstants {
    /// In a new chunk: forgets what the one before did not name, if it is much.
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
    /// A group for the threads of a process.
    pub fn add_group(&mut self, name: String) -> u32 {
        self.threads.add_group(name, None)
    }

    /// A group for the threads of a process while it has this title. It has the name of `process_group`.
    pub fn add_titled_group(&mut self, process_group: u32, title: &str) -> u32 {
        self.threads.add_titled_group(process_group, title)
    }

    /// The process of a group is over: no thread of it will be added.
    pub fn end_group(&mut self, group: u32) {
        self.threads.end_group(group);
    }

    /// A thread: its key is its tid for the first holder, a fresh one above all tids for any other or after a rename.
    pub fn add_thread(&mut self, tid: u32, name: &str, group: u32) -> ThreadHandle {
        self.threads.add(None, tid, name, group, self.chunk.number)
    }

    /// The number of a thread that was added, for events; it may have been forgotten since.
    #[inline]
    pub fn thread_index(&mut self, handle: &mut ThreadHandle, tid: u32, name: &str, group: u32) -> usize {
        match self.threads.table.get_mut(handle.index) {
            Some(thread) => thread.since = self.chunk.number,
            None => *handle = self.threads.add(Some(handle.key), tid, name, group, self.chunk.number),
        }
        handle.index
    }

    /// How many threads and their groups it knows.
    pub fn counts(&self) -> [usize; 2] {
        [self.threads.table.len(), self.threads.groups.len()]
    }

    /// The key of a class, queued if this chunk does not have it yet. The event's caller must make room for it: see
    /// [`Interner::class_cost`](crate::names::intern::Interner::class_cost).
    pub fn class_key(&mut self, class: ClassIndex) -> u64 {
        self.interner.write_class(class, &mut self.chunk.writer)
    }

    /// The key of a method, queued if this chunk does not have it yet. The event's caller must make room for it: see
    /// [`Interner::method_cost`](crate::names::intern::Interner::method_cost).
    pub fn method_key(&mut self, method: MethodIndex) -> u64 {
        self.interner.write_method(method, &mut self.chunk.writer)
    }

    /// The key of a further thread of an event, queued if this chunk does not have it yet. The event's caller
    /// must make room for it: see [`Recording::other_thread_bytes`].
    pub fn other_thread_key(&mut self, thread: Option<usize>) -> u64 {
        thread.map_or(0, |thread| self.thread_key(thread))
    }

    /// Most bytes that a further thread of an event may take.
    pub fn other_thread_bytes(&self, thread: Option<usize>) -> usize {
        thread.map_or(0, |thread| self.threads.most_bytes(thread))
    }

    /// The key of a further stack of an event, queued if this chunk does not have it yet. The event's caller must make
    /// room for it: see [`Interner::most_cost`](crate::names::intern::Interner::most_cost).
    pub fn other_stack_key(&mut self, trace: Option<TraceIndex>) -> u64 {
        let Some(trace) = trace else { return 0 };
        let key = self.interner.key(trace);
        if self.interner.write(trace, &mut self.chunk.writer).is_ok() { key } else { 0 }
    }

    /// The key of a network interface, queued if this chunk does not have it yet. The event's caller must make room
    /// for it.
    pub(super) fn interface_key(&mut self, name: &str) -> u64 {
        self.names.interface_key(name, &mut self.chunk)
    }

    /// Perf events other than CPU time, by index; those that are known stay.
    pub fn name_events(&mut self, events: &[PerfEvent]) {
        let perf_events = &mut self.names.perf_events;
        let new = events.iter().skip(perf_events.len());
        perf_events.extend(new.map(|event| (event.name.clone(), 0)));
    }

    /// The key of a perf event's name; its constant is queued if this chunk does not have it yet. The event's caller must
    /// make room for it: see [`Recording::event_name_bytes`].
    pub fn event_name_key(&mut self, index: u16) -> u64 {
        self.names.perf_event_key(index, &mut self.chunk)
    }

    /// Bytes that the name of a perf event may take.
    pub fn event_name_bytes(&self, index: u16) -> usize {
        self.names.perf_events.get(usize::from(index)).map_or(0, |(name, _)| name.len() + 32)
    }

    pub(super) fn thread_cost(&self, thread: usize) -> usize {
        self.threads.cost(thread, self.chunk.number)
    }

    /// The thread's key; its constant is queued if this chunk does not have it yet.
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
    fn threads_are_forgotten_and_keep_their_keys() {
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
