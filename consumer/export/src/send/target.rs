//! Addresses of receivers.

use std::fmt;

use super::{Settings, Transport};

/// A receiver's address: `http://host:4318`, `grpc://host:4317`, or with TLS `https://` and `grpcs://`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    scheme: Scheme,
    tls: bool,
    /// Host and port, with HTTP optionally a path, without a final `/`.
    place: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Grpc,
    Fluentd,
}

impl Target {
    /// Parses an address as the user writes it. The default port is OTLP's.
    ///
    /// # Errors
    /// Describes the mistake and the correct form.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::with_ports(text, 4318, 4318)
    }

    /// Like [`parse`](Self::parse), with the default port of Pyroscope.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse). gRPC is an error, because recordings are sent by HTTP.
    pub fn pyroscope(text: &str) -> Result<Self, String> {
        match Self::with_ports(text, 4040, 443)? {
            Self { scheme: Scheme::Grpc | Scheme::Fluentd, .. } => {
                Err(format!("{text}: recordings are sent by HTTP; give http://HOST:4040 or https://HOST"))
            }
            target => Ok(target),
        }
    }

    fn with_ports(text: &str, plain: u16, encrypted: u16) -> Result<Self, String> {
        let (scheme, place) = text.split_once("://").ok_or_else(|| {
            format!("{text:?} is not an address; give http://HOST:4318 or grpc://HOST:4317")
        })?;
        let (scheme, port, tls) = match scheme {
            "http" => (Scheme::Http, plain, false),
            "grpc" => (Scheme::Grpc, 4317, false),
            "https" => (Scheme::Http, encrypted, true),
            "grpcs" => (Scheme::Grpc, 4317, true),
            "fluentd" => (Scheme::Fluentd, 24224, false),
            other => {
                return Err(format!(
                    "{other}:// is not supported; use http://, https://, grpc://, grpcs:// or fluentd://"
                ));
            }
        };
        if tls && cfg!(not(feature = "tls")) {
            return Err(format!(
                "{text}: this program was built without TLS; send to a collector on this machine \
                 (http://127.0.0.1:4318) that forwards the data"
            ));
        }
        let place = place.trim_end_matches('/');
        let (host, path) = place.split_once('/').map_or((place, ""), |(host, path)| (host, path));
        if host.is_empty()
            || text.contains(|c: char| c.is_whitespace() || c.is_control())
            || host.contains('@')
        {
            return Err(format!("{text:?} has no host, or an invalid host name"));
        }
        match scheme {
            Scheme::Http => {}
            _ if path.is_empty() => {}
            Scheme::Grpc => return Err(format!("{text}: gRPC addresses have no path; give grpc://{host}")),
            Scheme::Fluentd => {
                return Err(format!(
                    "{text}: Fluentd addresses have no path; give fluentd://{host} and --tag"
                ));
            }
        }
        let has_port =
            host.rsplit_once(':').is_some_and(|(before, _)| !before.contains(':') || before.ends_with(']'));
        let host = if has_port { host.to_owned() } else { format!("{host}:{port}") };
        if host.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
            return Err(format!("{text:?} has an invalid port; give a number up to 65535"));
        }
        let place = if path.is_empty() { host } else { format!("{host}/{path}") };
        Ok(Self { scheme, tls, place })
    }

    /// Size of the messages that receivers accept by default: the Collector accepts 20 MiB over HTTP, and
    /// any gRPC server 4 MiB.
    pub fn most_bytes(&self) -> usize {
        match self.scheme {
            Scheme::Http => 16 << 20,
            Scheme::Grpc => (4 << 20) - (64 << 10),
            // Fluentd's buffers have chunks of 8 MiB by default.
            Scheme::Fluentd => 1 << 20,
        }
    }

    /// The URL for an HTTP client.
    #[cfg(any(feature = "http", feature = "grpc"))]
    pub(super) fn url(&self) -> String {
        format!("http{}://{}", if self.tls { "s" } else { "" }, self.place)
    }

    /// Returns true if the receiver expects rows.
    pub fn is_fluentd(&self) -> bool {
        self.scheme == Scheme::Fluentd
    }

    /// Returns true if the connection uses TLS.
    pub fn is_encrypted(&self) -> bool {
        self.tls
    }

    /// Opens the transport.
    ///
    /// # Errors
    /// Support for the protocol was not built in, or the address or a header is invalid.
    pub(super) fn open(&self, settings: &Settings) -> Result<Box<dyn Transport>, String> {
        if !self.tls && (settings.ca_cert.is_some() || settings.insecure) {
            return Err(format!("{self} is not encrypted; certificates apply only to https:// and grpcs://"));
        }
        match self.scheme {
            #[cfg(feature = "http")]
            Scheme::Http => Ok(Box::new(super::http::Http::new(self, settings)?)),
            #[cfg(feature = "grpc")]
            Scheme::Grpc => Ok(Box::new(super::grpc::Grpc::new(self, settings)?)),
            Scheme::Fluentd => Ok(Box::new(super::fluentd::Fluentd::new(&self.place, settings)?)),
            #[allow(unreachable_patterns)] // with both features
            _ => Err(format!("{self}: this program was built without that way of sending")),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            Scheme::Http => "http",
            Scheme::Grpc => "grpc",
            Scheme::Fluentd => "fluentd",
        };
        write!(f, "{scheme}{}://{}", if self.tls { "s" } else { "" }, self.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_addresses_are_parsed_with_default_ports() {
        let shown = |text: &str| Target::parse(text).map(|target| target.to_string());
        assert_eq!(shown("http://collector").unwrap(), "http://collector:4318");
        assert_eq!(shown("grpc://[::1]").unwrap(), "grpc://[::1]:4317");
        assert_eq!(shown("http://[::1]:80/otlp/").unwrap(), "http://[::1]:80/otlp");
        let wrong = [
            "",
            "collector:4318",
            "ftp://x",
            "http://",
            "grpc://x/y",
            "http://x:70000",
            "http://a b",
            "http://u@h",
        ];
        for text in wrong {
            assert!(shown(text).is_err(), "{text}");
        }
        let pyroscope = |text: &str| Target::pyroscope(text).map(|target| target.to_string());
        assert_eq!(pyroscope("http://pyroscope/base/").unwrap(), "http://pyroscope:4040/base");
        assert!(pyroscope("grpc://pyroscope").unwrap_err().contains("http://HOST:4040"));
        if cfg!(feature = "tls") {
            assert_eq!(pyroscope("https://x").unwrap(), "https://x:443");
            assert_eq!(shown("https://x/otlp").unwrap(), "https://x:4318/otlp");
            assert_eq!(shown("grpcs://x:443").unwrap(), "grpcs://x:443");
        } else {
            assert!(shown("https://x").unwrap_err().contains("127.0.0.1:4318"));
        }
    }
}
