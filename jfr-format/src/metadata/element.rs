//! An element of the metadata tree.

use crate::{strings, varint};
use std::borrow::Cow;
use std::collections::HashMap;

/// An element: name, attributes, children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Name.
    pub name: Cow<'static, str>,
    /// Attributes in their order.
    pub attributes: Vec<(Cow<'static, str>, Cow<'static, str>)>,
    /// Children in their order.
    pub children: Vec<Element>,
}

impl Element {
    /// An element without attributes and children.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Element {
        Element { name: name.into(), attributes: Vec::new(), children: Vec::new() }
    }

    /// Adds an attribute.
    pub fn attribute(
        mut self,
        key: impl Into<Cow<'static, str>>,
        value: impl Into<Cow<'static, str>>,
    ) -> Element {
        self.attributes.push((key.into(), value.into()));
        self
    }

    /// Adds a child.
    pub fn child(mut self, child: Element) -> Element {
        self.children.push(child);
        self
    }

    /// Adds children.
    pub fn children(mut self, children: impl IntoIterator<Item = Element>) -> Element {
        self.children.extend(children);
        self
    }

    /// The string table and the tree.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut strings = Strings::default();
        let mut tree = Vec::new();
        self.put(&mut strings, &mut tree);
        let mut out = Vec::new();
        varint::put(&mut out, strings.in_order.len() as u64);
        for string in strings.in_order {
            strings::put(&mut out, string);
        }
        out.extend_from_slice(&tree);
        out
    }

    fn put<'a>(&'a self, strings: &mut Strings<'a>, out: &mut Vec<u8>) {
        varint::put(out, strings.index(&self.name));
        varint::put(out, self.attributes.len() as u64);
        for (key, value) in &self.attributes {
            varint::put(out, strings.index(key));
            varint::put(out, strings.index(value));
        }
        varint::put(out, self.children.len() as u64);
        for child in &self.children {
            child.put(strings, out);
        }
    }
}

#[derive(Default)]
struct Strings<'a> {
    in_order: Vec<&'a str>,
    index: HashMap<&'a str, u64>,
}

impl<'a> Strings<'a> {
    fn index(&mut self, string: &'a str) -> u64 {
        *self.index.entry(string).or_insert_with(|| {
            self.in_order.push(string);
            self.in_order.len() as u64 - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_shared_and_indexed_by_first_use() {
        let root = Element::new("root").attribute("a", "root").child(Element::new("a"));
        assert_eq!(
            root.encode(),
            [
                2, 3, 4, b'r', b'o', b'o', b't', 3, 1, b'a', // strings
                0, 1, 1, 0, 1, // root a="root", one child
                1, 0, 0, // a
            ]
        );
    }
}
