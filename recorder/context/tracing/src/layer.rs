//! The layer.

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

/// The field that `tracing-opentelemetry` names spans by, if they have it.
const NAME: &str = "otel.name";

/// The fields by which OpenTelemetry's conventions name what a server was asked for: `GET /orders/{id}`.
const ROUTE: &str = "http.route";
const METHODS: [&str; 2] = ["http.request.method", "http.method"];

/// Enters on the thread what is entered in `tracing`, and tells of spans that ended. Tasks that are polled on several threads are
/// where they are polled. Made by [`layer`].
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

/// A layer that makes ids of its own and no labels.
pub fn layer<S>() -> FlightlineLayer<S> {
    FlightlineLayer {
        labels: Vec::new(),
        #[cfg(feature = "opentelemetry")]
        opentelemetry: false,
        of: PhantomData,
    }
}

impl<S> FlightlineLayer<S> {
    /// Fields of spans that become labels: of the span and of all it encloses. Few and of few values: whoever reads adds up by them.
    pub fn with_labels(mut self, fields: impl IntoIterator<Item = &'static str>) -> Self {
        self.labels.extend(fields);
        self
    }

    /// Takes the ids of OpenTelemetry's current context, which a `tracing_opentelemetry` layer that was added *before* this one makes
    /// current when a span is entered (its `with_context_activation`, on by default). Spans without one keep ids of our own.
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

/// What we keep with a span.
struct SpanData {
    context: SpanContext,
    /// OpenTelemetry's ids, looked for when it is first entered.
    #[cfg(feature = "opentelemetry")]
    adopted: OnceLock<Option<SpanContext>>,
    name: Option<Box<str>>,
    asked: Option<Box<ServerRequest>>,
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
    /// By its route: a method alone is no name.
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

/// Takes the fields that are wanted.
struct Fields<'a, S> {
    layer: &'a FlightlineLayer<S>,
    name: Option<Box<str>>,
    asked: Option<Box<ServerRequest>>,
    labels: Option<Box<Labels>>,
    /// Whether the span is the thread's innermost one, which shows a change at once.
    active: bool,
}

impl<S> Fields<'_, S> {
    fn take(&mut self, field: &Field, value: &str) {
        match field.name() {
            NAME => self.name = Some(value.into()),
            ROUTE => self.asked.get_or_insert_default().route = Some(value.into()),
            name if METHODS.contains(&name) => self.asked.get_or_insert_default().method = Some(value.into()),
            _ => {}
        }
        if self.layer.labels.contains(&field.name()) {
            // What does not fit is left out.
            let _ = self.labels.get_or_insert_default().set(field.name(), value);
            if self.active {
                let _ = label(field.name(), value);
            }
        }
    }

    fn format(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        if self.layer.wants(field) {
            let mut text = Cut::default();
            // It ends where there is no room.
            let _ = text.write_fmt(value);
            self.take(field, &text.0);
        }
    }
}

/// A text that ends where a label would: what a program's `Debug` prints may be long.
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
            // Something else may be entered: by C code, or the span that a request came in.
            None if attributes.is_contextual() => current(),
            None => None,
        };
        let mut fields = Fields { layer: self, name: None, asked: None, labels: None, active: false };
        attributes.record(&mut fields);
        span.extensions_mut().insert(SpanData {
            context: new_context(parent.as_ref()),
            #[cfg(feature = "opentelemetry")]
            adopted: OnceLock::new(),
            name: fields.name,
            asked: fields.asked,
            start_ns: beginning(),
            samples: AtomicU32::new(0),
            labels: fields.labels,
        });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, ctx: Context<'_, S>) {
        let Some(span) = ctx.span(id) else { return };
        let active = innermost_owner() == Some(id.into_u64());
        let mut fields = Fields { layer: self, name: None, asked: None, labels: None, active };
        // A value's `Debug` may use `tracing` itself: not while we hold the span's data.
        if let Some(data) = span.extensions_mut().get_mut::<SpanData>() {
            fields.labels = data.labels.take();
            fields.asked = data.asked.take();
        }
        values.record(&mut fields);
        if let Some(data) = span.extensions_mut().get_mut::<SpanData>() {
            data.labels = fields.labels;
            data.asked = fields.asked;
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
        let asked = data.asked.as_deref().and_then(ServerRequest::name);
        let name = data.name.as_deref().or(asked.as_deref()).unwrap_or(span.name());
        span_ended(data.context(), name, data.start_ns, data.samples.load(Relaxed), data.attrs());
    }

    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {}
}

/// Adds up in a span's data what its activations had.
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
