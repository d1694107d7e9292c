//! Goes on with a walk where its copy of the stack ends, by the chain of frame pointers that the kernel followed when it took
//! the sample: stacks deeper than the copy, and Go's, which change from the thread's stack to a goroutine's.
//!
//! Code without frame pointers leaves anything in that chain. It is believed from where it meets the walked frames, as long
//! as each address follows a call instruction, and leads to a root only where the function that it ends in is one.

use std::{collections::HashMap, sync::atomic::AtomicU64};

use flightline_in_signal::{sys, walk::follows_call};

use super::RemoteUnwinder;
use crate::{names::images::Images, names::modules::ModuleMap};

/// Functions of Go's runtime in which its own tracebacks end. Go's linker writes no unwind information that says so.
const GO_ROOTS: [&str; 3] = ["runtime.goexit", "runtime.mstart", "runtime.rt0_go"];
/// Addresses remembered at most.
const MAX_KNOWN: usize = 1 << 16;

/// What an address in a chain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressKind {
    /// Behind no call: nothing returns there.
    Wrong,
    /// Behind a call.
    Return,
    /// Behind a call, in a function that nothing calls.
    Root,
}

/// What is known of the addresses in a process's chains.
#[derive(Default)]
pub struct Chains {
    places: HashMap<u64, AddressKind>,
    /// Version of the modules, and files that were still being read, when that was found out.
    state: (u64, usize),
}

/// What the addresses are looked up in.
pub struct World<'a> {
    /// The process.
    pub pid: u32,
    /// What is mapped.
    pub modules: &'a ModuleMap,
    /// Files.
    pub images: &'a mut Images,
    /// Unwind rows.
    pub rows: &'a [AtomicU64],
    /// Asked for rules.
    pub walker: &'a mut RemoteUnwinder,
}

impl Chains {
    /// Appends to the walked `frames` those of `chain` above them, up to `depth` in all. Returns true if they lead to the root.
    ///
    /// `above` is the part of the chain above the last walked frame by its frame pointer, if that is known. It is used where the
    /// chain does not have the last frame itself: code without frame pointers, such as C called from Go, is not in it.
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

/// Where in `chain` the last of the walked frames is. Recursion repeats addresses: the place before which most agrees is right,
/// and of several the first, for the chain may have left out frames (of functions that were being entered) but none was
/// added to it.
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
    // Of a process that is gone there is nothing left to read, but it did return there.
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
    fn where_chain_and_walk_meet() {
        assert_eq!(meet(&[1, 2, 3], &[1, 2, 3, 4]), Some(2));
        // A frame that the chain left out.
        assert_eq!(meet(&[1, 2, 3], &[1, 3, 4]), Some(1));
        // Recursion: all that was walked is in the chain, so none of what follows is.
        assert_eq!(meet(&[1, 5, 5, 5], &[1, 5, 5, 5, 5, 5, 6]), Some(3));
        assert_eq!(meet(&[1, 2, 5, 5, 5], &[1, 5, 5, 5, 5, 5, 6]), Some(3));
        assert_eq!(meet(&[1, 5, 6, 5, 6], &[1, 5, 6, 5, 6, 5, 6, 7]), Some(4));
        // Only where the program was interrupted.
        assert_eq!(meet(&[1], &[1, 2]), Some(0));
        for (frames, chain) in [(&[1, 2][..], &[1, 3][..]), (&[], &[1]), (&[1], &[]), (&[1], &[2, 1])] {
            assert_eq!(meet(frames, chain), None, "{frames:?} {chain:?}");
        }
    }
}
