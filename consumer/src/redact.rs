//! Secrets in command lines, properties and environment variables.
//!
//! `flightline scrub --redact` and `flightline summary` share these rules; docs/guide/reference/redaction.md lists them for users.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// The text that replaces a secret by default.
pub const MARK: &str = "[redacted]";

/// Parts of names, in lower case and without separators, that mark a value as a secret.
const SECRET_NAMES: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "token",
    "credential",
    "apikey",
    "accesskey",
    "privatekey",
    "signingkey",
    "encryptionkey",
    "authorization",
    "jaasconfig",
    "connectionstring",
    "cookie",
    "bearer",
];

/// Secrets that are recognizable by their format. The group `secret` is replaced, or the whole match if
/// there is no such group.
const PATTERNS: &[&str] = &[
    // Private keys as PEM, also with `\n` as two characters. Without an end marker, up to the end of the
    // text.
    r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)",
    // User information of a URL.
    r"(?i)\b[a-z][a-z0-9+.-]*://[^\s/?#:@]*:(?P<secret>[^\s/?#]+)@",
    // HTTP authentication.
    r"(?i)\b(?:bearer|basic)\s+(?P<secret>[a-z0-9._~+/=-]{8,})",
    // JSON web tokens.
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
    // AWS access keys, GitHub, GitLab, Slack and Stripe tokens, Google keys.
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,})",
    r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
    r"\bAIza[A-Za-z0-9_-]{30,}",
];

/// Characters at the end of a name that are examined.
const LONGEST_NAME: usize = 256;

static COMPILED: LazyLock<Vec<Regex>> =
    LazyLock::new(|| PATTERNS.iter().filter_map(|pattern| Regex::new(pattern).ok()).collect());

/// Returns true if the value of a property, variable or option with this name is a secret.
///
/// These names are secret: those that contain a word such as `password`, `secret`, `token` or
/// `credential` in any case and with any separators; those with the word `pass` or `pwd`, or a word that
/// ends with one of these (`storepass`); and those whose last word is `key` or `auth`. `PWD` and `OLDPWD`
/// are folders.
pub fn is_secret_name(name: &str) -> bool {
    // Text without spaces may be one very long name.
    let start = name.char_indices().rev().nth(LONGEST_NAME - 1).map_or(0, |(at, _)| at);
    let words = words(&name[start..]);
    let joined = words.concat();
    let pass = |word: &String| {
        word == "pwd" || (word.ends_with("pass") && !matches!(&word[..], "bypass" | "compass"))
    };
    SECRET_NAMES.iter().any(|part| joined.contains(part))
        || (joined != "pwd" && words.iter().any(pass))
        || words.last().is_some_and(|word| word == "key" || word == "auth") && words.len() > 1
}

