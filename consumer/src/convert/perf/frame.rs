//! Frames of a stack.

use crate::folded::clean;

/// One line of a stack: an address with symbol and module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    address: &'a str,
    /// Everything after the address.
    pub text: &'a str,
    /// The symbol with its offset, empty if there is none.
    symbol: &'a str,
    /// The file, without the remarks that perf appends in parentheses.
    pub module: Option<&'a str>,
}

/// Parses a frame; `None` if the line does not begin with an address.
pub fn parse(line: &str) -> Option<Frame<'_>> {
    let line = line.trim();
    let (address, text) = line.split_once(' ').unwrap_or((line, ""));
    u64::from_str_radix(address, 16).ok()?;
    let text = text.trim();
    let (symbol, module) = match last_group(text) {
        Some(at) => (text[..at].trim_end(), Some(without_state(&text[at + 1..text.len() - 1]))),
        None => (text, None),
    };
    Some(Frame { address, text, symbol, module })
}

/// Digits that distinguish an address from counts and other numbers.
pub const SHORTEST_ADDRESS: usize = 5;

/// Returns the frame at the end of a text. Other addresses (`-F addr`) may precede it, and also any other
/// fields if it has a symbol and a module.
pub fn at_end(text: &str) -> Option<Frame<'_>> {
    let module = last_group(text).map(|at| &text[at..]).unwrap_or_default();
    if module.starts_with("(/") || module.starts_with("([") {
        let starts = text.rmatch_indices(' ').map(|(space, _)| space + 1).chain([0]);
        let is_whole =
            |frame: &Frame<'_>| frame.address.len() >= SHORTEST_ADDRESS && !frame.symbol.is_empty();
        if let Some(frame) = starts.filter_map(|start| parse(&text[start..])).find(is_whole) {
            return Some(frame);
        }
    }
    let mut rest = text;
    loop {
        let frame = parse(rest)?;
        if parse(frame.text).is_none() {
            return frame.is_named().then_some(frame);
        }
        rest = frame.text;
    }
}

/// Returns the position of the parenthesis that closes at the end of the text and follows a space or
/// nothing; file names may contain both.
fn last_group(text: &str) -> Option<usize> {
    if !text.ends_with(')') {
        return None;
    }
    let mut depth = 0;
    for (at, byte) in text.bytes().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            b'(' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            let free = at == 0 || text.as_bytes()[at - 1] == b' ';
            return free.then_some(at);
        }
    }
    None
}

/// The path of the file, without the state and the offset (`-F +dsoff`) that perf appends.
fn without_state(module: &str) -> &str {
    without_offset(module.strip_suffix(" (deleted)").unwrap_or(module))
}

/// Returns true for what the fields `srcline`, `insn` and `brstack` write after a frame: `  file.c:12`, `  libc.so[27b25]`,
/// ` insn: 49 8d`, ` f+0x6/g+0x20/P/-/-/4`.
pub fn is_detail(line: &str) -> bool {
    let line = line.trim();
    let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let address = line.strip_suffix(']').and_then(|line| line.rsplit_once('['));
    if line.starts_with("insn:") || address.is_some_and(|(file, address)| !file.is_empty() && is_hex(address))
    {
        return true;
    }
    if line.split(' ').filter(|branch| !branch.is_empty()).all(|branch| branch.split('/').count() > 4) {
        return true;
    }
    let number = line.rsplit_once(':').map(|(_, number)| number.split(' ').next().unwrap_or(number));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
        || line.ends_with(":?")
}

