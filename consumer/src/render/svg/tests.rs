use super::super::PictureOptions;
use super::*;
use crate::folded;

/// `(name or title, x, width, y, fill)` of the boxes of a picture.
fn drawn(picture: &str) -> Vec<(String, f64, f64, u64, String)> {
    let percent = |element: &str, name: &str| -> f64 {
        attribute(element, name).unwrap().trim_end_matches('%').parse().unwrap()
    };
    let one = |((from, to), (start, end)): ((usize, usize), (usize, usize))| {
        let rect = &picture[start..end];
        let y = attribute(rect, "y").unwrap().parse().unwrap();
        let fill = attribute(rect, "fill").unwrap().to_owned();
        (picture[from..to].to_owned(), percent(rect, "x"), percent(rect, "width"), y, fill)
    };
    boxes(picture).map(one).collect()
}

fn picture(text: &str, options: &SvgOptions) -> String {
    let mut out = Vec::new();
    write(&folded::read(text.as_bytes()).unwrap(), options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn find<'a>(drawn: &'a [(String, f64, f64, u64, String)], name: &str) -> &'a (String, f64, f64, u64, String) {
    drawn.iter().find(|row| row.0.starts_with(&format!("{name} ("))).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn delimiters_are_grey_and_waker_frames_aqua() {
    let options = SvgOptions { colors: Colors::Chain, ..SvgOptions::default() };
    let text = "app;read;--;irq_[w];-_[w];softirq_[w] 3\napp;read;--;timer;-;idle 2\napp;-x 1\n";
    let boxes = drawn(&picture(text, &options));
    assert_eq!(find(&boxes, "--").4, "rgb(160,160,160)");
    let fills: Vec<&str> = boxes.iter().filter(|b| b.0.starts_with("- (")).map(|b| &*b.4).collect();
    assert_eq!(fills, ["rgb(200,200,200)"; 2]);
    let rgb = |name: &str| -> Vec<u8> {
        let fill = find(&boxes, name).4.trim_start_matches("rgb(").trim_end_matches(')');
        fill.split(',').map(|n| n.parse().unwrap()).collect()
    };
    for blue in ["app", "read", "-x"] {
        assert!(rgb(blue)[2] >= 205 && rgb(blue)[0] < 150, "{blue}");
    }
    for aqua in ["irq_[w]", "softirq_[w]", "timer", "idle"] {
        let name = aqua.trim_end_matches("_[w]");
        assert!(rgb(name)[1] >= 165 && rgb(name)[0] < 120, "{aqua}");
    }
}

#[test]
fn java_frames_are_colored_by_kind_or_origin() {
    let text = "a/A.a_[0] 3\norg/lib/B.b_[j] 2\njava/lang/C.c_[i] 1\nD.d_[j] 1\nlibc_read 1\n";
    let fills = |options: &SvgOptions| -> Vec<[i32; 3]> {
        let boxes = drawn(&picture(text, options));
        let rgb = |name: &str| {
            let fill = find(&boxes, name).4.trim_start_matches("rgb(").trim_end_matches(')').to_owned();
            let parts: Vec<i32> = fill.split(',').map(|part| part.parse().unwrap()).collect();
            [parts[0], parts[1], parts[2]]
        };
        ["a/A.a_[0]", "org/lib/B.b", "java/lang/C.c", "D.d", "libc_read"].map(rgb).to_vec()
    };
    let kinds = fills(&SvgOptions::default());
    let [interpreted, compiled, inlined, _, native] = kinds[..] else { panic!("{kinds:?}") };
    assert!(
        interpreted.iter().all(|&part| part >= 160) && interpreted[1] > interpreted[2],
        "{interpreted:?}"
    );
    assert!(compiled[1] > compiled[0] + 60 && compiled[1] > compiled[2] + 60, "green: {compiled:?}");
    assert!(inlined[2] > inlined[0] + 60, "aqua: {inlined:?}");
    assert!(native[0] > native[1] + 40, "red: {native:?}");
    // The recording states how the methods ran, not the suffixes of names.
    let java =
        Java { kinds: [("D.d_[j]".into(), FrameKind::Interpreted)].into(), application: vec!["org".into()] };
    let recorded = fills(&SvgOptions { java: java.clone(), ..SvgOptions::default() });
    assert!(recorded[3].iter().all(|&part| part >= 160), "interpreted: {:?}", recorded[3]);
    let origins = fills(&SvgOptions { colors: Colors::Origin, ..SvgOptions::default() });
    let is_orange = |[red, green, blue]: [i32; 3]| red > green + 40 && green > blue + 20;
    // The package with the largest weight, and classes without a package.
    assert!(is_orange(origins[0]) && is_orange(origins[3]), "{origins:?}");
    assert!(origins[1][2] > origins[1][0] + 60, "blue: {:?}", origins[1]);
    assert!(
        origins[2][1] > origins[2][0] + 20 && origins[2][1] > origins[2][2] + 20,
        "green: {:?}",
        origins[2]
    );
    assert!(origins[4][0] == origins[4][1] && origins[4][1] == origins[4][2], "grey: {:?}", origins[4]);
    let chosen = fills(&SvgOptions { colors: Colors::Origin, java, ..SvgOptions::default() });
    assert!(is_orange(chosen[1]) && !is_orange(chosen[0]), "{chosen:?}");
}

#[test]
fn hidden_thin_frames_are_reported_without_moving_others() {
    let mut text = String::new();
    for i in 0..40_000 {
        text.push_str(&format!("root;part{:02};leaf{i} {}\n", i % 100, 1 + u64::from(i % 7 == 0)));
    }
    let boxes = |min_width: MinWidth| {
        let svg = picture(&text, &SvgOptions { min_width, ..SvgOptions::default() });
        (drawn(&svg), svg)
    };
    let (many, svg) = boxes(MinWidth::Pixels(0.0));
    assert!(many.len() <= MOST_BOXES + 1 && many.len() > 5_000, "{}", many.len());
    let (few, _) = boxes(MinWidth::Percent(0.5));
    assert_eq!(few.len(), 102);
    for name in ["part00", "part57", "part99"] {
        let [many, few] = [&many, &few].map(|boxes| find(boxes, name));
        assert_eq!((many.1, many.2, &many.0), (few.1, few.2, &few.0));
    }
    let subtitle = svg.split("id=\"subtitle\"").nth(1).unwrap().split('<').next().unwrap();
    let hidden = 40_000 + 101 - (many.len() - 1);
    assert!(subtitle.contains(&format!("{} hidden thin frames", thousands(hidden as u64))), "{subtitle}");
    let leaves = many.len() as u64 - 102;
    // The remaining boxes have weight 2.
    let total: u64 = 40_000 + (0..40_000).filter(|i| i % 7 == 0).count() as u64;
    let share = (total - 2 * leaves) as f64 / total as f64 * 100.0;
    assert!(subtitle.contains(&format!("{share:.1}% ends in")), "{subtitle} {share}");
}

#[test]
fn names_resembling_inferno_syntax_are_preserved() {
    let text = "worker 3;# note;a 5\nworker 3;f(int, 7) 2\n";
    let boxes = drawn(&picture(text, &SvgOptions::default()));
    assert_eq!(boxes.len(), 5);
    assert!(find(&boxes, "worker\u{a0}3").0.ends_with("(7 samples, 100.00%)"));
    assert!(find(&boxes, "f(int, 7)").0.ends_with("(2 samples, 28.57%)"));
    assert!(find(&boxes, "#\u{a0}note").0.ends_with("(5 samples, 71.43%)"));
}

#[test]
fn options_are_applied_to_svg() {
    let options = SvgOptions {
        colors: "aqua".parse().unwrap(),
        notes: "a -- b".into(),
        width: Some(800),
        frame_height: Some(20),
        count_name: Some("µs".into()),
        name_type: Some("Where:".into()),
        factor: 0.5,
        font_type: Some("serif".into()),
        font_size: Some(10),
        background: Some("grey".parse().unwrap()),
        search_color: Some("#00ff00".parse().unwrap()),
        stroke_color: Some("#112233".parse().unwrap()),
        picture: PictureOptions { title: "T<".into(), inverted: true, subtitle: Some("S".into()) },
        ..SvgOptions::default()
    };
    let svg = picture("a;b 8\na;c 2\n", &options);
    let boxes = drawn(&svg);
    assert!(find(&boxes, "b").0.contains("(4 µs, 80.00%)"), "{boxes:?}");
    assert!(find(&boxes, "a").3 < find(&boxes, "b").3, "root at the top");
    assert_eq!(find(&boxes, "b").3 - find(&boxes, "a").3, 20);
    for text in [
        "width=\"800\"",
        "NOTES: a - - b",
        "Where:",
        "font-family:serif",
        "stroke:rgb(17,34,51)",
        "T&lt;",
        "rgb(0,255,0)",
    ] {
        assert!(svg.contains(text), "{text}");
    }
    assert!("mauve".parse::<Colors>().unwrap_err().contains("chain"));
    for wrong in ["-1", "x", "101%", "nan", "inf%"] {
        assert!(wrong.parse::<MinWidth>().is_err(), "{wrong}");
    }
    assert_eq!("0.5px".parse(), Ok(MinWidth::Pixels(0.5)));
    assert_eq!("2%".parse(), Ok(MinWidth::Percent(2.0)));
}

#[test]
fn code_kinds_have_html_page_colors_and_a_legend() {
    let text = "a_[k] 1\nb::c_[j] 1\nuser 1\n";
    let svg = picture(text, &SvgOptions::default());
    let boxes = drawn(&svg);
    let rgb = |[r, g, b]: [u8; 3]| format!("rgb({r},{g},{b})");
    assert_eq!(find(&boxes, "all").4, rgb(kinds::GROUND));
    let tree = folded::read(text.as_bytes()).unwrap();
    for label in &tree.labels {
        let name = name(&label.text);
        let shown = name.trim_end_matches("_[k]").trim_end_matches("_[j]");
        assert_eq!(find(&boxes, shown).4, rgb(kinds::color(&label.text, label.kind)), "{name}");
    }
    assert!(svg.contains("■</tspan>\u{a0}kernel") && svg.contains("■</tspan>\u{a0}JIT-compiled"), "{svg}");
    assert!(!svg.contains("</tspan>\u{a0}interpreted"));
    assert!(svg.contains("#search,#unzoom{opacity:1"));
    // Other palettes have no legend.
    for colors in ["hot", "origin", "chain"] {
        let options = SvgOptions { colors: colors.parse().unwrap(), ..SvgOptions::default() };
        assert!(!picture(text, &options).contains("id=\"legend\""), "{colors}");
    }
    let hashed = picture(text, &SvgOptions { hash: true, ..SvgOptions::default() });
    assert!(!hashed.contains("id=\"legend\""));
}

#[test]
fn palette_file_is_read_and_extended() {
    let folder = tempfile::tempdir().unwrap();
    let options =
        SvgOptions { palette_file: Some(folder.path().join("palette.map")), ..SvgOptions::default() };
    std::fs::write(folder.path().join("palette.map"), "b->rgb(1,2,3)\n").unwrap();
    let boxes = drawn(&picture("a;b 8\n", &options));
    assert_eq!(find(&boxes, "b").4, "rgb(1,2,3)");
    let kept = std::fs::read_to_string(folder.path().join("palette.map")).unwrap();
    assert!(kept.contains("a->rgb("), "{kept}");
}

#[test]
fn line_order_does_not_change_svg() {
    let (one, other) = ("a;b 1\na;b!;x 2\na;b;x 3\n\"q\";<r> 4\n", "\"q\";<r> 4\na;b;x 3\na;b 1\na;b!;x 2\n");
    assert_eq!(picture(one, &SvgOptions::default()), picture(other, &SvgOptions::default()));
    // `!` sorts before `;`; `b` must not be split.
    assert_eq!(
        drawn(&picture(one, &SvgOptions::default())).iter().filter(|b| b.0.starts_with("b (")).count(),
        1
    );
}

/// The options of inferno, and their equivalents here.
const INFERNO: &[(&str, &str)] = &[
    ("colors", "--colors"),
    ("bgcolors", "--bgcolors"),
    ("uicolor", "--uicolor"),
    ("hash", "--hash"),
    ("deterministic", "unless --hash"),
    ("palette_map", "--palette-map"),
    ("func_frameattrs", "--nameattr"),
    ("direction", "--inverted"),
    ("search_color", "--search-color"),
    ("stroke_color", "--stroke-color"),
    ("title", "--title"),
    ("subtitle", "--subtitle"),
    ("image_width", "--width"),
    ("frame_height", "--frame-height"),
    ("min_width", "--min-width, of all commands"),
    ("font_type", "--font-type"),
    ("font_size", "--font-size"),
    ("font_width", "--font-width"),
    ("text_truncate_direction", "--text-truncate"),
    ("count_name", "--count-name"),
    ("name_type", "--name-type"),
    ("notes", "--notes"),
    ("negate_differentials", "`diff` with its inputs the other way round, or --widths-before"),
    ("factor", "--factor"),
    ("pretty_xml", "--pretty-xml"),
    ("no_sort", "lines are in order as they come"),
    ("reverse_stack_order", "--reverse, of all commands"),
    ("no_javascript", "for inferno's own tests"),
    ("color_diffusion", "--color-diffusion"),
    ("flame_chart", "--flame-chart; always set, for lines are in order as they come"),
    ("base", "--focus, of all commands"),
];

/// Returns the `{:#?}` output of each field of inferno's options.
fn fields(options: &flamegraph::Options<'_>) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in format!("{options:#?}").lines() {
        match line.strip_prefix("    ").and_then(|line| line.split_once(": ")) {
            Some((name, value)) if !name.starts_with(' ') => fields.push((name.to_owned(), value.to_owned())),
            _ => fields.last_mut().into_iter().for_each(|(_, value)| value.push_str(line)),
        }
    }
    fields
}

