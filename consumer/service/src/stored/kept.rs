//! Cache of recent answers: the page first requests the diagnostics of a graph and then the graph.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::Answer;
use super::question::Question;

/// Maximum number of cached answers.
const MOST: usize = 16;
/// Maximum size of all cached answers, in bytes.
const MOST_BYTES: usize = 64 << 20;
/// Maximum age of a cached answer; the store keeps growing.
const AGE: Duration = Duration::from_secs(60);

/// Oldest first.
#[derive(Debug, Default)]
pub struct Kept(VecDeque<(Question, Instant, Answer)>);

impl Kept {
    /// Returns the cached answer.
    pub fn find(&mut self, question: &Question) -> Option<Answer> {
        self.0.retain(|(_, at, _)| at.elapsed() < AGE);
        self.0.iter().find(|(of, ..)| of == question).map(|(.., answer)| answer.clone())
    }

    /// Caches an answer and evicts old ones above the limits.
    pub fn keep(&mut self, question: Question, answer: Answer) {
        self.0.retain(|(of, ..)| *of != question);
        self.0.push_back((question, Instant::now(), answer));
        let bytes = |kept: &Self| kept.0.iter().map(|(.., answer)| answer.body.len()).sum::<usize>();
        while self.0.len() > MOST || bytes(self) > MOST_BYTES {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::choice::Choice;
    use super::super::question::Weighing;
    use super::*;

    fn question(limit: u32) -> Question {
        Question::Top { choice: Choice::default(), weighing: Weighing::default(), limit, inclusive: false }
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_are_kept_and_only_for_a_while() {
        let mut kept = Kept::default();
        let answer = |bytes: usize| Answer { body: Bytes::from(vec![0; bytes]), told: [].into() };
        for limit in 0..40 {
            kept.keep(question(limit), answer(1));
        }
        assert!(kept.find(&question(23)).is_none() && kept.find(&question(24)).is_some());
        for limit in 0..3 {
            kept.keep(question(limit), answer(30 << 20));
        }
        assert!(kept.find(&question(0)).is_none() && kept.find(&question(1)).is_some());
        tokio::time::advance(AGE).await;
        assert!(kept.find(&question(1)).is_none() && kept.0.is_empty());
    }
}
