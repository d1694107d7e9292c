//! The examples work on a recording whose contents are known from the JDK's reader.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

#[path = "../examples/hot_methods.rs"]
mod hot_methods;

#[test]
fn hot_methods_match_the_jdk() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    for name in ["jdk17", "jdk25-multichunk", "ap-java-cpu"] {
        let lines = fs::read_to_string(fixtures.join(format!("expected/{name}.samples.txt"))).unwrap();
        let mut expected: HashMap<String, u64> = HashMap::new();
        // count, thread, id, state, frames with the leaf first
        for line in lines.lines().filter(|line| !line.starts_with('#')) {
            let cells: Vec<&str> = line.split('\t').collect();
            let leaf = cells[4].split(';').next().unwrap();
            *expected.entry(leaf.to_owned()).or_default() += cells[0].parse::<u64>().unwrap();
        }
        let ours = hot_methods::hot_methods(&fixtures.join(format!("recordings/{name}.jfr"))).unwrap();
        // Native frames have no class, which the expected lines leave out.
        let ours: HashMap<String, u64> =
            ours.into_iter().map(|(method, n)| (method.trim_start_matches('.').to_owned(), n)).collect();
        assert!(expected.len() > 3, "{name}");
        assert_eq!(ours, expected, "{name}");
    }
}
