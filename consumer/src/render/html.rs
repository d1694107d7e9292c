//! One self-contained HTML page: the whole tree, nothing from the network.
//!
//! The tree travels as varints in base64, three a node in tree order: levels gone down since the node before, label,
//! own weight. The page adds up the rest, so nothing is left out and search percentages are exact.

use std::io::Write;

use jfr_format::varint;
use serde_json::json;

use super::PictureOptions;
use super::page::{self, COMMON, FLAME, base64};
use crate::error::Error;
use crate::model::FrameKind;
use crate::tree::{Label, Tree};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &[&str] = &[COMMON, FLAME, include_str!("page.js")];

/// Draws `tree` as a page with zoom and search.
///
/// # Errors
/// There is nothing to draw, or `out` cannot be written.
pub fn write(tree: &Tree, options: &PictureOptions, out: &mut impl Write) -> Result<(), Error> {
    if tree.total == 0 || tree.nodes.is_empty() {
        return Err(Error::NoSamples);
    }
    let data = [("profile", profile(tree, options).to_string()), ("nodes", base64(&nodes(tree)))];
    page::write(PAGE, &options.title, STYLE, SCRIPT, &data, out)
}

fn profile(tree: &Tree, options: &PictureOptions) -> serde_json::Value {
    let (names, modules, kinds) = frames(&tree.labels);
    json!({
        "title": options.title,
        "subtitle": options.subtitle,
        "inverted": options.inverted,
        "unit": tree.unit,
        "total": tree.total,
        "count": tree.nodes.len(),
        "names": names,
        "modules": modules,
        "kinds": kinds,
    })
}

/// Names, modules and kinds of what is written on boxes.
pub(super) fn frames(labels: &[Label]) -> (Vec<&str>, Vec<&str>, String) {
    let names = labels.iter().map(|label| &*label.text).collect();
    let modules = labels.iter().map(|label| label.module.as_deref().unwrap_or("")).collect();
    (names, modules, labels.iter().map(|label| letter(label.kind)).collect())
}

fn letter(kind: FrameKind) -> char {
    match kind {
        FrameKind::Native => 'n',
        FrameKind::Kernel => 'k',
        FrameKind::Interpreted | FrameKind::Compiled | FrameKind::Jit => 'j',
        FrameKind::Inlined | FrameKind::NativeInlined => 'i',
        FrameKind::Marker => 'm',
        FrameKind::Unknown => 'u',
    }
}

pub(super) fn nodes(tree: &Tree) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(tree.nodes.len() * 4);
    let mut expected = 0;
    for node in &tree.nodes {
        varint::put(&mut bytes, u64::from(expected - node.depth));
        varint::put(&mut bytes, node.label.index() as u64);
        varint::put(&mut bytes, node.own);
        expected = node.depth + 1;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_their_script_element() {
        let tree = crate::folded::read("</script><script>alert(1)</script>;{{nodes}} 1".as_bytes()).unwrap();
        let options = PictureOptions { title: "<b>&\"".into(), ..PictureOptions::default() };
        let mut page = Vec::new();
        write(&tree, &options, &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert!(!page.contains("<script>alert"));
        assert!(page.contains("\\u003c/script>\\u003cscript>alert(1)"));
        assert!(page.contains("{{nodes}}"), "a name is not a placeholder");
        assert!(page.contains("&lt;b&gt;&amp;&quot;"));
    }
}
