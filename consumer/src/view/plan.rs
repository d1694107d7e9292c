//! Plans for tables: of a declared view, or of an event type with its fields as columns.

use jfr_format::read::{Class, Kind, Types};

use super::definition::{Column, Condition, Order, Take, View};

/// Maximum number of columns in an event type's own table.
const MAX_COLUMNS: usize = 64;

/// Describes a table and the events to use.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name on the command line.
    pub name: String,
    /// Heading.
    pub title: String,
    /// Event types; `*` means all.
    pub events: Vec<String>,
    /// Event types to use if there are none of those.
    pub instead: Vec<String>,
    /// Default maximum number of rows.
    pub limit: Option<usize>,
    pub(super) latest: Option<String>,
    pub(super) columns: Vec<PlanColumn>,
    pub(super) order: Option<Order>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlanColumn {
    pub(super) title: String,
    pub(super) take: Take,
    pub(super) path: String,
    pub(super) share: bool,
    pub(super) of: Vec<String>,
    pub(super) when: Option<Condition>,
}

impl From<&Column> for PlanColumn {
    fn from(column: &Column) -> Self {
        Self {
            title: column.title.into(),
            take: column.take,
            path: column.path.into(),
            share: column.share,
            of: column.of.iter().map(|&name| name.into()).collect(),
            when: column.when,
        }
    }
}

impl Plan {
    /// Creates the plan of a declared view.
    pub fn from_view(view: &View) -> Self {
        Self {
            name: view.name.into(),
            title: view.title.into(),
            events: view.events.iter().map(|&name| name.into()).collect(),
            instead: view.instead.iter().map(|&name| name.into()).collect(),
            latest: view.latest.map(String::from),
            limit: view.limit,
            columns: view.columns.iter().map(PlanColumn::from).collect(),
            order: view.order,
        }
    }

    /// Creates a plan with the fields of an event type as columns.
    pub fn from_class(class: &Class, types: &Types) -> Self {
        let mut columns = Vec::new();
        for field in &class.fields {
            let label = label(&field.annotations).unwrap_or(&field.name);
            let of = field.class.and_then(|index| types.class(index));
            match of {
                // A struct inside the event: its fields become columns.
                Some(inner)
                    if inner.kind == Kind::Struct && !field.pooled && !field.array && !inner.simple =>
                {
                    for part in &inner.fields {
                        let own = label_or(&part.annotations, &part.name);
                        columns
                            .push(each(format!("{label}, {own}"), format!("{}.{}", field.name, part.name)));
                    }
                }
                _ => columns.push(each(label.to_owned(), field.name.to_string())),
            }
        }
        columns.truncate(MAX_COLUMNS);
        Self {
            name: class.name.to_string(),
            title: label_or(&class.annotations, &class.name).to_owned(),
            events: vec![class.name.to_string()],
            instead: Vec::new(),
            limit: None,
            latest: None,
            columns,
            order: None,
        }
    }

    /// Returns true if the plan uses events of this type.
    pub fn wants(&self, name: &str) -> bool {
        self.events.iter().any(|event| event == name || event == "*")
    }

    /// Returns true if each event is a row.
    pub(super) fn is_list(&self) -> bool {
        self.columns.iter().all(|column| column.take == Take::Each)
    }

    /// Returns true if there is exactly one row.
    pub(super) fn is_form(&self) -> bool {
        !self.columns.iter().any(|column| matches!(column.take, Take::Key | Take::Each))
    }

    pub(super) fn counts_live(&self) -> bool {
        self.columns.iter().any(|column| matches!(column.take, Take::LiveCount | Take::LiveSum))
    }

    /// Describes for people how the table is computed.
    pub fn explain(&self) -> String {
        let mut text = format!("from {}", self.events.join(", "));
        if !self.instead.is_empty() {
            text.push_str(&format!("; if there are none, from {}", self.instead.join(", ")));
        }
        if let Some(name) = &self.latest {
            text.push_str(&format!("; of {name} those of the latest moment"));
        }
        for column in &self.columns {
            let what = match column.take {
                Take::Key => "rows by",
                Take::Each => "value of",
                Take::Count => "number of",
                Take::Sum => "sum of",
                Take::Min => "smallest",
                Take::Max => "largest",
                Take::Mean => "mean of",
                Take::Quantile(_) => "quantile of",
                Take::First => "first",
                Take::Last => "last",
                Take::Spread => "first to last of",
                Take::Distinct => "number of different",
                Take::LiveCount => "not freed, number of",
                Take::LiveSum => "not freed, sum of",
            };
            let path = if column.path.is_empty() { "events" } else { &column.path };
            text.push_str(&format!("\n  {}: {what} {path}", column.title));
            if let Take::Quantile(at) = column.take {
                text.push_str(&format!(" at {at}"));
            }
            if !column.of.is_empty() {
                text.push_str(&format!(" of {}", column.of.join(", ")));
            }
            if let Some(Condition { path, text: value, equal }) = &column.when {
                let verb = if *equal { "is" } else { "is not" };
                text.push_str(&format!(" where {path} {verb} \"{value}\""));
            }
            if column.share {
                text.push_str(", as part of all rows");
            }
        }
        let title = |at: usize| self.columns.get(at).map_or("", |c| &*c.title);
        match self.order {
            Some(Order::Up(at)) => text.push_str(&format!("\n  sorted by {}, smallest first", title(at))),
            Some(Order::Down(at)) => text.push_str(&format!("\n  sorted by {}, largest first", title(at))),
            None => {}
        }
        if let Some(limit) = self.limit {
            text.push_str(&format!("\n  {limit} rows unless --limit says otherwise"));
        }
        text
    }
}

fn each(title: String, path: String) -> PlanColumn {
    PlanColumn { title, take: Take::Each, path, share: false, of: Vec::new(), when: None }
}

/// Returns the label in the annotations.
pub(super) fn label(annotations: &[jfr_format::read::Annotation]) -> Option<&str> {
    let label = annotations.iter().find(|a| &*a.type_name == "jdk.jfr.Label")?;
    label.value().filter(|text| !text.is_empty())
}

fn label_or<'a>(annotations: &'a [jfr_format::read::Annotation], name: &'a str) -> &'a str {
    label(annotations).unwrap_or(name)
}
