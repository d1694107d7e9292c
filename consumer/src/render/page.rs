//! Builds self-contained pages from their parts. Data cannot be mistaken for a part.

use std::io::Write;

use sha2::{Digest, Sha256};

use crate::error::Error;

/// Script that all pages begin with.
pub(super) const PARTS: &str = include_str!("page.js");
/// Script of the flame graph, for all pages.
pub(super) const FLAME: &str = concat!(
    include_str!("flame/tree.js"),
    include_str!("flame/words.js"),
    include_str!("flame/names.js"),
    include_str!("flame/palettes.js"),
    include_str!("flame/surface.js"),
    include_str!("flame/graph.js"),
);

/// Writes a page. `template` has the placeholders `{{title}}`, `{{policy}}`, `{{style}}`, `{{script}}`
/// and the names of `data`, which are written into script elements that are not executed.
///
/// # Errors
/// `out` cannot be written.
pub(super) fn write(
    template: &str,
    title: &str,
    style: &str,
    script: &[&str],
    data: &[(&str, String)],
    out: &mut impl Write,
) -> Result<(), Error> {
    let script = lean(&script.concat());
    let mut put = |text: &str| out.write_all(text.as_bytes()).map_err(Error::Write);
    let mut rest = template;
    // A single pass, so that text in the data cannot be mistaken for a placeholder.
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        put(before)?;
        match name {
            "title" => put(&escape(title))?,
            "policy" => put(&policy(style, &script))?,
            "style" => put(style)?,
            "script" => put(&script)?,
            _ => {
                // In a script element, only "</script" and "<!--" could end the data; both contain "<".
                let text =
                    data.iter().find(|(of, _)| *of == name).map(|(_, text)| text.replace('<', "\\u003c"));
                put(&text.unwrap_or_default())?;
            }
        }
        rest = after;
    }
    put(rest)
}

/// Removes comment lines and indentation from a script. Our scripts have no multi-line strings.
fn lean(script: &str) -> String {
    let mut out = String::with_capacity(script.len());
    let mut in_comment = false;
    for line in script.lines().map(str::trim_start) {
        let begins = line.starts_with("/*");
        if in_comment || begins {
            in_comment = !line.ends_with("*/");
        } else if !line.is_empty() && !line.starts_with("//") {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

/// Content security policy of a page: only its own script and style are allowed. Names in a recording
/// cannot inject code.
fn policy(style: &str, script: &str) -> String {
    let hash = |text: &str| base64(&Sha256::digest(text.as_bytes()));
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; base-uri 'none'; form-action 'none'",
        hash(script),
        hash(style)
    )
}

/// Content security policy of a page without scripts.
pub(crate) fn style_policy(style: &str) -> String {
    let hash = base64(&Sha256::digest(style.as_bytes()));
    format!("default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'")
}

/// Encodes bytes as base64.
pub(super) fn base64(bytes: &[u8]) -> String {
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

/// Escapes text for an element or an attribute.
pub(crate) fn escape(text: &str) -> String {
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
    fn minifier_removes_only_comment_lines_and_indentation() {
        let script = "/** one */\nlet a = 1; // stays\n  /*\n   * two\n   */\n  a *= 2;\n\n  // three\n  a /* in it */ += 1;\n";
        assert_eq!(lean(script), "let a = 1; // stays\na *= 2;\na /* in it */ += 1;\n");
        for all in [super::FLAME, super::PARTS] {
            assert!(
                all.lines().all(|line| line.matches('`').count() % 2 == 0),
                "text over lines would change"
            );
        }
    }

    #[test]
    fn base64_encodes_any_input_length() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }
}
