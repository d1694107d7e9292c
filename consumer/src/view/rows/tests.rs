use super::*;
use crate::view::find;

/// Checks the row of `native-allocation-by-thread` after these allocations (address, time, bytes) and
/// frees.
fn live(steps: &[(i64, i64, Option<i64>)]) -> (Datum, Datum) {
    let view = find("native-allocation-by-thread").unwrap();
    let mut rows = Rows::new(Plan::from_view(view), None);
    let row = rows.row(vec![Datum::Text("main".into())], &mut Room::default()).unwrap();
    rows.seen = 1;
    for &(address, time, size) in steps {
        match size {
            Some(size) => rows.allocated(address, time, row, size),
            None => rows.freed(address, time),
        }
    }
    rows.settle();
    let table = rows.finish();
    (table.rows[0][4].clone(), table.rows[0][5].clone())
}

#[test]
fn freed_allocations_are_not_live() {
    let check = |steps: &[(i64, i64, Option<i64>)], count: i64, bytes: i64| {
        assert_eq!(live(steps), (Datum::Int(count, Unit::One), Datum::Int(bytes, Unit::Bytes)), "{steps:?}");
    };
    check(&[(16, 1, Some(100)), (32, 2, Some(50))], 2, 150);
    check(&[(16, 1, Some(100)), (32, 2, Some(50)), (16, 3, None)], 1, 50);
    // Another thread's free is earlier in the file, but happened later.
    check(&[(16, 3, None), (16, 1, Some(100))], 0, 0);
    // The address is reused: the first allocation is gone, even at the same tick.
    check(&[(16, 1, Some(100)), (16, 2, None), (16, 2, Some(7))], 1, 7);
    check(&[(16, 1, None)], 0, 0);
}

#[test]
fn limited_lists_retain_top_rows() {
    let view = find("longest-compilations").unwrap();
    let mut rows = Rows::new(Plan::from_view(view), Some(3));
    for i in 0..5000_i64 {
        let duration = Datum::Int((i * 7919) % 5000, Unit::Span);
        rows.push(i, vec![Datum::Int(i, Unit::Time), duration]);
    }
    rows.seen = 5000;
    let table = rows.finish();
    let durations: Vec<&Datum> = table.rows.iter().map(|row| &row[1]).collect();
    assert_eq!(durations, [4999, 4998, 4997].map(|v| Datum::Int(v, Unit::Span)).iter().collect::<Vec<_>>());
    assert_eq!(table.more, 4997);
}

/// Returns the rows after these events: address, time, and bytes, or `None` for a free.
fn rows_after(steps: &[(i64, i64, Option<i64>)]) -> Rows {
    let view = find("native-allocation-by-thread").unwrap();
    let mut rows = Rows::new(Plan::from_view(view), None);
    for &(address, time, size) in steps {
        rows.seen += 1;
        match size {
            Some(size) => {
                let row = rows.row(vec![Datum::Int(size % 3, Unit::One)], &mut Room::default()).unwrap();
                rows.cell(row, 1).unwrap().add(&Datum::Bool(true), time);
                rows.allocated(address, time, row, size);
            }
            None => rows.freed(address, time),
        }
        rows.settle();
    }
    rows
}

#[test]
fn merged_parts_have_all_live_allocations() {
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..200 {
        let steps: Vec<(i64, i64, Option<i64>)> = (0..60)
            .map(|time| (random(9) as i64, time, (random(2) == 0).then(|| random(1000) as i64)))
            .collect();
        let (first, second) = (random(60) as usize, random(60) as usize);
        let (a, b) = (first.min(second), first.max(second));
        let join = |mut earlier: Rows, later: Rows| {
            assert!(earlier.can_merge(&later));
            earlier.merge(later);
            earlier
        };
        let part = |from: usize, to: usize| rows_after(&steps[from..to]);
        let whole = rows_after(&steps).finish();
        let left = join(join(part(0, a), part(a, b)), part(b, 60));
        let right = join(part(0, a), join(part(a, b), part(b, 60)));
        for parts in [left.finish(), right.finish()] {
            assert_eq!(
                (parts.rows, parts.more),
                (whole.rows.clone(), whole.more),
                "{steps:?} cut at {a}, {b}"
            );
        }
    }
}

