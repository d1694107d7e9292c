//! OTLP over gRPC.

use std::str::FromStr;
use std::time::Duration;

use ::http::uri::PathAndQuery;
use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tokio::runtime::Runtime;
use tonic::client;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::{
    Accepted, DISTRUSTED, Failure, Request, Settings, Signal, Target, Transport, accepted, distrusted, shown,
};

/// A gRPC receiver.
pub(super) struct Grpc {
    runtime: Runtime,
    channel: Channel,
    name: String,
    metadata: MetadataMap,
    gzip: bool,
}

impl Grpc {
    pub(super) fn new(target: &Target, settings: &Settings) -> Result<Self, String> {
        let mut metadata = MetadataMap::new();
        for (name, value) in &settings.headers {
            let key = AsciiMetadataKey::from_str(&name.to_ascii_lowercase());
            let (Ok(key), Ok(value)) = (key, AsciiMetadataValue::try_from(value)) else {
                return Err(format!("{name:?} cannot be sent as a header"));
            };
            metadata.append(key, value);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot send: {error}"))?;
        let endpoint = Endpoint::from_shared(target.url()).map_err(|error| format!("{target}: {error}"))?;
        #[cfg(feature = "tls")]
        let endpoint = match target.is_encrypted() {
            true => endpoint
                .tls_config(super::tls::grpc_config(settings)?)
                .map_err(|error| format!("{target}: {}", chain(&error)))?,
            false => endpoint,
        };
        let channel = {
            let _in = runtime.enter();
            endpoint.connect_lazy()
        };
        Ok(Self { runtime, channel, name: target.to_string(), metadata, gzip: settings.gzip })
    }

    fn failure(&self, status: &Status) -> Failure {
        let after = pushed_back(status.details());
        // The status codes that OTLP specifies as retryable; RESOURCE_EXHAUSTED only if the receiver
        // states when to retry.
        let passing = match status.code() {
            Code::ResourceExhausted => after.is_some(),
            code => matches!(
                code,
                Code::Cancelled
                    | Code::DeadlineExceeded
                    | Code::Aborted
                    | Code::OutOfRange
                    | Code::Unavailable
                    | Code::DataLoss
            ),
        };
        let hint = match status.code() {
            Code::Unimplemented => {
                ": the receiver does not support this data (a Collector needs the feature gate \
                 service.profilesSupport and a pipeline for profiles)"
            }
            Code::Unauthenticated | Code::PermissionDenied => ": give its token with --header",
            _ => "",
        };
        let reason = reason(status);
        if distrusted(&reason) {
            return Failure::lasting(format!("{}: {reason}{DISTRUSTED}", self.name));
        }
        let message = format!("{} returned {:?}{hint}: {}", self.name, status.code(), shown(&reason));
        Failure { message, passing, after }
    }
}

impl Transport for Grpc {
    fn send(&mut self, request: &Request, limit: Duration) -> Result<Accepted, Failure> {
        let path = match &request.signal {
            Signal::Profiles => {
                "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"
            }
            Signal::Traces => "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
            Signal::Recording(_) => return Err(Failure::lasting("recordings go by HTTP, not gRPC")),
            Signal::Rows => return Err(Failure::lasting("rows go to fluentd:// only")),
        };
        let mut call = tonic::Request::new(Bytes::from(request.body.clone()));
        *call.metadata_mut() = self.metadata.clone();
        call.set_timeout(limit);
        let mut client = client::Grpc::new(self.channel.clone());
        if self.gzip {
            client = client
                .send_compressed(CompressionEncoding::Gzip)
                .accept_compressed(CompressionEncoding::Gzip);
        }
        let answered = self.runtime.block_on(async {
            let answering = async {
                client.ready().await.map_err(|error| Status::unavailable(chain(&error)))?;
                client.unary(call, PathAndQuery::from_static(path), Raw).await
            };
            tokio::time::timeout(limit, answering).await
        });
        match answered {
            Ok(Ok(answer)) => Ok(accepted(answer.get_ref())),
            Ok(Err(status)) => Err(self.failure(&status)),
            Err(_) => Err(Failure::passing(format!("{}: no response within {limit:?}", self.name))),
        }
    }
}

fn reason(status: &Status) -> String {
    match std::error::Error::source(status) {
        Some(source) => format!("{}: {}", status.message(), chain(source)),
        None => status.message().to_owned(),
    }
}

/// Formats an error with its sources, which state the actual cause.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text = format!("{text}: {error}");
        next = error.source();
    }
    text
}

/// A codec for messages that are already encoded, and for responses that the caller decodes.
#[derive(Clone, Copy, Debug)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// Returns the delay before a retry that the receiver requests: `google.rpc.RetryInfo` in the details of
/// its status.
fn pushed_back(details: &[u8]) -> Option<Duration> {
    let status = Details::decode(details).ok()?;
    let info = status.details.iter().find(|any| any.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(&*info.value).ok()?.delay?;
    Some(Duration::new(u64::try_from(delay.seconds).ok()?, u32::try_from(delay.nanos).ok()?.min(999_999_999)))
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct Details {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    delay: Option<Delay>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}
