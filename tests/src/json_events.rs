//! Reads the events of `{"recording": {"events": [ … ]}}` one by one, so a file of gigabytes needs the memory
//! of its longest event. A custom parser, because the JDK writes text that strict parsers refuse: unpaired
//! surrogates, `NaN`.

use std::io::{self, Read};

/// A JSON value. Objects keep the order of their members, numbers their original text.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// The number's text; also `NaN`, `Infinity`, `-Infinity`.
    Number(String),
    /// UTF-16, because surrogates may be unpaired.
    Text(Vec<u16>),
    /// `[ … ]`
    List(Vec<Json>),
    /// `{ … }`
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Parses a text with one value.
    ///
    /// # Errors
    ///
    /// A syntax error with its position.
    pub fn parse(text: &[u8]) -> Result<Json, String> {
        let mut parser = Parser { text, at: 0 };
        let value = parser.value()?;
        parser.space();
        if parser.at < text.len() { Err(parser.error("something after the value")) } else { Ok(value) }
    }

    /// A member of an object.
    pub fn get(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Object(members) => members.iter().find(|(key, _)| key == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// A text; unpaired surrogates become U+FFFD.
    pub fn text(&self) -> Option<String> {
        match self {
            Json::Text(units) => Some(String::from_utf16_lossy(units)),
            _ => None,
        }
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn error(&self, what: &str) -> String {
        let near =
            &self.text[self.at.saturating_sub(60).min(self.text.len())..(self.at + 60).min(self.text.len())];
        format!("{what} at byte {}, near {:?}", self.at, String::from_utf8_lossy(near))
    }

    fn space(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn peek(&mut self) -> u8 {
        self.space();
        self.text.get(self.at).copied().unwrap_or(0)
    }

    /// Consumes `byte` if it is next.
    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == byte;
        self.at += usize::from(there);
        there
    }

    fn value(&mut self) -> Result<Json, String> {
        match self.peek() {
            b'"' => Ok(Json::Text(self.units()?)),
            b'{' => self.object(),
            b'[' => self.list(),
            _ => self.word(),
        }
    }

    fn object(&mut self) -> Result<Json, String> {
        let mut members = Vec::new();
        self.at += 1;
        if self.take(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            if self.peek() != b'"' {
                return Err(self.error("no name of a member"));
            }
            let name = String::from_utf16_lossy(&self.units()?);
            if !self.take(b':') {
                return Err(self.error("no colon"));
            }
            members.push((name, self.value()?));
            if self.take(b'}') {
                return Ok(Json::Object(members));
            }
            if !self.take(b',') {
                return Err(self.error("no comma between members"));
            }
        }
    }

    fn list(&mut self) -> Result<Json, String> {
        let mut values = Vec::new();
        self.at += 1;
        if self.take(b']') {
            return Ok(Json::List(values));
        }
        loop {
            values.push(self.value()?);
            if self.take(b']') {
                return Ok(Json::List(values));
            }
            if !self.take(b',') {
                return Err(self.error("no comma between values"));
            }
        }
    }

    fn word(&mut self) -> Result<Json, String> {
        let rest = &self.text[self.at..];
        let length = rest.iter().take_while(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b)).count();
        let word = std::str::from_utf8(&rest[..length]).unwrap_or_default();
        let value = match word {
            "null" => Json::Null,
            "true" => Json::Bool(true),
            "false" => Json::Bool(false),
            "NaN" | "Infinity" | "-Infinity" => Json::Number(word.to_owned()),
            _ if word.starts_with(|c: char| c == '-' || c.is_ascii_digit())
                && word.parse::<f64>().is_ok() =>
            {
                Json::Number(word.to_owned())
            }
            _ => return Err(self.error("no value")),
        };
        self.at += length;
        Ok(value)
    }

    fn units(&mut self) -> Result<Vec<u16>, String> {
        self.at += 1;
        let mut units = Vec::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest
                .iter()
                .position(|b| matches!(b, b'"' | b'\\'))
                .ok_or_else(|| self.error("a string without end"))?;
            let text =
                std::str::from_utf8(&rest[..plain]).map_err(|_| self.error("a string that is not UTF-8"))?;
            units.extend(text.encode_utf16());
            self.at += plain + 1;
            if rest[plain] == b'"' {
                return Ok(units);
            }
            let escape = self.text.get(self.at).copied().unwrap_or(0);
            self.at += 1;
            units.push(match escape {
                b'"' | b'\\' | b'/' => u16::from(escape),
                b'b' => 8,
                b'f' => 12,
                b'n' => 10,
                b'r' => 13,
                b't' => 9,
                b'u' => {
                    let digits =
                        self.text.get(self.at..self.at + 4).and_then(|d| std::str::from_utf8(d).ok());
                    self.at += 4;
                    let unit = digits.and_then(|d| u16::from_str_radix(d, 16).ok());
                    unit.ok_or_else(|| self.error("no \\uXXXX"))?
                }
                _ => return Err(self.error("an unknown escape")),
            });
        }
    }
}

