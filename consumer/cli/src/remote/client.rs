//! Calls of the service's paths.

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

use crate::serve::token;

/// Lists of thousands of targets are not longer.
const LONGEST_ANSWER: u64 = 64 << 20;

/// Speaks to one service.
pub struct Client {
    agent: Agent,
    base: String,
    token: Mutex<Option<String>>,
    /// Where it stands, so that a new one is found there.
    token_file: Option<PathBuf>,
}

/// Why a call failed.
#[derive(Debug)]
pub enum Refused {
    /// Nobody answers.
    Unreachable(String),
    /// The service says no, with which status and in which words.
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
    /// Makes a client of the service at `base`, such as `http://127.0.0.1:7070`. The first line of `token_file` is the service's token; by
    /// default the token of this user's own service on this machine is used, if there is one. `authority` is a PEM file with the
    /// certificates to trust.
    ///
    /// # Errors
    /// The address is none; token or certificates cannot be read.
    pub fn new(base: &str, token_file: Option<&Path>, authority: Option<&Path>) -> Result<Self> {
        let token_file = token_file.map(Path::to_owned).or_else(|| token::find_for(base));
        let token = Mutex::new(token_file.as_deref().map(token::read).transpose()?);
        if !base.starts_with("http://") && !base.starts_with("https://") {
            bail!("{base} is no address of a service: give http://HOST:PORT or https://HOST:PORT");
        }
        // A token goes to the service that was named and to no other.
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
                    bail!("{}: no certificate in it", path.display());
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
    /// The service cannot be reached or refuses.
    pub fn call(
        &self,
        method: Method,
        path: &str,
        secret: Option<&str>,
        body: Option<SendBody<'_>>,
    ) -> Result<Response<Body>, Refused> {
        self.call_within(None, method, path, secret, body)
    }

    /// The same, but all of it, the answer's body included, within `limit`.
    ///
    /// # Errors
    /// As [`Client::call`].
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
                "cannot reach the service at {}: {error}; is `flightline serve` running there?",
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
            // Who tries again does so with what stands there now.
            *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(new);
        }
        let said = said.unwrap_or_else(|_| format!("{} answers {status}", self.base));
        Err(Refused::Status(status, crate::talk::plain(&said) + hint))
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

    /// What a path says.
    ///
    /// # Errors
    /// The service cannot be reached, refuses, or answers something else.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.answer(self.call(Method::GET, path, None, None)?)
    }

    /// Asks for something.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        let body = serde_json::to_vec(body)?;
        self.answer(self.call(
            Method::POST,
            path,
            None,
            Some(SendBody::from_owned_reader(Cursor::new(body))),
        )?)
    }

    /// Removes something; `None` if there is nothing more to be said of it.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>> {
        let response = self.call(Method::DELETE, path, None, None)?;
        if response.status() == 204 { Ok(None) } else { self.answer(response).map(Some) }
    }

    /// A file, as it comes, and its length.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn file(&self, path: &str) -> Result<(impl Read + 'static, Option<u64>)> {
        let body = self.call(Method::GET, path, None, None)?.into_body();
        let length = body.content_length();
        Ok((body.into_with_config().limit(u64::MAX).reader(), length))
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// It breaks off, or is none of a profiling service.
    pub fn answer<T: DeserializeOwned>(&self, mut response: Response<Body>) -> Result<T> {
        let body = response.body_mut().with_config().limit(LONGEST_ANSWER).read_to_vec();
        let body = body.with_context(|| format!("{} broke off", self.base))?;
        serde_json::from_slice(&body)
            .with_context(|| format!("{} answers what no profiling service does", self.base))
    }
}
