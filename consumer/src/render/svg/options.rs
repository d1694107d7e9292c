//! Options for the appearance of an SVG.

use std::path::PathBuf;
use std::str::FromStr;

use inferno::flamegraph::color::{
    BackgroundColor, BasicPalette, Color, MultiPalette, Palette, SearchColor, StrokeColor,
};
use inferno::flamegraph::{self, Direction, TextTruncateDirection};

use super::super::PictureOptions;
use super::super::java::Java;

/// Ratio of a letter's width to its height in common "monospace" fonts (DejaVu Sans Mono: 0.602). With
/// inferno's default of 0.59, names extend beyond their boxes.
const FONT_WIDTH: f64 = 0.605;

/// Colours of the page's background and text.
const WHITE: Color = Color::new(255, 255, 255);
const INK: Color = Color::new(27, 27, 31);

/// The colours of boxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colors {
    /// By kind of code, with the colours of the page. With hashed names, diffusion or a palette file:
    /// inferno's `java` if there is Java code, else `hot`.
    #[default]
    Auto,
    /// By origin of Java code: application, library or JDK. Other code is grey.
    Origin,
    /// Blue up to a frame `--`, aqua above it for the waker; grey for `--` and `-`.
    Chain,
    /// One of inferno's palettes.
    Palette(Palette),
}

impl Colors {
    /// Returns the names of all colour schemes.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ["auto", "origin", "chain"].into_iter().chain(Palette::VARIANTS.iter().copied())
    }
}

impl FromStr for Colors {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "auto" => Ok(Self::Auto),
            "origin" => Ok(Self::Origin),
            "chain" => Ok(Self::Chain),
            name => name.parse().map(Self::Palette).map_err(|_: String| {
                format!("no palette {name}; there are {}", Self::names().collect::<Vec<_>>().join(", "))
            }),
        }
    }
}

/// Minimum width of a box.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MinWidth {
    /// In pixels, at the requested width or 1200.
    Pixels(f64),
    /// In percent of the total.
    Percent(f64),
}

impl FromStr for MinWidth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
        let width = match text.strip_suffix('%') {
            Some(percent) => number(percent).filter(|&percent| percent <= 100.0).map(Self::Percent),
            None => number(text.strip_suffix("px").unwrap_or(text)).map(Self::Pixels),
        };
        width.ok_or_else(|| "give a share of all, as 0.1%, or pixels, as 0.5px".into())
    }
}

/// Options for the appearance of an SVG.
#[derive(Clone, Debug)]
pub struct SvgOptions {
    /// Options common to all formats.
    pub picture: PictureOptions,
    /// The colours of boxes.
    pub colors: Colors,
    /// Java code of the flame graph.
    pub java: Java,
    /// Choose similar colours for similar names. Otherwise, names have unrelated but stable colours.
    pub hash: bool,
    /// Colour wider boxes redder.
    pub color_diffusion: bool,
    /// File that stores the colours of names between runs.
    pub palette_file: Option<PathBuf>,
    /// File with attributes for the boxes of functions. Each line has the name, a tab, and `href=…`,
    /// `target=…`, `title=…`, `class=…`, `id=…`, `g_extra=…`, `a_extra=…` separated by tabs.
    pub attributes_file: Option<PathBuf>,
    /// Background colour; `None`: white.
    pub background: Option<BackgroundColor>,
    /// Colour of the title, buttons and other text.
    pub text_color: Option<Color>,
    /// Colour of search results.
    pub search_color: Option<SearchColor>,
    /// Colour of the boxes' borders.
    pub stroke_color: Option<StrokeColor>,
    /// Notes in the source of the SVG.
    pub notes: String,
    /// Width in pixels; `None`: as wide as the window.
    pub width: Option<usize>,
    /// Height of a box in pixels.
    pub frame_height: Option<usize>,
    /// Narrower boxes are left out, and more if there would be more than [`super::MOST_BOXES`].
    pub min_width: MinWidth,
    /// Font family.
    pub font_type: Option<String>,
    /// Font size in pixels.
    pub font_size: Option<usize>,
    /// Width of a character, in font sizes.
    pub font_width: Option<f64>,
    /// Truncate names on the left, to show their ends.
    pub truncate_left: bool,
    /// Unit to show instead of the profile's.
    pub count_name: Option<String>,
    /// Text before the name of the box under the pointer.
    pub name_type: Option<String>,
    /// Factor for displayed weights.
    pub factor: f64,
    /// Write line breaks between elements.
    pub pretty: bool,
}

