//! `flightline flame --cpi`: two counters of a program from `perf script`, Flightline's recordings and folded
//! text.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};

use jfr_format::ids::{FileOffset, Ticks};
use jfr_format::schema::{self, frame_type};
use jfr_format::write::{ChunkWriter, ClockLine, FileOutput, Geometry};

/// Samples by function: cycles, then instructions, as in `fixtures/perf/cpi.py`.
const SAMPLES: [(&str, u64, u64); 5] =
    [("chase", 119, 20), ("spin", 40, 79), ("mixed", 40, 26), ("rare", 1, 0), ("skipped", 0, 5)];
/// Sampling period.
const PERIOD: i64 = 1_000_000;

fn flightline(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flightline")).args(args).output().unwrap()
}

fn drawn(args: &[&str]) -> String {
    let done = flightline(args);
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn script() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/perf/cpi.txt");
    path.to_str().unwrap().to_owned()
}

/// The same samples in a recording, as the perf engine writes them.
fn record(path: &Path) {
    let line = ClockLine {
        start_ticks: Ticks(0),
        start_epoch_ns: 1_750_000_000_000_000_000,
        ticks_per_second: 1_000_000_000,
    };
    let mut out = FileOutput::new(File::create(path).unwrap()).unwrap();
    let mut chunk = ChunkWriter::begin(Geometry::Patched, &line, FileOffset(0), line.start_ticks).unwrap();
    let names = SAMPLES.iter().map(|(name, ..)| *name).chain(["main", "prog"]);
    for (key, name) in (1u64..).zip(names) {
        chunk.constant(schema::SYMBOL, key, |s| _ = s.string(name)).unwrap();
        chunk
            .constant(schema::METHOD, key, |m| _ = m.key(0).key(key).key(0).int(0x100).boolean(false))
            .unwrap();
    }
    for (key, event) in [(1, "cycles"), (2, "instructions")] {
        chunk.constant(schema::EVENT_NAME, key, |e| _ = e.string(event)).unwrap();
    }
    let mut time = 0;
    for (stack, (_, cycles, instructions)) in (1u64..).zip(SAMPLES) {
        let path = [stack, 6, 7];
        chunk
            .constant(schema::STACK_TRACE, stack, |s| {
                s.boolean(false).array(path.len());
                path.iter().for_each(|&key| _ = s.key(key).int(0).int(0).key(frame_type::NATIVE));
            })
            .unwrap();
        for (event, count) in [(1, cycles), (2, instructions)] {
            for _ in 0..count {
                time += 1_000;
                chunk
                    .event(schema::EVENT_SAMPLE, |e| {
                        _ = e.ticks(Ticks(time)).key(0).key(stack).key(event).long(PERIOD)
                    })
                    .unwrap();
            }
        }
    }
    chunk.finish(Ticks(time + 1), true, &mut out).unwrap();
}

/// Returns the title of `name` and the colour of its first frame.
fn told(svg: &str, name: &str) -> (String, [u8; 3]) {
    let (_, rest) = svg.split_once(&format!("<title>{name} (")).unwrap_or_else(|| panic!("no {name}"));
    let (title, rest) = rest.split_once(")</title>").unwrap();
    let fill = rest.split_once("fill=\"rgb(").unwrap().1.split_once(')').unwrap().0;
    let parts: Vec<u8> = fill.split(',').map(|part| part.parse().unwrap()).collect();
    (title.to_owned(), parts.try_into().unwrap())
}

#[test]
fn cpi_graph_width_and_colour_agree_for_all_input_formats() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let recording = path("cpi.jfr");
    record(Path::new(&recording));
    for (which, file) in [(1, path("cycles.folded")), (2, path("instructions.folded"))] {
        let of = |&(name, cycles, instructions): &(&str, u64, u64)| {
            format!("prog;main;{name} {}000000\n", if which == 1 { cycles } else { instructions })
        };
        fs::write(file, SAMPLES.iter().map(of).collect::<String>()).unwrap();
    }
    let inputs = [vec![script()], vec![recording], vec![path("cycles.folded"), path("instructions.folded")]];
    for input in &inputs {
        let mut args = vec!["flame", "--cpi", "--format", "svg"];
        args.extend(input.iter().map(String::as_str));
        let svg = drawn(&args);
        let (title, [red, _, blue]) = told(&svg, "chase");
        assert_eq!(title, "119,000,000 cycles, 59.50%; 20,000,000 instructions; 5.95 cycles per instruction");
        assert!(red > 220 && blue < 60, "{input:?}: it waits for its memory: {red} {blue}");
        let (title, [red, _, blue]) = told(&svg, "spin");
        assert_eq!(title, "40,000,000 cycles, 20.00%; 79,000,000 instructions; 0.51 cycles per instruction");
        assert!(blue > 220 && red < 80, "{input:?}: it computes: {red} {blue}");
        let (title, [red, green, blue]) = told(&svg, "mixed");
        assert_eq!(title, "40,000,000 cycles, 20.00%; 26,000,000 instructions; 1.54 cycles per instruction");
        assert!(red == green && green == blue, "{input:?}: as all of it");
        assert!(told(&svg, "skipped").0.starts_with("0 cycles, 0.00%; 5,000,000 instructions;"));
        assert!(svg.contains("paths with instructions but no cycles (3.85% of the instructions)"));
        assert!(svg.contains("1.54 cycles per instruction of all"));
        // A single sample is not significant; text without periods does not show that it is one sample.
        if input.len() == 1 {
            let (title, [red, green, blue]) = told(&svg, "rare");
            assert_eq!(title, "1,000,000 cycles, 0.50%; 0 instructions; no instructions, may be that of all");
            assert!(red == green && green == blue);
        }
    }
    // The usual filters apply.
    let focused = drawn(&["flame", "--cpi", "--format", "svg", &script(), "--focus", "main", "-X", "chase"]);
    assert!(!focused.contains("chase"));
    assert!(told(&focused, "main").0.starts_with("81,000,000 cycles, 100.00%; 110,000,000 instructions;"));
}

#[test]
fn invalid_cpi_inputs_are_rejected_with_reason() {
    let folder = tempfile::tempdir().unwrap();
    let folded = folder.path().join("one.folded");
    fs::write(&folded, "a;b 1\n").unwrap();
    let (folded, script) = (folded.to_str().unwrap(), script());
    let refused = |args: &[&str]| {
        let done = flightline(&[&["flame", "-o", "-"], args].concat());
        assert!(!done.status.success(), "{args:?}");
        String::from_utf8(done.stderr).unwrap()
    };
    assert!(refused(&["--cpi=cycles,branches", &script]).contains("branches"));
    assert!(refused(&["--cpi", folded]).contains("cycles, then instructions"));
    assert!(refused(&["--cpi", folded, folded, folded]).contains("--cpi"));
    assert!(refused(&["--cpi=cycles", folded]).contains("--cpi"));
    assert!(refused(&["--cpi", "--total", folded]).contains("--total"));
}
