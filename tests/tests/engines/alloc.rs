//! Allocations: the samples represent all allocated bytes, leaks are found, and the program is not disturbed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flightline_tests::allocations::{Allocations, Block, by_function};
use flightline_tests::record::{Record, Recorded};
use flightline_tests::run::{beside, programs, run, spawn, until, wait};
use flightline_tests::{foreign, skip, victim};

const SITES: [&str; 7] = ["small", "mixed", "large", "zeroed", "grown", "aligned", "leak"];

fn record(engines: &str) -> Record {
    Record::new().option("-e").option(engines)
}

fn read(recorded: &Recorded) -> Allocations {
    Allocations::read(&recorded.path)
}

/// The mean of 100 estimates, compared with the ground truth. This detects biased estimators: five standard
/// errors of the mean are at most 6 % of the truth, and the usual errors (size instead of weight, one
/// interval per sample) are far larger at these sites.
#[test]
fn estimates_are_unbiased_over_100_runs() {
    const RUNS: usize = 100;
    let _place = beside();
    let program = victim::c("alloc_sites", victim::OPTIMISED);
    let mut estimates: HashMap<&str, Vec<f64>> = HashMap::new();
    let mut truth = BTreeMap::new();
    for _ in 0..RUNS {
        let recorded = record("alloc@64k").run(&program, &["60"]).expect_code(0);
        truth = recorded.truth().counts;
        let all = read(&recorded);
        assert!(all.lost.is_empty(), "{:?}", all.lost);
        assert!(all.freed.is_empty() && all.live.is_empty(), "not asked for");
        let by_function = all.by_function();
        for site in SITES {
            estimates.entry(site).or_default().push(by_function.get(site).copied().unwrap_or(0) as f64);
        }
    }
    let n = RUNS as f64;
    for site in SITES {
        let (values, truth) = (&estimates[site], truth[site] as f64);
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let error = (variance / n).sqrt();
        let (off, interval) = (100.0 * (mean / truth - 1.0), 196.0 * error / truth);
        println!("{site:8} true {truth:11} mean {mean:13.1} ({off:+.2} %, 95 % interval ±{interval:.2} %)");
        assert!((mean - truth).abs() <= 5.0 * error, "{site}: {mean} of {truth}, standard error {error}");
        assert!(5.0 * error < 0.06 * truth, "{site}: too few samples: {error} of {truth}");
    }
}

/// With an interval of one byte every allocation is sampled.
#[test]
fn one_byte_interval_samples_every_allocation() {
    let _place = beside();
    let program = victim::c("alloc_sites", victim::OPTIMISED);
    let recorded =
        record("alloc@1,live").option("--ring-size").option("64M").run(&program, &["1"]).expect_code(0);
    let (truth, all) = (recorded.truth().counts, read(&recorded));
    assert!(all.lost.is_empty(), "{:?}", all.lost);
    let sums = all.by_function();
    for site in SITES {
        assert_eq!(sums[site], truth[site], "{site}");
    }
    // Each has its true size, which equals its weight.
    assert_eq!(all.exact.len(), all.sampled.len());
    let mut functions: HashMap<&str, HashSet<&str>> = HashMap::new();
    for (block, (time, address, size, weight, function)) in all.sampled.iter().zip(&all.exact) {
        assert_eq!((time, address), (&block.time, &block.address));
        assert_eq!((size, weight), (&block.weight, &block.weight));
        for site in SITES.iter().filter(|site| block.stack.iter().any(|f| f == *site)) {
            functions.entry(site).or_default().insert(function.as_str());
        }
    }
    let expected: [(&str, &[&str]); 4] = [
        ("small", &["malloc"]),
        ("zeroed", &["calloc"]),
        ("grown", &["realloc"]),
        ("aligned", &["posix_memalign", "aligned_alloc", "memalign", "valloc"]),
    ];
    for (site, names) in expected {
        assert_eq!(functions[site], names.iter().copied().collect(), "{site}");
    }
    // The complete leak, and no other live block of the program.
    let leaked: Vec<_> = all.live.iter().filter(|b| b.stack.iter().any(|f| f == "leak")).collect();
    assert_eq!(leaked.len() as i64, truth["leaked_blocks"]);
    assert!(leaked.iter().all(|b| b.size == 4000 && b.weight == 4000 && b.age >= 0));
    for site in SITES.iter().filter(|site| **site != "leak") {
        assert!(!all.live.iter().any(|b| b.stack.iter().any(|f| f == site)), "{site} freed everything");
    }
    // A free for every allocation that is not live.
    assert_eq!(all.freed.len() + all.live.len(), all.sampled.len());
    // The closing line counts the program's own allocations, not the recorded events.
    let report = format!("{} alloc, {} free events", all.sampled.len(), all.freed.len());
    assert!(recorded.finished.stderr.contains(&report), "{report}: {}", recorded.finished.stderr);
    // Readers that sort by time get the same result.
    let live: HashSet<i64> = all.live.iter().map(|b| b.address).collect();
    let by_time = all.alive_by_time();
    if let Some(address) = live.symmetric_difference(&by_time).next() {
        let report = all.in_order.iter().enumerate().filter(|(_, report)| report.1 == *address);
        let report: Vec<_> = report.map(|(at, (time, _, allocated))| (at, *time, *allocated)).collect();
        let (ours, theirs) = (live.len(), by_time.len());
        panic!("{ours} alive, {theirs} by time; place, time, allocated of {address:#x}: {report:?}");
    }
}

