//! Walks the Java frames of a thread that does not run, from outside: a second implementation, with which the walker of
//! the handlers is compared.
//!
//! A thread that waits has left Java code by a call, so its Java frames are complete: no prologue or epilogue
//! is in progress. HotSpot stores where it left Java code (`JavaThread::_anchor`). This is exact even if the
//! registers are unknown, or if the native frames above cannot be walked.
//!
//! | code | caller |
//! |---|---|
//! | a blob with a frame size | the return address and the saved frame pointer are the last two words of the frame |
//! | the interpreter | by the frame pointer; the caller's stack pointer is stored in the frame |
//! | a stub without a frame size | by the frame pointer |

use std::collections::HashMap;
use std::ops::Range;

use crate::names::hotspot::code_blob::{BlobKind, CodeHeaps, Nmethod};
use crate::names::hotspot::layout::{HotspotLayout, ThreadListLayout};
use crate::names::hotspot::memory::ReadMemory;

/// Limit of Java threads that are listed.
const MAX_THREADS: usize = 1 << 16;
/// Limit of the size of one frame.
const MAX_FRAME: u64 = 1 << 20;

/// Where a Java frame continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// The program counter, a return address.
    pub pc: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer, if it is known.
    pub fp: Option<u64>,
}

/// A frame of Java code, without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JavaCode {
    /// In a compiled method.
    Compiled {
        /// The address of its blob.
        nmethod: u64,
        /// The number of the compilation.
        compile_id: u32,
        /// The return address.
        pc: u64,
    },
    /// An interpreted method.
    Interpreted {
        /// The `Method`.
        method: u64,
        /// The address of the current bytecode.
        bcp: u64,
    },
    /// Another blob of the code cache: a stub, an adapter.
    Stub {
        /// The return address.
        pc: u64,
    },
}

/// Why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JavaEnd {
    /// The caller is native code.
    Native {
        /// Where native code continues.
        caller: Registers,
        /// Where the thread left Java code before, if it did: the Java frames below those of native code.
        previous: Option<Registers>,
    },
    /// No code is known at an address in the code cache.
    NoCode,
    /// The stack cannot be read, or is damaged.
    BadStack,
    /// The frame pointer is required and unknown.
    NoFramePointer,
    /// The stack is deeper than the limit.
    Depth,
}

/// Walks the Java frames of one JVM.
pub struct JavaWalker {
    layout: HotspotLayout,
    heaps: CodeHeaps,
    code: Range<u64>,
    interpreter: Range<u64>,
    /// The return address in the call stub.
    call_stub: u64,
    /// Addresses of the `JavaThread`s by TID.
    threads: HashMap<u32, u64>,
}

impl JavaWalker {
    /// Returns a walker; `None` until the JVM has created its code cache and its interpreter.
    pub fn new(memory: &impl ReadMemory, layout: HotspotLayout) -> Option<JavaWalker> {
        let code = memory.u64(layout.code_cache.low_bound)?..memory.u64(layout.code_cache.high_bound)?;
        let queue = memory.u64(layout.frame.interpreter_code).filter(|queue| *queue != 0)?;
        let at = |offset: u32| queue.checked_add(u64::from(offset));
        let start = memory.u64(at(layout.frame.stub_queue_buffer)?)?;
        let end = start.checked_add(u64::from(memory.u32(at(layout.frame.stub_queue_limit)?)?))?;
        let inside = code.start < start && start < end && end <= code.end;
        let call_stub = memory.u64(layout.frame.call_stub_return_address)?;
        let (heaps, threads, interpreter) = (CodeHeaps::default(), HashMap::new(), start..end);
        inside.then_some(JavaWalker { layout, heaps, code, interpreter, call_stub, threads })
    }

    /// Returns where a thread last left Java code. `None` if it is no Java thread, or is in Java code.
    pub fn last_java_frame(&mut self, memory: &impl ReadMemory, tid: u32) -> Option<Registers> {
        let thread = match self.threads.get(&tid) {
            Some(thread) if self.tid(memory, *thread) == Some(tid) => *thread,
            _ => {
                self.threads = self.read_threads(memory).unwrap_or_default();
                *self.threads.get(&tid)?
            }
        };
        let frame = &self.layout.frame;
        self.anchor(memory, thread, [frame.anchor_sp, frame.anchor_pc, frame.anchor_fp])
    }

