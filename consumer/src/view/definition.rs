//! What a view is made of: one declaration each, no code.
//!
//! ```text
//! view("hot-methods", APPLICATION, "Methods on CPU", &["jdk.ExecutionSample"], &[
//!     key("Method", "stackTrace.top"),            rows are grouped by the key columns
//!     count("Samples"),                           the others are added up per row
//!     count("Percent").share(),
//! ]).by(1).top(25)
//! ```
//! A view without key columns is a list (each event a row) if its columns are [`Take::Each`], else a single row.
//!
//! A **path** names a value: `field.field…`, alternatives between `|` (the first whose first field the event type has). After
//! a stack: `.top` the topmost frame, `.app` the topmost frame of a class that is not the JDK's own, `.thrower` the topmost
//! frame that is no constructor, `.caller` the topmost frame that is no function of the allocator, `.site` the stack
//! without the frames of the lock's implementation at its top. After the id of an event type: `.@event` its label. Instead
//! of a field: `@label` and `@type` of the event, `@span` the time that its samples represent, `#1` a number.

/// Where a view is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// What the program did.
    Application,
    /// What the virtual machine did.
    Vm,
    /// Machine, operating system, recording.
    Environment,
    /// Recordings of native code: async-profiler's and our own.
    Native,
}

impl Category {
    /// All, in the order of listing.
    pub const ALL: [Self; 4] = [Self::Application, Self::Vm, Self::Environment, Self::Native];

    /// Headline.
    pub fn title(self) -> &'static str {
        match self {
            Self::Application => "Application",
            Self::Vm => "Java virtual machine",
            Self::Environment => "Environment",
            Self::Native => "Native",
        }
    }
}

/// How a column comes about from the events of its row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Take {
    /// Rows are grouped by it.
    Key,
    /// The value of the event that is the row.
    Each,
    /// Number of events, with a path: of those that have the value.
    Count,
    /// Sum.
    Sum,
    /// Smallest.
    Min,
    /// Largest.
    Max,
    /// Arithmetic mean.
    Mean,
    /// Quantile, 0 to 1: the value at rank (n + 1)·q, between two ranks interpolated (method 6 of Hyndman and Fan).
    Quantile(f64),
    /// Value of the earliest event.
    First,
    /// Value of the latest event.
    Last,
    /// Value of the latest event less that of the earliest.
    Spread,
    /// Number of different values.
    Distinct,
    /// Of allocations: those not freed, counted.
    LiveCount,
    /// Of allocations: those not freed, their bytes.
    LiveSum,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Headline.
    pub title: &'static str,
    /// How it comes about.
    pub take: Take,
    /// Of which value.
    pub path: &'static str,
    /// Shown as the part of the sum of all rows.
    pub share: bool,
    /// Event types it is taken from; empty: all of the view.
    pub of: &'static [&'static str],
    /// Only events that meet it count.
    pub when: Option<Condition>,
}

/// A condition on the value at a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// Path of the value.
    pub path: &'static str,
    /// The text that the value is compared with.
    pub text: &'static str,
    /// True if the value has to be the text, false if it must not be.
    pub equal: bool,
}

impl Column {
    const fn new(title: &'static str, take: Take, path: &'static str) -> Self {
        Self { title, take, path, share: false, of: &[], when: None }
    }

    /// Shown as the part of the sum of all rows.
    pub const fn share(mut self) -> Self {
        self.share = true;
        self
    }

    /// Taken from these event types only.
    pub const fn of(mut self, of: &'static [&'static str]) -> Self {
        self.of = of;
        self
    }

    /// Taken from events only in which the value at `path` is `text`.
    pub const fn when(mut self, path: &'static str, text: &'static str) -> Self {
        self.when = Some(Condition { path, text, equal: true });
        self
    }

    /// Taken from events only in which the value at `path` is not `text`. On a key column, the other events have no row.
    pub const fn unless(mut self, path: &'static str, text: &'static str) -> Self {
        self.when = Some(Condition { path, text, equal: false });
        self
    }
}

/// Which way rows are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Smallest first.
    Up(usize),
    /// Largest first.
    Down(usize),
}

/// A ready table.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// What it is called on the command line.
    pub name: &'static str,
    /// Where it is listed.
    pub category: Category,
    /// Headline.
    pub title: &'static str,
    /// Event types it is made from; `*` is all.
    pub events: &'static [&'static str],
    /// Event types it is made from if there are none of the others: taken together they would count things twice.
    pub instead: &'static [&'static str],
    /// Of this event type only those of the latest moment there are some: each time is a new count of the same things.
    pub latest: Option<&'static str>,
    /// Columns.
    pub columns: &'static [Column],
    /// Order of rows; none: lists as they happened, else by the keys.
    pub order: Option<Order>,
    /// Rows shown unless asked for more.
    pub limit: Option<usize>,
}

impl View {
    /// Made from these event types if there are none of the others.
    pub const fn or(mut self, instead: &'static [&'static str]) -> Self {
        self.instead = instead;
        self
    }

    /// Of the event type `name` only those of the latest moment.
    pub const fn latest(mut self, name: &'static str) -> Self {
        self.latest = Some(name);
        self
    }

    /// Largest of column `at` first.
    pub const fn by(mut self, at: usize) -> Self {
        self.order = Some(Order::Down(at));
        self
    }

    /// Smallest of column `at` first.
    pub const fn up(mut self, at: usize) -> Self {
        self.order = Some(Order::Up(at));
        self
    }

    /// So many rows.
    pub const fn top(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }
}

/// A view.
pub const fn view(
    name: &'static str,
    category: Category,
    title: &'static str,
    events: &'static [&'static str],
    columns: &'static [Column],
) -> View {
    View { name, category, title, events, instead: &[], latest: None, columns, order: None, limit: None }
}

macro_rules! columns {
    ($($(#[$doc:meta])* $name:ident $take:expr;)*) => {
        $($(#[$doc])* pub const fn $name(title: &'static str, path: &'static str) -> Column {
            Column::new(title, $take, path)
        })*
    };
}

columns! {
    /// Rows are grouped by it.
    key Take::Key;
    /// The value of each event.
    each Take::Each;
    /// Number of events that have the value.
    count_of Take::Count;
    /// Sum.
    sum Take::Sum;
    /// Smallest.
    min Take::Min;
    /// Largest.
    max Take::Max;
    /// Mean.
    mean Take::Mean;
    /// Half are smaller.
    median Take::Quantile(0.5);
    /// Nine of ten are smaller.
    p90 Take::Quantile(0.9);
    /// 95 of 100 are smaller.
    p95 Take::Quantile(0.95);
    /// 99 of 100 are smaller.
    p99 Take::Quantile(0.99);
    /// 999 of 1000 are smaller.
    p999 Take::Quantile(0.999);
    /// Of the earliest event.
    first Take::First;
    /// Of the latest event.
    last Take::Last;
    /// Value of the latest event less that of the earliest.
    spread Take::Spread;
    /// Number of different values.
    distinct Take::Distinct;
}

/// Number of events.
pub const fn count(title: &'static str) -> Column {
    Column::new(title, Take::Count, "")
}

/// Allocations not freed.
pub const fn live_count(title: &'static str) -> Column {
    Column::new(title, Take::LiveCount, "address")
}

/// Bytes allocated and not freed.
pub const fn live_sum(title: &'static str) -> Column {
    Column::new(title, Take::LiveSum, "size")
}
