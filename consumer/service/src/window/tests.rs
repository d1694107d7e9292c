use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tempfile::TempDir;

use super::*;
use crate::render::tests::{FIXTURES, split};
use crate::render::{Format, RenderOptions, check, make};

const MILLI: i64 = 1_000_000;

fn window(dir: &Path, limits: Limits, now: i64) -> Window {
    Window::open(fs::File::open(dir).unwrap().into(), limits, now).unwrap()
}

fn limits(bytes: u64, age_ms: u64) -> Limits {
    Limits { bytes, age: Duration::from_millis(age_ms), ..Limits::default() }
}

/// Creates a chunk of `bytes` bytes with samples at its start and end. It has a header, metadata, constants
/// and three samples.
fn chunk(start_ms: i64, millis: i64, bytes: usize) -> Bytes {
    let mut chunk = fs::read(format!("{FIXTURES}cases/01_defs_before.jfr")).unwrap();
    assert!(chunk.len() + 9 <= bytes, "{}", chunk.len());
    // Padding, as in streams.
    let filler = bytes - chunk.len();
    let size = filler as u32;
    let mut head = [0u8; 5];
    for (at, byte) in head.iter_mut().take(4).enumerate() {
        *byte = (size >> (7 * at)) as u8 & 0x7f | if at < 3 { 0x80 } else { 0 };
    }
    chunk.extend(head);
    chunk.resize(bytes, 0);
    chunk[8..16].copy_from_slice(&(bytes as u64).to_be_bytes());
    chunk[32..40].copy_from_slice(&(start_ms * MILLI).to_be_bytes());
    chunk[40..48].copy_from_slice(&(millis * MILLI).to_be_bytes());
    chunk.into()
}

fn put(window: &mut Window, bytes: Bytes, now: i64) -> Result<(), Error> {
    window.put(&mut Chunk::from_bytes(bytes).unwrap(), now)
}

fn on_disk(dir: &Path) -> (u64, usize) {
    let files = fs::read_dir(dir).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    files.fold((0, 0), |(bytes, files), len| (bytes + len, files + 1))
}

/// Deterministic pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

#[test]
fn retained_chunks_match_reference_model() {
    for seed in 1..=12 {
        let dir = TempDir::new().unwrap();
        let mut numbers = Numbers(seed);
        let (most, age) = (30_000 + numbers.below(40_000), 200 + numbers.below(2000));
        let limits = Limits { chunks: 12, ..limits(most, age) };
        let mut kept = window(dir.path(), limits, 0);
        // (from, to, bytes, came)
        let mut model: Vec<(i64, i64, u64, i64)> = Vec::new();
        let (mut now, mut theirs) = (1_000_000i64, 1_700_000_000_000i64);
        for _ in 0..60 {
            now += numbers.below(120) as i64;
            // Their clock advances, stops, or steps back.
            match numbers.below(6) {
                0 => theirs -= numbers.below(5000) as i64,
                1 => {}
                _ => theirs += numbers.below(200) as i64,
            }
            let (lasts, bytes) = (numbers.below(300) as i64, 4400 + numbers.below(9000));
            let came = chunk(theirs, lasts, bytes as usize);
            let checked = check_bytes(&came);
            put(&mut kept, came, now).unwrap();
            model.retain(|&(.., came)| now - came <= age as i64);
            while model.iter().map(|of| of.2).sum::<u64>() + bytes > most || model.len() >= 12 {
                model.remove(0);
            }
            model.push((checked.0, checked.1, bytes, now));
            let bytes = model.iter().map(|of| of.2).sum::<u64>();
            assert_eq!(on_disk(dir.path()), (bytes, model.len()));
            let bounds = kept.bounds().unwrap();
            assert_eq!(bounds.from, model.iter().map(|of| of.0).min().unwrap());
            assert_eq!(bounds.to, model.iter().map(|of| of.1).max().unwrap());
            assert_eq!(bounds.bytes, bytes);
            let from = theirs - 2000 + numbers.below(3000) as i64;
            let to = from + numbers.below(1500) as i64;
            let mut want: Vec<_> = model.iter().filter(|of| of.0 < to && of.1 >= from).collect();
            want.sort_by_key(|of| (of.0, of.1));
            let chosen = kept.select(from, to).unwrap();
            let got: Vec<u64> = chosen.iter().map(|source| source.metadata().unwrap().len()).collect();
            assert_eq!(got, want.iter().map(|of| of.2).collect::<Vec<_>>());
            let parts = kept.chunks(from, to);
            assert_eq!(
                parts.iter().map(|part| (part.from, part.to, part.bytes)).collect::<Vec<_>>(),
                want.iter().map(|of| (of.0, of.1, of.2)).collect::<Vec<_>>()
            );
            if numbers.below(10) == 0 {
                let before = kept.chunks(i64::MIN, i64::MAX);
                drop(kept);
                kept = window(
                    dir.path(),
                    limits,
                    SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64,
                );
                assert_eq!(kept.chunks(i64::MIN, i64::MAX), before);
                // The files have just been written, so nothing has expired.
                break;
            }
        }
        kept.expire(i64::MAX).unwrap();
        assert_eq!((kept.bounds(), on_disk(dir.path())), (None, (0, 0)));
    }
}

