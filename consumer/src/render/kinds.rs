//! Colours by kind of code. A name has the same colour in pages (`flame/palettes.js`) and in SVGs.

use super::name_hash::fnv1a;
use crate::model::FrameKind;

/// The background of a graph, as on a page.
pub(super) const GROUND: [u8; 3] = [169, 169, 180];

/// A group of frames that has one entry in the legend, in the legend's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    Native,
    /// Native functions whose names have `::`: C++ and Rust. Recordings do not contain the language.
    CppOrRust,
    Kernel,
    Compiled,
    Inlined,
    Interpreted,
    Class,
    Marker,
}

impl Group {
    fn classify(name: &str, kind: FrameKind) -> Self {
        match kind {
            FrameKind::Kernel => Self::Kernel,
            FrameKind::Interpreted => Self::Interpreted,
            FrameKind::Compiled | FrameKind::Jit => Self::Compiled,
            FrameKind::Inlined | FrameKind::NativeInlined => Self::Inlined,
            FrameKind::Class => Self::Class,
            FrameKind::Marker => Self::Marker,
            FrameKind::Native | FrameKind::Unknown if name.contains("::") => Self::CppOrRust,
            FrameKind::Native | FrameKind::Unknown | FrameKind::NativeMethod => Self::Native,
        }
    }

    /// The entry in the legend; `None` if the kind is not known.
    pub fn in_legend(name: &str, kind: FrameKind) -> Option<Self> {
        (kind != FrameKind::Unknown).then(|| Self::classify(name, kind))
    }

    /// The text in the legend.
    pub fn title(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::CppOrRust => "C++ and Rust",
            Self::Kernel => "kernel",
            Self::Compiled => "JIT-compiled",
            Self::Inlined => "inlined",
            Self::Interpreted => "interpreted",
            Self::Class => "class of the object",
            Self::Marker => "no code",
        }
    }

    /// The colour in the legend: that of the example name in the page's legend.
    pub fn sample(self) -> [u8; 3] {
        let name = match self {
            Self::Native => "native",
            Self::CppOrRust => "C++::name",
            Self::Kernel => "kernel",
            Self::Compiled => "java",
            Self::Inlined => "inlined",
            Self::Interpreted => "interpreted",
            Self::Class => "java.lang.Object",
            Self::Marker => "marker",
        };
        self.color(name)
    }

    fn color(self, name: &str) -> [u8; 3] {
        let [a, b] = thirds(name);
        match self {
            Self::Kernel => hsl(22.0 + 8.0 * a, 94.0, 54.0 + 6.0 * b),
            Self::Interpreted => hsl(76.0 + 18.0 * a, 44.0, 78.0 + 6.0 * b),
            Self::Compiled => hsl(104.0 + 24.0 * a, 50.0, 56.0 + 10.0 * b),
            Self::Inlined => hsl(176.0 + 16.0 * a, 52.0, 60.0 + 10.0 * b),
            Self::Native => hsl(342.0 + 14.0 * a, 78.0, 68.0 + 7.0 * b),
            Self::CppOrRust => hsl(50.0 + 8.0 * a, 84.0, 60.0 + 8.0 * b),
            Self::Class => hsl(286.0 + 14.0 * a, 44.0, 76.0 + 6.0 * b),
            Self::Marker => hsl(230.0, 10.0, 70.0 + 8.0 * b),
        }
    }
}

/// The colour of a frame: red, green, blue.
pub(super) fn color(name: &str, kind: FrameKind) -> [u8; 3] {
    match name {
        "-" | "-_[w]" => [200; 3],
        "--" | "--_[w]" => [140; 3],
        _ => Group::classify(name, kind).color(name),
    }
}

/// Returns two numbers from 0 to 1 that depend only on the name. Like the page's script, it hashes UTF-16.
fn thirds(name: &str) -> [f64; 2] {
    let hash = fnv1a(name.encode_utf16().map(u32::from));
    let hash = hash ^ hash >> 15;
    [hash & 1023, hash >> 10 & 1023].map(|part| f64::from(part) / 1023.0)
}

fn hsl(hue: f64, saturation: f64, lightness: f64) -> [u8; 3] {
    let (s, l) = (saturation / 100.0, lightness / 100.0);
    let a = s * l.min(1.0 - l);
    let part = |n: f64| {
        let k = (n + hue / 30.0) % 12.0;
        (255.0 * (l - a * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0))).round() as u8
    };
    [part(0.0), part(8.0), part(4.0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_and_user_colors_do_not_overlap() {
        let names: Vec<String> = (0..2000).map(|i| format!("function_{i}")).collect();
        let all = |group: Group| -> Vec<[u8; 3]> { names.iter().map(|name| group.color(name)).collect() };
        let kernel = all(Group::Kernel);
        for group in [Group::Native, Group::CppOrRust, Group::Compiled, Group::Inlined, Group::Interpreted] {
            let distance = |a: &[u8; 3], b: &[u8; 3]| -> i32 {
                a.iter().zip(b).map(|(&a, &b)| (i32::from(a) - i32::from(b)).pow(2)).sum()
            };
            let colors = all(group);
            let least = kernel.iter().flat_map(|a| colors.iter().map(move |b| distance(a, b))).min().unwrap();
            assert!(least >= 50 * 50, "{group:?}: {}", f64::from(least).sqrt());
        }
    }

    #[test]
    fn delimiters_are_grey_and_name_colors_are_stable() {
        assert_eq!([color("-", FrameKind::Native), color("--_[w]", FrameKind::Native)], [[200; 3], [140; 3]]);
        assert_eq!(color("a", FrameKind::Kernel), color("a", FrameKind::Kernel));
        assert_ne!(color("a", FrameKind::Kernel), color("b", FrameKind::Kernel));
        assert_eq!(Group::classify("a::b", FrameKind::Unknown), Group::CppOrRust);
        assert_eq!(Group::classify("a::b", FrameKind::Kernel), Group::Kernel);
    }
}
