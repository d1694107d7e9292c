//! Transforms trees: selects the parts of stacks to show, and their names. Works the same for recordings
//! and folded text.
//!
//! This is the only place that cuts, hides, renames or merges frames.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use regex::Regex;

use crate::model::FrameKind;
use crate::tree::{Builder, Label, LabelId, TRUNCATED, Tree};

/// The unit that a box represents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Boxes {
    /// Functions.
    #[default]
    Functions,
    /// Libraries; for Java, packages.
    Modules,
    /// Packages, namespaces or crates; libraries for names without them.
    Packages,
}

/// The form of function names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Names {
    /// Unchanged.
    #[default]
    Full,
    /// Full names without the numbers of hidden classes, lambdas and proxies, which differ between runs
    /// of a JVM; see [`stable`].
    Stable,
    /// Without packages, outer namespaces, parameters and template arguments.
    Simple,
    /// Java names with dots instead of slashes: `java/lang/Thread.run` becomes `java.lang.Thread.run`.
    Dotted,
}

/// Options for transforming stacks.
#[derive(Clone, Debug, Default)]
pub struct Reshape {
    /// Begin stacks at their first frame that matches; omit stacks without such a frame.
    pub focus: Option<Regex>,
    /// Omit frames that match, but not their callees.
    pub hide: Vec<Regex>,
    /// The unit that a box represents.
    pub boxes: Boxes,
    /// The form of function names.
    pub names: Names,
    /// Merge direct recursion into one box.
    pub collapse_recursion: bool,
    /// Put the leaf first, so that stacks with the same leaf are adjacent.
    pub reverse: bool,
    /// Merge boxes with less than this share of the total into one box `[thin]` per parent.
    pub least_part: f64,
}

/// Label of merged thin boxes.
pub const THIN: &str = "[thin]";
/// Label of a stack without remaining frames.
pub const HIDDEN: &str = "[hidden]";

impl Reshape {
    /// Returns true if stacks have to be changed.
    fn is_needed(&self) -> bool {
        self.focus.is_some()
            || !self.hide.is_empty()
            || self.boxes != Boxes::Functions
            || self.names != Names::Full
            || self.collapse_recursion
            || self.reverse
    }

    /// Transforms all stacks of a tree.
    pub fn tree(&self, tree: Tree) -> Tree {
        let tree = if self.is_needed() { self.stacks(&tree) } else { tree };
        if self.least_part > 0.0 { thinned(&tree, self.least_part) } else { tree }
    }

    fn stacks(&self, tree: &Tree) -> Tree {
        let mut builder = Builder::default();
        let mut reshaper = Reshaper::new(self);
        let mut stacks = tree.stacks();
        let mut met = 0u64;
        let mut labels: Vec<Label> = Vec::new();
        while let Some((stack, weight)) = stacks.next() {
            met = met.saturating_add(weight);
            labels.clear();
            labels.extend(stack.iter().map(|label| tree.labels[label.index()].clone()));
            if let Some(path) = reshaper.path(&labels, &mut builder) {
                builder.add(path, weight);
            }
        }
        // Retains the weight of stacks without frames, which have no box.
        if self.focus.is_none() {
            builder.add([], tree.total.saturating_sub(met));
        }
        builder.finish(tree.unit.clone())
    }
}

/// Transforms single stacks.
#[derive(Debug)]
pub(crate) struct Reshaper<'a> {
    how: &'a Reshape,
    known: HashMap<Label, Reshaped>,
}

impl<'a> Reshaper<'a> {
    pub(crate) fn new(how: &'a Reshape) -> Self {
        Self { how, known: HashMap::new() }
    }

