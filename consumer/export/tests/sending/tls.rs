//! Receivers with a self-signed certificate are trusted only if the user names the certificate.

use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;

/// The receiver's TLS settings, and its certificate in PEM.
fn certificate(names: &[&str], protocol: &[u8]) -> (Arc<ServerConfig>, Vec<u8>) {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(names).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    (config.into(), cert.pem().into())
}

/// An HTTP receiver that accepts several connections; some may end before a request.
fn receiver(config: Arc<ServerConfig>) -> (Target, Receiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target::parse(&format!("https://{}", listener.local_addr().unwrap())).unwrap();
    let (tell, told) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(config.clone()).unwrap();
            let mut stream = StreamOwned::new(connection, stream.unwrap());
            // A client that does not trust the certificate closes the connection.
            while stream.conn.is_handshaking() {
                if stream.conn.complete_io(&mut stream.sock).is_err() {
                    break;
                }
            }
            // With TLS 1.3, its alert arrives after the handshake.
            let mut first = [0; 1];
            if !stream.conn.is_handshaking() && matches!(stream.read(&mut first), Ok(1)) {
                let stream = Whole(std::io::Cursor::new(first), stream);
                tell.send(answer(stream, &response("200 OK", PROTOBUF, b""))).unwrap();
            }
        }
    });
    (target, told)
}

/// A stream whose first byte has already been read.
struct Whole<S>(std::io::Cursor<[u8; 1]>, S);

impl<S: Read> Read for Whole<S> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(buffer)? {
            0 => self.1.read(buffer),
            read => Ok(read),
        }
    }
}

impl<S: Write> Write for Whole<S> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.1.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.1.flush()
    }
}

/// Sends one request and returns the report.
fn sent(target: &Target, settings: Settings) -> (Report, Vec<String>) {
    let sender = Sender::new(target, settings).unwrap();
    sender.put(request(Signal::Profiles, 1_000));
    sender.finish(Duration::from_secs(60))
}

#[test]
fn https_verifies_server_certificate() {
    let (config, pem) = certificate(&["127.0.0.1", "localhost"], b"http/1.1");
    let (target, told) = receiver(config);
    let (report, messages) = sent(&target, Settings { ca_cert: Some(pem.clone()), ..settings() });
    assert_eq!((report.sent, report.retries), (10, 0), "{messages:?}");
    assert_eq!(told.recv().unwrap().2.len(), 1_000);
    let (report, messages) = sent(&target, Settings { insecure: true, ..settings() });
    assert_eq!((report.sent, report.retries), (10, 0), "{messages:?}");
    told.recv().unwrap();

    // Another receiver's certificate, and one for another name: nothing is sent, and there is no retry.
    let (other, others) = certificate(&["127.0.0.1"], b"http/1.1");
    drop(other);
    let (elsewhere, its) = certificate(&["elsewhere.example"], b"http/1.1");
    let (elsewhere, told_elsewhere) = receiver(elsewhere);
    for (target, pem) in [(&target, others), (&elsewhere, its)] {
        let (report, messages) = sent(target, Settings { ca_cert: Some(pem), ..settings() });
        assert_eq!((report.sent, report.failed, report.retries), (0, 10, 0), "{messages:?}");
        assert!(messages[0].contains("certificate") && messages[0].contains("--ca-cert"), "{messages:?}");
    }
    assert!(told.try_recv().is_err() && told_elsewhere.try_recv().is_err());

    let refused = |settings: Settings, target: &str| {
        Sender::new(&Target::parse(target).unwrap(), settings).err().unwrap_or_else(|| panic!("{target}"))
    };
    let nothing = || Settings { ca_cert: Some(b"no certificate".to_vec()), ..settings() };
    assert!(refused(nothing(), "https://x").contains("BEGIN CERTIFICATE"));
    assert!(refused(Settings { ca_cert: Some(pem), ..settings() }, "http://x").contains("not encrypted"));
    assert!(refused(Settings { insecure: true, ..settings() }, "grpcs://x").contains("--ca-cert"));
}

#[test]
fn grpcs_verifies_server_certificate() {
    let (config, pem) = certificate(&["127.0.0.1"], b"h2");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let target = Target::parse(&format!("grpcs://{}", listener.local_addr().unwrap())).unwrap();
    let (tell, told) = channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let acceptor = tokio_rustls::TlsAcceptor::from(config);
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(stream) = acceptor.accept(stream).await else { continue };
                let Ok(mut connection) = h2::server::handshake(stream).await else { continue };
                let tell = tell.clone();
                tokio::spawn(async move {
                    while let Some(Ok((request, respond))) = connection.accept().await {
                        let answer = ("0", "", partial(0, ""));
                        tokio::spawn(answer_call(request, respond, answer, tell.clone()));
                    }
                });
            }
        });
    });
    let (report, messages) = sent(&target, Settings { ca_cert: Some(pem), gzip: false, ..settings() });
    assert_eq!((report.sent, report.retries), (10, 0), "{messages:?}");
    assert_eq!(told.recv().unwrap().1.len(), 1_005);
    // The system's trust store does not contain the certificate.
    let (_, others) = certificate(&["127.0.0.1"], b"h2");
    let (report, messages) = sent(&target, Settings { ca_cert: Some(others), ..settings() });
    assert_eq!((report.sent, report.failed, report.retries), (0, 10, 0), "{messages:?}");
    assert!(messages[0].contains("certificate") && messages[0].contains("--ca-cert"), "{messages:?}");
}