/// Returns the rows of `memory-leaks-by-class` after these events: time, class, and whether the event
/// type counts only at its latest time.
fn leaks(events: &[(i64, i64, bool)]) -> Rows {
    let mut rows = Rows::new(Plan::from_view(find("memory-leaks-by-class").unwrap()), None);
    for &(time, class, moments) in events {
        rows.seen += 1;
        if !moments {
            rows.any_moment();
        } else if !rows.is_latest_moment(time, &mut Room::default()) {
            continue;
        }
        let row = rows.row(vec![Datum::Int(class, Unit::One)], &mut Room::default()).unwrap();
        rows.cell(row, 1).unwrap().add(&Datum::Bool(true), time);
    }
    rows
}

#[test]
fn only_latest_time_among_parts_counts() {
    let events = [(1, 7, true), (1, 8, true), (5, 7, true), (5, 9, true), (5, 9, true), (3, 6, true)];
    let whole = leaks(&events).finish();
    let counts: Vec<&[Datum]> = whole.rows.iter().map(|row| &row[..2]).collect();
    let row = |class, count| [Datum::Int(class, Unit::One), Datum::Int(count, Unit::One)];
    assert!(counts.len() == 2 && counts.contains(&&row(7, 1)[..]) && counts.contains(&&row(9, 2)[..]));
    for at in 0..=events.len() {
        let mut parts = leaks(&events[..at]);
        let later = leaks(&events[at..]);
        assert!(parts.can_merge(&later));
        parts.merge(later);
        assert_eq!(parts.finish().rows, whole.rows, "cut at {at}");
    }
    // Whether the other events are cleared depends on their position, which the parts do not know.
    assert!(!leaks(&[(1, 7, false)]).can_merge(&leaks(&events)));
    assert!(leaks(&[(1, 7, false)]).can_merge(&leaks(&[(2, 8, false)])));
}

/// Lists with two columns, and rows with texts of different lengths; cut every `cut_after` rows.
fn listed(ranges: &[std::ops::Range<i64>], cut_after: i64) -> Vec<Rows> {
    let mut plan = Plan::from_view(find("longest-compilations").unwrap());
    plan.limit = None;
    plan.order = None;
    let mut all: Vec<Rows> = ranges.iter().map(|_| Rows::new(plan.clone(), None)).collect();
    for (at, range) in ranges.iter().enumerate() {
        for i in range.clone() {
            let text: String = "x".repeat((i % 100) as usize * 10);
            all[at].seen += 1;
            all[at].push(i, vec![Datum::Int(i, Unit::One), Datum::Text(text.into())]);
            if i % cut_after == 0 {
                cut_lists(&mut all);
            }
        }
    }
    all
}

#[test]
fn unlimited_lists_share_available_memory() {
    let ranges = [0..100, 0..60_000, 0..10_000, 0..40_000];
    let mut expected = listed(&ranges, i64::MAX);
    cut_lists(&mut expected);
    // The short lists are complete; the long ones share the rest of 32 MB at about 600 bytes a row.
    let kept: Vec<usize> = expected.iter().map(|rows| rows.list.len()).collect();
    assert_eq!((kept[0], kept[2], kept[1]), (100, 10_000, kept[3]));
    assert!((20_000..25_000).contains(&kept[1]), "{kept:?}");
    assert_eq!(kept[1] as u64 + expected[1].more, 60_000);
    // Cutting often or at the end, in parts or not, gives the same first rows.
    let mut often = listed(&ranges, 777);
    cut_lists(&mut often);
    let mut parts = listed(&ranges.clone().map(|range| range.start..range.end / 3), 555);
    for (own, later) in parts.iter_mut().zip(listed(&ranges.map(|range| range.end / 3..range.end), 999)) {
        own.merge(later);
    }
    cut_lists(&mut parts);
    for found in [often, parts] {
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!((&found.list, found.more), (&expected.list, expected.more));
        }
    }
}

#[test]
fn groups_share_available_memory() {
    let mut room = Room(1000);
    let mut rows = Rows::new(Plan::from_view(find("native-allocation-by-thread").unwrap()), None);
    let size = rows.group_size(&[Datum::Int(1, Unit::One)]);
    let made = (0..100).filter(|&i| rows.row(vec![Datum::Int(i, Unit::One)], &mut room).is_some()).count();
    assert_eq!((made, rows.more), (1000 / size, 100 - (1000 / size) as u64));
    // A group that exists needs no room.
    assert_eq!(rows.row(vec![Datum::Int(0, Unit::One)], &mut room), Some(0));
}
