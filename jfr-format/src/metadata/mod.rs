//! The metadata event: a string table and a tree of elements that declares all types of a chunk.
//!
//! ```text
//! size  type 0  start  duration  metadata id  count strings  element
//! element = name  count (key value)  count element          all varints into the string table
//! ```

mod declared;
mod describe;
mod element;

pub use declared::Declared;
pub use element::Element;

use crate::constants::METADATA_EVENT;
use crate::varint;

fn encode(root: &Element) -> Vec<u8> {
    let content = root.encode();
    let mut body = Vec::with_capacity(content.len() + 32);
    varint::put(&mut body, u64::from(METADATA_EVENT.0));
    varint::put(&mut body, 0); // start: no reader looks
    varint::put(&mut body, 0); // duration
    varint::put(&mut body, u64::from(id(&content)));
    body.extend_from_slice(&content);
    let mut event = Vec::with_capacity(body.len() + 4);
    let size = u32::try_from(body.len() + 4).ok().and_then(varint::padded);
    event.extend_from_slice(&size.expect("the schema is a constant of some kilobytes"));
    event.extend_from_slice(&body);
    event
}

/// FNV-1a of the content, in 2^30 .. 2^31: JDKs count their ids up from 1.
fn id(content: &[u8]) -> u32 {
    let hash = content
        .iter()
        .fold(0x811c_9dc5_u32, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash >> 2) | 1 << 30
}

/// Returns true if bytes that cannot be read as metadata are a filler: an event of type 0 that begins with
/// eight zeros, or has no other bytes. The rest may contain data that a file's writer has begun to store
/// there.
pub(crate) fn is_filler(payload: &[u8]) -> bool {
    payload.iter().take(8).all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_event_size_matches_its_bytes() {
        let all = Declared::all();
        let event = all.event();
        let mut at = 0;
        assert_eq!(varint::get(event, &mut at), Ok(event.len() as u64));
        assert_eq!(at, 4);
        assert_eq!(event[4], 0);
    }

    #[test]
    fn metadata_id_depends_on_content() {
        let other = Element::new("root").child(Element::new("metadata"));
        assert_ne!(encode(&other)[..12], Declared::all().event()[..12]);
        for content in [&[][..], &[0], &[1], &[0; 1000]] {
            assert!((1 << 30..1 << 31).contains(&id(content)));
        }
        assert_ne!(id(&[0]), id(&[1]));
    }
}
