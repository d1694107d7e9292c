//! Formats numbers and names like Java.

/// Decimal digits of a number, and the power of ten of the first digit.
struct Shortest {
    digits: Vec<u8>,
    exponent: i32,
}

impl Shortest {
    /// Parses `1.25e-3`; `None` if the number is not finite.
    fn parse(text: &str) -> Option<Self> {
        let (digits, exponent) = text.trim_start_matches('-').split_once('e')?;
        let digits = digits.bytes().filter(u8::is_ascii_digit).collect();
        Some(Self { digits, exponent: exponent.parse().ok()? })
    }
}

/// Appends a number with `places` digits after the point, like Java's `%.2f`: rounded half up from the
/// digits that `%s` would show.
pub(super) fn fixed(value: f64, places: usize, out: &mut Vec<u8>) {
    let Some(Shortest { mut digits, exponent }) = Shortest::parse(&format!("{value:e}")) else {
        return out.extend_from_slice(if value < 0.0 { b"-Infinity" } else { b"Infinity" });
    };
    if value.is_sign_negative() {
        out.push(b'-');
    }
    // Digits before the point, perhaps a single 0, followed by those after it.
    let lead = exponent + 1;
    if lead < 1 {
        let zeros = usize::try_from(1 - lead).unwrap_or(0);
        digits.splice(0..0, std::iter::repeat_n(b'0', zeros));
    }
    let whole = usize::try_from(lead.max(1)).unwrap_or(1);
    let keep = whole + places;
    let up = digits.get(keep).is_some_and(|&digit| digit >= b'5');
    digits.resize(keep, b'0');
    if up {
        increment(&mut digits);
    }
    let whole = digits.len() - places;
    out.extend_from_slice(&digits[..whole]);
    if places > 0 {
        out.push(b'.');
        out.extend_from_slice(&digits[whole..]);
    }
}

/// Increments decimal digits by one.
fn increment(digits: &mut Vec<u8>) {
    for digit in digits.iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            return;
        }
        *digit = b'0';
    }
    digits.insert(0, b'1');
}

/// Writes the parameter types of a method's descriptor without packages: `(ILjava/lang/String;)V` → `int,
/// String`.
pub(super) fn parameters(descriptor: &str, out: &mut Vec<u8>) {
    let Some(list) = descriptor.strip_prefix('(').and_then(|rest| Some(&rest[..rest.rfind(')')?])) else {
        return;
    };
    let mut rest = list;
    while let Some(len) = type_length(rest) {
        let (one, behind) = rest.split_at(len);
        if !std::ptr::eq(rest, list) {
            out.extend_from_slice(b", ");
        }
        let full = type_name(one, None).unwrap_or_default();
        out.extend_from_slice(full.rsplit('.').next().unwrap_or_default().as_bytes());
        rest = behind;
    }
}

fn type_length(text: &str) -> Option<usize> {
    let dimensions = text.len() - text.trim_start_matches('[').len();
    match text.as_bytes().get(dimensions)? {
        b'L' => text.find(';').map(|at| at + 1),
        b'B' | b'C' | b'D' | b'F' | b'I' | b'J' | b'S' | b'Z' => Some(dimensions + 1),
        _ => None,
    }
}

/// Formats a type descriptor as in source: `[[I` → `int[][]`, with a length `int[7][]`; `None` if it is
/// not a descriptor.
pub(super) fn type_name(internal: &str, length: Option<i64>) -> Option<String> {
    let element = internal.trim_start_matches('[');
    let dimensions = internal.len() - element.len();
    let name = match element {
        "B" => "byte",
        "C" => "char",
        "D" => "double",
        "F" => "float",
        "I" => "int",
        "J" => "long",
        "S" => "short",
        "Z" => "boolean",
        _ => element.strip_prefix('L').and_then(|rest| rest.strip_suffix(';'))?,
    };
    let first = match length {
        Some(length) if dimensions > 0 => format!("[{length}]"),
        _ => "[]".repeat(dimensions.min(1)),
    };
    Some(format!("{}{first}{}", name.replace('/', "."), "[]".repeat(dimensions.saturating_sub(1))))
}

/// Formats an internal class name as in source: `java/lang/String`, or a descriptor if it is an array.
pub(crate) fn class_name(internal: &str, length: Option<i64>) -> String {
    let array = internal.starts_with('[').then(|| type_name(internal, length)).flatten();
    array.unwrap_or_else(|| internal.replace('/', "."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    // Expected: what JDK 25 prints for fields with these values.
    #[test]
    fn decimals_are_formatted_like_the_jdk() {
        let check = |value: f64, places, want: &str| {
            assert_eq!(shown(|out| fixed(value, places, out)), want);
        };
        check(0.0, 2, "0.00");
        check(-0.0, 2, "-0.00");
        check(0.015, 2, "0.02");
        check(0.005, 2, "0.01");
        check(0.004, 2, "0.00");
        check(0.05, 0, "0");
        check(f64::from(1.005_f32) * 100.0, 9, "100.499999523");
        check(1023.95, 1, "1024.0");
        check(99.99, 1, "100.0");
        check(9.99, 1, "10.0");
        check(9.223_372_036_854_776e20, 2, "922337203685477600000.00");
        check(4.9e-324, 2, "0.00");
        check(f64::INFINITY, 2, "Infinity");
    }

    #[test]
    fn method_descriptors_are_formatted_as_parameters() {
        let check = |descriptor: &str, want: &str| {
            assert_eq!(shown(|out| parameters(descriptor, out)), want, "{descriptor}");
        };
        check("()V", "");
        check("(I)J", "int");
        check("([[IZLjava/lang/Object;[Ljava/lang/String;)V", "int[][], boolean, Object, String[]");
        check("(Ljava/util/Map$Entry;)V", "Map$Entry");
        check("(Lk;)L;", "k");
        check("()L;", "");
        for broken in ["", "(", "(L", "(Lx)V", "([)V", "(é)V", "(Q)V"] {
            check(broken, "");
        }
    }

    #[test]
    fn class_names_are_formatted_like_java() {
        assert_eq!(class_name("[Ljava/lang/String;", None), "java.lang.String[]");
        assert_eq!(class_name("[[I", Some(7)), "int[7][]");
        assert_eq!(class_name("java/util/Map$Entry", Some(7)), "java.util.Map$Entry");
        assert_eq!(class_name("[what", None), "[what");
    }
}