#[test]
fn all_inferno_options_are_covered() {
    let plain = SvgOptions { width: Some(1000), ..SvgOptions::default() };
    let before = fields(&plain.inferno("samples", None, false));
    let names: Vec<&str> = before.iter().map(|(name, _)| name.as_str()).collect();
    let known: Vec<&str> = INFERNO.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, known, "inferno has other options than are known here");
    let color = Color::new(1, 2, 3);
    let common = PictureOptions { title: "t".into(), subtitle: None, inverted: true };
    let set = SvgOptions {
        picture: common,
        colors: "mem".parse().unwrap(),
        hash: true,
        color_diffusion: true,
        background: Some(BackgroundColor::Flat(color)),
        text_color: Some(color),
        search_color: Some("#010203".parse().unwrap()),
        stroke_color: Some("#010203".parse().unwrap()),
        notes: "n".into(),
        width: Some(900),
        frame_height: Some(20),
        font_type: Some("Serif".into()),
        font_size: Some(9),
        font_width: Some(0.7),
        truncate_left: true,
        count_name: Some("bytes".into()),
        name_type: Some("Where:".into()),
        factor: 2.0,
        pretty: true,
        ..SvgOptions::default()
    };
    let after = fields(&set.inferno("samples", Some("s".into()), false));
    let same: Vec<&str> =
        before.iter().zip(&after).filter(|(a, b)| a == b).map(|((name, _), _)| name.as_str()).collect();
    // Set once boxes are known (`prepare`) or files are read (`inferno`), or not at all, as stated above.
    assert_eq!(
        same,
        [
            "palette_map",
            "func_frameattrs",
            "min_width",
            "negate_differentials",
            "no_sort",
            "reverse_stack_order",
            "no_javascript",
            "flame_chart",
            "base"
        ]
    );
}