    /// Transforms a stack, root first; `None` if it is omitted.
    pub(crate) fn path(&mut self, stack: &[Label], builder: &mut Builder) -> Option<Vec<LabelId>> {
        let Self { how, known } = self;
        let of: Vec<Reshaped> = stack
            .iter()
            .map(|label| match known.get(label) {
                Some(of) => *of,
                None => {
                    let of = how.label(label, builder);
                    known.insert(label.clone(), of);
                    of
                }
            })
            .collect();
        // Process and thread frames remain first.
        let outer = of.iter().take_while(|of| of.outer).count();
        let (outermost, mut inner) = of.split_at(outer);
        if how.focus.is_some() {
            inner = &inner[inner.iter().position(|of| of.focus)?..];
        }
        let mut path: Vec<LabelId> = outermost.iter().filter(|of| !of.hide).map(|of| of.label).collect();
        let outer = path.len();
        let merged = how.collapse_recursion || how.boxes != Boxes::Functions;
        for of in inner {
            let again = path.len() > outer && path.last() == Some(&of.label);
            if of.hide || again && merged {
                continue;
            }
            path.push(of.label);
        }
        if path.is_empty() {
            path.push(builder.label(marker(HIDDEN)));
        }
        if how.reverse {
            path[outer..].reverse();
        }
        Some(path)
    }
}

impl Reshape {
    fn label(&self, label: &Label, builder: &mut Builder) -> Reshaped {
        let is_marker = label.kind == FrameKind::Marker;
        let text = match (is_marker, self.boxes) {
            (true, _) => label.text.clone(),
            // The label of a class is not code, so it has no library.
            _ if label.kind == FrameKind::Class => self.names.apply_to_class(&label.text),
            (_, Boxes::Functions) => self.names.apply(&label.text),
            (_, Boxes::Modules) => module(label).unwrap_or_else(|| package(label)),
            (_, Boxes::Packages) => package(label),
        };
        let new = match self.boxes {
            Boxes::Functions => Label { text, ..label.clone() },
            // An inlined function is in the same library.
            _ if label.kind == FrameKind::NativeInlined => {
                Label { text, module: None, kind: FrameKind::Native }
            }
            _ => Label { text, module: None, kind: label.kind },
        };
        Reshaped {
            label: builder.label(new),
            focus: self.focus.as_ref().is_some_and(|regex| regex.is_match(&label.text)),
            hide: self.hide.iter().any(|regex| regex.is_match(&label.text)),
            outer: is_marker && &*label.text != TRUNCATED,
        }
    }
}

/// The result for a label.
#[derive(Clone, Copy, Debug)]
struct Reshaped {
    label: LabelId,
    focus: bool,
    hide: bool,
    outer: bool,
}

fn marker(text: &str) -> Label {
    Label { text: text.into(), module: None, kind: FrameKind::Marker }
}

impl Names {
    pub(crate) fn apply(self, text: &Arc<str>) -> Arc<str> {
        match self {
            Self::Full => text.clone(),
            Self::Stable => match stable(text) {
                Cow::Borrowed(_) => text.clone(),
                Cow::Owned(name) => name.into(),
            },
            Self::Simple => simple(text).into(),
            Self::Dotted => dotted(text).into(),
        }
    }
}

impl Names {
    /// Returns the name of a class, without its package if names are simple.
    fn apply_to_class(self, text: &Arc<str>) -> Arc<str> {
        match self {
            Self::Simple => text.rsplit('.').next().unwrap_or(text).into(),
            Self::Full | Self::Stable | Self::Dotted => self.apply(text),
        }
    }
}

/// Returns a tree with [`stable`] names, for comparison with another run.
pub fn with_stable_names(tree: Tree) -> Tree {
    Reshape { names: Names::Stable, ..Reshape::default() }.tree(tree)
}

/// Removes the numbers that differ between runs of a JVM: `App$$Lambda.0x00002a04.run`,
/// `App$$Lambda$14/66840.run` and `App$$Lambda$89+0x00c0.77.run` all become `App$$Lambda.run`.
pub fn stable(name: &str) -> Cow<'_, str> {
    static RUN: LazyLock<Regex> = LazyLock::new(|| {
        let hidden = r"(\$\$Lambda|\$\$StringConcat|LambdaForm\$[A-Za-z]+)(?:\$?[0-9]+)?(?:[./+]0x[0-9a-f]+)?(?:[./][0-9]+)?";
        let numbered = r"(\$Proxy|Generated(?:Method|Constructor|SerializationConstructor)Accessor)[0-9]+";
        let generated = r"(CGLIB\$\$)[0-9a-f]{6,8}";
        Regex::new(&format!("{hidden}|{numbered}|{generated}"))
            .unwrap_or_else(|_| unreachable!("a constant pattern"))
    });
    RUN.replace_all(name, "$1$2$3")
}

