//! From the registers of an interrupted thread to the list of its return addresses. [`walk`] steps from frame
//! to frame. It looks up the rule of an address in this order: [`rule_cache`], [`unwind_table`] of the module
//! that [`modules`] or [`loader`] finds, [`eh_frame`], `frame_pointer_fallback`. [`stack`] reads the memory.
//! Java frames are found by `hotspot`.

pub mod eh_frame;
pub mod expression;
mod frame_pointer_fallback;
pub(crate) mod hotspot;
pub mod instruction_analysis;
pub mod interrupted;
pub mod loader;
pub mod modules;
pub mod rule;
pub mod rule_cache;
pub mod stack;
pub mod unwind_table;
pub mod walk;
pub mod x86;
