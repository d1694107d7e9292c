//! Our readers and editors, compared with the readers of other projects; malformed input.

mod cases;
mod edit;
mod edit_readers;
mod fixtures;
mod java_reader;
mod malformed;
mod matrix;
mod own_events;
mod print_agrees;
mod print_text_agrees;
mod readers;
mod readers_agree;
mod summary_agrees;
mod views_agree;