impl Default for SvgOptions {
    fn default() -> Self {
        Self {
            picture: PictureOptions::default(),
            colors: Colors::default(),
            java: Java::default(),
            hash: false,
            color_diffusion: false,
            palette_file: None,
            attributes_file: None,
            background: None,
            text_color: None,
            search_color: None,
            stroke_color: None,
            notes: String::new(),
            width: None,
            frame_height: None,
            min_width: MinWidth::Percent(0.01),
            font_type: None,
            font_size: None,
            font_width: None,
            truncate_left: false,
            count_name: None,
            name_type: None,
            factor: 1.0,
            pretty: false,
        }
    }
}

impl SvgOptions {
    /// Returns default options with these common options.
    pub fn new(picture: &PictureOptions) -> Self {
        Self { picture: picture.clone(), ..Self::default() }
    }

    /// Returns true if [`Colors::Auto`] uses the page's colours: no other option determines colours.
    pub(super) fn by_kind(&self) -> bool {
        !self.hash && !self.color_diffusion && self.palette_file.is_none()
    }

    pub(super) fn inferno(
        &self,
        unit: &str,
        subtitle: Option<String>,
        java: bool,
    ) -> flamegraph::Options<'static> {
        let mut picture = flamegraph::Options::default();
        let PictureOptions { title, inverted, .. } = &self.picture;
        picture.title = title.clone();
        picture.subtitle = subtitle;
        picture.direction = if *inverted { Direction::Inverted } else { Direction::Straight };
        picture.colors = match self.colors {
            Colors::Palette(palette) => palette,
            Colors::Chain | Colors::Origin => Palette::Basic(BasicPalette::Blue),
            Colors::Auto if java => Palette::Multi(MultiPalette::Java),
            Colors::Auto => Palette::Basic(BasicPalette::Hot),
        };
        picture.hash = self.hash;
        picture.deterministic = !self.hash;
        picture.color_diffusion = self.color_diffusion;
        picture.bgcolors = Some(self.background.unwrap_or(BackgroundColor::Flat(WHITE)));
        // Notes are written as an XML comment, which cannot contain two dashes.
        picture.notes = self.notes.replace("--", "- -");
        picture.image_width = self.width;
        picture.text_truncate_direction =
            if self.truncate_left { TextTruncateDirection::Left } else { TextTruncateDirection::Right };
        picture.count_name = self.count_name.clone().unwrap_or_else(|| unit.to_owned());
        picture.factor = self.factor;
        picture.pretty_xml = self.pretty;
        // Lines are in tree order, in which `b!` is not between `b` and its callees. inferno accepts
        // unsorted lines only for a chart, from the end.
        picture.flame_chart = true;
        picture.uicolor = self.text_color.unwrap_or(INK);
        picture.search_color = self.search_color.unwrap_or(picture.search_color);
        picture.stroke_color = self.stroke_color.unwrap_or(picture.stroke_color);
        picture.frame_height = self.frame_height.unwrap_or(picture.frame_height);
        picture.font_size = self.font_size.unwrap_or(picture.font_size);
        picture.font_width = self.font_width.unwrap_or(FONT_WIDTH);
        picture.font_type = self.font_type.clone().unwrap_or(picture.font_type);
        picture.name_type = self.name_type.clone().unwrap_or(picture.name_type);
        picture
    }
}
