//! Escapes text in JSON strings like the JDK: all non-ASCII characters, and the slash.

use std::io::Write;

/// For each byte, whether it needs no escape.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0x20;
    while byte < 0x80 {
        plain[byte] = !matches!(byte as u8, b'"' | b'\\' | b'/');
        byte += 1;
    }
    plain
};

/// Appends `text` in quotes.
pub(in crate::print) fn string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text;
    loop {
        let plain = rest.bytes().position(|b| !PLAIN[usize::from(b)]).unwrap_or(rest.len());
        // Plain bytes are ASCII, so this is a character boundary.
        let (front, behind) = rest.split_at(plain);
        out.extend_from_slice(front.as_bytes());
        let Some(char) = behind.chars().next() else { break };
        escape(char, out);
        rest = &behind[char.len_utf8()..];
    }
    out.push(b'"');
}

fn escape(char: char, out: &mut Vec<u8>) {
    let short = match char {
        '"' | '\\' | '/' => char,
        '\u{8}' => 'b',
        '\n' => 'n',
        '\t' => 't',
        '\u{c}' => 'f',
        '\r' => 'r',
        _ => {
            for unit in char.encode_utf16(&mut [0; 2]) {
                // Writing to a vector does not fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short as u8]);
}

#[cfg(test)]
mod tests {
    #[test]
    fn strings_are_escaped_like_the_jdk() {
        let check = |text: &str, want: &str| {
            let mut out = Vec::new();
            super::string(text, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want);
        };
        check("", r#""""#);
        check("java/lang/String", r#""java\/lang\/String""#);
        check(
            "a\"b\\c\u{8}\n\t\u{c}\r\u{1}\u{1f}\u{7f}",
            "\"a\\\"b\\\\c\\b\\n\\t\\f\\r\\u0001\\u001f\u{7f}\"",
        );
        check("größe", r#""gr\u00f6\u00dfe""#);
        check("\u{1f980}", r#""\ud83e\udd80""#);
    }
}
