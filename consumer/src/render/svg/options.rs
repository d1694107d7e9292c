//! How an SVG is to look.

use std::path::PathBuf;
use std::str::FromStr;

use inferno::flamegraph::color::{
    BackgroundColor, BasicPalette, Color, MultiPalette, Palette, SearchColor, StrokeColor,
};
use inferno::flamegraph::{self, Direction, TextTruncateDirection};

use super::super::PictureOptions;
use super::super::java::Java;

/// Width of a letter as a share of its height, in the fonts that browsers take for "monospace" (DejaVu Sans Mono: 0.602): with inferno's own
/// 0.59 the ends of names stand out of their boxes.
const FONT_WIDTH: f64 = 0.605;

/// Background and text of the page.
const WHITE: Color = Color::new(255, 255, 255);
const INK: Color = Color::new(27, 27, 31);

/// What boxes are coloured by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colors {
    /// Kinds of code, in the colours of the page. With hashed names, diffusion or a palette file: inferno's `java` if there is Java in it,
    /// else `hot`.
    #[default]
    Auto,
    /// Java by whose code it is: the application's, a library's, the JDK's. Other code is grey.
    Origin,
    /// Blue up to a frame `--`, aqua above it, where its waker is; grey for `--` and `-`.
    Chain,
    /// One of inferno's palettes.
    Palette(Palette),
}

impl Colors {
    /// Their names.
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

/// Narrowest box that is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MinWidth {
    /// Pixels, on a picture as wide as asked for, or 1200.
    Pixels(f64),
    /// Percent of all.
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

/// How an SVG is to look.
#[derive(Clone, Debug)]
pub struct SvgOptions {
    /// What is common to all pictures.
    pub picture: PictureOptions,
    /// What boxes are coloured by.
    pub colors: Colors,
    /// The Java code of the picture.
    pub java: Java,
    /// The hash of a name gives similar names similar colours. Otherwise it gives any, the same for the same name.
    pub hash: bool,
    /// The wider, the redder.
    pub color_diffusion: bool,
    /// Colours of names that were given one before, kept in this file.
    pub palette_file: Option<PathBuf>,
    /// Attributes of the boxes of functions, in this file: by line the name, a tab, and `href=…`, `target=…`, `title=…`, `class=…`, `id=…`,
    /// `g_extra=…`, `a_extra=…` with tabs between them.
    pub attributes_file: Option<PathBuf>,
    /// Background of the picture; `None`: white.
    pub background: Option<BackgroundColor>,
    /// Of title, buttons and the like.
    pub text_color: Option<Color>,
    /// Of what a search found.
    pub search_color: Option<SearchColor>,
    /// Of the boxes' borders.
    pub stroke_color: Option<StrokeColor>,
    /// Remarks, in the source of the picture.
    pub notes: String,
    /// Pixels; `None`: as wide as the window.
    pub width: Option<usize>,
    /// Pixels of a box.
    pub frame_height: Option<usize>,
    /// Narrower boxes are left out, and more if there would be more than [`super::MOST_BOXES`].
    pub min_width: MinWidth,
    /// Font.
    pub font_type: Option<String>,
    /// Pixels.
    pub font_size: Option<usize>,
    /// Of a character, in font sizes.
    pub font_width: Option<f64>,
    /// Cut names on the left, to keep their ends.
    pub truncate_left: bool,
    /// Unit that is written instead of the profile's.
    pub count_name: Option<String>,
    /// What stands before the name of the box under the pointer.
    pub name_type: Option<String>,
    /// Weights are written multiplied with this.
    pub factor: f64,
    /// Line breaks between elements.
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
    /// Those, but for what is common to all pictures.
    pub fn of(picture: &PictureOptions) -> Self {
        Self { picture: picture.clone(), ..Self::default() }
    }

    /// Returns true if [`Colors::Auto`] has the page's colours: no other option decides the colours.
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
        // The only place of remarks is a comment of XML, which cannot hold two dashes.
        picture.notes = self.notes.replace("--", "- -");
        picture.image_width = self.width;
        picture.text_truncate_direction =
            if self.truncate_left { TextTruncateDirection::Left } else { TextTruncateDirection::Right };
        picture.count_name = self.count_name.clone().unwrap_or_else(|| unit.to_owned());
        picture.factor = self.factor;
        picture.pretty_xml = self.pretty;
        // Lines come in the order of the tree, where `b!` is not between `b` and what it calls. inferno takes lines in any order
        // but sorted for a chart, from the end.
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
