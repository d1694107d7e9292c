//! Names that readers in Java accept.

/// The words that cannot be part of a name: JDK 25 refuses a recording with such a name.
const KEYWORDS: &[&str] = &[
    "_",
    "abstract",
    "assert",
    "boolean",
    "break",
    "byte",
    "case",
    "catch",
    "char",
    "class",
    "const",
    "continue",
    "default",
    "do",
    "double",
    "else",
    "enum",
    "extends",
    "false",
    "final",
    "finally",
    "float",
    "for",
    "goto",
    "if",
    "implements",
    "import",
    "instanceof",
    "int",
    "interface",
    "long",
    "native",
    "new",
    "null",
    "package",
    "private",
    "protected",
    "public",
    "return",
    "short",
    "static",
    "strictfp",
    "super",
    "switch",
    "synchronized",
    "this",
    "throw",
    "throws",
    "transient",
    "true",
    "try",
    "void",
    "volatile",
    "while",
];

/// Returns true if `name` is a Java identifier of ASCII characters.
pub(crate) fn is_java_identifier(name: &str) -> bool {
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_' || c == '$';
    name.starts_with(is_start)
        && name.chars().all(|c| is_start(c) || c.is_ascii_digit())
        && !KEYWORDS.contains(&name)
}

/// Returns true if `name` is the full name of a Java class: identifiers that are separated by dots.
pub(crate) fn is_java_type_name(name: &str) -> bool {
    name.split('.').all(is_java_identifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn java_names() {
        for name in ["a", "com.example.Request", "A.B$C", "_a._1", "klass.newer"] {
            assert!(is_java_type_name(name), "{name}");
        }
        for name in ["", ".", "a.", ".a", "a..b", "1a", "a-b", "a b", "größe", "com.new.A", "_", "a/b"] {
            assert!(!is_java_type_name(name), "{name}");
        }
        assert!(!is_java_identifier("a.b"));
    }
}
