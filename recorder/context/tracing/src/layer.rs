//! The `tracing` layer.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::marker::PhantomData;
#[cfg(feature = "opentelemetry")]
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use flightline_context::{
    Ended, Entering, Labels, SpanContext, beginning, current, enter, exit_owner, innermost_owner, label,
    new_context, span_ended,
};
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

/// The field with the name that `tracing-opentelemetry` gives a span.
const NAME: &str = "otel.name";

/// The fields in which OpenTelemetry's conventions store a server's request, for names like `GET
/// /orders/{id}`.
const ROUTE: &str = "http.route";
const METHODS: [&str; 2] = ["http.request.method", "http.method"];

/// Enters a span on the thread when it is entered in `tracing`, and reports spans that ended. A task that is
/// polled on several threads is entered on the thread that polls it. Created by [`layer`].
pub struct FlightlineLayer<S> {
    labels: Vec<&'static str>,
    #[cfg(feature = "opentelemetry")]
    opentelemetry: bool,
    of: PhantomData<fn(S)>,
}

impl<S> fmt::Debug for FlightlineLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlightlineLayer").field("labels", &self.labels).finish_non_exhaustive()
    }
}

/// Creates a layer with its own ids and no labels.
pub fn layer<S>() -> FlightlineLayer<S> {
    FlightlineLayer {
        labels: Vec::new(),
        #[cfg(feature = "opentelemetry")]
        opentelemetry: false,
        of: PhantomData,
    }
}

impl<S> FlightlineLayer<S> {
    /// Sets the fields of spans that become labels, of the span and of all spans within. Use few fields with
    /// few values, because readers group by them.
    pub fn with_labels(mut self, fields: impl IntoIterator<Item = &'static str>) -> Self {
        self.labels.extend(fields);
        self
    }

    /// Uses the ids of OpenTelemetry's current context. A `tracing_opentelemetry` layer that was added
    /// *before* this one makes it current when a span is entered (its `with_context_activation`, on by
    /// default). Spans without such ids have ids of this layer.
    #[cfg(feature = "opentelemetry")]
    pub fn with_opentelemetry(mut self) -> Self {
        self.opentelemetry = true;
        self
    }

    fn wants(&self, field: &Field) -> bool {
        let name = field.name();
        name == NAME || name == ROUTE || METHODS.contains(&name) || self.labels.contains(&name)
    }

    #[cfg(feature = "opentelemetry")]
    fn ids<'a>(&self, data: &'a SpanData, parent: impl FnOnce() -> Option<SpanContext>) -> &'a SpanContext {
        if !self.opentelemetry {
            return &data.context;
        }
        data.adopted
            .get_or_init(|| crate::otel::adopt(&data.context, parent))
            .as_ref()
            .unwrap_or(&data.context)
    }
}

/// The layer's data of a span.
struct SpanData {
    context: SpanContext,
    /// OpenTelemetry's ids, read when the span is entered first.
    #[cfg(feature = "opentelemetry")]
    adopted: OnceLock<Option<SpanContext>>,
    name: Option<Box<str>>,
    request: Option<Box<ServerRequest>>,
    start_ns: u64,
    samples: AtomicU32,
    labels: Option<Box<Labels>>,
}

impl SpanData {
    fn context(&self) -> &SpanContext {
        #[cfg(feature = "opentelemetry")]
        if let Some(Some(adopted)) = self.adopted.get() {
            return adopted;
        }
        &self.context
    }

    fn attrs(&self) -> &[u8] {
        self.labels.as_ref().map_or(&[], |labels| labels.bytes())
    }
}

/// The HTTP method and route of a server's span.
#[derive(Default)]
struct ServerRequest {
    method: Option<Box<str>>,
    route: Option<Box<str>>,
}

impl ServerRequest {
    /// Returns the route with its method; a method alone is no name.
    fn name(&self) -> Option<Cow<'_, str>> {
        match (self.method.as_deref(), self.route.as_deref()?) {
            (Some(method), route) => Some(format!("{method} {route}").into()),
            (None, route) => Some(route.into()),
        }
    }
}

fn span_context<S: for<'a> LookupSpan<'a>>(span: &SpanRef<'_, S>) -> Option<SpanContext> {
    span.extensions().get::<SpanData>().map(|data| *data.context())
}

/// Collects the selected fields.
struct Fields<'a, S> {
    layer: &'a FlightlineLayer<S>,
    name: Option<Box<str>>,
    request: Option<Box<ServerRequest>>,
    labels: Option<Box<Labels>>,
    /// True if the span is the thread's innermost one, so that a change takes effect at once.
    active: bool,
}

