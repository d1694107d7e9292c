//! Names of definitions. A reader can neither guess nor search for names of words such as those in [`PARTS`].

use std::collections::BTreeMap;

use super::house::{crates, files, has_extension, text};

/// Words that must not be part of a name.
const PARTS: &[&str] = &[
    "told", "tell", "tells", "kept", "wanted", "asked", "taken", "said", "beside", "truth", "of", "who",
    "whose", "whom", "nobody", "nowhere", "what", "how", "why",
];
/// Words that must not be a complete name.
const WHOLE: &[&str] = &[
    "Told",
    "Tell",
    "Kept",
    "Wanted",
    "Asked",
    "Taken",
    "Known",
    "Held",
    "Seen",
    "Found",
    "Of",
    "By",
    "To",
    "What",
    "Who",
    "Whose",
    "Why",
    "How",
    "Nobody",
    "Nowhere",
    "Untouched",
    "Place",
    "Piece",
];
/// Keywords before the name of a definition.
const KEYWORDS: &[&str] = &["fn", "struct", "enum", "trait", "mod", "type", "const", "static"];

/// Definitions with such names in the sources of each crate. The numbers may only fall.
const PRESENT: &[(&str, usize)] = &[
    ("consumer/service/src", 2),
    // `Span::child_of` is the term of OpenTelemetry.
    ("recorder/context/src", 1),
    ("tests/service/src", 2),
    ("tests/src", 25),
];

/// Returns the names that a line of a source defines.
fn defined(line: &str) -> Vec<&str> {
    let code = line.split("//").next().unwrap_or_default();
    // Text in quotes defines nothing.
    let words: Vec<&str> = code.split('"').step_by(2).flat_map(str::split_whitespace).collect();
    let name = |word: &str| word.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(word.len());
    let pairs = words.windows(2).filter(|pair| KEYWORDS.contains(&pair[0]) && !KEYWORDS.contains(&pair[1]));
    pairs.map(|pair| &pair[1][..name(pair[1])]).filter(|name| !name.is_empty()).collect()
}

fn is_vague(name: &str) -> bool {
    WHOLE.contains(&name) || name.split('_').any(|part| PARTS.contains(&part))
}

#[test]
fn no_new_definition_has_vague_name() {
    let files = files();
    let sources: Vec<String> =
        crates(&files).map(|folder| folder.join("src").to_str().unwrap().to_owned()).collect();
    let mut vague: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut definitions = 0;
    for file in files.iter().filter(|file| has_extension(file, &["rs"])) {
        let Some(folder) = sources.iter().find(|folder| file.starts_with(folder)) else { continue };
        for (number, line) in text(file).lines().enumerate() {
            for name in defined(line) {
                definitions += 1;
                if is_vague(name) {
                    let place = format!("{}:{}: {name}", file.display(), number + 1);
                    vague.entry(folder).or_default().push(place);
                }
            }
        }
    }
    assert!(definitions > 5000, "only {definitions} definitions were found");
    let mut present: BTreeMap<&str, usize> = PRESENT.iter().copied().collect();
    let mut wrong = Vec::new();
    for (folder, names) in vague {
        match present.remove(folder) {
            Some(known) if known == names.len() => {}
            Some(known) if known > names.len() => {
                wrong.push(format!("{folder}: {} vague names, {known} in PRESENT", names.len()));
            }
            known => wrong.push(format!(
                "{folder}: {} vague names, {} in PRESENT:\n  {}",
                names.len(),
                known.unwrap_or(0),
                names.join("\n  ")
            )),
        }
    }
    wrong.extend(present.keys().map(|folder| format!("{folder}: no vague names, but in PRESENT")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn vague_names_are_detected() {
    assert_eq!(defined("pub(crate) const fn length_of(x: u8) -> u8 { // fn told"), ["length_of"]);
    assert_eq!(defined("    type Item = u8; struct Kept;"), ["Item", "Kept"]);
    assert_eq!(defined("let f: fn(u8) = g;"), [""; 0]);
    assert_eq!(defined("const NAME: &str = \"the type of a field\";"), ["NAME"]);
    assert!(is_vague("length_of") && is_vague("of") && is_vague("Kept"));
    assert!(!is_vague("offset") && !is_vague("KeptBlock") && !is_vague("chunk_writer"));
}
