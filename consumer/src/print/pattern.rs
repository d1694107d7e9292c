//! Choosing event types by name.

/// Names, with or without package; `*` stands for any run of characters. No pattern: everything.
#[derive(Clone, Debug, Default)]
pub struct Patterns(Vec<String>);

impl Patterns {
    /// From a list of patterns.
    pub fn new(patterns: Vec<String>) -> Self {
        Self(patterns)
    }

    /// Whether a type of this full name is chosen.
    pub fn choose(&self, name: &str) -> bool {
        let simple = name.rsplit('.').next().unwrap_or(name);
        self.0.is_empty()
            || self.0.iter().any(|p| matches(p, name) || (!p.contains('.') && matches(p, simple)))
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::Patterns;

    #[test]
    fn names_packages_and_stars() {
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
        assert!(Patterns::default().choose("anything"));
    }
}
