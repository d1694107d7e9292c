//! Feeds the fuzzer's bytes to a connection: heads, paths, queries, ranges, and all kinds of bodies. Each
//! request is answered or the connection closes; no request may panic or be answered with a 500. `TARGET`,
//! `RUN` and `SECRET` in the input are replaced with existing names.
#![no_main]

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flightline_service::clock::Machine;
use flightline_service::core::{Core, Delivered};
use flightline_service::http::{App, router};
use flightline_service::settings::Settings;
use flightline_service::wire::{Hello, Progress};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

const RECORDING: &[u8] = include_bytes!("../../../../fixtures/cases/62_many_types.jfr");
const HELLO: &str = r#"{"protocol":1,"key":"h/b/1/1","name":"fuzzed","host":"h","pid":1,"startTime":1,
    "modes":[{"mode":"CPU","available":true}]}"#;

struct Service {
    runtime: Runtime,
    core: Arc<Core>,
    names: [(&'static str, String); 3],
    _folder: TempDir,
}

/// One service for all inputs; its limits bound the state that an input leaves behind.
fn service() -> &'static Service {
    static SERVICE: OnceLock<Service> = OnceLock::new();
    SERVICE.get_or_init(|| {
        // Use tmpfs if available.
        let folder = match Path::new("/dev/shm").is_dir() {
            true => TempDir::new_in("/dev/shm"),
            false => TempDir::new(),
        };
        let folder = folder.expect("a folder");
        let settings = Settings {
            profiling: true,
            min_free: 0,
            max_targets: 16,
            window_bytes: 1 << 20,
            history_size: 4,
            ..Settings::default()
        };
        let core = Core::open(folder.path(), settings, Arc::new(Machine::default())).expect("a core").0;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let mut service = Service {
            runtime: runtime.expect("a runtime"),
            core,
            names: Default::default(),
            _folder: folder,
        };
        service.names = service.prepared();
        service
    })
}

impl Service {
    /// Creates a target that has a window and a finished run.
    fn prepared(&self) -> [(&'static str, String); 3] {
        let core = &self.core;
        let hello: Hello = serde_json(HELLO);
        let welcome = core.hello(hello, None).expect("let in");
        let (target, secret) = (welcome.target, welcome.secret);
        core.put(&target, &secret, bytes::Bytes::from_static(RECORDING)).expect("chunks");
        let asked = flightline_service::core::RunRequest::parse(br#"{"mode":"CPU","duration":1}"#, &core.settings);
        let run = core.create(&target, &asked.expect("a request")).expect("a run").id;
        let begun = Progress::Started { effective_mode: String::new(), message: String::new() };
        core.progress(&target, &secret, &run, begun).expect("begun");
        let mut delivery = core.deliver(&target, &secret, &run).expect("a delivery");
        std::io::Write::write_all(delivery.file().expect("a file"), RECORDING).expect("written");
        let events = vec!["cpu".to_owned()];
        let told =
            Delivered { bytes: RECORDING.len() as u64, events, message: String::new(), ended: String::new() };
        delivery.complete(told).expect("complete");
        [("TARGET", target), ("RUN", run), ("SECRET", secret)]
    }

    fn answers(&self, said: &[u8]) -> Vec<u8> {
        self.runtime.block_on(async {
            let app = App::new(Arc::clone(&self.core), false, None).expect("an app");
            let (mut ours, theirs) = tokio::io::duplex(1 << 20);
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(30));
            http.max_buf_size(64 << 10).max_headers(64).half_close(true);
            let served = http.serve_connection(TokioIo::new(theirs), TowerToHyperService::new(router(app)));
            let talk = async {
                let mut answers = Vec::new();
                let _ = ours.write_all(said).await;
                let _ = ours.shutdown().await;
                let _ = ours.read_to_end(&mut answers).await;
                answers
            };
            tokio::join!(async { drop(served.await) }, talk).1
        })
    }
}

fn serde_json(text: &str) -> Hello {
    // Parse it as the service parses a request body.
    flightline_service::fuzzing::hello(text).expect("a hello")
}

fuzz_target!(|data: &[u8]| {
    let service = service();
    // An input may delete the run or the target, so recreate both for later inputs.
    let mut said = data.to_vec();
    for (name, value) in &service.names {
        said = replaced(&said, name.as_bytes(), value.as_bytes());
    }
    if said.len() > 256 << 10 {
        return;
    }
    let answers = service.answers(&said);
    let fault = answers.windows(12).any(|window| window == b"HTTP/1.1 500");
    assert!(!fault, "{}", String::from_utf8_lossy(&answers));
});

fn replaced(text: &[u8], what: &[u8], by: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with(what) {
            out.extend_from_slice(by);
            at += what.len();
        } else {
            out.extend_from_slice(&rest[..1]);
            at += 1;
        }
    }
    out
}
