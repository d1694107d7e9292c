//! All views.

mod application;
mod environment;
mod native;
mod vm;

use super::definition::View;

/// Returns all views, by category.
pub fn all() -> impl Iterator<Item = &'static View> {
    application::VIEWS.iter().chain(vm::VIEWS).chain(environment::VIEWS).chain(native::VIEWS)
}

/// Returns the view with this name.
pub fn find(name: &str) -> Option<&'static View> {
    all().find(|view| view.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::definition::{Order, Take};

    #[test]
    fn view_declarations_are_consistent() {
        let mut names: Vec<&str> = all().map(|view| view.name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "a name twice");
        for view in all() {
            if let Some(Order::Up(at) | Order::Down(at)) = view.order {
                assert!(at < view.columns.len(), "{}: no column {at} to sort by", view.name);
            }
            let each = view.columns.iter().filter(|c| c.take == Take::Each).count();
            assert!(each == 0 || each == view.columns.len(), "{}: neither list nor sum", view.name);
            for column in view.columns {
                let known = |event: &&str| view.events.contains(event) || view.events == ["*"];
                assert!(column.of.iter().all(known), "{}: {} of foreign events", view.name, column.title);
            }
        }
    }
}
