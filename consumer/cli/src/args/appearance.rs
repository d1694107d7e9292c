//! Appearance of SVG images, shared by `flame` and `diff`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use flightline_consumer::render::PictureOptions;
use flightline_consumer::render::java::Java;
use flightline_consumer::render::svg::{
    BackgroundColor, Color, Colors, MinWidth, SearchColor, StrokeColor, SvgOptions, parse_hex_color,
};

use crate::args::help;

/// Appearance. All options but the first two apply only to SVG.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = help::IMAGES)]
pub struct SvgArgs {
    /// Title [default: the name of the input]
    #[arg(long)]
    title: Option<String>,
    /// Put the root at the top
    #[arg(long)]
    inverted: bool,
    /// Packages of the application, such as com.acme,com.acmelib, for the colours by application, library and
    /// JDK [default: the package of the main class, else the most frequent one outside the JDK; two parts
    /// each]
    #[arg(long, value_name = "PACKAGE,PACKAGE…", value_delimiter = ',', value_parser = package)]
    application: Vec<String>,
    /// SVG: subtitle [default: what the widths mean]
    #[arg(long)]
    subtitle: Option<String>,
    /// SVG: auto (by frame type, as on a page), origin (Java by application, library and JDK), chain (blue,
    /// above a frame `--` aqua), hot, mem, io, wakeup, java, js, perl, python, rust, red, green, blue, aqua,
    /// yellow, purple, orange
    #[arg(long, value_name = "PALETTE", default_value = "auto")]
    colors: Colors,
    /// SVG: give similar names similar colours
    #[arg(long, help_heading = help::ADVANCED)]
    hash: bool,
    /// SVG: colour wider frames redder
    #[arg(long, help_heading = help::ADVANCED, conflicts_with = "colors")]
    color_diffusion: bool,
    /// SVG: store the colours of names in this file, for use in other flame graphs
    #[arg(long, help_heading = help::ADVANCED, value_name = "FILE", value_hint = ValueHint::FilePath)]
    palette_map: Option<PathBuf>,
    /// SVG: file with links and other attributes of functions, one line each: name, tab, href=…, target=…,
    /// title=…, class=…, separated by tabs
    #[arg(long, help_heading = help::ADVANCED, value_name = "FILE", value_hint = ValueHint::FilePath)]
    nameattr: Option<PathBuf>,
    /// SVG: background: yellow, blue, green, grey, or a colour such as #rrggbb [default: white]
    #[arg(long, help_heading = help::ADVANCED, value_name = "COLOR")]
    bgcolors: Option<BackgroundColor>,
    /// SVG: colour of title and buttons, such as #rrggbb
    #[arg(long, help_heading = help::ADVANCED, value_name = "COLOR", value_parser = color)]
    uicolor: Option<Color>,
    /// SVG: colour of search results, such as #rrggbb
    #[arg(long, help_heading = help::ADVANCED, value_name = "COLOR")]
    search_color: Option<SearchColor>,
    /// SVG: colour of borders, such as #rrggbb
    #[arg(long, help_heading = help::ADVANCED, value_name = "COLOR")]
    stroke_color: Option<StrokeColor>,
    /// SVG: notes, stored as a comment
    #[arg(long, help_heading = help::ADVANCED, default_value = "", hide_default_value = true)]
    notes: String,
    /// SVG: width in pixels [default: as wide as the window]
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(100..=100_000))]
    width: Option<u32>,
    /// SVG: height of a frame [default: 16]
    #[arg(long, help_heading = help::ADVANCED, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(4..=1000))]
    frame_height: Option<u32>,
    /// SVG: font [default: monospace]
    #[arg(long, help_heading = help::ADVANCED, value_name = "NAME", value_parser = font)]
    font_type: Option<String>,
    /// SVG: font size [default: 12]
    #[arg(long, help_heading = help::ADVANCED, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(2..=200))]
    font_size: Option<u32>,
    /// SVG: average width of a character, in font sizes [default: 0.59]
    #[arg(long, help_heading = help::ADVANCED, value_name = "WIDTH", value_parser = positive)]
    font_width: Option<f64>,
    /// SVG: side at which to truncate long names
    #[arg(long, help_heading = help::ADVANCED, value_enum, default_value = "right")]
    text_truncate: Side,
    /// SVG: unit of the weights, instead of the profile's unit
    #[arg(long, help_heading = help::ADVANCED, value_name = "TEXT")]
    count_name: Option<String>,
    /// SVG: text before the name of a frame [default: Function:]
    #[arg(long, help_heading = help::ADVANCED, value_name = "TEXT", value_parser = one_line)]
    name_type: Option<String>,
    /// SVG: multiply displayed weights by this factor, such as 0.000001 for ns as ms [default: 1]
    #[arg(long, help_heading = help::ADVANCED, value_name = "NUMBER", value_parser = positive)]
    factor: Option<f64>,
    /// SVG: put line breaks between elements
    #[arg(long, help_heading = help::ADVANCED)]
    pretty_xml: bool,
}