/// The words of a name in lower case: `-Djavax.net.ssl.keyStorePassword` has seven.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut lower = false;
    for c in name.chars() {
        let begins = !c.is_alphanumeric() || (c.is_uppercase() && lower);
        if begins && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let (true, Some(word)) = (c.is_alphanumeric(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
        lower = c.is_lowercase() || c.is_numeric();
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Returns `text` with `mark` in place of its secrets, or `None` if it has none. `name` is the name of the property or
/// variable whose value the text is.
pub fn secrets(name: Option<&str>, text: &str, mark: &str) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    if name.is_some_and(is_secret_name) {
        return Some(mark.to_owned());
    }
    let mut text = Cow::Borrowed(text);
    for pattern in COMPILED.iter() {
        let replaced = pattern.replace_all(&text, |found: &Captures<'_>| {
            let whole = &found[0];
            let start = found.get(0).map_or(0, |all| all.start());
            match found.name("secret") {
                Some(secret) => {
                    [&whole[..secret.start() - start], mark, &whole[secret.end() - start..]].concat()
                }
                None => mark.to_owned(),
            }
        });
        if let Cow::Owned(replaced) = replaced {
            text = Cow::Owned(replaced);
        }
    }
    if let Some(replaced) = options(&text, mark) {
        text = Cow::Owned(replaced);
    }
    match text {
        Cow::Owned(text) => Some(text),
        Cow::Borrowed(_) => None,
    }
}

/// Replaces the values of options with secret names: `-Ddb.password=x`, `--token x`, `password: x`, `?user=a&password=b`.
/// A value reaches to the next space, or to its closing quote.
fn options(text: &str, mark: &str) -> Option<String> {
    let mut out = String::new();
    let (mut done, mut at) = (0, 0);
    while let Some(value) = next_value(text, at) {
        let end = value_end(text, value);
        at = end;
        if end > value {
            out.push_str(&text[done..value]);
            out.push_str(mark);
            done = end;
        }
        if end == text.len() {
            break;
        }
    }
    if done == 0 {
        return None;
    }
    out.push_str(&text[done..]);
    Some(out)
}

/// Returns the position of the value of the next option with a secret name, starting at `from`.
fn next_value(text: &str, from: usize) -> Option<usize> {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
    let mut at = from;
    while let Some(begin) = text[at..].find(is_name) {
        let begin = at + begin;
        let rest = &text[begin..];
        let end = begin + rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        at = end;
        if !is_secret_name(&text[begin..end]) {
            continue;
        }
        // A name in quotes, as in JSON.
        let behind = text[end..].strip_prefix(['"', '\'']).unwrap_or(&text[end..]);
        let value = behind.trim_start();
        let value = match value.strip_prefix(['=', ':']) {
            Some(value) => value.trim_start(),
            // Another option follows: this one has no value.
            None if text[begin..].starts_with('-')
                && value.len() < behind.len()
                && !value.starts_with('-') =>
            {
                value
            }
            None => continue,
        };
        return Some(text.len() - value.len());
    }
    None
}

fn value_end(text: &str, from: usize) -> usize {
    let value = &text[from..];
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
    let len = match quote {
        Some(quote) => value[1..].find(quote).map(|len| len + 2),
        None => value.find(char::is_whitespace),
    };
    from + len.unwrap_or(value.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        assert_eq!(COMPILED.len(), PATTERNS.len());
    }

    #[test]
    fn secret_names_are_recognized() {
        for name in [
            "javax.net.ssl.keyStorePassword",
            "-Ddb.passwd",
            "DB_PASS",
            "db.pwd",
            "-storepass",
            "GITHUB_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "aws.accessKeyId",
            "apiKey",
            "api-key",
            "API_KEY",
            "stripe.key",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "sasl.jaas.config",
            "proxy-authorization",
            "npm_config__auth",
            &format!("{}.password", "é".repeat(1000)),
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "java.version",
            "java.home",
            "sun.java.command",
            "javax.net.ssl.keyStore",
            "keystore.type",
            "PWD",
            "OLDPWD",
            "SSH_AUTH_SOCK",
            "XAUTHORITY",
            "java.class.path",
            "bypass",
            "user.name",
            "key",
            "jdk.tls.keyLimits",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn secrets_in_command_lines_are_redacted() {
        for (text, clean) in [
            ("-Xmx1g -Ddb.password=s3cr,et;x -cp a.jar", "-Xmx1g -Ddb.password=[redacted] -cp a.jar"),
            ("app --token abc --verbose", "app --token [redacted] --verbose"),
            ("app --password=\"a b\" run", "app --password=[redacted] run"),
            ("app --password='a b", "app --password=[redacted]"),
            ("jdbc:pg://h/db?user=a&password=b more", "jdbc:pg://h/db?user=a&password=[redacted] more"),
            ("postgres://bob:hunter2@db/x", "postgres://bob:[redacted]@db/x"),
            ("redis://:pa@ss@h:6379", "redis://:[redacted]@h:6379"),
            ("-H Authorization: Bearer abcdefgh12", "-H Authorization: [redacted] [redacted]"),
            ("curl -H x:Bearer abcdefgh12", "curl -H x:Bearer [redacted]"),
            ("run AKIAIOSFODNN7EXAMPLE now", "run [redacted] now"),
            ("j eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2ln x", "j [redacted] x"),
            ("k ghp_abcdefghijklmnopqrstuvwx012345", "k [redacted]"),
            (r#"{"password": "x y", "a": 1}"#, r#"{"password": [redacted], "a": 1}"#),
            ("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nz", "[redacted]\nz"),
            ("-----BEGIN PRIVATE KEY-----MII", "[redacted]"),
            ("a token: b", "a token: [redacted]"),
            ("größe --geheim-token=ü", "größe --geheim-token=[redacted]"),
        ] {
            assert_eq!(secrets(None, text, MARK).as_deref(), Some(clean), "{text}");
        }
        for text in [
            "",
            "-Xmx128m -XX:+UseSerialGC -cp app.jar Main 1.5",
            "https://example.org:8080/a@b",
            "-agentlib:jdwp=transport=dt_socket,server=y",
            "17.0.15+6-Debian",
            "password",
            "app --password --verbose",
            "--password",
            "token=",
        ] {
            assert_eq!(secrets(None, text, MARK), None, "{text}");
        }
        assert_eq!(secrets(Some("DB_PASSWORD"), "x", "***").as_deref(), Some("***"));
        assert_eq!(secrets(Some("java.version"), "17", MARK), None);
    }
}
