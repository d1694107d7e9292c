//! Source files: where they are on this machine.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Files above this size are not source code.
const MOST_BYTES: u64 = 64 << 20;
/// File extensions of languages that compile to Java classes.
const JAVA: [&str; 4] = ["java", "kt", "scala", "groovy"];

/// A source file.
pub(super) struct Source {
    pub(super) path: PathBuf,
    text: String,
    /// Byte offsets of lines in `text`.
    starts: Vec<usize>,
}

impl Source {
    /// Reads a file of the debug information: below one of `dirs` with as many of the last parts of its path
    /// as fit, else at the path itself. `None` if there is no such file, or it is larger than 64 MB.
    pub(super) fn find(path: &Path, dirs: &[PathBuf]) -> Option<Source> {
        below(path, dirs)
            .into_iter()
            .chain([path.to_owned()].into_iter().filter(|path| path.is_absolute()))
            .find_map(read)
    }

    /// Reads the source file of a Java class below one of `dirs`, by package and outermost class.
    pub(super) fn find_class(class: &str, dirs: &[PathBuf]) -> Option<Source> {
        let (package, name) = class.rsplit_once('.').unwrap_or(("", class));
        // A name may begin with a dollar.
        let end = name
            .char_indices()
            .skip(1)
            .find(|(_, c)| matches!(c, '$' | '/'))
            .map_or(name.len(), |(at, _)| at);
        let name = &name[..end];
        // Kotlin puts functions outside of classes into a class of the file.
        let of_file = name.strip_suffix("Kt").filter(|name| !name.is_empty());
        let names =
            JAVA.iter().map(|end| format!("{name}.{end}")).chain(of_file.map(|name| format!("{name}.kt")));
        let folder = package.replace('.', "/");
        names
            .into_iter()
            .find_map(|name| below(&Path::new(&folder).join(name), dirs).into_iter().find_map(read))
    }

    /// The text of a line, counted from 1; tabs and control characters are blanks.
    pub(super) fn line(&self, number: u32) -> Option<String> {
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        let start = *self.starts.get(at)?;
        let end = self.starts.get(at + 1).map_or(self.text.len(), |next| next - 1);
        let line = self.text.get(start..end)?.replace('\t', "    ");
        let line = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
        Some(line.trim_end().to_owned())
    }

    /// Number of lines.
    pub(super) fn lines(&self) -> u32 {
        u32::try_from(self.starts.len()).unwrap_or(u32::MAX)
    }
}

/// Places for the last parts of a path below directories, those with the most parts first.
fn below(path: &Path, dirs: &[PathBuf]) -> Vec<PathBuf> {
    let names = |part| if let Component::Normal(name) = part { Some(name) } else { None };
    let parts: Vec<_> = path.components().filter_map(names).collect();
    let suffixes = (0..parts.len()).map(|from| parts[from..].iter().collect::<PathBuf>());
    suffixes.flat_map(|suffix| dirs.iter().map(move |dir| dir.join(&suffix)).collect::<Vec<_>>()).collect()
}

fn read(path: PathBuf) -> Option<Source> {
    // A pipe or a device would not end.
    let meta = fs::metadata(&path).ok()?;
    if !meta.is_file() || meta.len() > MOST_BYTES {
        return None;
    }
    let text = String::from_utf8_lossy(&fs::read(&path).ok()?).into_owned();
    let mut starts: Vec<usize> = vec![0];
    starts.extend(text.match_indices('\n').map(|(at, _)| at + 1));
    if starts.last() == Some(&text.len()) {
        starts.pop();
    }
    Some(Source { path, text, starts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_files_are_found_by_path_suffix() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("lib/util")).unwrap();
        fs::write(dir.path().join("lib/util/a.c"), "one\n\ttwo\u{1b}[2J\r\nthree").unwrap();
        fs::write(dir.path().join("a.c"), "other\n").unwrap();
        let dirs = [dir.path().to_owned()];
        let found = Source::find(Path::new("/build/../lib/util/a.c"), &dirs).unwrap();
        assert_eq!(found.path, dir.path().join("lib/util/a.c"));
        assert_eq!(found.lines(), 3);
        let lines: Vec<_> = (0..5).map(|at| found.line(at)).collect();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(lines, [None, text("one"), text("    two [2J"), text("three"), None]);
        // The paths of hostile debug information do not lead out of the directory.
        let found = Source::find(Path::new("../../a.c"), &[dir.path().join("lib")]);
        assert!(found.is_none());
        assert_eq!(Source::find(Path::new("/x/a.c"), &dirs).unwrap().line(1), text("other"));
        assert!(Source::find(Path::new("/dev/zero"), &[]).is_none());
    }

    #[test]
    fn classes_are_found_by_package_and_outermost_class() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("org/x")).unwrap();
        for name in ["Bar.java", "$Odd.java", "Main.kt"] {
            fs::write(dir.path().join("org/x").join(name), name).unwrap();
        }
        let dirs = [dir.path().to_owned()];
        for (class, file) in [
            ("org.x.Bar", Some("Bar.java")),
            ("org.x.Bar$Inner$1", Some("Bar.java")),
            ("org.x.Bar$$Lambda/0x0000", Some("Bar.java")),
            ("org.x.$Odd", Some("$Odd.java")),
            ("org.x.MainKt", Some("Main.kt")),
            ("org.y.Other", None),
            ("", None),
        ] {
            let found = Source::find_class(class, &dirs).map(|source| source.path);
            assert_eq!(found, file.map(|file| dir.path().join("org/x").join(file)), "{class}");
        }
    }
}
