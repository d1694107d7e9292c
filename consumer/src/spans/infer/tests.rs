//! Scenarios T1 to T12 of inferred spans. One column is a tick of 10 ms; letters are frames of a sample
//! (the lowest line is the root), and digits begin and end the span with that number.

use super::*;
use crate::spans::ids::SpanKey;

const TICK: i64 = 10_000_000;
/// The span around everything.
const OUTER: SpanKey = SpanKey::Id(100);

/// Returns spans as lines `name:ticks`, indented by two spaces below their parent. An inferred span is
/// followed by its callers, nearest first, and after `>` by the spans that a link marks as its children.
fn spans(picture: &[&str], min_ticks: i64) -> String {
    let mut frames = crate::model::Interner::<Frame>::default();
    let mut named = |name: char| {
        let name = name.to_string();
        let frame = Frame {
            function: name.as_str().into(),
            class: "".into(),
            kind: crate::model::FrameKind::Native,
            line: 0,
            place: None,
        };
        frames.intern(frame)
    };
    let thread = crate::model::Interner::default().intern(Thread::default());
    let columns = picture.iter().map(|line| line.len()).max().unwrap();
    let (mut points, mut scopes, mut open): (Vec<Point>, Vec<Scope>, Vec<Scope>) = Default::default();
    let end = columns as i64 * TICK;
    scopes.push(Scope { span: OUTER, previous: None, start: -1, end, open: false });
    for column in 0..columns {
        let time = column as i64 * TICK;
        let mut path = Vec::new();
        for line in picture {
            let c = line.as_bytes()[column] as char;
            if let Some(digit) = c.to_digit(10) {
                let span = SpanKey::Id(digit.into());
                match open.iter().position(|scope| scope.span == span) {
                    Some(at) => scopes.push(Scope { end: time, ..open.remove(at) }),
                    None => {
                        let previous = open.last().map_or(OUTER, |scope| scope.span);
                        open.push(Scope { span, previous: Some(previous), start: time, end: 0, open: false });
                    }
                }
                path.clear();
                break;
            }
            if c != ' ' {
                path.push(named(c));
            }
        }
        if !path.is_empty() {
            path.reverse();
            points.push(Point { time, thread, path: path.into(), count: 1 });
        }
    }
    let (contexts, parents) = (HashMap::default(), HashMap::default());
    let known = KnownSpans { contexts: &contexts, parents: &parents };
    let inference = Inference { min_duration: min_ticks * TICK };
    let mut trees = ThreadTrees { points, done: None };
    let mut inferred = Vec::new();
    trees.advance(1, i64::MAX, &scopes, (&inference, known), &mut Counts::default(), &mut |span| {
        inferred.push(span)
    });
    let name = |id: Id<Frame>| frames.get(id).function.to_string();

    // (name, start, end, callers, links), by parent.
    type Line = (i64, String, Parent);
    let mut below: Vec<(Parent, Line)> = Vec::new();
    for span in &inferred {
        let callers: String = span.callers.iter().map(|&frame| name(frame)).collect();
        let callers = if callers.is_empty() { callers } else { format!("[{callers}]") };
        let links: String = span.children.iter().map(|key| key.id().to_string()).collect();
        let links = if links.is_empty() { links } else { format!(">{links}") };
        let ticks = (span.end - span.start) / TICK;
        let line = format!("{}:{ticks}{callers}{links}", name(span.frame));
        below.push((span.parent, (span.start, line, Parent::Inferred(span.id))));
    }
    for scope in scopes.iter().filter(|scope| scope.span != OUTER) {
        // By the link if there is one.
        let by_link = inferred.iter().find(|span| span.children.contains(&scope.span));
        let parent = by_link.map_or(Parent::Span(scope.previous.unwrap()), |span| Parent::Inferred(span.id));
        let line = format!("{}:{}", scope.span.id(), (scope.end - scope.start) / TICK);
        below.push((parent, (scope.start, line, Parent::Span(scope.span))));
    }
    below.sort_by_key(|(_, (start, line, _))| (*start, line.clone()));
    let mut text = String::new();
    let mut todo = vec![(0, Parent::Span(OUTER))];
    while let Some((depth, parent)) = todo.pop() {
        if depth > 0 {
            let line =
                below.iter().find(|(_, (_, _, own))| *own == parent).map(|(_, (_, line, _))| line.clone());
            text += &format!("{}{}\n", "  ".repeat(depth - 1), line.unwrap());
        }
        let children = below.iter().filter(|(of, _)| *of == parent);
        todo.extend(children.rev().map(|(_, (_, _, own))| (depth + 1, *own)));
    }
    let lines = text.lines().count();
    assert_eq!(lines, below.len(), "{picture:#?}: spans without a parent:\n{text}");
    text
}

#[track_caller]
fn check(picture: &[&str], expected: &[&str]) {
    check_longer(picture, 0, expected);
}

#[track_caller]
fn check_longer(picture: &[&str], min_ticks: i64, expected: &[&str]) {
    let found = spans(picture, min_ticks);
    assert_eq!(found.lines().collect::<Vec<_>>(), expected, "\n{}", picture.join("\n"));
}

#[test]
fn t1_function_within_another_is_a_nested_span() {
    check(&[" cc ", " bbb", "aaaa"], &["a:3", "  b:2", "    c:1"]);
}

