use super::*;
use crate::view::find;

/// Rows of `native-allocation-by-thread` after these allocations (address, time, bytes) and frees.
fn live(steps: &[(i64, i64, Option<i64>)]) -> (Datum, Datum) {
    let view = find("native-allocation-by-thread").unwrap();
    let mut rows = Rows::new(Plan::of_view(view), None);
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
fn what_is_freed_is_not_live() {
    let check = |steps: &[(i64, i64, Option<i64>)], count: i64, bytes: i64| {
        assert_eq!(live(steps), (Datum::Int(count, Unit::One), Datum::Int(bytes, Unit::Bytes)), "{steps:?}");
    };
    check(&[(16, 1, Some(100)), (32, 2, Some(50))], 2, 150);
    check(&[(16, 1, Some(100)), (32, 2, Some(50)), (16, 3, None)], 1, 50);
    // Another thread's free comes first in the file, but happened later.
    check(&[(16, 3, None), (16, 1, Some(100))], 0, 0);
    // The address is used again: its first tenant is gone, also at the same tick.
    check(&[(16, 1, Some(100)), (16, 2, None), (16, 2, Some(7))], 1, 7);
    check(&[(16, 1, None)], 0, 0);
}

#[test]
fn lists_keep_the_best_rows() {
    let view = find("longest-compilations").unwrap();
    let mut rows = Rows::new(Plan::of_view(view), Some(3));
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

/// Rows after these steps: (address, time, bytes, or `None` for a free).
fn rows_after(steps: &[(i64, i64, Option<i64>)]) -> Rows {
    let view = find("native-allocation-by-thread").unwrap();
    let mut rows = Rows::new(Plan::of_view(view), None);
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
fn allocations_of_parts_make_those_of_the_whole() {
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

/// Rows of `memory-leaks-by-class` after these events: (moment, class, whether of the type that has moments).
fn leaks(events: &[(i64, i64, bool)]) -> Rows {
    let mut rows = Rows::new(Plan::of_view(find("memory-leaks-by-class").unwrap()), None);
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
fn only_the_latest_moment_of_all_parts_counts() {
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
    // Whether the others are cleared away depends on where they were: not for parts to tell.
    assert!(!leaks(&[(1, 7, false)]).can_merge(&leaks(&events)));
    assert!(leaks(&[(1, 7, false)]).can_merge(&leaks(&[(2, 8, false)])));
}

/// A list of an event type with two columns, after so many rows with texts of growing length.
fn listed(rows: std::ops::Range<i64>, tables: usize) -> Rows {
    let mut plan = Plan::of_view(find("longest-compilations").unwrap());
    plan.limit = None;
    plan.order = None;
    let mut all: Vec<Rows> = (0..tables).map(|_| Rows::new(plan.clone(), None)).collect();
    share_lists(&mut all);
    for i in rows {
        let text: String = "x".repeat((i % 100) as usize * 10);
        all[0].seen += 1;
        all[0].push(i, vec![Datum::Int(i, Unit::One), Datum::Text(text.into())]);
    }
    all.swap_remove(0)
}

#[test]
fn lists_without_limit_share_what_there_is() {
    let alone = listed(0..200_000, 1);
    // 32 MB by rows of two cells, with 495 bytes of text on average.
    assert!((40_000..60_000).contains(&alone.list.len()), "{}", alone.list.len());
    assert_eq!(alone.list.len() as u64 + alone.more, 200_000);
    // Divided later or at once, in parts or not: the same first rows.
    let expected = listed(0..200_000, 4);
    assert!((10_000..15_000).contains(&expected.list.len()), "{}", expected.list.len());
    let mut divided_later = vec![alone];
    divided_later.extend((0..3).map(|_| listed(0..0, 1)));
    share_lists(&mut divided_later);
    for cut in [0, 1_000, 12_000, 100_000] {
        let mut parts = vec![listed(0..cut, 2), listed(0..0, 1), listed(0..0, 1), listed(0..0, 1)];
        parts[0].merge(listed(cut..200_000, 3));
        share_lists(&mut parts);
        for found in [&parts[0], &divided_later[0]] {
            assert_eq!((&found.list, found.more), (&expected.list, expected.more), "cut at {cut}");
        }
    }
}

#[test]
fn groups_share_what_there_is() {
    let mut room = Room(1000);
    let mut rows = Rows::new(Plan::of_view(find("native-allocation-by-thread").unwrap()), None);
    let size = rows.group_size(&[Datum::Int(1, Unit::One)]);
    let made = (0..100).filter(|&i| rows.row(vec![Datum::Int(i, Unit::One)], &mut room).is_some()).count();
    assert_eq!((made, rows.more), (1000 / size, 100 - (1000 / size) as u64));
    // A group that is there already needs no room.
    assert_eq!(rows.row(vec![Datum::Int(0, Unit::One)], &mut room), Some(0));
}