fn check_bytes(bytes: &Bytes) -> (i64, i64) {
    let checked = crate::render::check_bytes(bytes.clone()).unwrap();
    (checked.first_ms, checked.last_ms)
}

#[test]
fn restart_loads_only_own_chunk_files() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name);
    let whole = chunk(1_700_000_000_000, 100, 5000);
    let mut first = window(dir.path(), Limits::default(), 0);
    put(&mut first, whole.clone(), 0).unwrap();
    drop(first);
    let elsewhere = TempDir::new().unwrap();
    fs::write(elsewhere.path().join("secret"), &whole).unwrap();
    symlink(elsewhere.path().join("secret"), path("1-2-00000000000000aa.jfr")).unwrap();
    fs::create_dir(path("1-2-00000000000000ab.jfr")).unwrap();
    nix::unistd::mkfifo(&path("1-2-00000000000000ac.jfr"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::write(path("run.jfr"), &whole).unwrap();
    fs::write(path("2-1-00000000000000ad.jfr"), &whole).unwrap();
    fs::write(path("notes.tmp"), "mine").unwrap();
    fs::write(path("00000000000000ae.tmp"), "half a chunk").unwrap();
    let now = i64::MAX / 2;
    let age = Limits { age: Duration::from_millis(u64::MAX), ..Limits::default() };
    let mut again = window(dir.path(), age, now);
    assert_eq!(again.chunks(i64::MIN, i64::MAX).len(), 1);
    assert_eq!(again.select(i64::MIN, i64::MAX).unwrap().len(), 1);
    assert!(!path("00000000000000ae.tmp").exists() && path("notes.tmp").exists() && path("run.jfr").exists());
    again.clear().unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 6, "what is not ours stays");
}

#[test]
fn removed_or_replaced_chunk_files_are_skipped() {
    let dir = TempDir::new().unwrap();
    let mut kept = window(dir.path(), Limits::default(), 0);
    for at in 0..3 {
        put(&mut kept, chunk(1_700_000_000_000 + at * 1000, 100, 5000 + at as usize), 0).unwrap();
    }
    let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().path()).collect();
    names.sort();
    fs::remove_file(&names[0]).unwrap();
    fs::remove_file(&names[1]).unwrap();
    symlink("/etc/passwd", &names[1]).unwrap();
    let left = kept.select(0, i64::MAX).unwrap();
    assert_eq!(left.iter().map(|source| source.metadata().unwrap().len()).collect::<Vec<_>>(), [5002]);
    assert_eq!(kept.bounds().unwrap().bytes, 5002);
}

#[test]
fn incomplete_or_oversized_chunk_leaves_window_unchanged() {
    let dir = TempDir::new().unwrap();
    let mut kept = window(dir.path(), limits(7000, 1000), 0);
    put(&mut kept, chunk(1_700_000_000_000, 100, 5000), 0).unwrap();
    let before = kept.chunks(i64::MIN, i64::MAX);
    let error = put(&mut kept, chunk(1_700_000_000_000, 100, 7001), 0).unwrap_err();
    assert!(matches!(error, Error::TooLarge(_)), "{error}");
    let whole = chunk(1_700_000_000_000, 100, 5000);
    let error = Chunk::from_bytes(whole.slice(..4999)).unwrap_err();
    assert!(error.to_string().contains("1 bytes before the chunk does (at offset 0"), "{error}");
    let mut behind = whole.to_vec();
    behind.extend([7; 100]);
    let error = Chunk::from_bytes(behind.into()).unwrap_err();
    assert_eq!(error.offset, 5000);
    assert_eq!((kept.chunks(i64::MIN, i64::MAX), on_disk(dir.path())), (before, (5000, 1)));
}

