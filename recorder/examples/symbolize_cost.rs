//! Measures the cost of symbolizing addresses of a file: CPU time and memory, as in the drain.
//!
//! `cargo run --release -p flightline-recorder --example symbolize_cost -- FILE [ADDRESSES]`

use std::{collections::HashSet, hint::black_box, path::Path, sync::Arc, time::Duration};

use flightline_recorder::{Symbolizer, build_unwind_rows};

fn cpu() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage fills the struct; all zeros is a valid value.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let of = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    of(usage.ru_utime) + of(usage.ru_stime)
}

/// Returns a value of `/proc/self/status`, in MB.
fn memory_mb(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or("0");
    line.trim().split(' ').next().and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().expect("usage: symbolize_cost FILE [ADDRESSES]");
    let count: u64 = args.next().map_or(2000, |n| n.parse().expect("a number of addresses"));
    let file = std::fs::File::open(&path).expect("the file");
    // SAFETY: the file does not change while it is mapped.
    let map = Arc::new(unsafe { memmap2::Mmap::map(&file) }.expect("a mapping"));
    let start = cpu();
    let built = build_unwind_rows(&map).map_or(0, |rows| rows.len());
    let after_rows = cpu();
    let (text, size) = text_of(Path::new(&path));
    let mut symbolizer = Symbolizer::new(&[], &[]);
    symbolizer.frames(&path, "", text);
    let opened = cpu();
    let (mut frames, mut named) = (0, HashSet::new());
    for i in 0..count {
        let found = black_box(symbolizer.frames(&path, "", text + i * (size / count)));
        frames += found.len();
        named.extend(found.into_iter().map(|f| f.name));
    }
    let all = cpu();
    println!(
        "{path}: rows {:?} ({} KB), symbols and debug information opened {:?}, {count} addresses {:?} \
         ({frames} frames, {} names), all {:?} CPU, \
         peak {} MB, at the end {} MB of heap",
        after_rows - start,
        built >> 10,
        opened - after_rows,
        all - opened,
        named.len(),
        all - start,
        memory_mb("VmHWM:"),
        memory_mb("RssAnon:")
    );
}

/// Returns address and size of the largest executable section.
fn text_of(path: &Path) -> (u64, u64) {
    use object::{Object, ObjectSection, SectionKind};
    let file = std::fs::File::open(path).expect("the file");
    // SAFETY: the file does not change while it is mapped.
    let bytes = unsafe { memmap2::Mmap::map(&file) }.expect("a mapping");
    let elf = object::File::parse(&bytes[..]).expect("an ELF file");
    let text = elf.section_by_name(".text").filter(|s| s.kind() == SectionKind::Text);
    text.map(|s| (s.address(), s.size())).expect("code")
}