    /// Reads a `JavaFrameAnchor` whose members are at these offsets from `base`.
    fn anchor(&self, memory: &impl ReadMemory, base: u64, offsets: [u32; 3]) -> Option<Registers> {
        let [sp, pc, fp] = offsets.map(|offset| memory.u64(base.checked_add(u64::from(offset))?));
        let sp = sp.filter(|sp| *sp != 0 && sp.is_multiple_of(8))?;
        // Code that does not know its own address leaves it to the call, which stores it below the frame.
        let pc = match pc? {
            0 => memory.u64(sp.checked_sub(8)?)?,
            pc => pc,
        };
        self.code.contains(&pc).then_some(Registers { pc, sp, fp: fp.filter(|fp| *fp != 0) })
    }

    /// Returns where the thread left Java code before it entered it by the call stub, whose frame pointer is
    /// `fp`.
    fn before_call_stub(&self, memory: &impl ReadMemory, fp: u64) -> Option<Registers> {
        let frame = &self.layout.frame;
        let wrapper = memory.u64(fp.checked_add_signed(i64::from(frame.call_wrapper))?)?;
        let offsets = [frame.wrapper_anchor_sp, frame.wrapper_anchor_pc, frame.wrapper_anchor_fp];
        self.anchor(memory, wrapper, offsets).filter(|previous| previous.sp > fp)
    }

    /// Adds the Java frames from a return address on, innermost first, until the caller is native code or
    /// `frames` has `limit` frames.
    pub fn walk(
        &mut self,
        memory: &impl ReadMemory,
        start: Registers,
        limit: usize,
        frames: &mut Vec<JavaCode>,
    ) -> JavaEnd {
        let (mut registers, mut previous) = (start, None);
        while self.code.contains(&registers.pc) {
            if frames.len() >= limit {
                return JavaEnd::Depth;
            }
            let step = if self.interpreter.contains(&registers.pc) {
                self.interpreted(memory, registers)
            } else {
                self.blob(memory, registers)
            };
            let (frame, caller) = match step {
                Ok(step) => step,
                Err(end) => return end,
            };
            // The stack grows down, so that a walk ends.
            if caller.sp <= registers.sp || caller.sp - registers.sp > MAX_FRAME {
                return JavaEnd::BadStack;
            }
            frames.push(frame);
            previous = match registers.fp {
                Some(fp) if registers.pc == self.call_stub => self.before_call_stub(memory, fp),
                _ => None,
            };
            registers = caller;
        }
        JavaEnd::Native { caller: registers, previous }
    }

    fn interpreted(
        &self,
        memory: &impl ReadMemory,
        registers: Registers,
    ) -> Result<(JavaCode, Registers), JavaEnd> {
        let fp = registers.fp.ok_or(JavaEnd::NoFramePointer)?;
        let frame = &self.layout.frame;
        let slot = |offset: i32| {
            let at = fp.checked_add_signed(i64::from(offset)).ok_or(JavaEnd::BadStack)?;
            memory.u64(at).ok_or(JavaEnd::BadStack)
        };
        let code = JavaCode::Interpreted {
            method: slot(frame.interpreted_method)?,
            bcp: slot(frame.interpreted_bcp)?,
        };
        let caller = Registers { pc: slot(8)?, sp: slot(frame.interpreted_sender_sp)?, fp: Some(slot(0)?) };
        Ok((code, caller))
    }

    fn blob(
        &mut self,
        memory: &impl ReadMemory,
        registers: Registers,
    ) -> Result<(JavaCode, Registers), JavaEnd> {
        let Registers { pc, sp, fp } = registers;
        // A call may be the last instruction of its code.
        let address = self.heaps.find(memory, &self.layout, pc.wrapping_sub(1)).ok_or(JavaEnd::NoCode)?;
        let blob = self.heaps.blob(memory, &self.layout, address).map_err(|_| JavaEnd::NoCode)?;
        if !blob.contains(pc.wrapping_sub(1)) {
            return Err(JavaEnd::NoCode);
        }
        let word = |at: Option<u64>| at.and_then(|at| memory.u64(at)).ok_or(JavaEnd::BadStack);
        let code = match blob.kind {
            BlobKind::Nmethod | BlobKind::NativeNmethod => {
                let nmethod =
                    self.heaps.nmethod(memory, &self.layout, address).map_err(|_| JavaEnd::NoCode)?;
                let pc = original_pc(memory, &nmethod, registers).unwrap_or(pc);
                JavaCode::Compiled { nmethod: address, compile_id: nmethod.compile_id, pc }
            }
            _ => JavaCode::Stub { pc },
        };
        let caller = if blob.frame_size != 0 {
            let caller = sp.checked_add(blob.frame_size).ok_or(JavaEnd::BadStack)?;
            let pc = word(caller.checked_sub(8))?;
            Registers { pc, sp: caller, fp: Some(word(caller.checked_sub(16))?) }
        } else {
            let fp = fp.ok_or(JavaEnd::NoFramePointer)?;
            let (pc, caller) = (word(fp.checked_add(8))?, fp.checked_add(16).ok_or(JavaEnd::BadStack)?);
            Registers { pc, sp: caller, fp: Some(word(Some(fp))?) }
        };
        Ok((code, caller))
    }