impl<S> Fields<'_, S> {
    fn take(&mut self, field: &Field, value: &str) {
        match field.name() {
            NAME => self.name = Some(value.into()),
            ROUTE => self.request.get_or_insert_default().route = Some(value.into()),
            name if METHODS.contains(&name) => {
                self.request.get_or_insert_default().method = Some(value.into())
            }
            _ => {}
        }
        if self.layer.labels.contains(&field.name()) {
            // A label that does not fit is omitted.
            let _ = self.labels.get_or_insert_default().set(field.name(), value);
            if self.active {
                let _ = label(field.name(), value);
            }
        }
    }

    fn format(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        if self.layer.wants(field) {
            let mut text = Cut::default();
            // The text ends where there is no more room.
            let _ = text.write_fmt(value);
            self.take(field, &text.0);
        }
    }
}

/// A text of limited length, because a program's `Debug` output may be long.
#[derive(Default)]
struct Cut(String);

impl Write for Cut {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let room = 256_usize.saturating_sub(self.0.len());
        self.0.push_str(&part[..part.floor_char_boundary(room)]);
        if part.len() > room { Err(fmt::Error) } else { Ok(()) }
    }
}

impl<S> Visit for Fields<'_, S> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if self.layer.wants(field) {
            self.take(field, value);
        }
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.format(field, format_args!("{value:?}"));
    }
}

impl<S> Layer<S> for FlightlineLayer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(id) else { return };
        let parent = match span.parent() {
            Some(parent) => span_context(&parent),
            // Another activation may enclose it: of C code, or of the span of an incoming request.
            None if attributes.is_contextual() => current(),
            None => None,
        };
        let mut fields = Fields { layer: self, name: None, request: None, labels: None, active: false };
        attributes.record(&mut fields);
        span.extensions_mut().insert(SpanData {
            context: new_context(parent.as_ref()),
            #[cfg(feature = "opentelemetry")]
            adopted: OnceLock::new(),
            name: fields.name,
            request: fields.request,
            start_ns: beginning(),
            samples: AtomicU32::new(0),
            labels: fields.labels,
        });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(id) else { return };
        let active = innermost_owner() == Some(id.into_u64());
        let mut fields = Fields { layer: self, name: None, request: None, labels: None, active };
        // A value's `Debug` may use `tracing` itself, so the span's data must not be locked.
        if let Some(data) = span.extensions_mut().get_mut::<SpanData>() {
            fields.labels = data.labels.take();
            fields.request = data.request.take();
        }
        values.record(&mut fields);
        if let Some(data) = span.extensions_mut().get_mut::<SpanData>() {
            data.labels = fields.labels;
            data.request = fields.request;
            data.name = fields.name.or_else(|| data.name.take());
        }
    }

    fn on_enter(&self, id: &Id, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(id) else { return };
        let extensions = span.extensions();
        let Some(data) = extensions.get::<SpanData>() else { return };
        #[cfg(feature = "opentelemetry")]
        let context = self.ids(data, || span.parent().as_ref().and_then(span_context));
        #[cfg(not(feature = "opentelemetry"))]
        let context = &data.context;
        enter(&Entering { context, name: span.name(), attrs: data.attrs(), owner: id.into_u64() });
    }

    fn on_exit(&self, id: &Id, ctx: Context<'_, S>) {
        let Some(ended) = exit_owner(id.into_u64()) else { return };
        if ended.samples != 0 || ended.relabelled() {
            keep(&ended, id, &ctx);
        }
    }

    fn on_close(&self, id: Id, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(&id) else { return };
        let extensions = span.extensions();
        let Some(data) = extensions.get::<SpanData>() else { return };
        let request = data.request.as_deref().and_then(ServerRequest::name);
        let name = data.name.as_deref().or(request.as_deref()).unwrap_or(span.name());
        span_ended(data.context(), name, data.start_ns, data.samples.load(Relaxed), data.attrs());
    }

    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {}
}

/// Adds the results of an activation to its span's data.
#[cold]
fn keep<S: Subscriber + for<'a> LookupSpan<'a>>(ended: &Ended, id: &Id, ctx: &Context<'_, S>) {
    let Some(span) = ctx.span(id) else { return };
    let mut extensions = span.extensions_mut();
    let Some(data) = extensions.get_mut::<SpanData>() else { return };
    data.samples.fetch_add(ended.samples, Relaxed);
    if ended.relabelled() {
        **data.labels.get_or_insert_default() = ended.labels();
    }
}