/// Sampled: only the leak is live, its size is right on average, and addresses match.
#[test]
fn leak_is_found_with_expected_size() {
    let _place = beside();
    let program = victim::c("alloc_sites", victim::OPTIMISED);
    // Some 5 MB of records: on a busy machine all of them may be written before the drain runs.
    let recording = record("alloc@16k,live").option("--ring-size").option("64M");
    let recorded = recording.run(&program, &["100"]).expect_code(0);
    let (truth, all) = (recorded.truth().counts, read(&recorded));
    assert!(all.lost.is_empty(), "{:?}", all.lost);
    let live = by_function(&all.live);
    let (leak, found) = (truth["leak"] as f64, live["leak"] as f64);
    // p = 1 − e^(−4000/16384) of each block: one standard error of the sum.
    let p = 1.0 - (-4000f64 / 16384.0).exp();
    let blocks = truth["leaked_blocks"] as f64;
    let error = 4000.0 / p * (blocks * p * (1.0 - p)).sqrt();
    assert!((found - leak).abs() < 5.0 * error, "{found} of {leak}, standard error {error}");
    for site in SITES.iter().filter(|site| **site != "leak") {
        assert!(!live.contains_key(*site), "{site} freed everything: {live:?}");
    }
    let sampled: HashSet<(i64, i64)> = all.sampled.iter().map(|b| (b.address, b.weight)).collect();
    assert!(all.live.iter().all(|b| sampled.contains(&(b.address, b.weight))));
}

/// A child frees its parent's leak; its own allocations are counted separately.
#[test]
fn forked_child_does_not_free_parent_blocks() {
    let _place = beside();
    let program = victim::c("alloc_sites", victim::OPTIMISED);
    let recorded = record("alloc@1,live")
        .option("--ring-size")
        .option("64M")
        .run(&program, &["1", "fork"])
        .expect_code(0);
    let all = read(&recorded);
    assert!(all.lost.is_empty(), "{:?}", all.lost);
    let leaked = all.live.iter().filter(|b| b.stack.iter().any(|f| f == "leak")).count();
    // Two threads of the parent, then one of the child; 20 blocks each.
    assert_eq!(leaked, 60);
    let sums = all.by_function();
    // The truth file sums parent (two threads) and child (its copy of those sums and one thread more).
    let truth = recorded.truth().counts;
    for site in SITES {
        assert_eq!(sums[site] * 5, truth[site] * 3, "{site}");
    }
}

/// The installed shared objects with an allocator.
fn allocators() -> Vec<String> {
    let known = ["libjemalloc.so.2", "libmimalloc.so.2", "libmimalloc.so.2.0", "libtcmalloc_minimal.so.4"];
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let all = folders.iter().flat_map(|folder| known.iter().map(move |name| format!("{folder}/{name}")));
    all.filter(|path| std::path::Path::new(path).exists()).collect()
}

