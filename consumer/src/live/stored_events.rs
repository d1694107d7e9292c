//! Converts stored events to items at the end of their chunk, when all constants are known.

use jfr_format::read::{Chunk, Frame};

use super::feed::State;
use super::item::Item;
use super::plan::{ItemFilter, Plan, Plans};
use super::{Options, events};
use crate::decode::StashedEvent;

/// Converts the duration events of one recording, chunk by chunk.
#[derive(Debug)]
pub(crate) struct StoredEvents {
    state: State,
    plans: Plans,
    chunks: u32,
}

impl StoredEvents {
    pub(crate) fn new() -> Self {
        // No sample has this name: samples are selected because they last.
        let wanted = ItemFilter {
            samples: vec![String::new()],
            no_others: true,
            lasting: true,
            ..ItemFilter::default()
        };
        Self { state: State::new(wanted, Options::default().periods), plans: Plans::default(), chunks: 0 }
    }

    /// Starts a chunk.
    pub(crate) fn begin(&mut self, chunk: &Chunk) -> Item {
        self.plans.clear();
        self.state.cache.begin(chunk);
        self.state.clock.begin(chunk);
        let item = events::chunk_start(&self.state, chunk, self.chunks);
        self.chunks = self.chunks.saturating_add(1);
        item
    }

    /// Converts an event; `shortest` returns the duration in ns of a type below which only the time of an
    /// event is needed. Malformed events were reported when they were stored.
    pub(crate) fn item(
        &mut self,
        chunk: &Chunk,
        event: &StashedEvent,
        shortest: impl Fn(&str) -> u64,
    ) -> Option<Item> {
        let frame = Frame::from_payload(event.type_id, &event.payload, event.offset);
        match self.plans.get(chunk, event.type_id, &self.state.wanted) {
            Plan::Sample(plan) => {
                self.state.shortest = shortest(&plan.event);
                events::sample(&mut self.state, chunk, &frame, plan).ok()?
            }
            Plan::Other(contextual) => {
                events::other(&mut self.state, chunk, &frame, contextual.clone()).ok()?
            }
            _ => None,
        }
    }
}
