//! A service with four endpoints that are slow for different reasons:
//!
//! | endpoint | what it does |
//! |---|---|
//! | `GET /report` | computes and allocates |
//! | `GET /orders/{customer}` | queries SQLite by a column without an index, through a pool of two connections |
//! | `GET /quote` | waits for two remote services (sleeps) at the same time |
//! | `GET /cart` | changes shared state, behind a lock |
//!
//! Usage: `flightline-test-service FOLDER`. It writes its address and process id to FOLDER/address, and when SIGTERM ends it, what it measured of each
//! endpoint itself to FOLDER/measured.json.

mod database;
mod measured;
mod work;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Path, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tower_http::trace::TraceLayer;
use tracing::{Instrument, Span, info_span};
use tracing_subscriber::prelude::*;

use database::Database;
use measured::Measured;

/// The state that requests share.
struct Shared {
    database: Database,
    cart: work::Cart,
    measured: Measured,
}

#[tokio::main(worker_threads = 4)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("usage: flightline-test-service FOLDER")?);
    let labels = ["http.route", "customer"];
    tracing_subscriber::registry().with(flightline_tracing::layer().with_labels(labels)).init();
    let shared = Arc::new(Shared {
        database: Database::open(&folder.join("orders.db"))?,
        cart: work::Cart::default(),
        measured: Measured::default(),
    });
    let router = Router::new()
        .route("/report", get(report))
        .route("/orders/{customer}", get(orders))
        .route("/quote", get(quote))
        .route("/cart", get(cart))
        .route_layer(TraceLayer::new_for_http().make_span_with(span_of))
        .route_layer(middleware::from_fn_with_state(shared.clone(), measure))
        .with_state(shared.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    // Renamed, so that a waiting process never reads half of it.
    let told = format!("{}\n{}\n", listener.local_addr()?, std::process::id());
    std::fs::write(folder.join("address.new"), told)?;
    std::fs::rename(folder.join("address.new"), folder.join("address"))?;
    let mut stop = signal(SignalKind::terminate())?;
    axum::serve(listener, router).with_graceful_shutdown(async move { _ = stop.recv().await }).await?;
    std::fs::write(folder.join("measured.json"), shared.measured.to_json().to_string())?;
    Ok(())
}

fn route(request: &Request) -> String {
    request.extensions().get::<MatchedPath>().map_or_else(String::new, |path| path.as_str().to_owned())
}

/// The span of a request, named by its route, because there are too many paths.
fn span_of(request: &Request) -> Span {
    let route = route(request);
    info_span!("request", otel.name = format!("GET {route}"), http.route = route)
}

/// Measures the endpoints in the service itself.
async fn measure(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let (route, began) = (route(&request), Instant::now());
    let response = next.run(request).await;
    shared.measured.took(&route, began.elapsed());
    response
}

async fn report() -> Json<Value> {
    let rows = info_span!("report.rows").in_scope(|| work::rows(40_000));
    let sum = info_span!("report.render").in_scope(|| work::render(&rows));
    Json(json!({ "sum": sum }))
}

async fn orders(State(shared): State<Arc<Shared>>, Path(customer): Path<u32>) -> Response {
    match shared.database.orders_of(customer).await {
        Ok((count, total)) => Json(json!({ "count": count, "total": total })).into_response(),
        Err(error) => (axum::http::StatusCode::INTERNAL_SERVER_ERROR, error).into_response(),
    }
}

async fn quote() -> Json<Value> {
    let ask = |ms| async move {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        work::parse(ms)
    };
    let price = ask(20).instrument(info_span!("upstream.price"));
    let tax = ask(35).instrument(info_span!("upstream.tax"));
    let (price, tax) = tokio::join!(price, tax);
    Json(json!({ "price": price, "tax": tax }))
}

async fn cart(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let items = info_span!("cart.update").in_scope(|| shared.cart.update());
    Json(json!({ "items": items }))
}
