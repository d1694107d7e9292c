//! The bytes that are at hand.

use bytes::{Bytes, BytesMut};

#[derive(Debug)]
pub(super) enum Buffer {
    Whole(Bytes),
    Growing(BytesMut),
}

impl Buffer {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Growing(bytes) => bytes,
        }
    }

    pub(super) fn take(&mut self, len: usize) -> Bytes {
        match self {
            Self::Whole(bytes) => bytes.split_to(len),
            Self::Growing(bytes) => bytes.split_to(len).freeze(),
        }
    }

    pub(super) fn push(&mut self, more: Bytes) {
        match self {
            Self::Growing(bytes) => bytes.extend_from_slice(&more),
            Self::Whole(bytes) if bytes.is_empty() => *bytes = more,
            Self::Whole(bytes) => {
                let mut grown = BytesMut::with_capacity(bytes.len() + more.len());
                grown.extend_from_slice(bytes);
                grown.extend_from_slice(&more);
                *self = Self::Growing(grown);
            }
        }
    }
}