#[test]
fn attributes_file_sets_links_and_titles() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("attributes");
    std::fs::write(&file, "b\thref=https://example.invalid/?a&b\tclass=slow\ttitle=the <b>\n").unwrap();
    let options =
        |file: &std::path::Path| SvgOptions { attributes_file: Some(file.into()), ..SvgOptions::default() };
    let drawn = picture("a;b 3\na;c 1\n", &options(&file));
    assert!(drawn.contains("xlink:href=\"https://example.invalid/?a&amp;b\""), "{drawn}");
    assert!(drawn.contains("class=\"slow\"") && drawn.contains("<title>the &lt;b&gt;</title>"));
    let missing = folder.path().join("missing");
    let tree = folded::read("a 1\n".as_bytes()).unwrap();
    let error = write(&tree, &options(&missing), &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
}

#[test]
fn search_button_needs_script_and_inverted_svg_does_not_scroll() {
    let straight =
        picture("a;b 1\n", &SvgOptions { notes: "<text id=\"search\"".into(), ..SvgOptions::default() });
    assert_eq!(straight.matches("<text id=\"search\" display=\"none\" ").count(), 1);
    assert!(straight.trim_end().ends_with("</script></svg>"), "after all that it looks for");
    assert_eq!(straight.matches("scrollTo(").count(), 1);
    let mut inverted = SvgOptions::default();
    inverted.picture.inverted = true;
    assert!(!picture("a;b 1\n", &inverted).contains("scrollTo("));
}

