//! Finds the objects that the loader maps before it starts the program. They are never unmapped.
//!
//! When the recorder starts, constructors of libraries may already have opened other objects, which they may
//! close again. The loader does not mark the difference. But an object that it mapped for the program is
//! either preloaded, or an earlier object in the loader's list needs it (`DT_NEEDED`).

use core::ffi::CStr;

use crate::{os, target};

/// Objects after this number count as opened later, so the walker uses checked reads for them.
const MAX_OBJECTS: usize = 512;

/// The start objects found so far, in the loader's order.
pub struct StartObjects {
    objects: [Option<Dynamic>; MAX_OBJECTS],
    count: usize,
    loader: u64,
}

/// The dynamic section of a loaded object: tags and values up to the tag 0.
#[derive(Clone, Copy)]
struct Dynamic {
    at: *const [usize; 2],
    bias: usize,
}

impl StartObjects {
    /// None found yet.
    pub fn new() -> StartObjects {
        StartObjects { objects: [None; MAX_OBJECTS], count: 0, loader: os::auxval(libc::AT_BASE) }
    }

    /// Addresses in objects that are certainly start objects: the loader and the recorder's own.
    pub fn addresses(&self) -> [u64; 2] {
        [self.loader, StartObjects::new as *const () as u64]
    }

    /// Adds the next object of the loader's list if it is a start object, and returns whether it is. `dynamic` is the address of its
    /// dynamic section and its load bias.
    pub fn add(&mut self, dynamic: Option<(u64, u64)>, path: &[u8], certain: bool) -> bool {
        let object = dynamic.map(|(at, bias)| Dynamic { at: at as *const [usize; 2], bias: bias as usize });
        let name = base_name(path);
        let soname = object.and_then(|object| object.strings(SONAME).next());
        let is = |other: &[u8]| other == path || base_name(other) == name || soname == Some(other);
        let known = self.objects.get(..self.count).unwrap_or_default();
        let needed = || known.iter().flatten().any(|earlier| earlier.strings(NEEDED).any(is));
        let preloaded =
            || os::env(c"LD_PRELOAD").is_some_and(|list| target::preloaded(list.to_bytes()).any(is));
        let added = certain || needed() || preloaded();
        if let (true, Some(place)) = (added, self.objects.get_mut(self.count)) {
            *place = object;
            self.count += 1;
        }
        added
    }
}

/// Tags of a dynamic section.
const NEEDED: usize = 1;
const STRINGS: usize = 5;
const SONAME: usize = 14;

impl Dynamic {
    /// The values of all entries with this tag.
    fn values(self, tag: usize) -> impl Iterator<Item = usize> {
        // SAFETY: the section of a loaded object, which ends with the tag 0.
        let entries = (0..).map(move |i| unsafe { self.at.add(i).read() }).take_while(|entry| entry[0] != 0);
        entries.filter(move |entry| entry[0] == tag).map(|entry| entry[1])
    }

    /// The strings that all entries with this tag refer to.
    fn strings<'a>(self, tag: usize) -> impl Iterator<Item = &'a [u8]> {
        let table = self.values(STRINGS).next();
        // glibc relocates the address in the section; musl does not.
        let table = table.map(|at| if at < self.bias { at + self.bias } else { at });
        self.values(tag).filter_map(move |offset| {
            // SAFETY: a string of the table of a loaded object, NUL-terminated.
            table.map(|table| unsafe { CStr::from_ptr((table + offset) as *const _) }.to_bytes())
        })
    }
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}
