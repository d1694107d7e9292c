//! Declarations of views.
//!
//! ```text
//! view("hot-methods", APPLICATION, "Methods on CPU", &["jdk.ExecutionSample"], &[
//!     key("Method", "stackTrace.top"),            rows are grouped by the key columns
//!     count("Samples"),                           the others are aggregated per row
//!     count("Percent").share(),
//! ]).by(1).top(25)
//! ```
//! A view without key columns is a list (each event a row) if its columns are [`Take::Each`], else a
//! single row.
//!
//! A **path** names a value: `field.field…`, alternatives between `|` (the first one whose first field
//! exists in the event type). After a stack: `.top` is the topmost frame, `.app` the topmost frame in a
//! class outside the JDK, `.thrower` the topmost frame that is not a constructor, `.caller` the topmost
//! frame that is not an allocator function, `.site` the stack without the topmost frames that implement a
//! lock. After the id of an event type: `.@event` is its label. Instead of a field: `@label` and `@type`
//! of the event, `@span` for the time that its samples represent, `#1` for a number.

/// Category of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// Application.
    Application,
    /// Java virtual machine.
    Vm,
    /// Machine, operating system, recording.
    Environment,
    /// Native code, in recordings of async-profiler and Flightline.
    Native,
}

impl Category {
    /// All categories, in the order of listing.
    pub const ALL: [Self; 4] = [Self::Application, Self::Vm, Self::Environment, Self::Native];

    /// The heading.
    pub fn title(self) -> &'static str {
        match self {
            Self::Application => "Application",
            Self::Vm => "Java virtual machine",
            Self::Environment => "Environment",
            Self::Native => "Native",
        }
    }
}

/// How a column is computed from the events of its row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Take {
    /// Rows are grouped by this column.
    Key,
    /// The value of the event; each event is a row.
    Each,
    /// Number of events; with a path, of those that have the value.
    Count,
    /// Sum.
    Sum,
    /// Minimum.
    Min,
    /// Maximum.
    Max,
    /// Arithmetic mean.
    Mean,
    /// Quantile, 0 to 1: the value at rank (n + 1)·q, interpolated between two ranks (method 6 of Hyndman
    /// and Fan).
    Quantile(f64),
    /// Value of the earliest event.
    First,
    /// Value of the latest event.
    Last,
    /// Difference between the values of the latest and the earliest event.
    Spread,
    /// Number of distinct values.
    Distinct,
    /// For allocations: number of live ones.
    LiveCount,
    /// For allocations: bytes of live ones.
    LiveSum,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Heading.
    pub title: &'static str,
    /// How it is computed.
    pub take: Take,
    /// Path of the value.
    pub path: &'static str,
    /// Shown as a share of the sum of all rows.
    pub share: bool,
    /// Event types to use; if empty, all types of the view.
    pub of: &'static [&'static str],
    /// Condition that events must meet.
    pub when: Option<Condition>,
}

/// A condition on the value at a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Condition {
    /// Path of the value.
    pub path: &'static str,
    /// The text to compare with.
    pub text: &'static str,
    /// True if the value must equal the text, false if it must differ.
    pub equal: bool,
}

impl Column {
    const fn new(title: &'static str, take: Take, path: &'static str) -> Self {
        Self { title, take, path, share: false, of: &[], when: None }
    }

    /// Shows the column as a share of the sum of all rows.
    pub const fn share(mut self) -> Self {
        self.share = true;
        self
    }

    /// Uses only these event types.
    pub const fn types(mut self, of: &'static [&'static str]) -> Self {
        self.of = of;
        self
    }

    /// Uses only events in which the value at `path` is `text`.
    pub const fn when(mut self, path: &'static str, text: &'static str) -> Self {
        self.when = Some(Condition { path, text, equal: true });
        self
    }

    /// Uses only events in which the value at `path` is not `text`. For a key column, the other events
    /// have no row.
    pub const fn unless(mut self, path: &'static str, text: &'static str) -> Self {
        self.when = Some(Condition { path, text, equal: false });
        self
    }
}

/// Sort order of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Ascending by a column.
    Up(usize),
    /// Descending by a column.
    Down(usize),
}

/// A predefined table.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Name on the command line.
    pub name: &'static str,
    /// Category.
    pub category: Category,
    /// Heading.
    pub title: &'static str,
    /// Event types; `*` means all.
    pub events: &'static [&'static str],
    /// Event types to use if there are none of the others. Using both would count things twice.
    pub instead: &'static [&'static str],
    /// For this event type, only the events at the latest time are used, because each time has a new
    /// count of the same things.
    pub latest: Option<&'static str>,
    /// Columns.
    pub columns: &'static [Column],
    /// Order of rows. `None`: lists in order of time, other tables by key.
    pub order: Option<Order>,
    /// Default maximum number of rows.
    pub limit: Option<usize>,
}

impl View {
    /// Uses these event types if there are none of the others.
    pub const fn or(mut self, instead: &'static [&'static str]) -> Self {
        self.instead = instead;
        self
    }

    /// Uses only the events of type `name` at the latest time.
    pub const fn latest(mut self, name: &'static str) -> Self {
        self.latest = Some(name);
        self
    }

    /// Sorts by column `at`, descending.
    pub const fn by(mut self, at: usize) -> Self {
        self.order = Some(Order::Down(at));
        self
    }

    /// Sorts by column `at`, ascending.
    pub const fn up(mut self, at: usize) -> Self {
        self.order = Some(Order::Up(at));
        self
    }

    /// Limits the number of rows.
    pub const fn top(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }
}

/// Creates a view.
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
    /// Rows are grouped by this column.
    key Take::Key;
    /// The value of each event.
    each Take::Each;
    /// Number of events that have the value.
    count_of Take::Count;
    /// Sum.
    sum Take::Sum;
    /// Minimum.
    min Take::Min;
    /// Maximum.
    max Take::Max;
    /// Mean.
    mean Take::Mean;
    /// Median.
    median Take::Quantile(0.5);
    /// 90th percentile.
    p90 Take::Quantile(0.9);
    /// 95th percentile.
    p95 Take::Quantile(0.95);
    /// 99th percentile.
    p99 Take::Quantile(0.99);
    /// 99.9th percentile.
    p999 Take::Quantile(0.999);
    /// Value of the earliest event.
    first Take::First;
    /// Value of the latest event.
    last Take::Last;
    /// Difference between the values of the latest and the earliest event.
    spread Take::Spread;
    /// Number of distinct values.
    distinct Take::Distinct;
}

/// Number of events.
pub const fn count(title: &'static str) -> Column {
    Column::new(title, Take::Count, "")
}

/// Number of live allocations.
pub const fn live_count(title: &'static str) -> Column {
    Column::new(title, Take::LiveCount, "address")
}

/// Bytes of live allocations.
pub const fn live_sum(title: &'static str) -> Column {
    Column::new(title, Take::LiveSum, "size")
}
