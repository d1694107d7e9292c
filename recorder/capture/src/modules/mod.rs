//! Writes the modules of the loader to the process file: the log for the drain, and table 0 for the handler.
//! [`dlclose`] marks modules that may be unmapped; `start_objects` finds those that never are.

pub mod dlclose;
mod start_objects;

use core::ffi::{CStr, c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use flightline_in_signal::layout::{
    INIT_MODULES, InitModule, ModuleEntry, ModuleTable, SharedCell, module_flags,
};

use crate::modules::start_objects::StartObjects;
use crate::os;
use crate::session::Attached;

/// One executable segment as the loader describes it.
struct Loaded<'a> {
    module: InitModule,
    path: &'a [u8],
    /// The loader mapped it before it started the program.
    at_start: bool,
}

struct Scan<'a> {
    visit: &'a mut dyn FnMut(&Loaded<'_>),
    vdso: u64,
    first: bool,
    /// The start objects found so far; `None` if the caller does not need them.
    at_start: Option<&'a mut StartObjects>,
}

const PAGE: u64 = 4096;

/// Calls `visit` for every executable segment. Takes the loader's lock: not for handlers, nor for the child of a fork.
fn scan(at_start: Option<&mut StartObjects>, visit: &mut dyn FnMut(&Loaded<'_>)) {
    let vdso = os::auxval(libc::AT_SYSINFO_EHDR);
    let mut scan = Scan { visit, vdso, first: true, at_start };
    // SAFETY: the callback gets exactly this pointer back, during this call only.
    unsafe { libc::dl_iterate_phdr(Some(on_object), (&raw mut scan).cast()) };
}

unsafe extern "C" fn on_object(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: the pointer that `scan` passed to dl_iterate_phdr; no other code uses it during the call.
    let scan = unsafe { &mut *data.cast::<Scan<'_>>() };
    // SAFETY: the loader passes a valid description.
    let info = unsafe { &*info };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: dlpi_phdr points to dlpi_phnum headers that stay mapped during the callback.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let bias = info.dlpi_addr;
    let path = if info.dlpi_name.is_null() {
        &[]
    } else {
        // SAFETY: a non-null name is NUL-terminated.
        unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes()
    };
    let path = if scan.first { b"" } else { path };
    let first = core::mem::replace(&mut scan.first, false);
    let of_kind = |kind| headers.iter().filter(move |h| h.p_type == kind);
    let holding = |vaddr: u64| {
        of_kind(libc::PT_LOAD).find(move |h| h.p_vaddr <= vaddr && vaddr - h.p_vaddr < h.p_memsz)
    };
    let (eh_frame_hdr, eh_readable_start, eh_readable_end) = of_kind(libc::PT_GNU_EH_FRAME)
        .next()
        .and_then(|h| Some((h.p_vaddr, holding(h.p_vaddr)?)))
        .map_or((0, 0, 0), |(at, load)| {
            let start = bias.wrapping_add(load.p_vaddr);
            (bias.wrapping_add(at), start, start.wrapping_add(load.p_memsz))
        });
    let covers = |address: u64| address != 0 && holding(address.wrapping_sub(bias)).is_some();
    let dynamic = of_kind(libc::PT_DYNAMIC).next().map(|h| bias.wrapping_add(h.p_vaddr));
    let at_start = scan.at_start.as_mut().is_some_and(|known| {
        let certain = first || covers(scan.vdso) || known.addresses().into_iter().any(covers);
        known.add(dynamic.map(|at| (at, bias)), path, certain)
    });
    let mut build_id = [0u8; 24];
    let mut build_id_len = 0;
    for note in of_kind(libc::PT_NOTE).filter(|h| holding(h.p_vaddr).is_some()) {
        // SAFETY: the note lies inside a loaded segment of this object.
        let bytes = unsafe {
            core::slice::from_raw_parts(bias.wrapping_add(note.p_vaddr) as *const u8, note.p_memsz as usize)
        };
        if let Some(id) = find_note(bytes, b"GNU\0", GNU_BUILD_ID) {
            build_id_len = id.len().min(build_id.len());
            for (to, from) in build_id.iter_mut().zip(id) {
                *to = *from;
            }
            break;
        }
    }
    for load in of_kind(libc::PT_LOAD).filter(|h| h.p_flags & libc::PF_X != 0) {
        let start = bias.wrapping_add(load.p_vaddr) & !(PAGE - 1);
        let end = (bias.wrapping_add(load.p_vaddr).wrapping_add(load.p_memsz) + PAGE - 1) & !(PAGE - 1);
        let flags =
            if scan.vdso != 0 && start <= scan.vdso && scan.vdso < end { module_flags::VDSO } else { 0 };
        let module = InitModule {
            start,
            end,
            bias,
            eh_frame_hdr,
            eh_readable_end,
            eh_readable_start,
            path: [0; 2],
            flags,
            build_id_len: build_id_len as u32,
            build_id,
        };
        (scan.visit)(&Loaded { module, path, at_start });
    }
    0
}

const GNU_BUILD_ID: u32 = 3;
const GO_BUILD_ID: u32 = 4;

/// Returns the description of the first note with this name and type.
fn find_note<'a>(mut notes: &'a [u8], name: &[u8], kind: u32) -> Option<&'a [u8]> {
    let word = |bytes: &[u8], at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    loop {
        let (name_len, len, found) = (word(notes, 0)? as usize, word(notes, 4)? as usize, word(notes, 8)?);
        let name_end = 12usize.checked_add(name_len)?;
        let start = name_end.checked_next_multiple_of(4)?;
        let end = start.checked_add(len)?;
        if found == kind && notes.get(12..name_end)? == name {
            return notes.get(start..end);
        }
        notes = notes.get(end.checked_next_multiple_of(4)?..)?;
    }
}