#[test]
fn making_room_never_exceeds_previous_window_size() {
    let dir = TempDir::new().unwrap();
    let mut kept = window(dir.path(), Limits::default(), 0);
    assert!(!kept.give_way(1).unwrap(), "there is nothing that could go");
    for start in 0..4 {
        put(&mut kept, chunk(1_700_000_000_000 + start * 100, 100, 5000), 0).unwrap();
    }
    assert!(!kept.give_way(20_001).unwrap());
    assert_eq!(on_disk(dir.path()), (20_000, 4));
    assert!(kept.give_way(5001).unwrap());
    put(&mut kept, chunk(1_700_000_000_900, 100, 5001), 0).unwrap();
    assert_eq!(on_disk(dir.path()), (15_001, 3));
    assert_eq!(kept.bounds().unwrap().from, 1_700_000_000_200);
}

#[test]
fn chunk_from_file_is_stored_like_chunk_from_bytes() {
    let dir = TempDir::new().unwrap();
    let mut kept = window(dir.path(), Limits::default(), 0);
    let file = fs::File::open(format!("{FIXTURES}recordings/jdk17-multichunk.jfr")).unwrap();
    let size = file.metadata().unwrap().len();
    let mut chunk = Chunk::from_file(file).unwrap();
    assert!(chunk.checked().chunks > 1);
    kept.put(&mut chunk, 0).unwrap();
    assert_eq!(on_disk(dir.path()), (size, 1));
    let source = kept.select(0, i64::MAX).unwrap().remove(0);
    assert_eq!(&check(&source).unwrap(), chunk.checked());
}

#[test]
fn window_interval_renders_like_recording_interval() {
    for name in ["jdk17-multichunk.jfr", "ap-jfrsync.jfr", "jdk25-multichunk.jfr"] {
        let dir = TempDir::new().unwrap();
        let mut kept = window(dir.path(), Limits::default(), 0);
        let path = format!("{FIXTURES}recordings/{name}");
        let whole = fs::read(&path).unwrap();
        for chunk in split(&whole) {
            put(&mut kept, Bytes::copy_from_slice(chunk), 0).unwrap();
        }
        let recording = [fs::File::open(&path).unwrap()];
        let bounds = kept.bounds().unwrap();
        let mut numbers = Numbers(7);
        let mut drawn = 0;
        for _ in 0..8 {
            let length = (bounds.to - bounds.from) as u64;
            let from = bounds.from + numbers.below(length) as i64;
            let to = from + 1 + numbers.below(length) as i64;
            let sources = kept.select(from, to).unwrap();
            let wanted = RenderOptions {
                event: Some("cpu".into()),
                total: true,
                from_ms: Some(from),
                to_ms: Some(to),
                ..RenderOptions::default()
            };
            for format in [Format::Folded, Format::Html, Format::Otlp] {
                let [mut parts, mut all] = [Vec::new(), Vec::new()];
                let of_parts = make(format, &sources, &wanted, &mut parts);
                let of_all = make(format, &recording, &wanted, &mut all);
                assert_eq!(of_parts.is_ok(), of_all.is_ok(), "{name} {format:?} {from} {to}");
                drawn += u32::from(of_all.is_ok());
                assert!(parts == all, "{name} {format:?} {from} {to}");
            }
        }
        assert!(drawn > 9, "{name}: {drawn}");
    }
}

