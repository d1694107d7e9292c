//! The difference as a table.

use std::io::{self, Write};

use flightline_consumer::difference::{Change, CompareBy, Difference, Row};
use flightline_consumer::render::difference::signed_percent;

use super::DiffArgs;
use crate::talk::shown;

/// Writes the functions that changed most.
pub fn write(args: &DiffArgs, difference: &Difference, by: CompareBy, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{} → {}", shown(&args.before), shown(args.after()))?;
    writeln!(out, "{}", difference.totals())?;
    let share = |weight: f64| weight / difference.whole() * 100.0;
    let (vanished, appeared) = (difference.vanished(), difference.appeared());
    if vanished > 0.0 || appeared > 0.0 {
        writeln!(out, "call paths only before {:.2}%, only after {:.2}%", share(vanished), share(appeared))?;
    }
    let rows = difference.functions(by);
    let changed = |row: &&Row| row.own.delta() != 0.0 || row.total.delta() != 0.0;
    let told: Vec<&Row> = rows.iter().filter(changed).take(args.limit).collect();
    if told.is_empty() {
        return writeln!(out, "no functions changed");
    }
    writeln!(out, "\n{:^27}  {:^27}", "self", "inclusive")?;
    let heading = format!("{:>8} {:>8} {:>8} ", "before", "after", "change");
    writeln!(out, "{heading}  {heading}  function")?;
    for row in told {
        let part = |change: Change| {
            let mark = if change.noise && change.delta() != 0.0 { '~' } else { ' ' };
            let delta = signed_percent(share(change.delta()));
            format!("{:>7.2}% {:>7.2}% {delta:>8}{mark}", share(change.before), share(change.after))
        };
        writeln!(out, "{}  {}  {}", part(row.own), part(row.total), row.label.text)?;
    }
    let left = rows.iter().filter(changed).count().saturating_sub(args.limit);
    if left > 0 {
        writeln!(out, "{left} more functions changed (see --limit)")?;
    }
    if rows.iter().any(|row| [row.own, row.total].iter().any(|c| c.noise && c.delta() != 0.0)) {
        writeln!(out, "~ within {} standard deviations of sampling noise", difference.sigmas)?;
    }
    Ok(())
}