impl Frame<'_> {
    /// Returns true if it has more than an address.
    pub fn is_named(&self) -> bool {
        !self.text.is_empty()
    }

    /// The functions, innermost first. A JIT compiler may have named inlined functions too: `caller->inlined`.
    pub fn names(&self) -> Vec<String> {
        let symbol = without_offset(self.symbol);
        let module = self.module.unwrap_or_default();
        if symbol.is_empty() || symbol == "[unknown]" {
            let file = module.rsplit('/').next().filter(|file| !file.is_empty());
            let name = match file {
                Some("[unknown]") => "[unknown]".to_owned(),
                Some(file) => format!("[{}]", clean(file.trim_matches(['[', ']']))),
                None if symbol.is_empty() => format!("0x{}", self.address),
                None => symbol.to_owned(),
            };
            return vec![name + mark(module)];
        }
        if !is_run_time_code(module) {
            let mark = if module == "inlined" { "_[i]" } else { mark(module) };
            return vec![clean(tidy(symbol)) + mark];
        }
        let mut names: Vec<String> =
            symbol.split("->").map(|name| clean(tidy(java(name).unwrap_or(name))) + "_[i]").collect();
        if let Some(outermost) = names.first_mut() {
            outermost.truncate(outermost.len() - "_[i]".len());
            outermost.push_str("_[j]");
        }
        names.reverse();
        names
    }
}

/// A symbol without `+0x1f` at its end.
pub fn without_offset(symbol: &str) -> &str {
    match symbol.rsplit_once("+0x") {
        Some((name, offset)) if offset.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => symbol,
    }
}

/// The suffix for the kind of code, as in the stackcollapse programs.
fn mark(module: &str) -> &'static str {
    const NOT_OF_THE_KERNEL: [&str; 5] = ["[unknown]", "[vdso]", "[stack]", "[heap]", "[anon]"];
    let file = module.rsplit('/').next().unwrap_or(module);
    // `[anon:NAME]` is memory named by the program.
    let kernel =
        module.starts_with('[') && !NOT_OF_THE_KERNEL.contains(&module) && !module.starts_with("[anon")
            || file == "vmlinux"
            || file.starts_with("vmlinux-")
            || module.ends_with(".ko")
            || module.contains(".ko.");
    if is_run_time_code(module) {
        "_[j]"
    } else if kernel {
        "_[k]"
    } else {
        ""
    }
}

/// Returns true if perf read the symbols from a map or dump of JIT-compiled code.
fn is_run_time_code(module: &str) -> bool {
    let file = module.rsplit('/').next().unwrap_or(module);
    file.starts_with("perf-") && file.ends_with(".map")
        || file.starts_with("jitted-") && file.ends_with(".so")
        || module == "[JIT app cache]"
        || module.starts_with("[JIT] tid ")
}

/// `Ljava/lang/String;::hashCode` as `java/lang/String::hashCode`.
fn java(name: &str) -> Option<&str> {
    name.strip_prefix('L').filter(|name| name.contains('/') && name.contains(';'))
}

