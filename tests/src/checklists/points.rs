//! Splits a checklist into points: each row of a table, each numbered or lettered item, each piece of code,
//! and each other sentence.

/// One point of a checklist.
#[derive(Debug, PartialEq, Eq)]
pub struct Point {
    /// The section, and the number or letter in it: `1.3 S5`, `3.5 2`, or `2.2 ·7` without one.
    pub key: String,
    /// A checksum of the words, ignoring punctuation. A point whose words change is a different point.
    pub sum: String,
    /// The point's text.
    pub text: String,
}

/// The points of a checklist, in its order.
#[must_use]
pub fn points(text: &str) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for block in blocks(text) {
        for piece in pieces(&block) {
            let section = &block.section;
            let unnamed = format!("{section} ·");
            let before = points.iter().filter(|point| point.key.starts_with(&unnamed)).count();
            let label = label(&piece).unwrap_or_else(|| format!("·{}", before + 1));
            points.push(Point { key: format!("{section} {label}"), sum: sum(&piece), text: piece });
        }
    }
    points
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Row,
    Code,
    Item,
    Prose,
}

#[derive(Debug)]
struct Block {
    section: String,
    kind: Kind,
    text: String,
}

/// Rows, code, items and paragraphs, each with its section; notes on the text's source are left out.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut section = "0".to_owned();
    let mut lines = text.lines().peekable();
    // The position in a table; whether the next line continues the last block.
    let (mut row, mut open) = (0, false);
    while let Some(line) = lines.next() {
        row = if line.starts_with('|') { row + 1 } else { 0 };
        let kind = match line {
            _ if line.trim().is_empty() => None,
            _ if line.starts_with('#') => {
                section = section_of(line).unwrap_or(section);
                None
            }
            _ if line.starts_with("```") => Some(Kind::Code),
            // The head of a table and the line below it are not rows.
            _ if row > 0 => (row > 2).then_some(Kind::Row),
            _ if line.starts_with("- ") || line.starts_with("* ") || numbered(line) => Some(Kind::Item),
            _ => Some(Kind::Prose),
        };
        let goes_on = open
            && kind == Some(Kind::Prose)
            && blocks.last().is_some_and(|last| last.kind == Kind::Prose || line.starts_with(' '));
        open = matches!(kind, Some(Kind::Item | Kind::Prose));
        match kind {
            Some(_) if goes_on => {
                let last = &mut blocks.last_mut().expect("goes on").text;
                last.push('\n');
                last.push_str(line.trim());
            }
            Some(Kind::Code) => {
                let code: Vec<&str> = lines.by_ref().take_while(|line| !line.starts_with("```")).collect();
                blocks.push(Block { section: section.clone(), kind: Kind::Code, text: code.join("\n") });
            }
            Some(kind) => {
                blocks.push(Block { section: section.clone(), kind, text: line.trim().to_owned() });
            }
            None => {}
        }
    }
    blocks.retain(|block| !block.text.starts_with("Sources:"));
    blocks
}

/// `## 1. Checklist` is 1, `### 2.1 Figures` 2.1, `### B. Layout` B; a title has none.
fn section_of(line: &str) -> Option<String> {
    let title = line.trim_start_matches('#').trim_start();
    let number = title.split_whitespace().next()?.trim_end_matches('.');
    let plain = number.chars().all(|c| c.is_ascii_digit() || c == '.');
    (plain || number.len() == 1).then(|| number.to_owned())
}

fn numbered(line: &str) -> bool {
    line.split_once(". ").is_some_and(|(number, _)| number.parse::<u8>().is_ok())
}

fn pieces(block: &Block) -> Vec<String> {
    if matches!(block.kind, Kind::Row | Kind::Code) {
        return vec![block.text.clone()];
    }
    let items = enumerated(&block.text);
    let single = items.len() == 1 && !numbered(&block.text);
    if single { sentences(&block.text) } else { items }
}

/// `1. … 2. … 3. …` or `T1 … T2 … T3 …` in one line of text are as many.
fn enumerated(text: &str) -> Vec<String> {
    let mut starts = Vec::new();
    let mut at = 0;
    for word in text.split_inclusive([' ', '\n']) {
        if ordinal(word.trim_end()) == Some(starts.len() + 1) {
            starts.push(at);
        }
        at += word.len();
    }
    if starts.len() < 3 || starts[0] != 0 {
        return vec![text.to_owned()];
    }
    starts.push(text.len());
    starts.windows(2).map(|pair| text[pair[0]..pair[1]].trim().to_owned()).collect()
}

/// 12 of `12.` and of `T12`.
fn ordinal(word: &str) -> Option<usize> {
    let digits = word.strip_suffix('.').or_else(|| word.strip_prefix(|c: char| c.is_ascii_uppercase()))?;
    digits.parse().ok()
}

/// A sentence ends with a full stop before a line's end, a capital letter, or marked words.
fn sentences(text: &str) -> Vec<String> {
    let mut sentences = vec![String::new()];
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let last = sentences.last_mut().expect("at least one");
        let ended = last.ends_with('.');
        let begins = rest.peek().is_none_or(|c| c.is_ascii_uppercase() || ['*', '`'].contains(c));
        if ended && (c == '\n' || (c == ' ' && begins)) {
            sentences.push(String::new());
        } else {
            last.push(if c == '\n' { ' ' } else { c });
        }
    }
    sentences.retain(|sentence| sentence.chars().any(char::is_alphanumeric));
    sentences
}

/// Returns a point's label in its checklist: the letter and number of a row or scenario, or the number of an
/// item.
fn label(piece: &str) -> Option<String> {
    let word = piece.trim_start_matches(['|', ' ']).split_whitespace().next()?;
    if word.ends_with('.') {
        return ordinal(word).map(|number| number.to_string());
    }
    let named =
        word.len() > 1 && word.starts_with(|c: char| c.is_ascii_uppercase()) && ordinal(word).is_some();
    named.then(|| word.to_owned())
}

/// Sixteen bits of FNV-1a over letters and digits.
fn sum(text: &str) -> String {
    let mut hash: u32 = 0x811c_9dc5;
    for byte in text.chars().filter(|c| c.is_alphanumeric()).collect::<String>().bytes() {
        hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    }
    format!("{:04x}", (hash >> 16) ^ (hash & 0xffff))
}