/// Other allocators that call ours: each allocation is counted once.
#[test]
fn preloaded_allocator_is_counted_once() {
    let _place = beside();
    let program = victim::c("alloc_sites", victim::OPTIMISED);
    let there = allocators();
    if there.is_empty() {
        return skip::skip("no jemalloc, mimalloc or tcmalloc here: allocators behind ours");
    }
    for allocator in there {
        let recording = record("alloc@1,live").option("--ring-size").option("64M");
        let mut command = recording.command(&program, &["1"]);
        command.env("LD_PRELOAD", &allocator);
        let done = run(&mut command, Duration::from_secs(60)).expect_success(&allocator);
        let all = Allocations::read(&recording.path());
        assert!(all.lost.is_empty(), "{allocator}: {:?}", done.stderr);
        let truth = flightline_tests::truth::Truth::read(&recording.truth_path()).counts;
        let sums = all.by_function();
        for site in SITES {
            assert_eq!(sums[site], truth[site], "{site} with {allocator}");
        }
        let leaked = all.live.iter().filter(|b| b.stack.iter().any(|f| f == "leak")).count() as i64;
        assert_eq!(leaked, truth["leaked_blocks"], "{allocator}");
        let mapped: Vec<_> = all.exact.iter().filter(|exact| ["mmap", "sbrk"].contains(&&*exact.4)).collect();
        assert!(mapped.is_empty(), "{allocator} maps what it hands out: {mapped:?}");
    }
}

/// The calls that an allocator makes to itself do not count as the program's.
#[test]
fn allocator_calls_to_itself_are_not_counted() {
    let _place = beside();
    let flags = ["-O1", "-fno-builtin", "-shared", "-fPIC"];
    let object = victim::compile("gcc", "alloc_on_calloc.c", &flags, &[]);
    let program = victim::c("alloc_sites", victim::OPTIMISED);
    let recording = record("alloc@1,live").option("--ring-size").option("64M");
    let mut command = recording.command(&program, &["1"]);
    command.env("LD_PRELOAD", &object);
    run(&mut command, Duration::from_secs(60)).expect_success("alloc_on_calloc");
    let truth = flightline_tests::truth::Truth::read(&recording.truth_path()).counts;
    let all = Allocations::read(&recording.path());
    assert!(all.lost.is_empty(), "{:?}", all.lost);
    let (sums, live) = (all.by_function(), by_function(&all.live));
    for site in SITES {
        assert_eq!(sums[site], truth[site], "{site}");
    }
    assert_eq!(live.get("leak").copied(), Some(truth["leak"]));
    assert!(!live.contains_key("grown") && !live.contains_key("small"), "{live:?}");
}

/// Blocks that are allocated while the real allocator is being looked up stay valid; they can be moved and
/// freed, sampled or not.
#[test]
fn blocks_allocated_by_dlsym_stay_valid() {
    let _place = beside();
    let flags = ["-O2", "-shared", "-fPIC"];
    let object = victim::compile("gcc", "alloc_dlsym.c", &flags, &["-ldl"]);
    let program = victim::c("alloc_sites", victim::OPTIMISED);
    for engines in ["cpu", "alloc@1", "alloc@1,live"] {
        let recording = record(engines).option("--ring-size").option("64M");
        let mut command = recording.command(&program, &["1"]);
        command.env("LD_PRELOAD", &object);
        run(&mut command, Duration::from_secs(60)).expect_success(engines);
        if engines == "cpu" {
            continue;
        }
        let truth = flightline_tests::truth::Truth::read(&recording.truth_path()).counts;
        let all = Allocations::read(&recording.path());
        let sums = all.by_function();
        for site in SITES {
            assert_eq!(sums[site], truth[site], "{site} with {engines}");
        }
        let left = by_function(&all.live);
        assert_eq!(left.get("leak").copied(), engines.contains("live").then_some(truth["leak"]));
        assert!(!left.contains_key("grown") && !left.contains_key("small"), "{left:?}");
    }
}

/// `new` and `delete`, by the C++ library and by allocators that bring their own.
#[test]
fn operator_new_and_delete_are_recorded_exactly() {
    let _place = beside();
    let Some(program) = victim::cpp("alloc_new", victim::OPTIMISED) else { return };
    for allocator in std::iter::once(None).chain(allocators().into_iter().map(Some)) {
        let recording = record("alloc@1,live").option("--ring-size").option("64M");
        let mut command = recording.command(&program, &["10"]);
        if let Some(allocator) = &allocator {
            command.env("LD_PRELOAD", allocator);
        }
        run(&mut command, Duration::from_secs(60)).expect_success("new");
        let truth = flightline_tests::truth::Truth::read(&recording.truth_path()).counts;
        let all = Allocations::read(&recording.path());
        assert!(all.lost.is_empty(), "{:?}", all.lost);
        let (sums, live) = (all.by_function(), by_function(&all.live));
        for site in ["new_objects", "new_arrays", "new_leak"] {
            assert_eq!(sums.get(site), truth.get(site), "{site} with {allocator:?}");
        }
        assert_eq!(live.get("new_leak"), truth.get("new_leak"), "with {allocator:?}");
        assert!(!live.contains_key("new_objects") && !live.contains_key("new_arrays"), "with {allocator:?}");
    }
}

