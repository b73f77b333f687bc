//! The client for HTTP.

use std::{sync::Arc, time::Duration};

use ureq::tls::{RootCerts, TlsConfig};

/// A client that gives up after `limit` without any progress, and after `whole` in any case.
pub(crate) fn agent(limit: Duration, whole: Duration) -> ureq::Agent {
    let tls = TlsConfig::builder()
        // The host's certificates, a company's own among them.
        .root_certs(RootCerts::PlatformVerifier)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    let limit = Some(limit);
    ureq::Agent::config_builder()
        .tls_config(tls)
        .user_agent(concat!("memtrace/", env!("CARGO_PKG_VERSION")))
        .timeout_resolve(limit)
        .timeout_connect(limit)
        .timeout_per_read(limit)
        .timeout_per_write(limit)
        .timeout_recv_response(limit)
        .timeout_global(Some(whole))
        .build()
        .new_agent()
}
