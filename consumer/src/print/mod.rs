//! Events as text or JSON, in the manner of the JDK's `jfr print`.

pub mod clock;
mod json;
mod pattern;
mod quantity;
mod text;

pub use json::JsonPrinter;
pub use pattern::Patterns;
pub use text::TextPrinter;

use jfr_format::event::{StructRef, Value};
use jfr_format::read::Field;

/// What to print.
#[derive(Clone, Debug)]
pub struct PrintOptions {
    /// Which event types.
    pub events: Patterns,
    /// Most frames of a stack.
    pub stack_depth: usize,
}

/// References followed below an event before the rest is cut: real ones need fewer than ten.
const MAX_DEPTH: usize = 24;
/// Values of one event before the rest is cut: references can make a small file describe an endless tree.
const MAX_VALUES: usize = 1 << 16;

/// Bounds the expansion of one event.
#[derive(Debug, Default)]
struct Budget {
    values: usize,
    path: Vec<(u64, u64)>,
}

impl Budget {
    fn start(&mut self) {
        self.values = MAX_VALUES;
        self.path.clear();
    }

    fn spend(&mut self) -> bool {
        self.values = self.values.saturating_sub(1);
        self.values > 0
    }

    /// Follows a reference; `None` where it leads in a circle, too deep, or nowhere.
    fn follow<'a>(&mut self, value: Value<'a>) -> Followed<'a> {
        let mut value = value;
        let mut steps = 0;
        loop {
            match value {
                Value::Reference(reference) => {
                    let Some(class) = reference.class() else { return Followed::null(steps) };
                    let here = (class.id, reference.key());
                    if self.path.len() >= MAX_DEPTH || self.path.contains(&here) {
                        return Followed::null(steps);
                    }
                    match reference.resolve() {
                        Ok(Some(next)) => {
                            self.path.push(here);
                            steps += 1;
                            value = next;
                        }
                        // A damaged constant is as good as none; the decoder has told of the damage.
                        Ok(None) | Err(_) => return Followed::null(steps),
                    }
                }
                Value::Struct(fields) if fields.class().simple && fields.class().fields.len() == 1 => {
                    value = match fields.iter().next() {
                        Some(Ok((_, inner))) => inner,
                        _ => return Followed::null(steps),
                    };
                }
                value => return Followed { value, steps },
            }
        }
    }

    fn back(&mut self, steps: usize) {
        self.path.truncate(self.path.len() - steps);
    }
}

struct Followed<'a> {
    value: Value<'a>,
    steps: usize,
}

impl Followed<'_> {
    fn null(steps: usize) -> Self {
        Self { value: Value::Null, steps }
    }
}

/// Text of a field of a struct, references followed.
fn text_of(of: &StructRef<'_>, field: &str) -> Option<String> {
    of.field(field).ok()??.text().ok()?.map(|text| text.into_owned())
}

fn record_of<'a>(of: &StructRef<'a>, field: &str) -> Option<StructRef<'a>> {
    of.field(field).ok()??.record().ok()?
}

fn number_of(of: &StructRef<'_>, field: &str) -> Option<i64> {
    of.field(field).ok()??.as_i64()
}

fn is_stack(field: &Field) -> bool {
    &*field.name == "stackTrace"
}
