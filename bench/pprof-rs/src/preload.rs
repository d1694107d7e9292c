//! Preloads pprof-rs into any program: it takes PPROF_RATE samples per second and writes the profile to PPROF_OUT at exit.
//! Without PPROF_RATE it does not record.
use std::io::Write;
use std::sync::Mutex;

use pprof::ProfilerGuard;
use pprof::protos::Message;

static GUARD: Mutex<Option<ProfilerGuard<'static>>> = Mutex::new(None);

unsafe extern "C" {
    fn atexit(call: extern "C" fn()) -> i32;
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    let Some(rate) = std::env::var("PPROF_RATE").ok().and_then(|rate| rate.parse().ok()) else { return };
    let guard = pprof::ProfilerGuardBuilder::default().frequency(rate).build();
    *GUARD.lock().unwrap() = Some(guard.unwrap());
    // SAFETY: `finish` is a plain function of this library, which is never unloaded.
    unsafe { atexit(finish) };
}

extern "C" fn finish() {
    let Some(guard) = GUARD.lock().unwrap().take() else { return };
    let report = guard.report().build().unwrap();
    drop(guard);
    let mut bytes = Vec::new();
    report.pprof().unwrap().encode(&mut bytes).unwrap();
    let out = std::env::var_os("PPROF_OUT").expect("PPROF_OUT names the profile");
    std::fs::File::create(out).unwrap().write_all(&bytes).unwrap();
}