/// Recorders with unrelated clocks and constant pool keys.
#[test]
fn chunks_from_several_recorders_are_rendered_together() {
    let dir = TempDir::new().unwrap();
    let mut kept = window(dir.path(), Limits::default(), 0);
    let cpu = |sources: &[fs::File]| {
        let mut out = Vec::new();
        let wanted = RenderOptions { event: Some("cpu".into()), ..RenderOptions::default() };
        make(Format::Folded, sources, &wanted, &mut out).unwrap().total
    };
    let mut sum = 0;
    for name in ["flightline.jfr", "jdk17.jfr", "ap-java-cpu.jfr", "ap-native-ctimer.jfr", "jdk25.jfr"] {
        let path = format!("{FIXTURES}recordings/{name}");
        sum += cpu(&[fs::File::open(&path).unwrap()]);
        put(&mut kept, fs::read(&path).unwrap().into(), 0).unwrap();
    }
    let all = kept.select(0, i64::MAX).unwrap();
    assert_eq!((all.len(), cpu(&all)), (5, sum));
    let mut joined = Vec::new();
    make(Format::Jfr, &all, &RenderOptions::default(), &mut joined).unwrap();
    let path = dir.path().join("joined");
    fs::write(&path, joined).unwrap();
    assert_eq!(cpu(&[fs::File::open(&path).unwrap()]), sum);
    let mut page = Vec::new();
    make(Format::Html, &all, &RenderOptions::default(), &mut page).unwrap();
    assert!(page.ends_with(b"</html>\n"));
}

#[test]
fn timeline_totals_match_and_are_recounted_after_restart() {
    let dir = TempDir::new().unwrap();
    let mut kept = window(dir.path(), Limits::default(), 0);
    let whole = fs::read(format!("{FIXTURES}recordings/jdk17-multichunk.jfr")).unwrap();
    let mut samples = 0;
    for piece in split(&whole) {
        let mut chunk = Chunk::from_bytes(Bytes::copy_from_slice(piece)).unwrap();
        samples += chunk.checked().line.total();
        kept.put(&mut chunk, 0).unwrap();
    }
    assert!(samples > 20, "{samples}");
    let bounds = kept.bounds().unwrap();
    // Align to seconds, the resolution of the histogram.
    let (from, to) = (bounds.from / 1000 * 1000, bounds.to / 1000 * 1000 + 1000);
    let sum = |line: &Timeline| {
        line.rates.iter().map(|rate| rate.unwrap() * line.step as f64 / 1000.0).sum::<f64>()
    };
    for steps in [1, 7, 60, 5000] {
        let line = kept.timeline(from, to, steps);
        assert!(line.rates.len() <= steps.min(2000));
        assert!((sum(&line) - samples as f64).abs() < 0.01, "{steps}: {} {samples}", sum(&line));
    }
    let before = kept.timeline(from, to, 7);
    drop(kept);
    let age = Limits { age: Duration::from_millis(u64::MAX), ..Limits::default() };
    let mut kept = window(dir.path(), age, 0);
    assert!(kept.timeline(from, to, 7).rates.contains(&None), "not counted yet");
    while let Some((number, source)) = kept.uncounted().unwrap() {
        kept.counted(number, check(&source)).unwrap();
    }
    assert_eq!(kept.timeline(from, to, 7), before);
    // A chunk that was damaged in the meantime is removed.
    let victim = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
    let size = fs::metadata(&victim).unwrap().len();
    fs::write(&victim, vec![0; size as usize]).unwrap();
    let mut kept = window(dir.path(), age, 0);
    let had = kept.chunks(i64::MIN, i64::MAX).len();
    while let Some((number, source)) = kept.uncounted().unwrap() {
        kept.counted(number, check(&source)).unwrap();
    }
    assert_eq!(kept.chunks(i64::MIN, i64::MAX).len(), had - 1);
    assert!(!victim.exists());
}

#[test]
fn histogram_size_is_bounded_for_any_times() {
    let mut line = Histogram::default();
    for at in 0..100_000i64 {
        line.add(at * 700, 1);
    }
    assert_eq!(line.total(), 100_000);
    let mut rates = Timeline::new(0, 70_000_000, 10);
    rates.add(&line);
    assert!(rates.rates.iter().all(|rate| (rate.unwrap() - 1000.0 / 700.0).abs() < 0.1), "{rates:?}");
    for at in [i64::MIN, i64::MAX, 0, -1] {
        line.add(at, u64::MAX);
    }
    for at in 0..5000i64 {
        line.add(at.wrapping_mul(0x7777_7777_7777_7777), 1);
    }
    let mut rates = Timeline::new(i64::MIN, i64::MAX, 100);
    rates.add(&line);
    rates.unknown(i64::MIN, i64::MAX);
    assert!(rates.rates.len() <= 100 && rates.rates.iter().all(Option::is_none));
    assert_eq!(Timeline::new(5, 5, 10).rates.len(), 0);
}