#[test]
fn t2_functions_that_only_call_become_callee_stack() {
    check(&[" dd ", " cc ", " bb ", "aaaa"], &["a:3", "  d:1[cb]"]);
    check(&["bb", "aa"], &["b:1[a]"]);
}

#[test]
fn t3_function_sampled_once_is_no_span() {
    check(&[" b ", "aaa"], &["a:2"]);
}

#[test]
fn t4_two_calls_are_two_spans() {
    check(&[" bb bb", "aaaaaa"], &["a:5", "  b:1", "  b:1"]);
}

#[test]
fn t5_functions_within_a_span_are_its_children() {
    check(
        &["    cc ee   ", "   bbb dd   ", " a aaaaaa a ", "1 2      2 1"],
        &["1:11", "  a:9>2", "    2:7", "      b:2", "        c:1", "      e:1[d]"],
    );
    check(&["   bbb   ", " a aaa a ", "1 2   2 1"], &["1:8", "  a:6>2", "    2:4", "      b:2"]);
    check(
        &["         bb    ", " aa  aaa aa aa ", "1  22   3  3  1"],
        &["1:14", "  a:12>23", "    2:1", "    3:3", "      b:1"],
    );
}

#[test]
fn t6_function_that_continues_after_a_span_is_its_caller() {
    check(
        &["   dd      ", "   cccc c  ", "   bbbb bb ", " a aaaa aa ", "1 2    2  1"],
        &["1:10", "  a:8", "    b:7", "      c:6>2", "        2:5", "          d:1"],
    );
}

#[test]
fn t7_function_contains_only_spans_that_it_called() {
    check(
        &["   bbbb b     ", " a aaaa a a a ", "1 2    2 3 3 1"],
        &["1:13", "  a:11>3", "    b:6>2", "      2:5", "    3:2"],
    );
    check(
        &["      c c ", "      b b ", "a   a a aa", " 1 1 2 2  "],
        &["a:9>1", "  1:2", "  c:3[b]>2", "    2:2"],
    );
    check(
        &["       c  c ", "       b  b ", "a   a  a  aa", " 1 1 23 32  "],
        &["a:11>1", "  1:2", "  c:4[b]>2", "    2:4", "      3:2"],
    );
}

#[test]
fn t8_span_caller_lasts_as_long_as_span() {
    check(
        &["     dd     ", "   c ccc    ", "  bb bbb    ", " aaa aaa aa ", "1   2   2  1"],
        &["1:11", "  a:9", "    b:6", "      c:5>2", "        2:4", "          d:1"],
    );
}

#[test]
fn t9_span_between_two_functions_belongs_to_their_caller() {
    check(&["bb   ", "aa  a", "  11 "], &["a:4>1", "  b:1", "  1:1"]);
    check(&["bb   ", "aa a ", "  1 1"], &["a:3>1", "  b:1", "  1:2"]);
    check(&[" c   ", "bb   ", "aa  a", "  11 "], &["a:4>1", "  b:1", "  1:1"]);
    check(&["c  d   ", "b  b   ", "a  a  a", " 11 22 "], &["a:6>2", "  b:3>1", "    1:1", "  2:1"]);
    check(&["     ccc  ", " aaa bbb  ", "1   2   21"], &["1:9", "  a:2", "  2:4", "    c:2[b]"]);
    check(&[" aaa bbb  ", "1   2   21"], &["1:9", "  a:2", "  2:4", "    b:2"]);
    check(&["     ccc  ", " aaa aaa  ", "1   2   21"], &["1:9", "  a:6>2", "    2:4", "      c:2"]);
}

#[test]
fn t10_outermost_nested_span_is_linked() {
    check(&["a  a  a", " 12 21 "], &["a:6>1", "  1:4", "    2:2"]);
    check(
        &["  b b b  ccc    ", " aa a a  aaa  a ", "1  2 2 34   43 1"],
        &["1:15", "  a:13>3", "    b:4>2", "      2:2", "    3:6", "      4:4", "        c:2"],
    );
    check(
        &[" bbb        ", " aaa  ccc   ", "1   23   321"],
        &["1:11", "  b:2[a]", "  2:6", "    3:4", "      c:2"],
    );
    check(
        &["   d          ", " b b b        ", " a a a  ccc   ", "1 2 2 34   431"],
        &["1:13", "  b:4[a]>2", "    2:2", "  3:6", "    4:4", "      c:2"],
    );
}

#[test]
fn t11_too_short_function_leaves_its_spans_to_its_caller() {
    check_longer(
        &["   c  c   ", "   b  b   ", " aaa  aaa ", "1   22   1"],
        5,
        &["1:9", "  a:7>2", "    2:1"],
    );
    check_longer(
        &["  b  b c  c  ", " aa  aaa  aa ", "1  22   33  1"],
        5,
        &["1:12", "  a:10>23", "    2:1", "    3:1"],
    );
    check(&["    b    ", " aa a aa ", "1  2 2  1"], &["1:8", "  a:6>2", "    2:2"]);
}

#[test]
fn t12_recursion_yields_nested_calls() {
    check(&["bbccbbcc", "bbbbbbbb", "aaaaaaaa"], &["b:7[a]", "  b:1", "  c:1", "  b:1", "  c:1"]);
    check(&["cccc", "aabb"], &["c:1[a]", "c:1[b]"]);
}