/// Modules whose allocations cannot be seen are reported, on the terminal and in the recording; the program
/// runs as usual.
#[test]
fn allocator_linked_into_program_is_reported() {
    let _place = beside();
    for flags in [&["-O2"][..], &["-O2", "-rdynamic"]] {
        let program = victim::c("alloc_own", flags);
        let recorded = record("alloc@1,live").run(&program, &[]).expect_code(0);
        let report = "contains its own allocator (malloc)";
        assert!(recorded.finished.stderr.contains(report), "{}", recorded.finished.stderr);
        assert_eq!(recorded.read().events["flightline.Notice"], 1);
        let quiet = record("cpu").run(&program, &[]).expect_code(0);
        assert!(!quiet.finished.stderr.contains(report), "{}", quiet.finished.stderr);
    }
}

/// A module opened with RTLD_DEEPBIND calls the C library past the recorder. The recorder reports the module.
#[test]
fn module_bypassing_interposed_allocator_is_reported() {
    let _place = beside();
    let program = victim::c("alloc_direct", victim::OPTIMISED);
    for binding in ["-Wl,-z,now", "-Wl,-z,lazy"] {
        let flags = ["-O2", "-shared", "-fPIC", "-DMODULE", binding];
        let module = victim::compile("gcc", "alloc_direct.c", &flags, &[]);
        for (deep, reported) in [(0, false), (libc::RTLD_DEEPBIND, true)] {
            let recording = record("alloc@1,live").option("--flush").option("100ms");
            let flags = (libc::RTLD_LAZY | deep).to_string();
            let mut recorder = spawn(&mut recording.command(&program, &[module.to_str().unwrap(), &flags]));
            let limit = Duration::from_secs(60);
            until(limit, "freed", || recording.folder().join("freed").exists().then_some(()));
            let count = || {
                let mut print = Command::new(victim::flightline());
                print.args(["print", "--json", "--events", "flightline.Notice,flightline.LiveMemory"]);
                let text = run(print.arg(recording.path()), limit).stdout_text();
                (text.matches("calls the allocator of libc.so.6 directly").count(), text)
            };
            match reported {
                true => until(limit, "the notice", || (count().0 == 1).then_some(())),
                // The recorder reads bindings once a second.
                false => std::thread::sleep(Duration::from_millis(2_500)),
            }
            std::fs::write(recording.folder().join("go"), "").unwrap();
            assert!(wait(&mut recorder, limit, "record").success());
            let (notices, text) = count();
            assert_eq!(notices, usize::from(reported), "{binding} {deep}: {text}");
            let live = by_function(&Allocations::read(&recording.path()).live);
            assert_eq!(live.contains_key("hold"), reported, "{binding} {deep}: {live:?}");
        }
    }
}

/// A program that ends before the recorder reads its map, and opens a module by a relative path.
#[test]
fn modules_opened_by_relative_paths_have_names() {
    let _place = beside();
    let program = victim::c("alloc_direct", victim::OPTIMISED);
    // -O1 has no tail calls: `make` is on the stack.
    let module = victim::compile("gcc", "alloc_direct.c", &["-O1", "-shared", "-fPIC", "-DMODULE"], &[]);
    let recording = record("alloc@1,live");
    std::fs::copy(module, recording.folder().join("module.so")).unwrap();
    std::fs::write(recording.folder().join("go"), "").unwrap();
    let recorded = recording.run(&program, &["./module.so", "1"]).expect_code(0);
    let live = by_function(&read(&recorded).live);
    assert!(live.contains_key("make"), "{live:?}");
}

