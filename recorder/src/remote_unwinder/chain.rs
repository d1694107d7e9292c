//! Continues a walk beyond the copy of the stack, with the chain of frame pointers that the kernel followed
//! when it took the sample. This serves stacks deeper than the copy, and Go's, which switch from the thread's
//! stack to a goroutine's.
//!
//! For code without frame pointers, the chain contains arbitrary values. It is used from where it meets the
//! walked frames, as long as each address follows a call instruction. It leads to a root only if it ends in a
//! function that is one.

use std::{collections::HashMap, sync::atomic::AtomicU64};

use flightline_in_signal::os::sys;
use flightline_in_signal::unwind::walk::follows_call;

use super::RemoteUnwinder;
use crate::{names::images::Images, names::modules::ModuleMap};

/// Functions of Go's runtime at which its own tracebacks end. Go's linker writes no unwind information for
/// this.
const GO_ROOTS: [&str; 3] = ["runtime.goexit", "runtime.mstart", "runtime.rt0_go"];
/// Limit of remembered addresses.
const MAX_KNOWN: usize = 1 << 16;

/// The kind of an address in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressKind {
    /// Not after a call, so no function returns there.
    Wrong,
    /// After a call.
    Return,
    /// After a call, in a function that has no caller.
    Root,
}

/// Cached kinds of the addresses in a process's chains.
#[derive(Default)]
pub struct Chains {
    places: HashMap<u64, AddressKind>,
    /// Version of the modules, and number of pending files, for which the cache is valid.
    state: (u64, usize),
}

/// The data for looking up addresses.
pub struct World<'a> {
    /// The PID.
    pub pid: u32,
    /// The mappings.
    pub modules: &'a ModuleMap,
    /// The files.
    pub images: &'a mut Images,
    /// Unwind tables.
    pub rows: &'a [AtomicU64],
    /// Finds unwind rules.
    pub walker: &'a mut RemoteUnwinder,
}

impl Chains {
    /// Appends the frames of `chain` above the walked `frames`, up to a total of `depth`. Returns true if
    /// they lead to the root.
    ///
    /// `above` is the part of the chain above the last walked frame according to its frame pointer, if that
    /// is known. It is used if the chain does not contain the last frame: code without frame pointers, such
    /// as C called from Go, is not in it.
    pub fn go_on(
        &mut self,
        frames: &mut Vec<u64>,
        chain: &[u64],
        above: Option<&[u64]>,
        depth: usize,
        world: &mut World<'_>,
    ) -> bool {
        let state = (world.modules.version, world.images.outstanding());
        if self.state != state || self.places.len() > MAX_KNOWN {
            self.state = state;
            self.places.clear();
        }
        let Some(&last) = frames.last() else { return false };
        if *self.places.entry(last).or_insert_with(|| look(last, world)) == AddressKind::Root {
            return true;
        }
        let met = meet(frames, chain).and_then(|at| chain.get(at + 1..));
        let Some(rest) = met.or(above) else { return false };
        for &address in rest {
            let place = *self.places.entry(address).or_insert_with(|| look(address, world));
            if place == AddressKind::Wrong || frames.len() >= depth {
                return false;
            }
            frames.push(address);
            if place == AddressKind::Root {
                return true;
            }
        }
        false
    }
}

/// Returns the position in `chain` of the last walked frame. Recursion repeats addresses, so the position
/// with the longest match before it is right. Of several, it is the first, because the chain may omit frames
/// (of functions that are being entered) but has no additional ones.
fn meet(frames: &[u64], chain: &[u64]) -> Option<usize> {
    let last = frames.last()?;
    let agree = |at: usize| {
        let before = chain.get(..=at).unwrap_or_default();
        before.iter().rev().zip(frames.iter().rev()).take_while(|(a, b)| a == b).count()
    };
    let places = (0..chain.len().min(frames.len())).filter(|at| chain.get(*at) == Some(last));
    places.rev().max_by_key(|at| agree(*at))
}

fn look(address: u64, world: &mut World<'_>) -> AddressKind {
    let World { pid, modules, images, .. } = world;
    let Some(mapping) = address.checked_sub(1).and_then(|at| modules.find(at)) else {
        return AddressKind::Wrong;
    };
    images.want(mapping.image);
    let symbols = &images.get(mapping.image).symbols;
    let function = symbols.find((address - 1).wrapping_sub(mapping.bias));
    let name = symbols.name(function).map(|name| name.text);
    let mut before = [0; 8];
    // SAFETY: the buffer has eight bytes.
    let got = unsafe { sys::read_process(*pid, address.wrapping_sub(8), before.as_mut_ptr(), before.len()) };
    // After the end of the process, its code cannot be read, but the address is a valid return address.
    let gone = got != before.len() && name.is_some();
    // Go enters goroutines by a return to the second instruction of their root.
    let root = name.is_some_and(|name| GO_ROOTS.contains(&name.strip_suffix(".abi0").unwrap_or(&name)));
    if root || world.walker.is_root(*pid, address, modules, images, world.rows) {
        return AddressKind::Root;
    }
    let call = got == before.len() && (!cfg!(target_arch = "x86_64") || follows_call(before));
    if call || gone { AddressKind::Return } else { AddressKind::Wrong }
}

#[cfg(test)]
mod tests {
    use super::meet;

    #[test]
    fn call_chain_and_walk_are_joined_at_common_frame() {
        assert_eq!(meet(&[1, 2, 3], &[1, 2, 3, 4]), Some(2));
        // A frame that the chain omits.
        assert_eq!(meet(&[1, 2, 3], &[1, 3, 4]), Some(1));
        // Recursion: the chain contains all walked frames, so the frames after them are new.
        assert_eq!(meet(&[1, 5, 5, 5], &[1, 5, 5, 5, 5, 5, 6]), Some(3));
        assert_eq!(meet(&[1, 2, 5, 5, 5], &[1, 5, 5, 5, 5, 5, 6]), Some(3));
        assert_eq!(meet(&[1, 5, 6, 5, 6], &[1, 5, 6, 5, 6, 5, 6, 7]), Some(4));
        // Only the interrupted frame was walked.
        assert_eq!(meet(&[1], &[1, 2]), Some(0));
        for (frames, chain) in [(&[1, 2][..], &[1, 3][..]), (&[], &[1]), (&[1], &[]), (&[1], &[2, 1])] {
            assert_eq!(meet(frames, chain), None, "{frames:?} {chain:?}");
        }
    }
}