    fn tid(&self, memory: &impl ReadMemory, thread: u64) -> Option<u32> {
        let threads = &self.layout.threads;
        let os_thread = memory.u64(thread.checked_add(u64::from(threads.os_thread))?)?;
        memory.u32(os_thread.checked_add(u64::from(threads.thread_id))?)
    }

    /// Lists the Java threads by TID.
    fn read_threads(&self, memory: &impl ReadMemory) -> Option<HashMap<u32, u64>> {
        let mut found = HashMap::new();
        let mut add = |thread: u64| {
            // A thread that is starting has no TID yet.
            if let Some(tid) = self.tid(memory, thread) {
                found.insert(tid, thread);
            }
        };
        match self.layout.threads.list {
            ThreadListLayout::Linked { first, next } => {
                let mut thread = memory.u64(first)?;
                for _ in 0..MAX_THREADS {
                    if thread == 0 {
                        break;
                    }
                    add(thread);
                    thread = memory.u64(thread.checked_add(u64::from(next))?)?;
                }
            }
            ThreadListLayout::Array { list, length, threads } => {
                let list = memory.u64(list)?;
                let length = memory.u32(list.checked_add(u64::from(length))?)? as usize;
                let array = memory.u64(list.checked_add(u64::from(threads))?)?;
                let bytes = memory.bytes(array, 8 * length.min(MAX_THREADS))?;
                let (words, _) = bytes.as_chunks::<8>();
                words.iter().for_each(|word| add(u64::from_le_bytes(*word)));
            }
        }
        Some(found)
    }
}

