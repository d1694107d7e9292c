//! Routes and their handlers. Each path also exists under `/v1`.

mod access_log;
mod agents;
mod body;
mod files;
mod flink;
mod guard;
mod ingest;
mod observe;
mod page;
mod pprof;
mod profile_store;
mod profiler;
mod range;
mod response_budget;

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use serde::Serialize;
use tokio::sync::Semaphore;

use crate::api_error::ApiError;
use crate::core::Core;
use crate::local::Local;
use crate::profile_store::ProfileStore;

pub use access_log::Peer;
#[cfg(feature = "fuzzing")]
pub(crate) use range::parse_range;

/// Memory of all large request bodies, in units of [`crate::limits::SMALL_BODY`]: 256 MiB.
const ROOM_FOR_BODIES: usize = 4096;

/// Maximum number of chunks written at the same time, so that a slow disk does not use up all blocking
/// threads.
const MOST_KEEPING: usize = 64;

/// Maximum number of messages of up to 16 MiB decoded at the same time. Decoding one may take a gigabyte.
const MOST_MESSAGES: usize = 2;

/// State shared by all handlers.
#[derive(Clone, Debug)]
pub struct App {
    /// Targets and runs.
    pub core: Arc<Core>,
    /// Permits for renderings.
    pub pictures: Arc<Semaphore>,
    /// Permits for the memory of large request bodies.
    pub bodies: Arc<Semaphore>,
    /// Permits for decoding messages of other profilers.
    pub messages: Arc<Semaphore>,
    /// Permits for writing chunks to disk.
    pub keeping: Arc<Semaphore>,
    /// Permits for the memory of unread responses.
    pub answers: Arc<Semaphore>,
    /// Cookie value of authenticated browsers.
    pub session: Arc<str>,
    /// True if clients connect with TLS.
    pub tls: bool,
    /// Local processes that can be adopted; `None` if this is off.
    pub local: Option<Arc<Local>>,
    /// The profile store; `None` if there is none.
    pub store: Option<Arc<ProfileStore>>,
    /// Request counters.
    pub counts: Arc<observe::Counts>,
}

impl App {
    /// Creates the shared state for a core.
    ///
    /// # Errors
    /// Returns an error if the kernel has no random numbers or there is no room for temporary files.
    pub fn new(core: Arc<Core>, tls: bool, local: Option<Arc<Local>>) -> std::io::Result<Self> {
        let pictures = Arc::new(Semaphore::new(core.settings.pictures.max(1)));
        let store = core.settings.store.clone().map(ProfileStore::new).transpose()?.map(Arc::new);
        let bodies = Arc::new(Semaphore::new(ROOM_FOR_BODIES));
        Ok(Self {
            core,
            pictures,
            bodies,
            messages: Arc::new(Semaphore::new(MOST_MESSAGES)),
            answers: response_budget::budget(),
            keeping: Arc::new(Semaphore::new(MOST_KEEPING)),
            session: crate::id::secret()?.into(),
            tls,
            local,
            store,
            counts: Arc::default(),
        })
    }
}

/// Creates the router.
pub fn router(app: App) -> Router {
    let paths = Router::new()
        .route("/session", post(guard::log_in))
        .route("/targets", get(profiler::targets).post(profiler::adopt))
        .route("/processes", get(profiler::processes))
        .route("/targets/{target}", get(profiler::target).delete(profiler::forget))
        .route("/targets/{target}/runs", get(profiler::history).post(profiler::create).put(profiler::create))
        .route("/runs", get(profiler::runs).post(profiler::create_group).put(profiler::create_group))
        .route("/runs/{run}", get(profiler::run).delete(profiler::delete))
        .route("/runs/{run}/cancel", post(profiler::cancel).put(profiler::cancel))
        .route("/runs/{run}/files/{format}", get(files::run_file))
        .route("/compare/html", get(files::compared))
        .route("/targets/{target}/debug/pprof", get(pprof::target_index))
        .route("/targets/{target}/debug/pprof/", get(pprof::target_index))
        .route("/targets/{target}/debug/pprof/{profile}", get(pprof::pull_target).head(pprof::no_head))
        .route("/debug/pprof", get(pprof::index))
        .route("/debug/pprof/", get(pprof::index))
        .route("/debug/pprof/{profile}", get(pprof::pull).head(pprof::no_head))
        .route(
            "/jobmanager/profiler",
            get(flink::job_manager).post(flink::create_job_manager).put(flink::create_job_manager),
        )
        .route("/jobmanager/profiler/{file}", get(flink::job_manager_file))
        .route("/taskmanagers/{target}/profiler", get(flink::history).post(flink::create).put(flink::create))
        .route("/taskmanagers/{target}/profiler/{file}", get(flink::file))
        .route("/agents", post(agents::hello))
        .route("/agents/{target}/commands", get(agents::commands))
        .route("/agents/{target}/runs/{run}", post(agents::progress))
        .route("/agents/{target}/runs/{run}/recording", put(agents::recording))
        .route("/targets/{target}/window", get(files::window))
        .route("/targets/{target}/window/files/{format}", get(files::window_file))
        .route("/window/files/{format}", get(files::label_file))
        .route("/agents/{target}/chunks", post(agents::chunks))
        .route("/store", get(profile_store::whole))
        .route("/store/values", get(profile_store::part))
        .route("/store/flame", get(profile_store::flame))
        .route("/store/diff", get(profile_store::diff))
        .route("/store/top", get(profile_store::top))
        .route("/store/share", get(profile_store::share))
        .route("/store/sql", get(profile_store::sql))
        .route("/ingest", post(ingest::ingest))
        .route("/agents/{target}/gone", post(agents::gone));
    Router::new()
        .nest("/v1", paths.clone())
        .merge(paths)
        .route("/v1development/profiles", post(ingest::otlp))
        .route("/push.v1.PusherService/Push", post(ingest::push))
        .route("/healthz", get(observe::healthy))
        .route("/readyz", get(observe::ready))
        .route("/metrics", get(observe::metrics))
        .route("/openapi.json", get(observe::openapi))
        .fallback(page::file)
        .method_not_allowed_fallback(async || {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "This path does not support the method.")
        })
        .layer(middleware::from_fn_with_state(app.clone(), guard::guard))
        .with_state(app)
}

/// Creates a JSON response.
fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => (status, [("content-type", "application/json")], body).into_response(),
        Err(error) => ApiError::internal("write the answer", error).into_response(),
    }
}

/// Runs blocking work on a separate thread.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(ApiError::internal("do that", error)),
    }
}

/// Path parameters. A parameter that cannot be parsed is answered with 404.
#[derive(Debug)]
struct PathParams<T>(T);

impl<T, S> FromRequestParts<S> for PathParams<T>
where
    T: serde::de::DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        path.map(|axum::extract::Path(names)| Self(names)).map_err(|_| nothing())
    }
}

/// Query parameters. Invalid ones are answered with a message.
#[derive(Debug)]
struct QueryParams<T>(T);

impl<T, S> FromRequestParts<S> for QueryParams<T>
where
    T: serde::de::DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        query.map(|axum::extract::Query(asked)| Self(asked)).map_err(|rejection| {
            ApiError::bad(format!("The query string is invalid: {}.", rejection.body_text()))
        })
    }
}

/// The same answer for all missing resources, so that it reveals nothing.
fn nothing() -> ApiError {
    ApiError::missing("File not found.")
}