/// Returns true if the program was built by the Go toolchain.
pub fn is_go_program() -> bool {
    let (headers, count) = (os::auxval(libc::AT_PHDR), os::auxval(libc::AT_PHNUM));
    if headers == 0 {
        return false;
    }
    // SAFETY: the program's own headers as the kernel describes them.
    let headers = unsafe { core::slice::from_raw_parts(headers as *const libc::Elf64_Phdr, count as usize) };
    // The address at which the headers themselves are loaded gives the load bias.
    let Some(own) = headers.iter().find(|h| h.p_type == libc::PT_PHDR) else { return false };
    let bias = (headers.as_ptr() as u64).wrapping_sub(own.p_vaddr);
    headers.iter().filter(|h| h.p_type == libc::PT_NOTE).any(|note| {
        // SAFETY: a note segment of the loaded program.
        let bytes = unsafe {
            core::slice::from_raw_parts(bias.wrapping_add(note.p_vaddr) as *const u8, note.p_memsz as usize)
        };
        find_note(bytes, b"Go\0\0", GO_BUILD_ID).is_some()
    })
}

/// Writes the log of modules and table 0. With `starting`, the objects that the loader mapped before it started the program
/// are marked as permanent; otherwise only the program, the vDSO and the object with the recorder's code are.
pub fn write_initial(attached: &Attached, starting: bool) {
    let here = [write_initial as *const () as u64, libc::getpid as *const () as u64];
    let mut first = true;
    let mut sorted = SortedTable::new(attached);
    let mut at_start = starting.then(StartObjects::new);
    scan(at_start.as_mut(), &mut |loaded| {
        let mut module = loaded.module;
        let ours = here.iter().any(|at| (module.start..module.end).contains(at));
        if loaded.at_start || first || ours || module.flags & module_flags::VDSO != 0 {
            module.flags |= module_flags::PERMANENT;
        }
        if first {
            module.path = attached.header().identity.load().exe;
        }
        first = false;
        if let Some(index) = append(attached, module, loaded.path) {
            sorted.insert(&module, index);
        }
    });
    sorted.finish();
}

/// Appends modules that the log does not have yet: before `dlclose` unloads them, and at exit. The log is
/// ordered by time: the last entry of an address range is valid.
pub fn append_new(attached: &Attached) {
    let mut first = true;
    scan(None, &mut |loaded| {
        let mut module = loaded.module;
        // The loader has no name for the program itself; a process that joined later has not logged it yet.
        if core::mem::take(&mut first) {
            module.path = attached.header().identity.load().exe;
        }
        let last = log(attached)
            .iter()
            .rev()
            .map(SharedCell::load)
            .find(|m| m.start < module.end && module.start < m.end);
        let same = |m: &InitModule| {
            m.start == module.start
                && m.bias == module.bias
                && m.build_id == module.build_id
                && (loaded.path.is_empty() || attached.string(m.path) == loaded.path)
        };
        if !last.as_ref().is_some_and(same) {
            append(attached, module, loaded.path);
        }
    });
}

