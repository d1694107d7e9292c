//! Decodes Pyroscope's `push.v1.PusherService/Push`, which Alloy and newer agents call: protobuf over plain
//! HTTP (Connect) that contains pprof.

use bytes::Bytes;
use prost::Message;

use super::profile_builder::ProfileBuilder;
use super::query::App;
use super::{Error, Limits, body, jfr_writer, label, pprof};
use crate::limits::LONGEST_TEXT;
use crate::wire::Labels;

/// Maximum number of series and samples in a request.
const MOST: usize = 4096;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Request {
    #[prost(message, repeated, tag = "1")]
    pub(super) series: Vec<Series>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Series {
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<Pair>,
    #[prost(message, repeated, tag = "2")]
    pub(super) samples: Vec<Raw>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Pair {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Raw {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) raw_profile: Bytes,
}

/// Decodes a request, compressed or not, into one recording per profile. `now` (UTC ms) is used for profiles
/// without a time.
///
/// # Errors
/// Returns an error if the request is too large or malformed.
pub fn pushed(request: Bytes, now: i64, limits: Limits) -> Result<Vec<(App, Bytes)>, Error> {
    if request.len() > limits.body {
        return Err(Error::too_large("The body", limits.body));
    }
    let bytes = body::unpacked(request, limits.message, "The request")?;
    let request = Request::decode(bytes)
        .map_err(|error| Error::Bad(format!("The body is not a PushRequest: {error}.")))?;
    if request.series.iter().map(|series| 1 + series.samples.len()).sum::<usize>() > MOST {
        return Err(Error::TooLarge(format!("The request has more than {MOST} profiles; send it in parts.")));
    }
    let (mut message, mut recording) = (limits.message, limits.recording);
    let mut taken = Vec::new();
    for series in &request.series {
        let app = app(&series.labels);
        for sample in &series.samples {
            let profile = body::unpacked(sample.raw_profile.clone(), message, "The profile")?;
            message -= profile.len().min(message);
            let mut builder = ProfileBuilder::new(limits.text);
            let times = pprof::take(&profile, &mut builder)?;
            let (from, until) = times.unwrap_or((now, now));
            let made = jfr_writer::recording(&builder, from, until, Limits { recording, ..limits })?;
            recording -= made.as_ref().map_or(0, |made| made.len().min(recording));
            taken.extend(made.map(|made| (app.clone(), made)));
        }
    }
    Ok(taken)
}

/// Returns the application. Labels that begin with `__` describe the profile, not its source.
fn app(pairs: &[Pair]) -> App {
    let mut labels = Labels::new();
    let mut name = String::new();
    for Pair { name: key, value } in pairs {
        match key.as_str() {
            "service_name" => name = super::cut(value, LONGEST_TEXT),
            key if key.starts_with("__") => {}
            key => label(&mut labels, key, value),
        }
    }
    App { name: if name.is_empty() { "unspecified".into() } else { name }, labels }
}