/// The live memory of an idle program is reported while it runs, not only at its end.
#[test]
fn live_memory_is_written_while_program_sleeps() {
    let _place = beside();
    let program = victim::c("alloc_pause", victim::OPTIMISED);
    let recording =
        record("alloc@1,live").option("--live-interval").option("1s").option("--flush").option("100ms");
    let mut recorder = spawn(&mut recording.command(&program, &["200"]));
    let limit = Duration::from_secs(60);
    let there = |name: &str| recording.folder().join(name).exists().then_some(());
    until(limit, "allocations", || there("allocated"));
    // The program waits for a command to continue.
    let report = until(limit, "what is alive", || {
        let mut print = Command::new(victim::flightline());
        print.args(["print", "--json", "--events", "flightline.LiveMemory"]).arg(recording.path());
        let text = run(&mut print, limit).stdout_text();
        text.contains("\"hold\"").then_some(text)
    });
    assert!(report.contains("LiveMemory") && there("freed").is_none(), "{report}");
    for name in ["paused", "go"] {
        std::fs::write(recording.folder().join(name), "").unwrap();
    }
    assert!(wait(&mut recorder, limit, "record").success());
}

/// Blocks that are sampled before a pause and freed during it are not reported as live. Allocations during
/// the pause are not recorded.
#[test]
fn frees_during_pause_are_tracked() {
    let _place = beside();
    let program = victim::c("alloc_pause", victim::OPTIMISED);
    let recording = record("alloc@1,live");
    let mut recorder = spawn(&mut recording.command(&program, &["200"]));
    let limit = Duration::from_secs(60);
    let there = |name: &str| {
        let path = recording.folder().join(name);
        until(limit, name, || path.exists().then_some(()));
    };
    let pid = until(limit, "the victim", || programs(recorder.id()).first().copied());
    let ctl = |command: &str| {
        let mut ctl = Command::new(victim::flightline());
        ctl.args(["ctl", "-p", &pid.to_string(), command]);
        run(&mut ctl, limit).expect_success(command);
    };
    there("allocated");
    ctl("pause");
    std::fs::write(recording.folder().join("paused"), "").unwrap();
    there("freed");
    ctl("resume");
    std::fs::write(recording.folder().join("go"), "").unwrap();
    assert!(wait(&mut recorder, limit, "record").success());
    let all = Allocations::read(&recording.path());
    assert!(all.lost.is_empty(), "{:?}", all.lost);
    let blocks = |blocks: &[Block], site: &str| {
        blocks.iter().filter(|block| block.stack.iter().any(|f| f == site)).count()
    };
    assert_eq!(blocks(&all.sampled, "hold"), 200);
    assert_eq!(blocks(&all.live, "hold"), 0, "freed in the pause");
    assert_eq!(blocks(&all.sampled, "while_paused"), 0);
    let afterwards = blocks(&all.sampled, "afterwards");
    assert!(afterwards > 0);
    assert_eq!(blocks(&all.live, "afterwards"), afterwards);
}

/// Pages that a program maps itself, freed completely, in parts, by mapping over them, or by moving them.
#[test]
fn mapped_memory_and_partial_unmaps_are_recorded_exactly() {
    let _place = beside();
    let program = victim::c("alloc_map", victim::OPTIMISED);
    let recorded = record("alloc@1,live").run(&program, &[]).expect_code(0);
    let (truth, all) = (recorded.truth().counts, read(&recorded));
    assert!(all.lost.is_empty(), "{:?}", all.lost);
    let (sums, live) = (all.by_function(), by_function(&all.live));
    for site in ["arenas", "parts", "over", "grown", "heap_end"] {
        assert_eq!(sums.get(site), truth.get(site), "{site}: {sums:?}");
        assert_eq!(live.get(site), truth.get(format!("left_{site}").as_str()), "left of {site}: {live:?}");
    }
    assert!(!sums.contains_key("none_of_it"), "{sums:?}");
    let functions: HashSet<&str> = all.exact.iter().map(|exact| exact.4.as_str()).collect();
    assert!(["mmap", "mremap", "sbrk", "brk"].iter().all(|name| functions.contains(name)), "{functions:?}");
    // Sampled: the remaining memory is right on average, and in the right functions.
    let recorded = record("alloc@64k,live").run(&program, &[]).expect_code(0);
    let all = read(&recorded);
    let live = by_function(&all.live);
    assert!(!live.contains_key("arenas") && !live.contains_key("grown"), "{live:?}");
    // Sum over mappings of s²/p − s², where p is the sampling probability: one standard error, here of arenas
    // alone.
    let error = (1..=200).map(|pages| f64::from(pages) * 4096.0).map(|s| {
        let p = 1.0 - (-s / 65536.0f64).exp();
        s * s * (1.0 - p) / p
    });
    let error = error.sum::<f64>().sqrt();
    let (found, true_bytes) = (all.by_function()["arenas"] as f64, truth["arenas"] as f64);
    assert!((found - true_bytes).abs() < 5.0 * error, "{found} of {true_bytes}, standard error {error}");
}

