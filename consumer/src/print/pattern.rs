//! Selects event types by name.

use wildmatch::WildMatch;

/// Names with or without package; `*` matches any text, `?` any character. An empty list matches
/// everything.
#[derive(Clone, Debug, Default)]
pub struct Patterns(Vec<WildMatch>);

impl Patterns {
    /// Creates it from a list of patterns.
    pub fn new(patterns: Vec<String>) -> Self {
        Self(patterns.iter().map(|pattern| WildMatch::new(pattern)).collect())
    }

    /// Returns true if a pattern matches the full name of a type, or the part after its last dot.
    pub fn choose(&self, name: &str) -> bool {
        let simple = name.rsplit('.').next().unwrap_or(name);
        self.0.is_empty() || self.0.iter().any(|pattern| pattern.matches(name) || pattern.matches(simple))
    }
}

/// Returns true if `pattern` matches the whole `text`. `*` matches any text, `?` any character.
pub fn glob(pattern: &str, text: &str) -> bool {
    WildMatch::new(pattern).matches(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_name_patterns_are_matched() {
        let check = |pattern: &str, name: &str, want: bool| {
            assert_eq!(Patterns::new(vec![pattern.into()]).choose(name), want, "{pattern} on {name}");
        };
        check("jdk.GCPhasePause", "jdk.GCPhasePause", true);
        check("GCPhasePause", "jdk.GCPhasePause", true);
        check("GCPhase", "jdk.GCPhasePause", false);
        check("GC*", "jdk.GCPhasePause", true);
        check("*Pause", "jdk.GCPhasePause", true);
        check("jdk.*Ph*se", "jdk.GCPhasePause", true);
        check("jdk.*Ph*sed", "jdk.GCPhasePause", false);
        check("profiler.*", "jdk.GCPhasePause", false);
        check("aXa*aXa", "aXa", false);
        check("GCPhase?????", "jdk.GCPhasePause", true);
        check("GCPhase????", "jdk.GCPhasePause", false);
        check("*a*b*c", "xaybzbc", true);
        check("", "jdk.X", false);
        check("???.X", "jdk.X", true);
        assert!(Patterns::default().choose("anything"));
    }

    #[test]
    fn many_wildcards_match_in_bounded_time() {
        let text = "a".repeat(2000);
        assert!(!glob(&"*a".repeat(200).replace("a*a", "a*b"), &text));
    }
}
