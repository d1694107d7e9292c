//! All tests of this crate in one executable, which links the recorder and the consumer only once.

mod agent;
mod agent_joins;
mod alloc;
mod anchors;
mod bounded;
mod budget;
mod cases;
mod collect;
mod conservation;
mod contexts;
mod control;
mod crash_steps;
mod crashes;
mod crowds;
mod dump;
mod edit;
mod edit_readers;
mod errors;
mod events;
mod everything;
mod export;
mod fatal;
mod fixtures;
mod frames;
mod guests;
mod house;
mod in_handler;
mod interop;
mod io;
mod java;
mod java_reader;
mod kills;
mod known_answer;
mod languages;
mod library;
mod live;
mod live_readers;
mod lock;
mod malformed;
mod matrix;
mod modules;
mod names;
mod off_cpu;
mod off_cpu_graphs;
mod off_cpu_spans;
mod outside;
mod outside_uprobes;
mod own_events;
mod own_samples;
mod packaging;
mod print_agrees;
mod print_text_agrees;
mod programs;
mod rates;
mod readers;
mod readers_agree;
mod readme;
mod repository;
mod repository_limits;
mod safety;
mod scopes;
mod service;
mod service_doors;
mod service_hostile;
mod service_store;
mod service_windows;
mod short_threads;
mod span_truth;
mod spans;
mod stacks;
mod stall;
mod store;
mod stream;
mod stress;
mod suites;
mod summary_agrees;
mod thread_names;
mod thrift;
mod throw;
mod trace;
mod views_agree;
mod wall;

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

/// Runs before the test harness, while the process has one thread.
extern "C" fn before_main() {
    more_threads();
    // Users other than root share the machine's `/dev/shm`.
    let _ = flightline_tests::private_shm::enter();
}

/// Gives this executable more threads than [`.cargo/config.toml`] sets for all, because most of them wait for
/// their turn ([`flightline_tests::run::turn`]). The test harness has no other way to set their number. A
/// number that the user set is not changed.
fn more_threads() {
    const VARIABLE: &str = "RUST_TEST_THREADS";
    if std::env::var(VARIABLE).is_ok_and(|threads| threads == "4") {
        // SAFETY: the process has one thread before `main`.
        unsafe { std::env::set_var(VARIABLE, flightline_tests::run::THREADS.to_string()) };
    }
}