/// Python maps its arenas itself: they are recorded, and pages that an allocator maps are not counted twice.
#[test]
fn python_arenas_are_recorded() {
    let Some(python) =
        ["/usr/bin/python3", "/usr/local/bin/python3"].into_iter().find(|p| Path::new(p).exists())
    else {
        return skip::skip("no python3 here: its arenas");
    };
    let _place = beside();
    // 40 MB of objects in pymalloc: at most 512 bytes each.
    let script = "x = [bytes(400) for _ in range(100_000)]";
    let recorded = record("alloc@256k,live").run(Path::new(python), &["-c", script]).expect_code(0);
    let all = read(&recorded);
    let mapped: i64 = all.exact.iter().filter(|exact| exact.4 == "mmap").map(|exact| exact.3).sum();
    // 43 MB of objects with their heads, in arenas of 256 KiB or 1 MiB. An estimate of 43 at least: within 30 %.
    assert!((28_000_000..80_000_000).contains(&mapped), "{mapped} bytes of arenas");
}

/// Live memory is also summarised while the program runs, so a leak can be seen to grow.
#[test]
fn live_memory_is_summarized_periodically() {
    let _place = beside();
    let program = victim::c("alloc_leak", victim::OPTIMISED);
    // Four seconds of sleep alone, with a summary each second.
    let recorded =
        record("alloc@1,live").option("--live-interval").option("1s").run(&program, &["200"]).expect_code(0);
    let (truth, all) = (recorded.truth().counts, read(&recorded));
    let of_leak = all.alive.iter().filter(|block| block.stack.iter().any(|f| f == "leak"));
    let report: Vec<(i64, i64, i64)> = of_leak.map(|block| (block.time, block.size, block.weight)).collect();
    assert!(report.len() >= 2, "{report:?}");
    assert!(report.is_sorted() && report.windows(2).all(|pair| pair[0].2 < pair[1].2), "{report:?}");
    assert!(
        report.iter().all(|(_, count, bytes)| count * 1000 == *bytes && *bytes <= truth["leak"]),
        "{report:?}"
    );
    // At the end each block is reported once.
    assert_eq!(by_function(&all.live)["leak"], truth["leak"]);
    let quiet = record("alloc@1,live").run(&program, &["1"]).expect_code(0);
    assert!(read(&quiet).alive.is_empty(), "reported after a minute");
}

/// async-profiler's converter reads the events, and its totals are ours.
#[test]
fn async_profiler_converter_reads_same_totals() {
    if !foreign::ready() {
        return;
    }
    let _place = beside();
    let program = victim::c("alloc_sites", victim::OPTIMISED);
    let recorded = record("alloc@64k,live").run(&program, &["20"]).expect_code(0);
    let all = read(&recorded);
    let jar = victim::target_dir().join("readers/lib/jfr-converter-4.5.jar");
    let collapsed = |options: &[&str]| -> i64 {
        let mut java = Command::new("java");
        java.arg("-cp")
            .arg(&jar)
            .arg("one.convert.Main")
            .args(options)
            .args(["--total", "-o", "collapsed"])
            .arg(&recorded.path);
        let out = recorded.path.with_extension("collapsed");
        java.arg(&out);
        run(&mut java, Duration::from_secs(120)).expect_success("converter");
        let text = std::fs::read_to_string(&out).unwrap();
        text.lines().map(|l| l.rsplit(' ').next().unwrap().parse::<i64>().unwrap()).sum()
    };
    let sum: i64 = all.sampled.iter().map(|b| b.weight).sum();
    assert_eq!(collapsed(&["--nativemem"]), sum);
    // It reports all blocks as leaks that were not freed. (By default it leaves out the last tenth of the
    // recording.)
    let left: i64 = all.live.iter().map(|b| b.weight).sum();
    let leaks = collapsed(&["--nativemem", "--leak", "--tail", "0.0"]);
    assert_eq!(leaks, left);
}
