//! Cache of recent answers: the page first requests the diagnostics of a graph and then the graph.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::Answer;
use super::query::Query;

/// Maximum number of cached answers.
const MOST: usize = 16;
/// Maximum size of all cached answers, in bytes.
const MOST_BYTES: usize = 64 << 20;
/// Maximum age of a cached answer; the store keeps growing.
const AGE: Duration = Duration::from_secs(60);

/// Oldest first.
#[derive(Debug, Default)]
pub struct AnswerCache(VecDeque<(Query, Instant, Answer)>);

impl AnswerCache {
    /// Returns the cached answer.
    pub fn find(&mut self, query: &Query) -> Option<Answer> {
        self.0.retain(|(_, at, _)| at.elapsed() < AGE);
        self.0.iter().find(|(of, ..)| of == query).map(|(.., answer)| answer.clone())
    }

    /// Caches an answer and evicts old ones above the limits.
    pub fn keep(&mut self, query: Query, answer: Answer) {
        self.0.retain(|(of, ..)| *of != query);
        self.0.push_back((query, Instant::now(), answer));
        let bytes = |cache: &Self| cache.0.iter().map(|(.., answer)| answer.body.len()).sum::<usize>();
        while self.0.len() > MOST || bytes(self) > MOST_BYTES {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::filter::Filter;
    use super::super::query::Weighing;
    use super::*;

    fn query(limit: u32) -> Query {
        Query::Top { filter: Filter::default(), weighing: Weighing::default(), limit, inclusive: false }
    }

    #[tokio::test(start_paused = true)]
    async fn cache_is_limited_by_number_size_and_age() {
        let mut cache = AnswerCache::default();
        let answer = |bytes: usize| Answer { body: Bytes::from(vec![0; bytes]), diagnostics: [].into() };
        for limit in 0..40 {
            cache.keep(query(limit), answer(1));
        }
        assert!(cache.find(&query(23)).is_none() && cache.find(&query(24)).is_some());
        for limit in 0..3 {
            cache.keep(query(limit), answer(30 << 20));
        }
        assert!(cache.find(&query(0)).is_none() && cache.find(&query(1)).is_some());
        tokio::time::advance(AGE).await;
        assert!(cache.find(&query(1)).is_none() && cache.0.is_empty());
    }
}
