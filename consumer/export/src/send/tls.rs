//! TLS settings: which certificates to trust.

use super::Settings;

/// TLS settings of the HTTP client.
#[cfg(feature = "http")]
pub(super) fn http_config(settings: &Settings) -> Result<ureq::tls::TlsConfig, String> {
    use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
    let roots: Vec<Certificate<'static>> = match &settings.ca_cert {
        Some(pem) => parse_pem(pem)
            .filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(Ok(certificate)),
                Ok(_) => None,
                Err(error) => Some(Err(format!("the certificate cannot be read: {error}"))),
            })
            .collect::<Result<_, _>>()?,
        None if settings.insecure => Vec::new(),
        None => {
            let found = rustls_native_certs::load_native_certs();
            found.certs.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect()
        }
    };
    if roots.is_empty() && !settings.insecure {
        return Err(match settings.ca_cert {
            Some(_) => "the file has no PEM certificate (-----BEGIN CERTIFICATE-----)".to_owned(),
            None => "this machine has no trusted certificates; install the package ca-certificates, or \
                give a certificate with --ca-cert"
                .to_owned(),
        });
    }
    let roots = RootCerts::Specific(roots.into());
    Ok(TlsConfig::builder().root_certs(roots).disable_verification(settings.insecure).build())
}

/// TLS settings of the gRPC client.
#[cfg(feature = "grpc")]
pub(super) fn grpc_config(settings: &Settings) -> Result<tonic::transport::ClientTlsConfig, String> {
    use tonic::transport::{Certificate, ClientTlsConfig};
    if settings.insecure {
        return Err("--insecure does not apply to gRPC; give the receiver's certificate with --ca-cert, or use https://".to_owned());
    }
    Ok(match &settings.ca_cert {
        Some(pem) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)),
        None => ClientTlsConfig::new().with_native_roots(),
    })
}