#[test]
fn search_result_is_a_lower_bound_with_hidden_frames() {
    let thin = SvgOptions { min_width: MinWidth::Percent(20.0), ..SvgOptions::default() };
    assert!(picture("a 9\nb 1\n", &thin).contains("Matched: at least "));
    assert!(!picture("a 9\nb 1\n", &SvgOptions::default()).contains("Matched: at least "));
}

#[test]
fn any_character_in_names_yields_well_formed_xml() {
    let names: String = (0..0x2_0000).filter_map(char::from_u32).filter(|c| !";\n\r".contains(*c)).collect();
    let mut text = String::new();
    for name in names.chars().collect::<Vec<_>>().chunks(64) {
        text.push_str(&format!("main;{} 1\n", name.iter().collect::<String>()));
    }
    let mut options = SvgOptions::default();
    options.picture.title = names.clone();
    options.picture.subtitle = Some(names.chars().take(40).collect());
    options.notes.clone_from(&names);
    let picture = picture(&text, &options);
    // XML 1.0, section 2.2: Char.
    let is_char = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    let wrong: Vec<char> = picture.chars().filter(|c| !is_char(*c)).collect();
    assert_eq!(wrong, []);
    assert!(picture.contains('\u{241b}'), "the picture of ESC");
    // Markup in names is escaped.
    let boxes = drawn(&picture);
    assert!(boxes.len() > 1000, "{}", boxes.len());
}
