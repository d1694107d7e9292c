//! Frame names of Treasure Data's Hive Distributed Profiling System: `Class.method: line
//! (Native|Non-native)`.

use flightline_consumer::model::FrameKind;
use flightline_consumer::tree::{Label, Tree};

/// Renames the frames of a tree. Its labels must have lines, as with
/// [`FoldOptions::lines`](flightline_consumer::fold::FoldOptions).
#[must_use]
pub fn named(mut tree: Tree) -> Tree {
    for label in &mut tree.labels {
        label.text = name(label).into();
    }
    tree
}

fn name(label: &Label) -> String {
    let code = match label.kind {
        // Not code.
        FrameKind::Marker => return label.text.to_string(),
        kind if kind.is_java() => "Non-native",
        _ => "Native",
    };
    let numbered = label
        .text
        .rsplit_once(':')
        .filter(|(_, line)| !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit()));
    match numbered {
        Some((function, line)) => format!("{function}: {line} ({code})"),
        None => format!("{} ({code})", label.text),
    }
}

#[cfg(test)]
mod tests {
    use flightline_consumer::convert::d3;
    use flightline_consumer::tree::Builder;
    use serde_json::json;

    use super::*;

    #[test]
    fn stacks_are_written_as_hdps_tree() {
        let mut builder = Builder::default();
        let label = |text: &str, kind| Label { text: text.into(), module: None, kind };
        let main = builder.label(label("Main.main:7", FrameKind::Compiled));
        let read = builder.label(label("Main.read:9", FrameKind::Interpreted));
        let native = builder.label(label("std::io::read", FrameKind::Native));
        let cut = builder.label(label("[truncated]", FrameKind::Marker));
        builder.add([main, read, native], 3);
        builder.add([main, read], 2);
        builder.add([cut, native], 1);
        let mut out = Vec::new();
        d3::write_under("<ROOT>", &named(builder.finish("samples")), &mut out).unwrap();
        let tree: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let leaf =
            |value| json!({"name": "std::io::read (Native)", "value": value, "self": value, "children": []});
        let read = json!({"name": "Main.read: 9 (Non-native)", "value": 5, "self": 2, "children": [leaf(3)]});
        let want = json!({"name": "<ROOT>", "value": 6, "unit": "samples", "children": [
            {"name": "Main.main: 7 (Non-native)", "value": 5, "children": [read]},
            {"name": "[truncated]", "value": 1, "children": [leaf(1)]},
        ]});
        assert_eq!(tree, want);
    }
}
