//! Whether a program can be recorded.
use std::fmt;
/// x
#[derive(Debug)]
pub struct Refusal;
impl fmt::Display for Refusal {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}
