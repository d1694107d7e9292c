//! Constants that events name: threads, their groups, classes, events, each once a chunk.
//!
//! What was not named for a whole chunk is forgotten where there is much of it: a program may start threads for months.
//! Keys are never given twice; a thread that is named again has the key that it had.

use jfr_format::schema;

use super::Recording;
use crate::{
    names::intern::{ClassIndex, MethodIndex, TraceIndex},
    settings::PerfEvent,
};

/// A thread as the output knows it.
pub(super) struct ThreadConstant {
    /// The chunk that has it.
    pub(super) chunk: u32,
    /// The chunk in which it was asked for last.
    since: u32,
    pub(super) key: u64,
    pub(super) tid: u32,
    pub(super) name: String,
    pub(super) group: u32,
}

pub(super) struct Group {
    pub(super) chunk: u32,
    key: u64,
    pub(super) name: String,
    /// Key and text of the title that the process has, which is the parent of the group; see [`crate::process::title`].
    title: Option<(u64, String)>,
    /// Its process may still start threads.
    open: bool,
}

/// A network interface.
pub(super) struct Interface {
    chunk: u32,
    key: u64,
    name: String,
}

/// Where a thread's constant is, and its key for when it is there no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadHandle {
    /// What events are given.
    pub index: usize,
    key: u64,
}

/// Where the first key for threads that cannot have their tid as key is.
pub(super) const FIRST_FREE_KEY: u64 = 1 << 22;
/// Thread constants below which none is forgotten, and how many more there may be before a chunk is closed for that.
const MANY_THREADS: [usize; 2] = [4096, 16_384];

/// The places of threads, by number and, above [`PLACE`] bits, how often the place was used before: a
/// number given once never means another thread.
#[derive(Default)]
pub(super) struct ThreadTable {
    places: Vec<(u32, Option<ThreadConstant>)>,
    free: Vec<u32>,
    /// Tids that are keys: a bit each, at most 512 KiB.
    keys_taken: Vec<u64>,
    last_key: u64,
    /// How many were left when some were forgotten last.
    limit: usize,
}

