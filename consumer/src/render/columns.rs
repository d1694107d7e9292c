//! Encodes the boxes of a tree as byte columns that compress well, for the page of a flame graph.
//!
//! The columns, in this order, for n boxes in tree order and m names:
//! 1. m bytes: for each name, the bit length of the number of its boxes. Names with more boxes have
//!    smaller numbers, equally frequent ones in order of name, so the upper bytes of numbers are mostly
//!    small.
//! 2. n bytes: twice the number of levels between the box before and the parent of this one, at most
//!    [`DEEP`], plus 1 if stacks end in the box.
//! 3. n bytes each, from the most significant one on: the bytes of the boxes' name numbers, as many as
//!    the largest number needs.
//! 4. Varints: levels minus [`DEEP`] of the boxes with at least that many.
//! 5. Varints: for each measure, the own weights of the boxes in which stacks end.

use jfr_format::varint;

use super::html::EXACT;
use crate::tree::Tree;

/// The largest number of levels that fits into a byte with the lowest bit reserved.
const DEEP: u32 = 127;

/// Encodes trees with the same boxes. `names` is the number of names; `name` returns the rank of a
/// label's name.
pub(super) fn encode(measures: &[&Tree], names: usize, name: impl Fn(usize) -> usize) -> Vec<u8> {
    let Some(first) = measures.first() else { return Vec::new() };
    let mut often = vec![0u32; names];
    first.nodes.iter().for_each(|node| often[name(node.label.index())] += 1);
    let numbers = by_frequency(&often);
    let ends = |at: usize| measures.iter().any(|tree| tree.nodes[at].own > 0);
    let mut bytes = Vec::with_capacity(names + first.nodes.len() * 4);
    bytes.extend(often.iter().map(|&often| bits(often)));
    let mut deep = Vec::new();
    let mut expected = 0;
    for (at, node) in first.nodes.iter().enumerate() {
        let down = expected - node.depth;
        if down >= DEEP {
            varint::put(&mut deep, u64::from(down - DEEP));
        }
        bytes.push((down.min(DEEP) << 1) as u8 | u8::from(ends(at)));
        expected = node.depth + 1;
    }
    for plane in (0..planes(names)).rev() {
        let part = |label: usize| (numbers[name(label)] >> (8 * plane)) as u8;
        bytes.extend(first.nodes.iter().map(|node| part(node.label.index())));
    }
    bytes.append(&mut deep);
    for tree in measures {
        let own = tree.nodes.iter().enumerate().filter(|&(at, _)| ends(at)).map(|(_, node)| node.own);
        own.for_each(|own| varint::put(&mut bytes, own.min(EXACT)));
    }
    bytes
}

/// Returns the number of each name.
fn by_frequency(often: &[u32]) -> Vec<u32> {
    let mut order: Vec<usize> = (0..often.len()).collect();
    order.sort_by_key(|&name| std::cmp::Reverse(bits(often[name])));
    let mut numbers = vec![0; often.len()];
    order.into_iter().zip(0..).for_each(|(name, number)| numbers[name] = number);
    numbers
}

fn bits(often: u32) -> u8 {
    (32 - often.leading_zeros()) as u8
}

/// Returns the number of bytes that the largest number needs.
fn planes(names: usize) -> u32 {
    let last = names.saturating_sub(1) as u64;
    (64 - last.leading_zeros()).div_ceil(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_encode_nodes_in_tree_order() {
        // Boxes m, a, c, b, z; names a, b, c, m, z.
        let tree = crate::folded::read("m;b 3\nm;a;c 200\nz 1".as_bytes()).unwrap();
        let names = ["a", "b", "c", "m", "z"];
        let name = |label: usize| names.iter().position(|&name| *name == *tree.labels[label].text).unwrap();
        // Bit lengths of counts; levels 0, 0, 0, 2, 2; name numbers; own weights.
        let expected = [1, 1, 1, 1, 1, 0, 0, 1, 5, 5, 3, 0, 2, 1, 4, 0xc8, 1, 3, 1];
        assert_eq!(encode(&[&tree], names.len(), name), expected);
        let mut twice = tree.clone();
        twice.nodes.iter_mut().for_each(|node| node.own *= 2);
        assert_eq!(encode(&[&tree, &twice], names.len(), name)[19..], [0x90, 3, 6, 2]);
    }

    #[test]
    fn frequent_names_have_small_numbers() {
        assert_eq!(by_frequency(&[1, 2, 3, 9, 8, 1]), [4, 2, 3, 0, 1, 5]);
        assert_eq!([0, 1, 2, 256, 257, 65536, 65537].map(planes), [0, 0, 1, 1, 2, 2, 3]);
    }

    #[test]
    fn large_depth_decreases_are_encoded() {
        let high = vec!["f"; 400].join(";");
        let tree = crate::folded::read(format!("{high} 1\nf;g 2").as_bytes()).unwrap();
        let name = |label: usize| usize::from(&*tree.labels[label].text == "g");
        let columns = encode(&[&tree], 2, name);
        let boxes = tree.nodes.len();
        assert_eq!(boxes, 401);
        assert_eq!(columns[2 + 400], 255);
        // 399 levels, 127 of them in the byte.
        assert_eq!(columns[2 + 2 * boxes..], [0x90, 2, 1, 2]);
    }
}
