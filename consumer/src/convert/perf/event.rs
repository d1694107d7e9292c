//! Names of events.

/// Modifiers after an event's name: `cycles:u`, `cpu-clock:pppH`, `cpu_core/cycles/P`.
const MODIFIERS: &str = "ukhHGSDWpPIebR";

/// Returns a name without its modifiers. `sched:sched_switch` has none.
pub fn short(name: &str) -> &str {
    let is_modifiers = |text: &str| text.chars().all(|letter| MODIFIERS.contains(letter));
    // A probe can have any name; its modifiers follow a second colon.
    if name.starts_with("probe") && name.matches(':').count() == 1 {
        return name;
    }
    match name.rsplit_once(':') {
        Some((event, modifiers)) if is_modifiers(modifiers) => event,
        _ => match name.rsplit_once('/') {
            Some((event, modifiers)) if event.contains('/') && is_modifiers(modifiers) => {
                &name[..=event.len()]
            }
            _ => name,
        },
    }
}

/// Returns the event without the kind of processor: `cycles` for `cpu_core/cycles/` and
/// `cpu_atom/cycles/`.
pub fn base(name: &str) -> &str {
    let of_processor = name.starts_with("cpu").then(|| name.strip_suffix('/')).flatten();
    let term = of_processor.and_then(|name| name.split_once('/')).map(|(_, term)| term);
    term.map_or(name, |term| short(term.split(',').next().unwrap_or(term)))
}

/// The unit of an event's periods, in the notation of trees.
pub fn unit(base: &str) -> &str {
    if ["cpu-clock", "task-clock"].contains(&base) { "ns" } else { base }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_modifiers_and_pmu_names_are_removed() {
        for (name, without, counts) in [
            ("cycles", "cycles", "cycles"),
            ("cycles:u", "cycles", "cycles"),
            ("cpu-clock:pppH", "cpu-clock", "cpu-clock"),
            ("sched:sched_switch", "sched:sched_switch", "sched:sched_switch"),
            ("sched:sched_switch:k", "sched:sched_switch", "sched:sched_switch"),
            ("cpu_core/cycles/P", "cpu_core/cycles/", "cycles"),
            ("cpu_atom/cycles/", "cpu_atom/cycles/", "cycles"),
            ("cpu/mem-loads,ldlat=30/P", "cpu/mem-loads,ldlat=30/", "mem-loads"),
            ("cpu_core/cycles:u/", "cpu_core/cycles:u/", "cycles"),
            ("probe:up", "probe:up", "probe:up"),
            ("uncore/clockticks/", "uncore/clockticks/", "uncore/clockticks/"),
            ("", "", ""),
            ("/", "/", "/"),
            ("cpu/", "cpu/", "cpu/"),
            ("é:é", "é:é", "é:é"),
        ] {
            assert_eq!((short(name), base(short(name))), (without, counts), "{name}");
        }
    }
}