/// Replaces slashes in `java/lang/Thread.run` by dots. A path in a file system begins with a slash and is
/// unchanged.
fn dotted(text: &str) -> String {
    let is_path = text.starts_with('/') || text.contains(' ');
    if is_path { text.to_owned() } else { text.replace('/', ".") }
}

/// Returns the last two parts of a name: class and method, or type and function. A suffix, such as a line
/// or `_[j]`, remains.
fn simple(text: &str) -> String {
    let (library, name) = text.split_once('`').map_or((None, text), |(library, name)| (Some(library), name));
    let name = if name.contains("::") || name.contains('(') { native(name) } else { java(name) };
    match library {
        Some(library) => format!("{library}`{name}"),
        None => name,
    }
}

fn java(name: &str) -> String {
    // The number of a lambda also follows a slash or dot.
    let is_name = |(at, _): &(usize, &str)| !name[at + 1..].starts_with(|c: char| c.is_ascii_digit());
    let cut = name.rmatch_indices('/').find(is_name).filter(|_| !name.starts_with('/'));
    let name = cut.map_or(name, |(at, _)| &name[at + 1..]);
    let Some((class, method)) = name.rsplit_once('.') else { return name.to_owned() };
    // Suffixes that C compilers add: `f.constprop.0`, `f.part.0.cold`.
    if method.starts_with(|c: char| c.is_ascii_digit()) || method == "cold" {
        return name.to_owned();
    }
    let is_name = |(at, _): &(usize, &str)| !class[at + 1..].starts_with(|c: char| c.is_ascii_digit());
    match class.rmatch_indices('.').find(is_name) {
        // Packages begin with a letter; `libc.so.6` and `[unknown]` are not packages.
        Some((at, _)) if name.starts_with(char::is_alphabetic) && !class[at + 1..].starts_with("so") => {
            name[at + 1..].to_owned()
        }
        _ => name.to_owned(),
    }
}

fn native(name: &str) -> String {
    let bare = without_arguments(name);
    let mut parts: Vec<&str> = Vec::new();
    let (mut depth, mut from) = (0i32, 0);
    for (at, c) in bare.char_indices() {
        match c {
            '<' | '{' => depth += 1,
            '>' | '}' => depth -= 1,
            ':' if depth == 0 && bare[at..].starts_with("::") && at >= from => {
                parts.push(&bare[from..at]);
                from = at + 2;
            }
            _ => {}
        }
    }
    parts.push(bare.get(from..).unwrap_or_default());
    let kept = parts.len().saturating_sub(2);
    parts[kept..].join("::")
}

/// Shortens `f<int>(char)` to `f`. Brackets at the beginning, as in Rust's `<T as Trait>::f`, and
/// operators remain.
fn without_arguments(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut depth = 0u32;
    let mut before = ' ';
    for (at, c) in name.char_indices() {
        let operator = || name[..at].ends_with("operator") || name[..at].ends_with("operator<");
        match c {
            '(' | '<' if depth > 0 => depth += 1,
            // `(anonymous namespace)` and `<T as Trait>` begin a part.
            '(' | '<' if at > 0 && before != ':' && !operator() => depth = 1,
            ')' | '>' if depth > 0 && before != '-' => depth -= 1,
            _ if depth == 0 => out.push(c),
            _ => {}
        }
        before = c;
    }
    out.trim_end().trim_end_matches("::").trim_end_matches(" const").to_owned()
}

fn module(label: &Label) -> Option<Arc<str>> {
    let told = label.text.split_once('`').map(|(library, _)| library.into());
    label.module.clone().or(told).or_else(|| (label.kind == FrameKind::Kernel).then(|| "[kernel]".into()))
}

fn package(label: &Label) -> Arc<str> {
    let text = &*label.text;
    let name = text.split_once('`').map_or(text, |(_, name)| name);
    if let Some((outer, _)) = name.trim_start_matches('<').split_once("::") {
        // A template's return type may precede the name.
        let outer = outer.rsplit([' ', '&', '*']).next().unwrap_or(outer);
        return outer.split('<').next().unwrap_or(outer).into();
    }
    let known = module(label).filter(|_| !label.kind.is_java());
    known.unwrap_or_else(|| {
        let dotted = dotted(&stable(name));
        let parts: Vec<&str> = dotted.rsplitn(3, '.').collect();
        match parts[..] {
            [_, _, package] => package.into(),
            _ => "[no package]".into(),
        }
    })
}

