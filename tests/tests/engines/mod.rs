//! What each engine records, compared with the kernel or with the program's own clock.

mod alloc;
mod conservation;
mod events;
mod everything;
mod io;
mod known_answer;
mod lock;
mod rates;
mod short_threads;
mod throw;
mod trace;
mod wall;
