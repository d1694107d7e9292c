//! The event types that a chunk declares.

use super::{describe, encode};
use crate::ids::TypeId;
use crate::schema::{self, IDS, Kind, OwnType};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

type TypeSet = [bool; IDS];

/// Some event types of the [schema], and every type and annotation that their declaration needs. A chunk
/// declares all its types at its start, each in about a hundred bytes.
#[derive(Debug, Clone)]
pub struct Declared {
    has: [bool; IDS],
    /// Types of the caller's own; the id of the first is [`IDS`].
    own: Arc<[Arc<OwnType>]>,
    event: Arc<[u8]>,
}

impl Declared {
    /// Declares the whole schema.
    pub fn all() -> Declared {
        Declared::closed(schema::types().map(|ty| ty.id))
    }

    /// Declares these event types. Types that the constants of every chunk need are also declared, and types
    /// that readers require even if they are not used: all primitive types, threads and stacks
    /// (grafana/jfr-parser reads no event without them).
    pub fn new(events: impl IntoIterator<Item = TypeId>) -> Declared {
        Declared::closed(Declared::with_required(events))
    }

    /// Declares the event types `own` in addition to those of [`Declared::new`].
    pub(crate) fn with_own(own: &[Arc<OwnType>], events: impl IntoIterator<Item = TypeId>) -> Declared {
        Declared::encoded(Declared::with_required(events), own)
    }

    fn with_required(events: impl IntoIterator<Item = TypeId>) -> impl Iterator<Item = TypeId> {
        let primitives = schema::types().filter(|ty| ty.kind == Kind::Primitive).map(|ty| ty.id);
        let always = [schema::FRAME_TYPE, schema::THREAD_STATE, schema::THREAD, schema::STACK_TRACE];
        events.into_iter().chain(always).chain(primitives)
    }

    /// A recorder of many processes declares the same types for each, so the last few sets are cached.
    fn closed(types: impl Iterator<Item = TypeId>) -> Declared {
        static CACHE: Mutex<VecDeque<(TypeSet, Declared)>> = Mutex::new(VecDeque::new());
        const MOST: usize = 4;
        let mut wanted = [false; IDS];
        for id in types {
            if let Some(mark) = wanted.get_mut(id.0 as usize) {
                *mark = true;
            }
        }
        let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, declared)) = cache.iter().find(|(of, _)| *of == wanted) {
            return declared.clone();
        }
        let declared = Declared::encoded((0..IDS as u32).map(TypeId).filter(|id| wanted[id.0 as usize]), &[]);
        cache.truncate(MOST - 1);
        cache.push_front((wanted, declared.clone()));
        declared
    }

    fn encoded(types: impl Iterator<Item = TypeId>, own: &[Arc<OwnType>]) -> Declared {
        let mut has = [false; IDS];
        let mut open: Vec<TypeId> = types.collect();
        open.extend(own.iter().flat_map(|own| describe::needs(&own.ty, &own.fields)));
        while let Some(id) = open.pop() {
            let (Some(ty), Some(mark)) = (schema::get(id), has.get_mut(id.0 as usize)) else { continue };
            if !std::mem::replace(mark, true) {
                open.extend(describe::needs(ty, ty.fields));
            }
        }
        let types = schema::types().filter(|ty| has[ty.id.0 as usize]);
        Declared { has, own: own.into(), event: encode(&describe::root(types, own)).into() }
    }

    /// Returns true if events or constants of this type may be written.
    #[inline]
    pub fn has(&self, id: TypeId) -> bool {
        let own = || (id.0 as usize - IDS) < self.own.len();
        self.has.get(id.0 as usize).copied().unwrap_or_else(own)
    }

    /// Returns true if the chunk declares this very type, not just one with the same id.
    #[inline]
    pub(crate) fn has_own(&self, own: &Arc<OwnType>) -> bool {
        let index = (own.ty.id.0 as usize).wrapping_sub(IDS);
        self.own.get(index).is_some_and(|declared| Arc::ptr_eq(declared, own))
    }

    /// Returns the encoded metadata event.
    ///
    /// Its id is a hash of its content: if the ids are equal, the JDK uses the previous chunk's types.
    pub fn event(&self) -> &[u8] {
        &self.event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_declared_with_their_dependencies() {
        for event in schema::types().filter(|ty| ty.kind == Kind::Event) {
            let declared = Declared::new([event.id]);
            assert!(declared.has(event.id));
            for ty in schema::types().filter(|ty| declared.has(ty.id)) {
                for field in ty.fields {
                    assert!(declared.has(field.ty), "{}: {}.{}", event.name, ty.name, field.name);
                }
            }
            assert!(declared.event().len() < Declared::all().event().len());
        }
    }

    #[test]
    fn different_event_types_have_different_metadata_ids() {
        let ids: Vec<Vec<u8>> = [&[][..], &[schema::NOTICE], &[schema::NOTICE, schema::FILE_READ]]
            .iter()
            .map(|events| Declared::new(events.iter().copied()).event()[7..12].to_vec())
            .collect();
        assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
    }
}