/// Calls `visit` with the bounds of every executable segment loaded now.
pub fn each_loaded(visit: &mut dyn FnMut(u64, u64)) {
    scan(None, &mut |loaded| visit(loaded.module.start, loaded.module.end));
}

/// The valid entries of the log.
pub fn log(attached: &Attached) -> &[SharedCell<InitModule>] {
    let count = (attached.header().modules.init_modules.load(Acquire) as usize).min(INIT_MODULES);
    attached.init_modules().get(..count).unwrap_or_default()
}

fn append(attached: &Attached, mut module: InitModule, path: &[u8]) -> Option<u32> {
    attached.log_lock.with(|| {
        let count = &attached.header().modules.init_modules;
        let index = count.load(Relaxed);
        let entry = attached.init_modules().get(index as usize)?;
        if !attached.room_in_log(index as usize) {
            return None;
        }
        if module.path[1] == 0 {
            module.path = attached.put_string(path)?;
        }
        entry.store(module);
        count.store(index + 1, Release);
        Some(index)
    })
}

/// Table 0, filled in address order before the drain or a handler reads it.
struct SortedTable<'a> {
    table: &'a ModuleTable,
    count: usize,
    attached: &'a Attached,
}

impl<'a> SortedTable<'a> {
    fn new(attached: &'a Attached) -> Self {
        SortedTable { table: attached.own_table(), count: 0, attached }
    }

    fn insert(&mut self, module: &InitModule, path_id: u32) {
        let full = self.count >= self.table.entries.len() || !self.attached.room_in_table(self.count + 1);
        if full || module.start >= module.end {
            return;
        }
        let entry = ModuleEntry {
            start: module.start,
            end: module.end,
            bias: module.bias,
            eh_frame_hdr: module.eh_frame_hdr,
            eh_readable_end: module.eh_readable_end,
            rows_off: 0,
            flags: module.flags,
            path_id,
            eh_readable_start: module.eh_readable_start,
        };
        let entries = self.table.entries.get(..=self.count).unwrap_or_default();
        let known = |i: usize| entries.get(i).filter(|_| i < self.count).map(SharedCell::load);
        let at = (0..self.count).find(|i| known(*i).is_some_and(|e| e.start > entry.start));
        let at = at.unwrap_or(self.count);
        let before_ends = at.checked_sub(1).and_then(known).map_or(0, |e| e.end);
        let after_starts = known(at).map_or(u64::MAX, |e| e.start);
        if before_ends > entry.start || after_starts < entry.end {
            return;
        }
        let mut moved = entry;
        for slot in entries.iter().skip(at) {
            let next = slot.load();
            slot.store(moved);
            moved = next;
        }
        self.count += 1;
    }

    fn finish(self) {
        if !self.attached.room_in_table(self.count) {
            return;
        }
        self.table.generation.store(0, Relaxed);
        self.table.count.store(self.count as u32, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_opened_later_are_not_start_objects() {
        // This test program has opened no object.
        let mut known = StartObjects::new();
        let (mut all, mut marked) = (0, 0);
        scan(Some(&mut known), &mut |loaded| {
            all += 1;
            marked += usize::from(loaded.at_start);
        });
        assert!(all > 2, "{all}");
        assert_eq!(all, marked);
        assert!(!known.add(None, b"/opt/libopened.so", false));
        assert!(known.add(None, b"/elsewhere/libc.so.6", false));
    }

    #[test]
    fn build_id_is_found_after_another_note() {
        let mut notes = [0u8; 16 + 4 + 16 + 20];
        notes[0] = 4;
        notes[4] = 4;
        notes[8] = 1;
        notes[12..16].copy_from_slice(b"GNU\0");
        notes[20] = 4;
        notes[24] = 20;
        notes[28] = 3;
        notes[32..36].copy_from_slice(b"GNU\0");
        for (i, byte) in notes[36..56].iter_mut().enumerate() {
            *byte = i as u8 + 1;
        }
        let id = |notes| find_note(notes, b"GNU\0", GNU_BUILD_ID).map(|id| (id.len(), id[0], id[19]));
        assert_eq!(id(&notes), Some((20, 1, 20)));
        assert_eq!(id(&notes[..50]), None);
        assert_eq!(id(&[]), None);
    }
}
