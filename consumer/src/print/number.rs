//! Formats numbers like Java.

use std::fmt::LowerExp;

/// `00` to `99`.
const PAIRS: [u8; 200] = {
    let mut pairs = [0; 200];
    let mut i = 0;
    while i < 100 {
        pairs[2 * i] = b'0' + (i / 10) as u8;
        pairs[2 * i + 1] = b'0' + (i % 10) as u8;
        i += 1;
    }
    pairs
};

pub(super) fn unsigned(value: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = value;
    while rest >= 100 {
        at -= 2;
        let pair = 2 * (rest % 100) as usize;
        digits[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
        rest /= 100;
    }
    if rest >= 10 {
        at -= 2;
        let pair = 2 * rest as usize;
        digits[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
    } else {
        at -= 1;
        digits[at] = b'0' + rest as u8;
    }
    out.extend_from_slice(&digits[at..]);
}

pub(super) fn signed(value: i64, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    unsigned(value.unsigned_abs(), out);
}

/// Two digits.
pub(super) fn pair(value: u64, out: &mut Vec<u8>) {
    let pair = 2 * (value % 100) as usize;
    out.extend_from_slice(&PAIRS[pair..pair + 2]);
}

/// Writes the nine digits of a fraction, without the last `shorter` ones.
pub(super) fn nanos(value: u32, shorter: usize, out: &mut Vec<u8>) {
    let mut digits = [0; 9];
    let mut rest = value;
    for at in [7, 5, 3, 1] {
        let pair = 2 * (rest % 100) as usize;
        digits[at..at + 2].copy_from_slice(&PAIRS[pair..pair + 2]);
        rest /= 100;
    }
    digits[0] = b'0' + (rest % 10) as u8;
    out.extend_from_slice(&digits[..9 - shorter.min(9)]);
}

/// Writes the shortest digits that identify the number, in Java's notation; `null` if it is not finite.
pub(super) fn double(value: f64, out: &mut Vec<u8>) {
    if !value.is_finite() {
        return out.extend_from_slice(b"null");
    }
    let digits = digits(value.abs(), |text| text.parse() == Ok(value.abs()));
    decimal(value.is_sign_negative(), &digits, out);
}

/// Like [`double`].
pub(super) fn float(value: f32, out: &mut Vec<u8>) {
    if !value.is_finite() {
        return out.extend_from_slice(b"null");
    }
    let digits = digits(value.abs(), |text| text.parse() == Ok(value.abs()));
    decimal(value.is_sign_negative(), &digits, out);
}

/// Returns the digits that Java selects, as `d.ddde±x`: of the shortest texts with at least two digits,
/// the one nearest to the number, or with an even last digit if two are equally near. `same` returns true
/// if a text parses to the number.
fn digits(value: impl LowerExp + Copy, same: impl Fn(&str) -> bool) -> String {
    let two = format!("{value:.1e}");
    if same(&two) {
        return two;
    }
    let shortest = format!("{value:e}");
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let Some(odd) = mantissa.bytes().last().filter(|digit| digit % 2 == 1) else { return shortest };
    // Enough digits to distinguish a number exactly between two texts from one near it.
    let exact = format!("{value:.40e}");
    let even = format!("{}{}e{exponent}", &mantissa[..mantissa.len() - 1], char::from(odd - 1));
    let middle = exact
        .strip_prefix(&even[..mantissa.len()])
        .and_then(|rest| rest.strip_prefix('5'))
        .and_then(|rest| rest.split_once('e'))
        .is_some_and(|(rest, _)| rest.bytes().all(|digit| digit == b'0'));
    if middle && same(&even) { even } else { shortest }
}

/// Writes `d.ddde±x` in Java's notation: plain from 0.001 to 10,000,000, else with an exponent; always
/// with a digit after the point.
fn decimal(negative: bool, scientific: &str, out: &mut Vec<u8>) {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).collect();
    let significant = digits.iter().rposition(|&d| d != b'0').map_or(1, |last| last + 1);
    let digits = digits.get(..significant).unwrap_or(b"0");
    if negative {
        out.push(b'-');
    }
    let zero = digits == b"0";
    let (whole, fraction): (usize, &[u8]) = match exponent {
        _ if zero => (1, b""),
        0..=6 => (exponent as usize + 1, digits.get(exponent as usize + 1..).unwrap_or_default()),
        -3..=-1 => {
            out.extend_from_slice(b"0.");
            out.extend(std::iter::repeat_n(b'0', (-exponent - 1) as usize));
            return out.extend_from_slice(digits);
        }
        _ => (1, digits.get(1..).unwrap_or_default()),
    };
    out.extend((0..whole).map(|at| digits.get(at).copied().unwrap_or(b'0')));
    out.push(b'.');
    out.extend_from_slice(if fraction.is_empty() { b"0" } else { fraction });
    if !zero && !(-3..=6).contains(&exponent) {
        out.push(b'E');
        signed(i64::from(exponent), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn integers_are_formatted_as_decimal() {
        for value in [0, 7, 10, 99, 100, 101, 1234, 99_999, 1_000_000, u64::MAX] {
            assert_eq!(text(|out| unsigned(value, out)), value.to_string());
        }
        for value in [0, -1, i64::MIN, i64::MAX, -100] {
            assert_eq!(text(|out| signed(value, out)), value.to_string());
        }
        assert_eq!(text(|out| nanos(20_153_111, 0, out)), "020153111");
        assert_eq!(text(|out| nanos(20_000_000, 6, out)), "020");
    }

    // Expected: the output of `Double.toString` and `Float.toString` in JDK 25.
    #[test]
    fn floating_point_numbers_match_java() {
        let check = |value: f64, want: &str| assert_eq!(text(|out| double(value, out)), want);
        check(0.0, "0.0");
        check(-0.0, "-0.0");
        check(1.0, "1.0");
        check(0.001, "0.001");
        check(0.000_999, "9.99E-4");
        check(9_999_999.0, "9999999.0");
        check(1e7, "1.0E7");
        check(123_456_789.5, "1.234567895E8");
        check(4.9e-324, "4.9E-324");
        check(2e23, "2.0E23");
        check(f64::MAX, "1.7976931348623157E308");
        check(-12.75, "-12.75");
        check(f64::NAN, "null");
        let check = |value: f32, want: &str| assert_eq!(text(|out| float(value, out)), want);
        check(0.1, "0.1");
        check(1.4e-45, "1.4E-45");
        check(0.033_333_335, "0.033333335");
        check(3.4e38, "3.4E38");
        check(100.0, "100.0");
        check(f32::INFINITY, "null");
        // Exactly between two shortest texts.
        check(f32::from_bits(0x3ea5_0000), "0.32226562");
        check(f32::from_bits(0xbea5_0000), "-0.32226562");
    }
}