/// Returns the return address of a frame that will be deoptimized, which the JVM has replaced.
fn original_pc(memory: &impl ReadMemory, nmethod: &Nmethod, registers: Registers) -> Option<u64> {
    if registers.pc != nmethod.deopt_handler {
        return None;
    }
    memory.u64(registers.sp.checked_add(u64::from(nmethod.orig_pc_offset))?)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;
    use crate::names::hotspot::live_tests::{Jvm, compile, java_homes};
    use crate::names::hotspot::memory::FakeMemory;
    use crate::names::hotspot::tests::{CODE, NMETHOD, OUTER, STUB, jvm};
    use crate::names::hotspot::{HotspotNames, JavaFrame};

    /// Threads of the test program that wait in different ways.
    const WAITING: [&str; 6] = ["main", "parked", "waiting", "sleeping", "holding", "blocked"];

    /// Returns `class.method:line`, as `jstack` prints it. A native method has the line "native".
    fn describe(frame: &JavaFrame) -> String {
        let JavaFrame { method, line, .. } = frame;
        let line = match (method.is_native(), line) {
            (true, _) => "native".to_owned(),
            (_, 0) => "unknown".to_owned(),
            (_, line) => line.to_string(),
        };
        format!("{}.{}:{line}", method.class.replace('/', "."), method.name)
    }

    /// A thread that `jstack` prints.
    #[derive(Default)]
    struct Thread {
        tid: u32,
        name: String,
        /// The frames of the virtual thread that it carries.
        mounted: Vec<String>,
        frames: Vec<String>,
    }

    /// Parses the stacks that `jstack` prints.
    fn parse_jstack(text: &str) -> Vec<Thread> {
        let (mut threads, mut is_mounted) = (Vec::<Thread>::new(), false);
        for line in text.lines() {
            if let Some((name, rest)) = line.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
                // "nid=0x1f" up to 17, "#9 [31]" since.
                let nid = rest.split_once("nid=0x").and_then(|(_, rest)| rest.split(' ').next());
                let bracketed = rest.split_once('[').and_then(|(_, rest)| rest.split(']').next());
                let tid = nid.and_then(|nid| u32::from_str_radix(nid, 16).ok());
                let tid = tid.or_else(|| bracketed?.parse().ok());
                threads.push(Thread { tid: tid.unwrap_or(0), name: name.to_owned(), ..Thread::default() });
                is_mounted = false;
            } else if let Some(thread) = threads.last_mut() {
                is_mounted |= line.contains("Mounted virtual thread");
                let frames = if is_mounted { &mut thread.mounted } else { &mut thread.frames };
                frames.extend(line.trim_start().strip_prefix("at ").map(parse_frame));
            }
        }
        threads
    }

    /// Parses `java.lang.Object.wait0(java.base@25/Native Method)` and the like.
    fn parse_frame(text: &str) -> String {
        let (method, place) = text.trim_end_matches(')').split_once('(').unwrap();
        let (class, name) = method.rsplit_once('.').unwrap();
        let class = class.split("/0x").next().unwrap();
        let class = match class.rsplit_once("$$Lambda") {
            Some((outer, _)) => format!("{outer}$$Lambda"),
            None => class.to_owned(),
        };
        let line = match place {
            _ if place.ends_with("Native Method") => "native",
            _ => place.rsplit_once(':').map_or("unknown", |(_, line)| line),
        };
        format!("{class}.{name}:{line}")
    }

    /// The result of a walk.
    struct Walked {
        frames: Vec<String>,
        compiled: usize,
        entries: usize,
    }

    /// Walks all Java frames of a waiting thread and resolves them.
    fn walk(walker: &mut JavaWalker, names: &mut HotspotNames, memory: &impl ReadMemory, tid: u32) -> Walked {
        let mut next = walker.last_java_frame(memory, tid);
        let (mut codes, mut found, mut entries) = (Vec::new(), Vec::new(), 0);
        while let Some(start) = next {
            let end = walker.walk(memory, start, 1000, &mut codes);
            assert!(matches!(codes.last(), Some(JavaCode::Stub { .. })), "{codes:x?} {end:x?}");
            let JavaEnd::Native { previous, .. } = end else { panic!("{end:x?}") };
            next = previous;
            entries += 1;
        }
        for code in &codes {
            match code {
                JavaCode::Compiled { nmethod, compile_id, pc } => {
                    names.compiled(memory, *nmethod, Some(*compile_id), *pc, true, &mut found).unwrap();
                }
                JavaCode::Interpreted { method, bcp } => {
                    found.push(names.interpreted(memory, *method, *bcp).unwrap());
                }
                JavaCode::Stub { .. } => {}
            }
        }
        let compiled = codes.iter().filter(|code| matches!(code, JavaCode::Compiled { .. })).count();
        Walked { frames: found.iter().map(describe).collect(), compiled, entries }
    }

    /// Writes the words of a stack that begins at `STACK`, and returns a walker of the JVM of the tests of names.
    fn invented_jvm(words: &[u64]) -> (FakeMemory, JavaWalker) {
        let (mut memory, names) = jvm(true);
        // Frames of stubs have no fixed size.
        memory.set(STUB + 20, &[0; 4]);
        memory.set_u64(0x108, STUB);
        memory.set_u64(0x110, NMETHOD + 4000);
        memory.set_u64(0x118, STUB + 70);
        memory.set_u64(0x120, 0x7000);
        memory.set(0x7000, &[0; 32]);
        memory.set_u64(0x7000 + 8, STUB + 200);
        memory.set_u64(0x7000 + 20, 100);
        memory.set(STACK, &words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>());
        let walker = JavaWalker::new(&memory, *names.layout()).unwrap();
        (memory, walker)
    }

    const STACK: u64 = 0x9000;
    const INTERPRETER: u64 = STUB + 210;

    fn walk_invented(words: &[u64], pc: u64, fp: Option<u64>, limit: usize) -> (Vec<JavaCode>, JavaEnd) {
        let (memory, mut walker) = invented_jvm(words);
        let mut frames = Vec::new();
        let end = walker.walk(&memory, Registers { pc, sp: STACK, fp }, limit, &mut frames);
        (frames, end)
    }

    #[test]
    fn compiled_and_interpreted_frames_are_walked() {
        let native = 0x1234;
        // A compiled frame of six words, then an interpreted one whose frame pointer is at word 14.
        let mut words = [0u64; 24];
        (words[4], words[5]) = (STACK + 8 * 14, INTERPRETER);
        (words[6], words[11], words[13]) = (77, OUTER, STACK + 8 * 20);
        (words[14], words[15]) = (5, native);
        let (frames, end) = walk_invented(&words, CODE + 40, None, 9);
        let compiled = JavaCode::Compiled { nmethod: NMETHOD, compile_id: 77, pc: CODE + 40 };
        assert_eq!(frames, [compiled, JavaCode::Interpreted { method: OUTER, bcp: 77 }]);
        let caller = Registers { pc: native, sp: STACK + 8 * 20, fp: Some(5) };
        assert_eq!(end, JavaEnd::Native { caller, previous: None });
        assert_eq!(walk_invented(&words, CODE + 40, None, 1).1, JavaEnd::Depth);
    }

    #[test]
    fn damaged_stacks_end_the_walk() {
        let end = |words: &[u64], pc, fp| walk_invented(words, pc, fp, 1000).1;
        assert_eq!(end(&[], CODE + 40, None), JavaEnd::BadStack, "no stack");
        assert_eq!(end(&[0; 24], INTERPRETER, None), JavaEnd::NoFramePointer);
        assert_eq!(end(&[0; 24], STUB + 80, None), JavaEnd::NoFramePointer);
        assert_eq!(end(&[0; 24], INTERPRETER, Some(3)), JavaEnd::BadStack);
        assert_eq!(end(&[0; 24], INTERPRETER, Some(u64::MAX)), JavaEnd::BadStack);
        assert_eq!(end(&[0; 24], STUB + 80, Some(u64::MAX - 4)), JavaEnd::BadStack);
        // The caller's stack pointer is below.
        let mut words = [0u64; 24];
        (words[13], words[14], words[15]) = (STACK, STACK + 8 * 14, INTERPRETER);
        assert_eq!(end(&words, INTERPRETER, Some(STACK + 8 * 14)), JavaEnd::BadStack);
        // A stub that calls itself.
        let words: Vec<u64> = (0..200).flat_map(|i| [STACK + 16 * (i + 1), STUB + 80]).collect();
        assert_eq!(end(&words, STUB + 80, Some(STACK)), JavaEnd::BadStack);
        // A free segment.
        assert_eq!(end(&[0; 24], STUB + 10, Some(STACK)), JavaEnd::NoCode);
    }

    fn jstack(homes: &[(u32, PathBuf)]) -> Option<PathBuf> {
        homes.iter().map(|(_, home)| home.join("bin/jstack")).find(|tool| tool.exists())
    }

    #[test]
    fn waiting_threads_have_stacks_as_jstack_prints() {
        let homes = java_homes();
        let (Some(classes), Some(jstack)) = (compile(&homes), jstack(&homes)) else { return };
        let c1 = ["-Xbatch", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];
        for (release, home) in &homes {
            for options in [&["-Xbatch"][..], &["-Xint"], &c1] {
                let jvm = Jvm::start(home, classes.path(), options);
                let text = Command::new(&jstack).arg(jvm.memory.pid.to_string()).output().unwrap();
                let text = String::from_utf8(text.stdout).unwrap();
                let mut walker = JavaWalker::new(&jvm.memory, jvm.layout).unwrap();
                let mut names = HotspotNames::new(jvm.layout);
                let (mut seen, mut compiled, mut carriers) = (0, 0, 0);
                for thread in parse_jstack(&text) {
                    let is_carrier = thread.frames.iter().any(|frame| frame.contains("runContinuation"));
                    if !WAITING.contains(&&*thread.name) && !is_carrier {
                        continue;
                    }
                    let walked = walk(&mut walker, &mut names, &jvm.memory, thread.tid);
                    let context = format!("{release} {options:?} {}", thread.name);
                    let found = &walked.frames;
                    if is_carrier {
                        // The stub that enters a virtual thread is a frame here, and 21 does not print those
                        // of the virtual thread.
                        assert!(found.ends_with(&thread.frames), "{context} {found:#?}");
                        assert!(found.starts_with(&thread.mounted), "{context} {found:#?}");
                        let initializer = found.iter().any(|f| f.starts_with("HotspotNames$Pinned.<clinit>"));
                        assert!(initializer && walked.entries == 2, "{context} {found:#?}");
                        carriers += 1;
                        continue;
                    }
                    assert_eq!((found, walked.entries), (&thread.frames, 1), "{context}");
                    seen += 1;
                    compiled += walked.compiled;
                }
                assert_eq!(seen, WAITING.len(), "{text}");
                assert_eq!(*release >= 21, carriers > 0, "{text}");
                assert_eq!(options == ["-Xint"], compiled == 0);
                assert_eq!(
                    walker.last_java_frame(&jvm.memory, jvm.memory.pid),
                    None,
                    "the launcher's thread"
                );
            }
        }
    }
}
