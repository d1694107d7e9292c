//! Aggregates any bytes: samples loaded from a stream and in one pass have the same weight, stacks are
//! folded, and the summary and every predefined table are computed.
#![no_main]

use bytes::Bytes;
use flightline_consumer::fold::{FoldOptions, fold};
use flightline_consumer::load::{LoadOptions, load, load_recording};
use flightline_consumer::summary;
use flightline_consumer::view::{Options, Viewer};
use jfr_format::read::{Input, Item, Recording};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::copy_from_slice(data);
    let options = LoadOptions::default();
    let streamed = load(&mut Input::bytes(bytes.clone()), &options, |_| {});
    let one_pass = load_recording(&Recording::bytes(bytes.clone()), &options, 1, |_| {});
    let _ = summary::read_recording(&Recording::bytes(bytes.clone()), 10, 1, |_| {});
    if let (Ok(streamed), Ok(one_pass)) = (streamed, one_pass) {
        if streamed.warnings.is_empty() && one_pass.warnings.is_empty() {
            let weights = |loaded: &flightline_consumer::load::Loaded| {
                let mut samples: Vec<_> =
                    loaded.model.samples.values().map(|weight| format!("{weight:?}")).collect();
                samples.sort_unstable();
                samples
            };
            assert_eq!(weights(&streamed), weights(&one_pass));
        }
        let _ = fold(&one_pass.model, &FoldOptions::default());
    }
    let mut viewer = Viewer::new(Vec::new(), Options { all_event_types: true, ..Options::default() });
    let mut input = Input::bytes(bytes);
    while let Some(item) = input.next().expect("memory does not fail") {
        if let Item::Warning(warning) = &item {
            let _ = warning.to_string();
        }
        viewer.take(item);
    }
    drop(viewer.finish());
});
