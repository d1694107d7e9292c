//! All tests of this crate in one executable, which links the recorder and the consumer only once.

mod effects;
mod engines;
mod fleet;
mod off_cpu;
mod processes;
mod reading;
mod source_tree;
mod spans;
mod stacks;
mod streaming;

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
