//! A report as a page without scripts: findings, then tables by area, with links to flame graphs in the
//! same folder.

use std::io::Write;

use super::{Area, Finding, Report, Severity};
use crate::error::Error;
use crate::render::{escape, style_policy};
use crate::view::{Table, cell_text};

const STYLE: &str = include_str!("report.css");
/// Maximum number of rows of a table on the page.
const ROWS: usize = 20;

/// A flame graph in a file next to the report.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Its area.
    pub area: Area,
    /// The text of the link.
    pub title: String,
    /// The name of the file.
    pub file: String,
}

/// Writes a report as HTML.
///
/// # Errors
/// `out` cannot be written.
pub fn write_page(
    report: &Report<'_>,
    pictures: &[Picture],
    out: &mut (impl Write + ?Sized),
) -> Result<(), Error> {
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{}</title>\n<style>{STYLE}</style></head><body>\n<h1>{}</h1>\n<p>{}</p>\n",
        style_policy(STYLE),
        escape(&format!("Report of {}", report.name)),
        escape(&format!("Report of {}", report.name)),
        escape(&report.headline())
    );
    html.push_str("<h2>Findings</h2>\n<ul id=\"findings\">\n");
    report.findings.iter().for_each(|finding| html.push_str(&item(finding)));
    html.push_str("</ul>\n<p>The limits are rules of thumb. <em>Rule</em> names the rule of JDK Mission Control for the same question.</p>\n");
    for area in Area::ALL {
        html.push_str(&section(report, pictures, area));
    }
    html.push_str("</body></html>\n");
    out.write_all(html.as_bytes()).map_err(Error::Write)
}

fn anchor(area: Area) -> String {
    area.name().to_lowercase().replace(' ', "-")
}

fn item(finding: &Finding) -> String {
    let class = finding.severity.name();
    let mark = match finding.severity {
        Severity::High => "high",
        Severity::Medium => "worth a look",
        Severity::Low => "usual",
        Severity::Unknown => "not recorded",
    };
    let mut html = format!(
        "<li class=\"{class}\"><span class=\"mark\">{mark}</span> <a href=\"#{}\">{}</a>: {}",
        anchor(finding.area),
        finding.area.name(),
        escape(&finding.text)
    );
    if !finding.advice.is_empty() {
        html.push_str(&format!("<br><span class=\"advice\">{}</span>", escape(&finding.advice)));
    }
    if !finding.view.is_empty() {
        html.push_str(&format!(" <a class=\"more\" href=\"#{0}\">{0}</a>", finding.view));
    }
    if !finding.rule.is_empty() {
        html.push_str(&format!(" <span class=\"rule\">Rule: {}</span>", escape(finding.rule)));
    }
    html.push_str("</li>\n");
    html
}

/// An area with its tables and flame graphs; empty if it has none.
fn section(report: &Report<'_>, pictures: &[Picture], area: Area) -> String {
    let tables: Vec<&Table> = area.views().iter().filter_map(|view| report.tables.get(view)).collect();
    let pictures: Vec<&Picture> = pictures.iter().filter(|picture| picture.area == area).collect();
    let changes = report.before.as_ref().filter(|_| area == Area::Compared);
    if !report.findings.iter().any(|finding| finding.area == area) && tables.is_empty() && pictures.is_empty()
    {
        return String::new();
    }
    let mut html = format!("<section id=\"{}\"><h2>{}</h2>\n", anchor(area), area.name());
    for picture in pictures {
        html.push_str(&format!(
            "<p><a class=\"picture\" href=\"{}\">{}</a></p>\n",
            escape(&picture.file),
            escape(&picture.title)
        ));
    }
    tables.iter().for_each(|table| html.push_str(&write_table(table)));
    if let Some(before) = changes {
        let mut rows = String::new();
        for [name, then, now] in report.compared() {
            rows.push_str(&format!(
                "<tr><td>{name}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>\n",
                escape(&then),
                escape(&now)
            ));
        }
        for one in before.changed.iter().take(ROWS) {
            rows.push_str(&format!(
                "<tr><td>{}</td><td class=\"number\">{:.1} %</td><td class=\"number\">{:.1} %</td></tr>\n",
                escape(&one.function),
                100.0 * one.before,
                100.0 * one.after
            ));
        }
        html.push_str(&format!(
            "<table><thead><tr><th>Measure, or function by its share of the CPU time</th><th>{}</th><th>{}</th></tr></thead><tbody>{rows}</tbody></table>\n",
            escape(&before.name),
            escape(&report.name)
        ));
    }
    html.push_str("</section>\n");
    html
}

fn write_table(table: &Table) -> String {
    let mut html = format!(
        "<h3 id=\"{}\">{}</h3>\n<div class=\"wide\"><table>",
        escape(&table.name),
        escape(&table.title)
    );
    let columns: Vec<usize> = (0..table.headings.len()).filter(|&at| !table.headings[at].empty).collect();
    if table.form {
        for &at in &columns {
            let value = table.rows.first().and_then(|row| row.get(at)).map(cell_text).unwrap_or_default();
            html.push_str(&format!(
                "<tr><th>{}</th><td>{}</td></tr>\n",
                escape(&table.headings[at].title),
                escape(&value)
            ));
        }
        html.push_str("</table></div>\n");
        return html;
    }
    let heads: String = columns
        .iter()
        .map(|&at| {
            format!(
                "<th{}>{}</th>",
                if table.headings[at].number { " class=\"number\"" } else { "" },
                escape(&table.headings[at].title)
            )
        })
        .collect();
    html.push_str(&format!("<thead><tr>{heads}</tr></thead><tbody>\n"));
    for row in table.rows.iter().take(ROWS) {
        html.push_str("<tr>");
        for &at in &columns {
            let class = if table.headings[at].number { " class=\"number\"" } else { "" };
            html.push_str(&format!(
                "<td{class}>{}</td>",
                escape(&row.get(at).map(cell_text).unwrap_or_default())
            ));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody></table></div>\n");
    let more = table.more + table.rows.len().saturating_sub(ROWS) as u64;
    if more > 0 {
        html.push_str(&format!(
            "<p class=\"advice\">{more} more: flightline view {} --limit N</p>\n",
            escape(&table.name)
        ));
    }
    html
}
