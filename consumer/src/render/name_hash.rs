//! The hash by which names get colours. The page's script has the same.

/// Returns the FNV-1a hash of the units of a name.
pub(super) fn fnv1a(units: impl Iterator<Item = u32>) -> u32 {
    units.fold(0x811c_9dc5, |hash, unit| (hash ^ unit).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_has_published_values() {
        let hash = |text: &str| fnv1a(text.bytes().map(u32::from));
        assert_eq!([hash(""), hash("a"), hash("foobar")], [0x811c_9dc5, 0xe40c_292c, 0xbf9c_f968]);
    }
}