const PLACE: u32 = 32;
/// Bytes of the constant of a title besides its text, at most.
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

    pub(super) fn get(&self, index: usize) -> Option<&ThreadConstant> {
        let (used, held) = self.places.get(index & ((1 << PLACE) - 1))?;
        held.as_ref().filter(|_| *used as usize == index >> PLACE)
    }

    fn get_mut(&mut self, index: usize) -> Option<&mut ThreadConstant> {
        let (used, held) = self.places.get_mut(index & ((1 << PLACE) - 1))?;
        held.as_mut().filter(|_| *used as usize == index >> PLACE)
    }

    pub(super) fn len(&self) -> usize {
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

    /// Forgets threads that were not asked for in the chunk before `chunk`.
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

impl Recording {
    /// A group for the threads of a process.
    pub fn add_group(&mut self, name: String) -> u32 {
        self.place_group(name, None)
    }

    /// A group for the threads of a process while it has this title. It has the name of `of`, the group of the process.
    pub fn add_titled_group(&mut self, of: u32, title: &str) -> u32 {
        let name = self.groups.get(of as usize).and_then(Option::as_ref).map(|group| group.name.clone());
        self.last_group += 1;
        let title = (self.last_group, title.to_owned());
        self.place_group(name.unwrap_or_default(), Some(title))
    }

    fn place_group(&mut self, name: String, title: Option<(u64, String)>) -> u32 {
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

    /// The process of a group is over: no thread of it will be added.
    pub fn end_group(&mut self, group: u32) {
        if let Some(Some(group)) = self.groups.get_mut(group as usize) {
            group.open = false;
        }
    }

    /// A thread: its key is its tid for the first holder, a fresh one above all tids for any other or after a rename.
    pub fn add_thread(&mut self, tid: u32, name: &str, group: u32) -> ThreadHandle {
        let key = self.threads.new_key(tid);
        self.add_thread_again(key, tid, name, group)
    }

    fn add_thread_again(&mut self, key: u64, tid: u32, name: &str, group: u32) -> ThreadHandle {
        let since = self.chunk;
        let index =
            self.threads.add(ThreadConstant { chunk: 0, since, key, tid, name: name.to_owned(), group });
        ThreadHandle { index, key }
    }

    /// The number of a thread that was added, for events; it may have been forgotten meanwhile.
    #[inline]
    pub fn thread_index(&mut self, handle: &mut ThreadHandle, tid: u32, name: &str, group: u32) -> usize {
        let chunk = self.chunk;
        match self.threads.get_mut(handle.index) {
            Some(thread) => thread.since = chunk,
            None => *handle = self.add_thread_again(handle.key, tid, name, group),
        }
        handle.index
    }

    /// Whether so many constants are remembered that a new chunk is worth while.
    pub(super) fn many_constants(&self) -> bool {
        self.threads.len() > self.threads.limit + MANY_THREADS[1]
    }

    /// In a new chunk: forgets what the one before did not name, if it is much.
    pub(super) fn trim_constants(&mut self) {
        self.threads.trim(self.chunk);
        if self.interfaces.len() > MANY_INTERFACES {
            let chunk = self.chunk;
            self.interfaces.retain(|interface| interface.chunk + 1 >= chunk);
        }
        if self.groups.iter().flatten().any(|group| !group.open) {
            let mut named = vec![false; self.groups.len()];
            for thread in self.threads.places.iter().filter_map(|(_, held)| held.as_ref()) {
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

    /// How many threads and their groups it knows.
    pub fn counts(&self) -> [usize; 2] {
        [self.threads.len(), self.groups.len()]
    }

    fn group_name_bytes(&self, group: u32) -> usize {
        let group = self.groups.get(group as usize).and_then(Option::as_ref);
        group.map_or(0, |group| {
            group.name.len() + group.title.as_ref().map_or(0, |(_, title)| title.len() + TITLE_COST)
        })
    }

    /// The key of a class, queued if this chunk does not have it yet. Room for it must be asked for with the event: see
    /// [`Interner::class_cost`](crate::names::intern::Interner::class_cost).
    pub fn class_key(&mut self, class: ClassIndex) -> u64 {
        self.interner.write_class(class, &mut self.writer)
    }

    /// The key of a method, queued if this chunk does not have it yet. Room for it must be asked for with the event: see
    /// [`Interner::method_cost`](crate::names::intern::Interner::method_cost).
    pub fn method_key(&mut self, method: MethodIndex) -> u64 {
        self.interner.write_method(method, &mut self.writer)
    }

    /// The key of a further thread of an event, queued if this chunk does not have it yet. Room for it must be asked
    /// for with the event: see [`Recording::other_thread_bytes`].
    pub fn other_thread_key(&mut self, thread: Option<usize>) -> u64 {
        thread.map_or(0, |thread| self.thread_key(thread))
    }

    /// Most bytes that a further thread of an event may take.
    pub fn other_thread_bytes(&self, thread: Option<usize>) -> usize {
        let thread = thread.and_then(|thread| self.threads.get(thread));
        thread.map_or(0, |t| t.name.len() + self.group_name_bytes(t.group) + 160)
    }

    /// The key of a further stack of an event, queued if this chunk does not have it yet. Room for it must be asked for with
    /// the event: see [`Interner::most_cost`](crate::names::intern::Interner::most_cost).
    pub fn other_stack_key(&mut self, trace: Option<TraceIndex>) -> u64 {
        let Some(trace) = trace else { return 0 };
        let key = self.interner.key(trace);
        if self.interner.write(trace, &mut self.writer).is_ok() { key } else { 0 }
    }

    /// The key of a network interface, queued if this chunk does not have it yet. Room for it must be asked for with the
    /// event.
    pub(super) fn interface_key(&mut self, name: &str) -> u64 {
        let at = self.interfaces.iter().position(|interface| interface.name == name).unwrap_or_else(|| {
            self.last_interface += 1;
            self.interfaces.push(Interface { chunk: 0, key: self.last_interface, name: name.to_owned() });
            self.interfaces.len() - 1
        });
        let Some(interface) = self.interfaces.get_mut(at) else { return 0 };
        if interface.chunk != self.chunk {
            let written = self.writer.constant(schema::NETWORK_INTERFACE_NAME, interface.key, |c| {
                c.string(name);
            });
            if written.is_err() {
                return 0;
            }
            interface.chunk = self.chunk;
        }
        interface.key
    }

    /// Perf events beside CPU time, by index; those that are known stay.
    pub fn name_events(&mut self, events: &[PerfEvent]) {
        let new = events.iter().skip(self.event_names.len());
        self.event_names.extend(new.map(|event| (event.name.clone(), 0)));
    }

    /// The key of a perf event's name; its constant is queued if this chunk does not have it yet. Room for it must be
    /// asked for with the event: see [`Recording::event_name_bytes`].
    pub fn event_name_key(&mut self, index: u16) -> u64 {
        let Some((name, chunk)) = self.event_names.get_mut(usize::from(index)) else { return 0 };
        let key = u64::from(index) + 1;
        if *chunk == self.chunk {
            return key;
        }
        let written = self.writer.constant(schema::EVENT_NAME, key, |c| {
            c.string(name);
        });
        if written.is_ok() {
            *chunk = self.chunk;
        }
        key
    }

    /// Bytes that the name of a perf event may take.
    pub fn event_name_bytes(&self, index: u16) -> usize {
        self.event_names.get(usize::from(index)).map_or(0, |(name, _)| name.len() + 32)
    }

    pub(super) fn thread_cost(&self, thread: usize) -> usize {
        match self.threads.get(thread) {
            Some(t) if t.chunk != self.chunk => self.other_thread_bytes(Some(thread)),
            _ => 0,
        }
    }

    /// The thread's key; its constant is queued if this chunk does not have it yet.
    pub(super) fn thread_key(&mut self, thread: usize) -> u64 {
        let Some(t) = self.threads.get_mut(thread) else { return 0 };
        if t.chunk == self.chunk {
            return t.key;
        }
        let mut group_key = 0;
        if let Some(Some(group)) = self.groups.get_mut(t.group as usize) {
            group_key = group.key;
            if group.chunk != self.chunk {
                let mut title_key = 0;
                if let Some((key, title)) = &group.title {
                    let written = self.writer.constant(schema::THREAD_GROUP, *key, |g| {
                        g.key(0).string(title);
                    });
                    title_key = if written.is_ok() { *key } else { 0 };
                }
                let written = self.writer.constant(schema::THREAD_GROUP, group_key, |g| {
                    g.key(title_key).string(&group.name);
                });
                if written.is_ok() {
                    group.chunk = self.chunk;
                }
            }
        }
        let written = self.writer.constant(schema::THREAD, t.key, |c| {
            c.string(&t.name).long(i64::from(t.tid)).null().long(0).key(group_key);
        });
        if written.is_ok() {
            t.chunk = self.chunk;
        }
        t.key
    }
}