/// Which end of a name to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Side {
    /// Keep the end
    Left,
    /// Keep the beginning
    #[default]
    Right,
}

fn package(text: &str) -> Result<String, String> {
    let name = text.trim_end_matches(".*").replace('/', ".");
    let is_part = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    if name.split('.').all(is_part) { Ok(name) } else { Err("give a Java package, such as com.acme".into()) }
}

fn color(text: &str) -> Result<Color, String> {
    parse_hex_color(text).ok_or_else(|| "give a colour as #rrggbb".into())
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    number.filter(|n| n.is_finite() && *n > 0.0).ok_or_else(|| "give a number above 0".into())
}

/// Validates a font, which becomes part of a style sheet.
fn font(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_alphanumeric() || " -,.".contains(c);
    text.chars().all(fits).then(|| text.to_owned()).ok_or_else(|| "give the name of a font".into())
}

/// Validates text that becomes part of a script.
fn one_line(text: &str) -> Result<String, String> {
    let fits = |c: char| !c.is_control() && !"<>&]".contains(c);
    text.chars().all(fits).then(|| text.to_owned()).ok_or_else(|| "give plain text of one line".into())
}

impl SvgArgs {
    /// Returns the defaults with a title.
    pub fn titled(title: String) -> Self {
        Self { title: Some(title), ..Self::default() }
    }

    /// Returns the options common to all formats, with defaults.
    pub fn common(&self, default: PictureOptions) -> PictureOptions {
        PictureOptions {
            title: self.title.clone().unwrap_or(default.title),
            subtitle: self.subtitle.clone().or(default.subtitle),
            inverted: self.inverted,
        }
    }

    /// Categories of Java code: as recorded, with the packages of `--application`.
    pub fn java(&self, recorded: Java) -> Java {
        match self.application.is_empty() {
            true => recorded,
            false => Java { application: self.application.clone(), ..recorded },
        }
    }

    /// Returns all options, given the common defaults.
    pub fn options(&self, default: PictureOptions, min_width: Option<MinWidth>) -> SvgOptions {
        let pixels = |value: Option<u32>| value.map(|value| value as usize);
        SvgOptions {
            picture: self.common(default),
            colors: self.colors,
            java: self.java(Java::default()),
            hash: self.hash,
            color_diffusion: self.color_diffusion,
            palette_file: self.palette_map.clone(),
            attributes_file: self.nameattr.clone(),
            background: self.bgcolors,
            text_color: self.uicolor,
            search_color: self.search_color,
            stroke_color: self.stroke_color,
            notes: self.notes.clone(),
            width: pixels(self.width),
            frame_height: pixels(self.frame_height),
            min_width: min_width.unwrap_or(SvgOptions::default().min_width),
            font_type: self.font_type.clone(),
            font_size: pixels(self.font_size),
            font_width: self.font_width,
            truncate_left: self.text_truncate == Side::Left,
            count_name: self.count_name.clone(),
            name_type: self.name_type.clone(),
            factor: self.factor.unwrap_or(1.0),
            pretty: self.pretty_xml,
        }
    }
}
