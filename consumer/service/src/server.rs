//! The HTTP server: limited connections and timeouts, with or without TLS.

use std::convert::Infallible;
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep, interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

use crate::clock::Machine;
use crate::core::Core;
use crate::http::{App, Peer, router};
use crate::local::{Agents, Local};
use crate::log::Level;
use crate::settings::Settings;

/// Certificate and key as PEM files.
#[derive(Clone, Debug)]
pub struct Tls {
    /// The certificate chain, leaf first.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Serves until SIGINT or SIGTERM.
///
/// # Errors
/// See [`serve`].
pub fn serve_until_signal(
    address: SocketAddr,
    directory: &Path,
    settings: Settings,
    tls: Option<&Tls>,
    local: Option<Agents>,
    ready: impl FnOnce(SocketAddr, Vec<String>),
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let [mut interrupted, mut terminated] =
            [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
        let stop = async move {
            tokio::select! {
                _ = interrupted.recv() => {}
                _ = terminated.recv() => {}
            }
        };
        serve(address, directory, settings, tls, local, ready, stop).await
    })
}

/// Serves until `stop` completes; open requests then have a few seconds to finish. `ready` receives the
/// address and messages about unreadable history.
///
/// # Errors
/// Returns an error if the directory, address or certificate cannot be used.
pub async fn serve(
    address: SocketAddr,
    directory: &Path,
    settings: Settings,
    tls: Option<&Tls>,
    local: Option<Agents>,
    ready: impl FnOnce(SocketAddr, Vec<String>),
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let tls = tls.map(acceptor).transpose()?;
    let (connections, client_timeout) = (room_for(settings.connections), settings.client_timeout);
    let log = settings.log.clone();
    let (core, unreadable) = Core::open(directory, settings, Arc::new(Machine::default()))?;
    let listener = listen(address).map_err(|error| {
        Error::new(
            error.kind(),
            format!("cannot listen at {address}: {error}; give another address with --listen"),
        )
    })?;
    let address = listener.local_addr()?;
    let local = local.map(|agents| Arc::new(Local::new(agents.joining(address, tls.is_some()))));
    let app = App::new(Arc::clone(&core), tls.is_some(), local.clone())?;
    ready(address, unreadable);
    log.write(Level::Info, "serving", &[("address", (&address.to_string()).into())]);
    let passing = Arc::clone(&core);
    let looking = tokio::spawn(look(core, local));
    let server =
        Server { router: router(app), tls, client_timeout, room: Arc::new(Semaphore::new(connections)) };
    server.run(listener, stop).await;
    looking.abort();
    // Let queued recordings arrive.
    let _ = tokio::task::spawn_blocking(move || passing.forward().finish(Duration::from_secs(5))).await;
    log.write(Level::Info, "ended", &[]);
    log.flush();
    Ok(())
}

/// Listen backlog. Agents that lost their service all reconnect at the same time; one that finds the queue
/// full retries after a second.
const BACKLOG: u32 = 4096;

fn listen(address: SocketAddr) -> Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Raises the file descriptor limit and caps connections at half of it: each window holds a descriptor, and
/// files are open for a while.
fn room_for(connections: usize) -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return connections };
    let wanted = hard.min(1 << 16).max(soft);
    let permitted = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).map_or(soft, |()| wanted);
    connections.min(usize::try_from(permitted / 2).unwrap_or(usize::MAX)).max(1)
}

/// Looks for silent agents and overdue runs every half second, off the async threads.
async fn look(core: Arc<Core>, local: Option<Arc<Local>>) {
    let mut beat = interval(Duration::from_millis(500));
    loop {
        beat.tick().await;
        let (core, local) = (Arc::clone(&core), local.clone());
        let look = move || {
            core.look();
            local.iter().for_each(|local| local.look());
        };
        let _ = tokio::task::spawn_blocking(look).await;
    }
}

fn acceptor(tls: &Tls) -> Result<TlsAcceptor> {
    let bad = |path: &Path, error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::InvalidInput, format!("{}: {error}", path.display()))
    };
    let chain: std::result::Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(&tls.certificate).and_then(Iterator::collect);
    let chain = chain.map_err(|error| bad(&tls.certificate, &error))?;
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|error| bad(&tls.key, &error))?;
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| bad(&tls.certificate, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

struct Server {
    router: Router,
    tls: Option<TlsAcceptor>,
    client_timeout: Duration,
    room: Arc<Semaphore>,
}

impl Server {
    async fn run(self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let graceful = GracefulShutdown::new();
        let mut stop = pin!(stop);
        loop {
            // Connections above the limit wait in the listen backlog.
            let room = tokio::select! {
                room = Arc::clone(&self.room).acquire_owned() => room,
                () = &mut stop => break,
            };
            let Ok(room) = room else { break };
            let stream = tokio::select! {
                stream = listener.accept() => stream,
                () = &mut stop => break,
            };
            let Ok((stream, peer)) = stream else {
                // Usually out of file descriptors; wait until other connections close.
                sleep(Duration::from_millis(50)).await;
                continue;
            };
            let _ = stream.set_nodelay(true);
            let (tls, client_timeout, watcher) = (self.tls.clone(), self.client_timeout, graceful.watcher());
            let service = PeerService { router: self.router.clone(), peer: Peer(peer) };
            tokio::spawn(async move {
                let _while_it_lasts = room;
                match tls {
                    None => serve_connection(stream, service, client_timeout, watcher).await,
                    Some(tls) => {
                        if let Ok(Ok(stream)) = timeout(client_timeout, tls.accept(stream)).await {
                            serve_connection(stream, service, client_timeout, watcher).await;
                        }
                    }
                }
            });
        }
        drop(listener);
        let _ = timeout(Duration::from_secs(5), graceful.shutdown()).await;
    }
}

async fn serve_connection<S>(
    stream: S,
    service: PeerService,
    client_timeout: Duration,
    watcher: hyper_util::server::graceful::Watcher,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(client_timeout).max_buf_size(32 << 10).max_headers(64);
    let stream = TokioIo::new(WriteTimeout { stream, client_timeout, waiting: None });
    // Errors of a connection concern only its client.
    let _ = watcher.watch(http.serve_connection(stream, TowerToHyperService::new(service))).await;
}

/// The router, with the client's address.
#[derive(Clone)]
struct PeerService {
    router: Router,
    peer: Peer,
}

impl tower_service::Service<Request<Incoming>> for PeerService {
    type Response = Response;
    type Error = Infallible;
    type Future = <Router as tower_service::Service<Request<Incoming>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        <Router as tower_service::Service<Request<Incoming>>>::poll_ready(&mut self.router, context)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer);
        self.router.call(request)
    }
}

/// A stream that fails if the client does not read what is written.
struct WriteTimeout<S> {
    stream: S,
    client_timeout: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    fn wrote<T>(&mut self, context: &mut Context<'_>, done: Poll<Result<T>>) -> Poll<Result<T>> {
        if done.is_ready() {
            self.waiting = None;
            return done;
        }
        let until = Instant::now() + self.client_timeout;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(context, done)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(context);
        self.wrote(context, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let done = Pin::new(&mut self.stream).poll_shutdown(context);
        self.wrote(context, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[std::io::IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.wrote(context, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
