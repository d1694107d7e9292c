//! Checks that SVG output is well-formed XML whatever the names. The input is folded stacks; its first line
//! is the title.
#![no_main]

use flightline_consumer::folded;
use flightline_consumer::render::PictureOptions;
use flightline_consumer::render::svg::{self, SvgOptions};
use libfuzzer_sys::fuzz_target;
use quick_xml::events::Event;
use quick_xml::{Reader, XmlVersion};

/// The production `Char` of XML 1.0.
fn is_char(char: char) -> bool {
    matches!(char, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

fuzz_target!(|data: &[u8]| {
    let title = data.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let Ok(tree) = folded::read(data) else { return };
    let picture =
        PictureOptions { title: String::from_utf8_lossy(title).into(), ..PictureOptions::default() };
    let mut out = Vec::new();
    let options = SvgOptions { picture, ..SvgOptions::default() };
    if svg::write(&tree, &options, &mut out).is_err() {
        return;
    }
    let text = std::str::from_utf8(&out).unwrap();
    assert!(text.chars().all(is_char));
    let mut reader = Reader::from_str(text);
    let mut depth = 0;
    loop {
        let event = reader.read_event().unwrap();
        if let Event::Start(tag) | Event::Empty(tag) = &event {
            for attribute in tag.attributes() {
                attribute.unwrap().normalized_value(XmlVersion::Implicit1_0).unwrap();
            }
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth -= 1,
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0);
});
