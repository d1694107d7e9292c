//! Request bodies: a bare profile or a multipart form, compressed or not.

use std::io::Read;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use futures_core::Stream;
use multer::{Constraints, Multipart, SizeLimit};

use super::Error;

/// Parts of Pyroscope's forms.
const PARTS: [&str; 5] = ["jfr", "profile", "prev_profile", "labels", "sample_type_config"];

/// The parts that are used.
#[derive(Debug)]
pub(super) struct Parts {
    /// The recording or other profile.
    pub(super) profile: Bytes,
    /// Labels of its samples.
    pub(super) labels: Option<Bytes>,
}

/// Splits a body into its parts.
pub(super) fn parts(content_type: Option<&str>, body: Bytes) -> Result<Parts, Error> {
    let form = content_type.filter(|of| of.trim_start().to_ascii_lowercase().starts_with("multipart/"));
    let Some(form) = form else { return Ok(Parts { profile: body, labels: None }) };
    let flawed = |error: multer::Error| Error::Bad(format!("The form is invalid: {error}."));
    let boundary = multer::parse_boundary(form).map_err(flawed)?;
    let most = body.len() as u64;
    let constraints = Constraints::new()
        .allowed_fields(PARTS.to_vec())
        .size_limit(SizeLimit::new().whole_stream(most).per_field(most));
    let mut form = Multipart::with_constraints(Once(Some(body)), boundary, constraints);
    let mut found = Parts { profile: Bytes::new(), labels: None };
    let mut any = false;
    while let Some(field) = ready(form.next_field())?.map_err(flawed)? {
        let name = field.name().unwrap_or_default().to_owned();
        let bytes = ready(field.bytes())?.map_err(flawed)?;
        match name.as_str() {
            "jfr" | "profile" if any => {
                return Err(Error::Bad("The form has two profiles; send each in its own request.".into()));
            }
            "jfr" | "profile" => (found.profile, any) = (bytes, true),
            "labels" => found.labels = Some(bytes),
            // A cumulative profile, to be subtracted from the current one.
            "prev_profile" if !bytes.is_empty() => {
                return Err(Error::Unknown(
                    "`prev_profile` is not supported; configure the agent to send deltas.".into(),
                ));
            }
            _ => {}
        }
    }
    if !any {
        return Err(Error::Bad("The form has no part named `jfr` or `profile`.".into()));
    }
    Ok(found)
}

/// A stream of one item.
struct Once(Option<Bytes>);

impl Stream for Once {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.take().map(Ok))
    }
}

/// Polls a future that never has to wait.
fn ready<T>(future: impl Future<Output = T>) -> Result<T, Error> {
    let mut future = pin!(future);
    // It may yield occasionally, but finishes because all data is available.
    for _ in 0..1 << 20 {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Ok(value);
        }
    }
    Err(Error::Bad("The form is incomplete.".into()))
}

/// Decompresses gzip data up to a limit; returns other data unchanged.
pub(super) fn unpacked(bytes: Bytes, most: usize, what: &str) -> Result<Bytes, Error> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return if bytes.len() > most { Err(Error::too_large(what, most)) } else { Ok(bytes) };
    }
    let mut out = Vec::new();
    let mut reader = MultiGzDecoder::new(&*bytes).take(most as u64 + 1);
    reader
        .read_to_end(&mut out)
        .map_err(|error| Error::Bad(format!("{what} cannot be decompressed: {error}.")))?;
    if out.len() > most {
        return Err(Error::too_large(what, most));
    }
    Ok(out.into())
}
