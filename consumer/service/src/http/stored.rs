//! Questions to a store.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::{App, files, json};
use crate::fault::Fault;
use crate::pictures::Format;
use crate::stored::question::{Asked, Question};
use crate::stored::{Answer, Stored};

const TEXT: &str = "text/plain; charset=utf-8";
const CSV: &str = "text/csv; charset=utf-8";

/// What is asked, of whom.
fn understood(app: App, query: Option<String>) -> Result<(Arc<Stored>, Asked), Fault> {
    let store =
        app.store.ok_or_else(|| Fault::missing("There is no store; start the service with --store DIR."))?;
    Ok((store, Asked::parse(&query.unwrap_or_default())?))
}

/// What there is to choose from.
pub async fn whole(State(app): State<App>, RawQuery(query): RawQuery) -> Result<Response, Fault> {
    let (store, _) = understood(app, query)?;
    Ok(json(StatusCode::OK, &store.whole().await?))
}

/// What there is to choose from in a choice.
pub async fn part(State(app): State<App>, RawQuery(query): RawQuery) -> Result<Response, Fault> {
    let (store, Asked { choices: [choice, _], .. }) = understood(app, query)?;
    Ok(json(StatusCode::OK, &store.part(&choice).await?))
}

/// A flame graph.
pub async fn flame(State(app): State<App>, RawQuery(query): RawQuery) -> Result<Response, Fault> {
    let (store, Asked { choices: [choice, _], weighing, min, told, .. }) = understood(app, query)?;
    let answer = store.ask(&Question::Flame { choice, weighing, min }).await?;
    page(answer, told, "flame.html")
}

/// What is different between two choices.
pub async fn diff(State(app): State<App>, RawQuery(query): RawQuery) -> Result<Response, Fault> {
    let (store, Asked { choices: [before, after], weighing, told, .. }) = understood(app, query)?;
    if before == after {
        return Err(Fault::bad(
            "Both sides are the same: say the other one with b.service, b.label, b.from, …",
        ));
    }
    let answer = store.ask(&Question::Diff { before, after, weighing }).await?;
    page(answer, told, "difference.html")
}

/// The functions that samples fell in most.
pub async fn top(State(app): State<App>, RawQuery(query): RawQuery) -> Result<Response, Fault> {
    let (store, Asked { choices: [choice, _], weighing, limit, inclusive, told, .. }) =
        understood(app, query)?;
    let answer = store.ask(&Question::Top { choice, weighing, limit, inclusive }).await?;
    Ok(text(answer, told, TEXT))
}

/// What share of the samples functions had, over time.
pub async fn share(State(app): State<App>, RawQuery(query): RawQuery) -> Result<Response, Fault> {
    let (store, asked) = understood(app, query)?;
    let Asked { choices: [choice, _], weighing, function, by, every, told, .. } = asked;
    let function = function.ok_or_else(|| Fault::bad("Say which functions: function=REGEX."))?;
    let answer = store.ask(&Question::Share { choice, weighing, function, by, every }).await?;
    Ok(text(answer, told, CSV))
}

/// The SQL that a flame graph stands for.
pub async fn sql(State(app): State<App>, RawQuery(query): RawQuery) -> Result<Response, Fault> {
    let (store, Asked { choices: [choice, _], weighing, min, engine, told, .. }) = understood(app, query)?;
    let answer = store.ask(&Question::Sql { choice, weighing, min, engine }).await?;
    Ok(text(answer, told, TEXT))
}

fn page(answer: Answer, told: bool, name: &str) -> Result<Response, Fault> {
    if told { Ok(telling(&answer)) } else { files::picture(Format::Html, answer.body, name, true) }
}

fn text(answer: Answer, told: bool, kind: &'static str) -> Response {
    if told { telling(&answer) } else { ([(header::CONTENT_TYPE, kind)], answer.body).into_response() }
}

fn telling(answer: &Answer) -> Response {
    json(StatusCode::OK, &serde_json::json!({ "told": *answer.told, "bytes": answer.body.len() }))
}