/// Merges thin boxes into one box of their parent.
fn thinned(tree: &Tree, least_part: f64) -> Tree {
    let least = tree.total as f64 * least_part;
    let mut builder = Builder::default();
    let labels: Vec<LabelId> = tree.labels.iter().map(|label| builder.label(label.clone())).collect();
    let thin = builder.label(marker(THIN));
    let mut path: Vec<LabelId> = Vec::new();
    let mut sums: HashMap<Vec<LabelId>, u64> = HashMap::new();
    let mut next = 0;
    let mut met = 0u64;
    while let Some(node) = tree.nodes.get(next) {
        path.truncate(node.depth as usize);
        if (node.total as f64) < least {
            let sum = sums.entry(path.clone()).or_default();
            *sum = sum.saturating_add(node.total);
            met = met.saturating_add(node.total);
            next = node.end as usize;
            continue;
        }
        path.push(labels[node.label.index()]);
        builder.add(path.iter().copied(), node.own);
        met = met.saturating_add(node.own);
        next += 1;
    }
    for (path, weight) in sums {
        builder.add(path.into_iter().chain([thin]), weight);
    }
    builder.add([], tree.total.saturating_sub(met));
    builder.finish(tree.unit.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folded;

    fn reshaped(text: &str, reshape: &Reshape) -> String {
        let mut out = Vec::new();
        folded::write(&reshape.tree(folded::read(text.as_bytes()).unwrap()), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn stacks_are_focused_hidden_collapsed_and_inverted() {
        let text = "[t tid=1];main;f;f;g;f 3\n[t tid=1];main;h 2\n[u tid=2];main;f;glue;g 4\n";
        let regex = |text: &str| Regex::new(text).unwrap();
        let check = |reshape: Reshape, want: &str| assert_eq!(reshaped(text, &reshape), want);
        check(
            Reshape { focus: Some(regex("^f$")), ..Reshape::default() },
            "[t tid=1];f;f;g;f 3\n[u tid=2];f;glue;g 4\n",
        );
        check(
            Reshape { hide: vec![regex("^glue$"), regex("main")], ..Reshape::default() },
            "[t tid=1];f;f;g;f 3\n[t tid=1];h 2\n[u tid=2];f;g 4\n",
        );
        check(
            Reshape { collapse_recursion: true, hide: vec![regex("glue|main|tid")], ..Reshape::default() },
            "f;g 4\nf;g;f 3\nh 2\n",
        );
        check(
            Reshape { reverse: true, focus: Some(regex("^g$")), ..Reshape::default() },
            "[t tid=1];f;g 3\n[u tid=2];g 4\n",
        );
        assert_eq!(
            reshaped("a 1\nb 2\n", &Reshape { hide: vec![regex("a")], ..Reshape::default() }),
            "[hidden] 1\nb 2\n"
        );
    }

    #[test]
    fn thin_frames_remain_in_totals() {
        let text = "a;b;c 1\na;b;d 1\na;e 97\nf;g 1\n";
        let part = |least_part: f64| reshaped(text, &Reshape { least_part, ..Reshape::default() });
        assert_eq!(part(0.02), "[thin] 1\na;b;[thin] 2\na;e 97\n");
        assert_eq!(part(0.03), "[thin] 1\na;[thin] 2\na;e 97\n");
        assert_eq!(part(0.0), text);
    }

    #[test]
    fn simple_names_omit_packages_and_parameters() {
        let check = |full: &str, want: &str| assert_eq!(simple(full), want, "{full}");
        check("java.util.concurrent.ThreadPoolExecutor.runWorker", "ThreadPoolExecutor.runWorker");
        check("java/lang/Thread.run_[j]", "Thread.run_[j]");
        check("Thread.run:12", "Thread.run:12");
        check("a.b.Work$$Lambda/0x00007f40.run", "Work$$Lambda/0x00007f40.run");
        check("a.b.Work$$Lambda.0x00007f40.run", "Work$$Lambda.0x00007f40.run");
        check("Work$$Lambda.0x00007f40.run", "Work$$Lambda.0x00007f40.run");
        check("libc.so.6", "libc.so.6");
        check("std::vector<int, std::allocator<int> >::push_back(int const&)", "vector::push_back");
        check("ns::(anonymous namespace)::f(int (*)(char))", "(anonymous namespace)::f");
        check("<alloc::vec::Vec<T> as core::ops::Drop>::drop", "<alloc::vec::Vec as core::ops::Drop>::drop");
        check("core::ops::function::FnOnce::call_once", "FnOnce::call_once");
        check("main::{{closure}}", "main::{{closure}}");
        check("operator new(unsigned long)", "operator new");
        check("ns::operator<<(std::ostream&, int)", "ns::operator<<");
        check("libc.so.6`__libc_start_main", "libc.so.6`__libc_start_main");
        check("PyEval_EvalCode", "PyEval_EvalCode");
        check("sqlite3BtreeNext.constprop.0", "sqlite3BtreeNext.constprop.0");
        check("finish_task_switch.isra.0_[k]", "finish_task_switch.isra.0_[k]");
        check("f.part.0.cold", "f.part.0.cold");
        check("", "");
        assert_eq!(dotted("java/lang/Thread.run"), "java.lang.Thread.run");
        assert_eq!(dotted("/usr/lib/libc.so"), "/usr/lib/libc.so");
    }

    #[test]
    fn stable_names_omit_generated_suffixes() {
        for (name, want) in [
            ("com.a.App$$Lambda.0x000000002a040c00.run", "com.a.App$$Lambda.run"),
            ("com.a.App$$Lambda$14/0x0000000800066840.run", "com.a.App$$Lambda.run"),
            ("com.a.App$$Lambda$1427.567481064.run", "com.a.App$$Lambda.run"),
            ("com.a.App$$Lambda$89+0x0000000800c03000.1637290981.run", "com.a.App$$Lambda.run"),
            ("java.lang.invoke.LambdaForm$MH.0x00007f.invoke", "java.lang.invoke.LambdaForm$MH.invoke"),
            (
                "java.lang.invoke.LambdaForm$DMH/0x00007f.invokeStatic",
                "java.lang.invoke.LambdaForm$DMH.invokeStatic",
            ),
            ("java.lang.String$$StringConcat.0x0000.concat", "java.lang.String$$StringConcat.concat"),
            ("jdk.proxy2.$Proxy12.get", "jdk.proxy2.$Proxy.get"),
            (
                "jdk.internal.reflect.GeneratedMethodAccessor7.invoke",
                "jdk.internal.reflect.GeneratedMethodAccessor.invoke",
            ),
            ("a.B$$EnhancerBySpringCGLIB$$1a2b3c4d.f", "a.B$$EnhancerBySpringCGLIB$$.f"),
            ("a.B$1.f", "a.B$1.f"),
            ("libc.so.6+0x1f00", "libc.so.6+0x1f00"),
            ("a.B$$anonfun$f$1.apply", "a.B$$anonfun$f$1.apply"),
        ] {
            assert_eq!(stable(name), want);
        }
        assert_eq!(
            &*package(&Label {
                text: "com.a.App$$Lambda.0x2a.run".into(),
                module: None,
                kind: FrameKind::Compiled
            }),
            "com.a"
        );
    }

    #[test]
    fn frames_are_merged_by_module_or_package() {
        let text = "libc.so.6`start;app`main;app`std::io::read;app`f;libc.so.6`read 5\n";
        let boxes = |boxes: Boxes, text: &str| reshaped(text, &Reshape { boxes, ..Reshape::default() });
        assert_eq!(boxes(Boxes::Modules, text), "libc.so.6;app;libc.so.6 5\n");
        assert_eq!(boxes(Boxes::Packages, text), "libc.so.6;app;std;app;libc.so.6 5\n");
        let text = "[t tid=1];java.lang.Thread.run;java.lang.Thread.exit;org/x/Y.z;do_syscall_[k];plain 2\n";
        assert_eq!(boxes(Boxes::Packages, text), "[t tid=1];java.lang;org.x;[kernel];[no package] 2\n");
    }
}
