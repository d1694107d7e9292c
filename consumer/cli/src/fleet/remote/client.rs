//! HTTP client of the service.

use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use flightline_service::wire::{AGENT_HEADER, Errors};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::{Method, Request, Response};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, AsSendBody, Body, SendBody};

use crate::fleet::serve::token;
use crate::usage_error::bail_usage;

/// Maximum size of an answer; fits lists of thousands of targets.
const LONGEST_ANSWER: u64 = 64 << 20;

/// Client of a service.
pub struct Client {
    agent: Agent,
    base: String,
    token: Mutex<Option<String>>,
    /// File with the token, read again when the token changes.
    token_file: Option<PathBuf>,
}

/// Why a request failed.
#[derive(Debug)]
pub enum Refused {
    /// The service cannot be reached.
    Unreachable(String),
    /// The service refused: status and message.
    Status(u16, String),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(why) => f.write_str(why),
            Self::Status(_, said) => f.write_str(said),
        }
    }
}

impl std::error::Error for Refused {}

impl Client {
    /// Creates a client of the service at `base`, such as `http://127.0.0.1:7070`. The first line of
    /// `token_file` is the service's token; by default the token of this user's own service on this machine
    /// is used, if there is one. `authority` is a PEM file with the certificates to trust.
    ///
    /// # Errors
    /// Returns an error if the address is invalid, or the token or certificates cannot be read.
    pub fn new(base: &str, token_file: Option<&Path>, authority: Option<&Path>) -> Result<Self> {
        let token_file = token_file.map(Path::to_owned).or_else(|| token::find_for(base));
        let token = Mutex::new(token_file.as_deref().map(token::read).transpose()?);
        if !base.starts_with("http://") && !base.starts_with("https://") {
            bail_usage!("{base} is not the address of a service; give http://HOST:PORT or https://HOST:PORT");
        }
        // Do not follow redirects, so that the token is sent to the named service only.
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(Duration::from_secs(10)))
            .timeout_recv_response(Some(Duration::from_secs(120)));
        let config = match authority {
            Some(path) => {
                let pem = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
                let certificates = ureq::tls::parse_pem(&pem).filter_map(|item| match item {
                    Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(certificate),
                    _ => None,
                });
                let certificates: Vec<Certificate<'static>> = certificates.collect();
                if certificates.is_empty() {
                    bail!("{} contains no certificate", path.display());
                }
                config.tls_config(TlsConfig::builder().root_certs(RootCerts::from(certificates)).build())
            }
            None => config,
        };
        let base = base.trim_end_matches('/').to_owned();
        Ok(Self { agent: config.build().into(), base, token, token_file })
    }

    /// Sends a request; `secret` is an agent's.
    ///
    /// # Errors
    /// Returns an error if the service cannot be reached or refuses.
    pub fn call(
        &self,
        method: Method,
        path: &str,
        secret: Option<&str>,
        body: Option<SendBody<'_>>,
    ) -> Result<Response<Body>, Refused> {
        self.call_within(None, method, path, secret, body)
    }

    /// The same with a time limit that includes reading the answer.
    ///
    /// # Errors
    /// See [`Client::call`].
    pub fn call_within(
        &self,
        limit: Option<Duration>,
        method: Method,
        path: &str,
        secret: Option<&str>,
        body: Option<SendBody<'_>>,
    ) -> Result<Response<Body>, Refused> {
        let mut request = Request::builder().method(method).uri(format!("{}/v1{path}", self.base));
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(token) = &token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if let Some(secret) = secret {
            request = request.header(AGENT_HEADER, secret);
        }
        let unreachable = |error: &dyn std::fmt::Display| {
            Refused::Unreachable(format!(
                "cannot connect to the service at {}: {error}; check that `flightline serve` is running there",
                self.base
            ))
        };
        let response = match body {
            Some(body) => {
                request.body(body).map_err(ureq::Error::from).and_then(|request| self.send(request, limit))
            }
            None => request.body(()).map_err(ureq::Error::from).and_then(|request| self.send(request, limit)),
        };
        let mut response = response.map_err(|error| unreachable(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(1 << 16).read_to_vec().unwrap_or_default();
        let said = serde_json::from_slice::<Errors>(&body).map(|errors| errors.errors.join(" "));
        let hint = if status == 401 && token.is_none() { " Give it with --token-file." } else { "" };
        if status == 401
            && let Some(Ok(new)) = self.token_file.as_deref().map(token::read)
        {
            // A retry uses the current token.
            *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(new);
        }
        let said = said.unwrap_or_else(|_| format!("{} returned status {status}", self.base));
        Err(Refused::Status(status, crate::diagnostics::plain(&said) + hint))
    }

    fn send(
        &self,
        request: Request<impl AsSendBody>,
        limit: Option<Duration>,
    ) -> Result<Response<Body>, ureq::Error> {
        match limit {
            Some(_) => self.agent.run(self.agent.configure_request(request).timeout_global(limit).build()),
            None => self.agent.run(request),
        }
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// Returns an error if the service cannot be reached, refuses, or answers in another format.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.answer(self.call(Method::GET, path, None, None)?)
    }

    /// Sends a POST request.
    ///
    /// # Errors
    /// See [`Client::get`].
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        let body = serde_json::to_vec(body)?;
        self.answer(self.call(
            Method::POST,
            path,
            None,
            Some(SendBody::from_owned_reader(Cursor::new(body))),
        )?)
    }

    /// Sends a DELETE request; returns `None` for an empty answer.
    ///
    /// # Errors
    /// See [`Client::get`].
    pub fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>> {
        let response = self.call(Method::DELETE, path, None, None)?;
        if response.status() == 204 { Ok(None) } else { self.answer(response).map(Some) }
    }

    /// Downloads a file as a stream, with its length.
    ///
    /// # Errors
    /// See [`Client::get`].
    pub fn file(&self, path: &str) -> Result<(impl Read + 'static, Option<u64>)> {
        let body = self.call(Method::GET, path, None, None)?.into_body();
        let length = body.content_length();
        Ok((body.into_with_config().limit(u64::MAX).reader(), length))
    }

    /// Parses an answer.
    ///
    /// # Errors
    /// Returns an error if the answer is truncated or not from a profiling service.
    pub fn answer<T: DeserializeOwned>(&self, mut response: Response<Body>) -> Result<T> {
        let body = response.body_mut().with_config().limit(LONGEST_ANSWER).read_to_vec();
        let body = body.with_context(|| format!("the response of {} was cut off", self.base))?;
        serde_json::from_slice(&body)
            .with_context(|| format!("the response of {} is not that of a profiling service", self.base))
    }
}
