//! One self-contained HTML page: the whole tree, nothing from the network.
//!
//! The tree travels as varints in base64, three a node in tree order: levels gone down since the node before, label,
//! own weight. The page adds up the rest, so nothing is left out and search percentages are exact.

use std::io::Write;

use jfr_format::varint;
use serde_json::json;

use super::PictureOptions;
use crate::error::Error;
use crate::model::FrameKind;
use crate::tree::Tree;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Draws `tree` as a page with zoom and search.
///
/// # Errors
/// There is nothing to draw, or `out` cannot be written.
pub fn write(tree: &Tree, options: &PictureOptions, out: &mut impl Write) -> Result<(), Error> {
    if tree.total == 0 || tree.nodes.is_empty() {
        return Err(Error::NoSamples);
    }
    let profile = profile(tree, options).to_string();
    let nodes = base64(&nodes(tree));
    let mut rest = PAGE;
    // One pass over the page, so that nothing in the data is taken for a placeholder.
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        out.write_all(before.as_bytes()).map_err(Error::Write)?;
        let part = match name {
            "title" => escape(&options.title),
            "style" => STYLE.to_owned(),
            "script" => SCRIPT.to_owned(),
            // In a script element only "</script" and "<!--" could end the data; both need a "<".
            "profile" => profile.replace('<', "\\u003c"),
            "nodes" => nodes.clone(),
            _ => String::new(),
        };
        out.write_all(part.as_bytes()).map_err(Error::Write)?;
        rest = after;
    }
    out.write_all(rest.as_bytes()).map_err(Error::Write)
}

fn profile(tree: &Tree, options: &PictureOptions) -> serde_json::Value {
    let names: Vec<&str> = tree.labels.iter().map(|l| &*l.text).collect();
    let modules: Vec<&str> = tree.labels.iter().map(|l| l.module.as_deref().unwrap_or("")).collect();
    let kinds: String = tree.labels.iter().map(|l| letter(l.kind)).collect();
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

fn nodes(tree: &Tree) -> Vec<u8> {
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

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let digit = DIGITS[(word >> (18 - 6 * i)) as usize & 63];
            text.push(if i <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_every_length() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }

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
