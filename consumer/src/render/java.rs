//! Kinds and origins of Java code in flame graphs: how the JVM ran a method, and whether it belongs to
//! the application, a library or the JDK.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::model::FrameKind;
use crate::tree::{Label, Tree};

/// Java code of a flame graph.
#[derive(Clone, Debug, Default)]
pub struct Java {
    /// How the JVM ran most samples of a function, by the function's name.
    pub kinds: HashMap<Arc<str>, FrameKind>,
    /// Packages of the application with dots, such as `com.acme`. If empty, see [`application`].
    pub application: Vec<String>,
}

/// The origin of a Java class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Part of the application.
    Application,
    /// Part of a library.
    Library,
    /// Part of the JDK.
    Jdk,
}

/// Packages of the JDK, including their subpackages.
const JDK: [&str; 5] = ["java", "javax", "jdk", "sun", "com.sun"];

impl Java {
    /// Adds functions that are not known yet.
    pub fn add(&mut self, other: Self) {
        for (name, kind) in other.kinds {
            self.kinds.entry(name).or_insert(kind);
        }
        if self.application.is_empty() {
            self.application = other.application;
        }
    }

    /// The kind of code of a label.
    pub(super) fn kind(&self, label: &Label) -> FrameKind {
        let known = || self.kinds.get(&label.text).copied();
        if label.kind.is_java() { known().unwrap_or(label.kind) } else { label.kind }
    }

    /// Returns the packages of the application for a flame graph of `tree`.
    pub(super) fn application(&self, tree: &Tree) -> Vec<String> {
        if self.application.is_empty() { application(tree) } else { self.application.clone() }
    }
}

/// Returns the package of a Java method or class with dots; empty if it has none, `None` if it is not
/// Java.
fn package(label: &Label) -> Option<String> {
    if !label.kind.is_java() {
        return None;
    }
    let elements = label.text.trim_start_matches('[');
    // `[Ljava.lang.Object;` is an array.
    let is_array = elements.len() < label.text.len();
    let name = if is_array { elements.trim_start_matches('L') } else { elements }.replace('/', ".");
    let is_package = |part: &&str| part.starts_with(|c: char| c.is_lowercase() || c == '_');
    let parts: Vec<&str> = name.split('.').collect();
    // The last two parts are the class and the method.
    let most = parts.len().saturating_sub(2);
    Some(parts[..most].iter().copied().take_while(is_package).collect::<Vec<_>>().join("."))
}

fn is_within(package: &str, prefix: &str) -> bool {
    package.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Returns the origin of a label; `None` if it is not Java. A class without package belongs to the
/// application.
pub(super) fn origin(label: &Label, application: &[String]) -> Option<Origin> {
    let package = package(label)?;
    // The application's packages may be inside those of the JDK.
    if package.is_empty() || application.iter().any(|prefix| is_within(&package, prefix)) {
        return Some(Origin::Application);
    }
    let is_jdk = JDK.iter().any(|prefix| is_within(&package, prefix));
    Some(if is_jdk { Origin::Jdk } else { Origin::Library })
}

/// Guesses the packages of the application: the first two parts of the package outside the JDK whose
/// functions have the largest total weight.
fn application(tree: &Tree) -> Vec<String> {
    let mut weights: BTreeMap<String, u64> = BTreeMap::new();
    for (id, _, total) in tree.by_label() {
        let label = &tree.labels[id.index()];
        if origin(label, &[]) == Some(Origin::Library)
            && let Some(prefix) = package(label).and_then(|package| prefix(&package))
        {
            let weight = weights.entry(prefix).or_default();
            *weight = total.max(*weight);
        }
    }
    let most = weights.into_iter().rev().max_by_key(|&(_, weight)| weight);
    most.map(|(prefix, _)| prefix).into_iter().collect()
}

/// The first two parts of a package.
pub(crate) fn prefix(package: &str) -> Option<String> {
    let parts: Vec<&str> = package.split('.').take(2).filter(|part| !part.is_empty()).collect();
    (!parts.is_empty()).then(|| parts.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folded;

    fn label(text: &str) -> Label {
        Label { text: text.into(), module: None, kind: FrameKind::Compiled }
    }

    #[test]
    fn classes_are_attributed_to_application_library_or_jdk() {
        let ours = ["com.acme".to_owned()];
        let of = |text: &str| origin(&label(text), &ours);
        use Origin::{Application, Jdk, Library};
        for (text, expected) in [
            ("com.acme.shop.App.fib", Application),
            ("com/acme/App.fib_[j]", Application),
            ("Work.main", Application),
            ("Work$$Lambda.0x0000000057045c00.run", Application),
            ("com.acmeish.App.fib", Library),
            ("org.springframework.web.Filter$1.run", Library),
            ("com.sunny.App.run", Library),
            ("java.util.HashMap$Node[]", Jdk),
            ("[Ljava.lang.Object;", Jdk),
            ("jdk.proxy2.$Proxy5.run", Jdk),
            ("com.sun.net.httpserver.Filter.run", Jdk),
            ("java/lang/Thread.run", Jdk),
        ] {
            assert_eq!(of(text), Some(expected), "{text}");
        }
        let native = Label { kind: FrameKind::Native, ..label("java.lang.Thread.run") };
        assert_eq!(origin(&native, &ours), None);
        assert_eq!(origin(&label("java.util.List.add"), &["java.util".to_owned()]), Some(Application));
    }

    #[test]
    fn application_is_the_package_with_most_weight() {
        let of = |text: &str| application(&folded::read(text.as_bytes()).unwrap());
        let text = "java/lang/Thread.run_[j];com/acme/shop/App.run_[j] 5\njava/lang/Thread.run_[j];org/lib/A.run_[j] 3\norg/lib/B.run_[j] 4\n";
        assert_eq!(of(text), ["com.acme"]);
        assert_eq!(of("b/c/A.run_[j] 1\na/c/A.run_[j] 1\n"), ["a.c"]);
        assert!(of("java/lang/Thread.run_[j] 1\nmain 3\n").is_empty());
    }
}
