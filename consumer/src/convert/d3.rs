//! The JSON hierarchy that d3-flame-graph reads: `{"name": …, "value": …, "children": […]}`.

use std::io::{self, Write};

use crate::error::Error;
use crate::tree::Tree;

/// Writes the tree under a root called `root`. `module` and `self` are written only if they are not
/// empty.
///
/// # Errors
/// `out` cannot be written.
pub fn write(tree: &Tree, out: &mut impl Write) -> Result<(), Error> {
    write_under("root", tree, out)
}

/// Like [`write()`], with the name of the root.
///
/// # Errors
/// `out` cannot be written.
pub fn write_under(root: &str, tree: &Tree, out: &mut impl Write) -> Result<(), Error> {
    nodes(root, tree, out).map_err(Error::Write)
}

fn nodes(root: &str, tree: &Tree, out: &mut impl Write) -> io::Result<()> {
    let (root, unit) = (quoted(root)?, quoted(&tree.unit)?);
    write!(out, r#"{{"name":{root},"value":{},"unit":{unit},"children":["#, tree.total)?;
    let names: Vec<String> = tree.labels.iter().map(|label| quoted(&label.text)).collect::<Result<_, _>>()?;
    // Boxes that are still open.
    let mut open = 0;
    let mut first = true;
    for node in &tree.nodes {
        while open > node.depth {
            out.write_all(b"]}")?;
            open -= 1;
            first = false;
        }
        if !std::mem::replace(&mut first, true) {
            out.write_all(b",")?;
        }
        write!(out, r#"{{"name":{},"value":{}"#, names[node.label.index()], node.total)?;
        if node.own > 0 {
            write!(out, r#","self":{}"#, node.own)?;
        }
        if let Some(module) = &tree.label(node).module {
            write!(out, r#","module":{}"#, quoted(module)?)?;
        }
        out.write_all(br#","children":["#)?;
        open = node.depth + 1;
    }
    for _ in 0..open {
        out.write_all(b"]}")?;
    }
    out.write_all(b"]}\n")
}

fn quoted(text: &str) -> io::Result<String> {
    Ok(serde_json::to_string(text)?)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::folded;

    #[test]
    fn tree_is_written_as_nested_nodes() {
        let json = |text: &str| -> Value {
            let mut out = Vec::new();
            write(&folded::read(text.as_bytes()).unwrap(), &mut out).unwrap();
            serde_json::from_slice(&out).unwrap()
        };
        let leaf =
            |name: &str, value: u64| json!({"name": name, "value": value, "self": value, "children": []});
        let b = json!({"name": "b\"", "value": 6, "children": [
            {"name": "c", "value": 6, "self": 2, "children": [leaf("d", 4)]}]});
        let want = json!({"name": "root", "value": 10, "unit": "samples", "children": [
            {"name": "a", "value": 9, "self": 1, "children": [b, leaf("e", 2)]}, leaf("f", 1)]});
        assert_eq!(json("a 1\na;b\";c 2\na;b\";c;d 4\na;e 2\nf 1\n"), want);
        assert_eq!(json("")["children"], json!([]));
    }
}