/// C++ operators that contain bracket characters; longer ones precede their prefixes.
const OPERATORS: [&str; 17] =
    ["()", "<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "--", "-=", "==", "<", ">", "-", "="];

/// Returns a name without its argument list. The list begins with a parenthesis that is not inside other
/// brackets and does not belong to an anonymous type, to `operator()` or to a Go receiver.
pub fn tidy(name: &str) -> &str {
    let mut depth = 0i32;
    let bytes = name.as_bytes();
    let mut skip_to = 0;
    for (at, byte) in bytes.iter().enumerate().filter(|(_, byte)| byte.is_ascii()) {
        if at < skip_to {
            continue;
        }
        match byte {
            b'o' if name[at..].starts_with("operator") => {
                // Template arguments may follow: `operator==<char>`.
                let rest = &name[at + 8..];
                let operator = OPERATORS.iter().find(|operator| rest.starts_with(**operator));
                skip_to = at + 8 + operator.map_or(0, |operator| operator.len());
            }
            b'-' if bytes.get(at + 1) == Some(&b'>') => skip_to = at + 2,
            b'<' | b'{' | b'[' => depth += 1,
            b'>' | b'}' | b']' | b')' => depth -= 1,
            b'(' => {
                let of_go = at > 0 && bytes[at - 1] == b'.';
                let nameless = name[at..].starts_with("(anonymous namespace)");
                if depth == 0 && at > 0 && !of_go && !nameless {
                    return &name[..at];
                }
                depth += 1;
            }
            _ => {}
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_paths_may_have_spaces_and_parentheses() {
        for (line, symbol, module) in [
            ("\tffff1 leaf (/opt/my app/prog)", "leaf", Some("/opt/my app/prog")),
            ("\tffff1 leaf+0x1f (/bin/prog (deleted))", "leaf+0x1f", Some("/bin/prog")),
            ("  1 f(int) (/opt/a (1)/b)", "f(int)", Some("/opt/a (1)/b")),
            ("1 f(int)", "f(int)", None),
            ("1  (/lib/libc-2.15.so)", "", Some("/lib/libc-2.15.so")),
            (
                "1 std::function<void (int)>::operator()(int) const (/x)",
                "std::function<void (int)>::operator()(int) const",
                Some("/x"),
            ),
            ("ffff1", "", None),
            ("1 ) (", ") (", None),
        ] {
            let frame = parse(line).unwrap();
            assert_eq!((frame.symbol, frame.module), (symbol, module), "{line}");
        }
        for line in ["", "x (y)", "  file.c:12", "0x12 f (x)"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn names_omit_arguments_and_have_kind_suffixes() {
        let names = |line: &str| parse(line).unwrap().names().join(" ");
        for (line, want) in [
            ("1 f(int)+0x8 (/x)", "f"),
            ("1 ns::(anonymous namespace)::f(int) (/x)", "ns::(anonymous namespace)::f"),
            ("1 net/http.(*Client).Do (/x)", "net/http.(*Client).Do"),
            ("1 a::operator()(int) const (/x)", "a::operator()"),
            ("1 a::operator<(b const&) (/x)", "a::operator<"),
            ("1 p::operator->() const (/x)", "p::operator->"),
            ("1 bool operator==<char, a<b> >(c const&) (/x)", "bool operator==<char, a<b> >"),
            ("1 long operator-<int*>(c const&) (/x)", "long operator-<int*>"),
            ("1 bool operator< <int>(c<int> const&) (/x)", "bool operator< <int>"),
            ("1 do_v (/usr/lib/debug/boot/vmlinux-6.1.0)", "do_v_[k]"),
            ("1 [unknown] (/usr/lib/libc.so+0x1f)", "[libc.so]"),
            ("1 [unknown] ([anon:v8])", "[anon:v8]"),
            ("1 std::function<void (int)>::f(int) (/x)", "std::function<void (int)>::f"),
            ("1 <a as b<fn(c)>>::d (/x)", "<a as b<fn(c)>>::d"),
            ("1 do_x ([kernel.kallsyms])", "do_x_[k]"),
            ("1 do_y ([nf_conntrack])", "do_y_[k]"),
            ("1 __vdso_time ([vdso])", "__vdso_time"),
            ("1 a.b ([JIT app cache])", "a.b_[j]"),
            (
                "1 Ljava/lang/A;::f->Ljava/lang/B;::g (/tmp/perf-7.map)",
                "java/lang/B:::g_[i] java/lang/A:::f_[j]",
            ),
            ("1 f (inlined)", "f_[i]"),
            ("1 [unknown] (/usr/lib/libc.so)", "[libc.so]"),
            ("1 [unknown] ([unknown])", "[unknown]"),
            ("1 [unknown] ([kernel.kallsyms])", "[kernel.kallsyms]_[k]"),
            ("ff1", "0xff1"),
            ("1 a;b\u{1} (/x)", "a:b\u{1}"),
            ("1 ( (/x)", "("),
            ("1 é(é (/x)", "é"),
        ] {
            assert_eq!(names(line), want, "{line}");
        }
    }
}
