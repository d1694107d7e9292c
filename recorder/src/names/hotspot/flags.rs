//! Turns on a JVM's description of all its compiled code.
//!
//! By default, HotSpot's compilers describe code only where a thread can stop (safepoints): an address in
//! between has the line, and the inlined methods, of the next such place. The flag `DebugNonSafepoints` makes
//! them describe all instructions. Each compilation reads the flag once, so it can be set at any time: JVMTI
//! agents set it in the same way when they ask for events about compiled methods. Only methods that are compiled
//! later are described completely. The JVM's own code does not depend on the flag.

use std::io::IoSlice;

use nix::sys::uio::{RemoteIoVec, process_vm_writev};
use nix::unistd::Pid;

use super::layout::HotspotLayout;
use super::memory::{ReadMemory, RemoteMemory};

/// Limit of the number of flags. HotSpot has up to 1,500.
const MAX_FLAGS: usize = 8192;
/// Limit of the length of a flag's name.
const MAX_NAME: usize = 128;
/// The bits of a flag's `_flags` that state its origin. 0: the default value.
const ORIGIN: u64 = 15;
const DEBUG_NON_SAFEPOINTS: &str = "DebugNonSafepoints";

/// A flag of type `bool`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BoolFlag {
    /// The address of its value.
    address: u64,
    value: bool,
    /// Its value was not set by an option.
    is_default: bool,
}

/// Makes the compilers of a JVM describe all instructions, unless an option sets the flag. Returns false if the
/// flag cannot be found or written yet.
pub fn describe_all_code(memory: RemoteMemory, layout: &HotspotLayout) -> bool {
    let Some(flag) = find(&memory, layout, DEBUG_NON_SAFEPOINTS) else { return false };
    if flag.value || !flag.is_default {
        return true;
    }
    let remote = RemoteIoVec { base: flag.address as usize, len: 1 };
    let pid = Pid::from_raw(memory.pid as i32);
    process_vm_writev(pid, &[IoSlice::new(&[1])], &[remote]) == Ok(1)
}

/// Finds a flag by its name.
fn find(memory: &impl ReadMemory, layout: &HotspotLayout, name: &str) -> Option<BoolFlag> {
    let flags = &layout.flags;
    let count = usize::try_from(memory.u64(flags.count)?).ok()?.min(MAX_FLAGS);
    let array = memory.u64(flags.array)?;
    let size = flags.size as usize;
    let bytes = memory.bytes(array, count.checked_mul(size)?)?;
    for flag in bytes.chunks_exact(size) {
        let pointer = |offset: u32| {
            let found = flag.get(offset as usize..)?.first_chunk::<8>()?;
            Some(u64::from_le_bytes(*found))
        };
        // The last entry has no name.
        let at = pointer(flags.name)?;
        if at != 0 && memory.c_string(at, MAX_NAME).is_some_and(|found| found == name) {
            let address = pointer(flags.address)?;
            let [value] = memory.array(address)?;
            let is_default = flags.origin.unsigned(flag)? & ORIGIN == 0;
            return (value <= 1).then_some(BoolFlag { address, value: value == 1, is_default });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::hotspot::HotspotNames;
    use crate::names::hotspot::live_tests::{Jvm, compile, compiled_methods, java_homes};
    use crate::names::hotspot::memory::FakeMemory;
    use crate::names::hotspot::tests::jvm;

    #[test]
    fn flags_are_found_by_name() {
        let (mut memory, names) = jvm(true);
        let layout = names.layout();
        memory.set_u64(layout.flags.array, 0x8000);
        memory.set_u64(layout.flags.count, 3);
        memory.set_c_string(0x8100, "Other");
        memory.set_c_string(0x8200, DEBUG_NON_SAFEPOINTS);
        memory.set(0x8300, &[0, 1]);
        let entry =
            |address: u64, name: u64, origin: u64| [address, name, origin].map(u64::to_le_bytes).concat();
        let entries =
            |origin| [entry(0x8301, 0x8100, 1), entry(0x8300, 0x8200, origin), entry(0, 0, 0)].concat();
        memory.set(0x8000, &entries(0));
        let flag = |memory: &FakeMemory, name| find(memory, layout, name);
        let default = BoolFlag { address: 0x8300, value: false, is_default: true };
        assert_eq!(flag(&memory, DEBUG_NON_SAFEPOINTS), Some(default));
        assert_eq!(
            flag(&memory, "Other"),
            Some(BoolFlag { address: 0x8301, value: true, is_default: false })
        );
        assert_eq!(flag(&memory, "Missing"), None);
        memory.set(0x8000, &entries(0x21));
        assert_eq!(flag(&memory, DEBUG_NON_SAFEPOINTS), Some(BoolFlag { is_default: false, ..default }));
        memory.set(0x8300, &[7]);
        assert_eq!(flag(&memory, DEBUG_NON_SAFEPOINTS), None, "no bool");
        memory.set_u64(layout.flags.count, u64::MAX);
        assert_eq!(flag(&memory, DEBUG_NON_SAFEPOINTS), None, "more than there are");
    }

    /// Returns the number of described addresses in each KiB of code of the test program.
    fn descriptions(jvm: &Jvm) -> f64 {
        let mut names = HotspotNames::new(jvm.layout);
        let (mut described, mut bytes) = (0, 0);
        for (nmethod, size) in compiled_methods(jvm, &mut names, "HotspotNames") {
            let _ = names.compiled(&jvm.memory, nmethod, None, nmethod, false, &mut Vec::new());
            described += names.nmethods.get(&nmethod).map_or(0, |cached| cached.pcs.len());
            bytes += size;
        }
        described as f64 / bytes as f64 * 1024.0
    }

    #[test]
    fn later_compilations_describe_all_code() {
        let homes = java_homes();
        let Some(classes) = compile(&homes) else { return };
        let unlock = "-XX:+UnlockDiagnosticVMOptions";
        for (release, home) in &homes {
            let described = [None, Some("-XX:-DebugNonSafepoints")].map(|option| {
                let options =
                    [&["-Xbatch", "-XX:-TieredCompilation", unlock][..], option.as_slice()].concat();
                let mut jvm = Jvm::start_waiting(home, classes.path(), &options);
                assert!(describe_all_code(jvm.memory, &jvm.layout));
                let flag = find(&jvm.memory, &jvm.layout, DEBUG_NON_SAFEPOINTS).unwrap();
                // An option takes precedence.
                assert_eq!((flag.value, flag.is_default), (option.is_none(), option.is_none()), "{release}");
                jvm.go_on();
                jvm.stop();
                descriptions(&jvm)
            });
            let [all, safepoints] = described;
            assert!(all > 2.0 * safepoints, "{release}: {all} descriptions, {safepoints} without the flag");
        }
    }
}