/// Extracts the text of each event from a stream.
pub struct Events<R> {
    input: R,
    held: Vec<u8>,
    /// The bytes before this offset have been consumed.
    start: usize,
    /// The offset up to which the text has been scanned.
    at: usize,
    begun: bool,
    /// The list and the document have been closed.
    pub complete: bool,
}

impl<R: Read> Events<R> {
    /// Creates a reader of a JSON stream.
    pub fn new(input: R) -> Self {
        Self { input, held: Vec::new(), start: 0, at: 0, begun: false, complete: false }
    }

    /// Reads more; `false` at the end of the stream.
    fn more(&mut self) -> io::Result<bool> {
        self.held.drain(..self.start);
        self.at -= self.start;
        self.start = 0;
        let before = self.held.len();
        self.held.resize(before + (1 << 18), 0);
        let read = self.input.read(&mut self.held[before..])?;
        self.held.truncate(before + read);
        Ok(read > 0)
    }

    fn byte(&mut self) -> io::Result<Option<u8>> {
        while self.at >= self.held.len() {
            if !self.more()? {
                return Ok(None);
            }
        }
        Ok(Some(self.held[self.at]))
    }

    /// Returns the next event, `{ … }`, or `None` at the end of the list or of a truncated stream.
    ///
    /// # Errors
    ///
    /// If the stream cannot be read, or is no such document.
    pub fn event(&mut self) -> io::Result<Option<&[u8]>> {
        if !self.begun {
            while self.byte()? != Some(b'[') {
                if self.at >= self.held.len() {
                    return Ok(None);
                }
                self.at += 1;
            }
            self.at += 1;
            self.begun = true;
        }
        loop {
            match self.byte()? {
                Some(b'{') => break,
                Some(b',' | b' ' | b'\n' | b'\r' | b'\t') => self.at += 1,
                Some(b']') => {
                    let mut rest = Vec::new();
                    self.input.read_to_end(&mut rest)?;
                    let tail = self.held[self.at..].iter().chain(&rest).filter(|b| !b.is_ascii_whitespace());
                    self.complete = tail.eq(b"]}}");
                    return Ok(None);
                }
                None => return Ok(None),
                Some(other) => return Err(io::Error::other(format!("byte {other} between events"))),
            }
        }
        self.start = self.at;
        let (mut depth, mut in_string) = (0usize, false);
        while let Some(byte) = self.byte()? {
            self.at += 1;
            match (in_string, byte) {
                (true, b'\\') => {
                    self.byte()?;
                    self.at += 1;
                }
                (_, b'"') => in_string = !in_string,
                (false, b'{' | b'[') => depth += 1,
                (false, b'}' | b']') => {
                    depth -= 1;
                    if depth == 0 {
                        let event = &self.held[self.start..self.at];
                        self.start = self.at;
                        return Ok(Some(event));
                    }
                }
                _ => {}
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads one byte at a time.
    struct Dribble<'a>(&'a [u8]);

    impl Read for Dribble<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let n = usize::from(!self.0.is_empty());
            into[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    #[test]
    fn events_are_read_one_by_one_from_stream() {
        let text = br#"{ "recording": {"events": [{"a": "}\"]\\"}, {"b": [1, {"c": {}}]}
            ]}} "#;
        let mut events = Events::new(Dribble(text));
        assert_eq!(events.event().unwrap().unwrap(), br#"{"a": "}\"]\\"}"#);
        assert_eq!(events.event().unwrap().unwrap(), br#"{"b": [1, {"c": {}}]}"#);
        assert!(events.event().unwrap().is_none() && events.complete);
        let mut broken = Events::new(Dribble(&text[..50]));
        assert!(broken.event().unwrap().is_some());
        assert!(broken.event().unwrap().is_none() && !broken.complete);
    }

    #[test]
    fn valid_json_values_are_parsed_and_invalid_rejected() {
        let value =
            Json::parse(br#" {"a": [1.5E-3, -7, NaN, null, true], "b": "\ud83e\u0041\n\u00e9"} "#).unwrap();
        let Some(Json::List(list)) = value.get("a") else { panic!("{value:?}") };
        assert_eq!(list[0], Json::Number("1.5E-3".into()));
        assert_eq!(list[3..], [Json::Null, Json::Bool(true)]);
        assert_eq!(value.get("b"), Some(&Json::Text(vec![0xd83e, 0x41, 10, 0xe9])));
        for wrong in ["{", "{\"a\" 1}", "[1 2]", "\"a", "nul", "\"\\x\"", "1 1", "{\"a\": \"\\u12\"}"] {
            assert!(Json::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
