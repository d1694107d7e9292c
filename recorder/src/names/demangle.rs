//! Readable names: demangles Rust and C++ symbols, up to a maximum length.

use std::fmt::{self, Write};

/// Limit of a name in a recording, bytes.
pub const MAX_NAME: usize = 4096;

/// A readable name.
#[derive(Debug, PartialEq, Eq)]
pub struct Name {
    /// The text, at most [`MAX_NAME`] bytes.
    pub text: String,
    /// True if the symbol was mangled (C++ and Rust).
    pub mangled: bool,
}

/// Collects text up to [`MAX_NAME`], because some mangled names expand exponentially.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() <= MAX_NAME {
            self.0.push_str(text);
            return Ok(());
        }
        let room = MAX_NAME - self.0.len();
        let cut = (0..=room.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
        self.0.push_str(&text[..cut]);
        Err(fmt::Error)
    }
}

/// Returns the readable form of a symbol's name.
pub fn demangle(raw: &[u8]) -> Name {
    let raw = &raw[..raw.len().min(1 << 16)];
    let text = String::from_utf8_lossy(raw);
    // Symbol versions (`name@@GLIBC_2.34`) are not part of the name.
    let plain = text.split('@').next().filter(|p| !p.is_empty()).unwrap_or(&text);
    let mut out = Bounded(String::new());
    if let Ok(rust) = rustc_demangle::try_demangle(plain) {
        let _ = write!(out, "{rust:#}");
        return Name { text: out.0, mangled: true };
    }
    if plain.starts_with("_Z")
        && let Ok(symbol) = cpp_demangle::Symbol::new(plain)
    {
        let _ = symbol.structured_demangle(&mut out, &cpp_demangle::DemangleOptions::default());
        if !out.0.is_empty() {
            return Name { text: out.0, mangled: true };
        }
    }
    out.0.clear();
    let _ = out.write_str(plain);
    Name { text: out.0, mangled: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbol_names_are_demangled() {
        let table = [
            ("main", "main", false),
            ("write@@GLIBC_2.2.5", "write", false),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt", true),
            ("_RNvC6_123foo3bar", "123foo::bar", true),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
                true,
            ),
            ("_Znot_a_name", "_Znot_a_name", false),
            ("@", "@", false),
        ];
        for (raw, text, mangled) in table {
            assert_eq!(demangle(raw.as_bytes()), Name { text: text.into(), mangled }, "{raw}");
        }
    }

    #[test]
    fn expanding_names_are_truncated() {
        // Each S_ refers to a pair of the previous one, which expands to 2^20 times "int".
        let mut name = String::from("_Z1fSt4pairIiiE");
        for i in 0..30u32 {
            let reference =
                if i == 0 { "S_".into() } else { format!("S{}_", char::from_digit(i - 1, 36).unwrap()) };
            name.push_str(&format!("St4pairI{reference}{reference}E"));
        }
        assert!(demangle(name.as_bytes()).text.len() <= MAX_NAME);
        assert!(demangle(&vec![b'a'; 1 << 20]).text.len() == MAX_NAME);
        assert!(demangle("é".repeat(4000).as_bytes()).text.len() <= MAX_NAME);
    }
}
