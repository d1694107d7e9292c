//! Forks: the child's thread has no activation, whatever its parent's had, and the child has its own keys,
//! ids and process context.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

use flightline_context::record::{Record, VALID};
use flightline_context::{SCHEMA, Span, begin, current, end, keys, label, own_slot};

/// Returns the data that a reader of OTEP 4719 finds in this process: schema version and key names.
fn process_context() -> Option<(String, Vec<String>)> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.contains("/memfd:OTEL_CTX") || line.contains("OTEL_CTX]"))?;
    let at = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    let memory = fs::File::open("/proc/self/mem").unwrap();
    let mut header = [0; 32];
    memory.read_exact_at(&mut header, at).unwrap();
    let word = |from: usize| u64::from_le_bytes(header[from..from + 8].try_into().unwrap());
    assert_eq!((&header[..8], word(8) as u32), (&b"OTEL_CTX"[..], 2));
    assert_ne!(word(16), 0, "nobody writes now");
    let mut payload = vec![0; (word(8) >> 32) as usize];
    memory.read_exact_at(&mut payload, word(24)).unwrap();
    let (mut version, mut names) = (String::new(), Vec::new());
    for (number, attribute) in fields(&payload) {
        assert_eq!(number, 2);
        let [(1, key), (2, value)] = fields(attribute)[..] else { panic!("{attribute:?}") };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        match &*text(key) {
            "threadlocal.schema_version" => {
                let [(1, value)] = fields(value)[..] else { panic!("{value:?}") };
                version = text(value);
            }
            "threadlocal.attribute_key_map" => {
                let [(5, array)] = fields(value)[..] else { panic!("{value:?}") };
                for (number, any) in fields(array) {
                    let [(1, name)] = fields(any)[..] else { panic!("{any:?}") };
                    assert_eq!(number, 1);
                    names.push(text(name));
                }
            }
            key => panic!("{key}"),
        }
    }
    Some((version, names))
}

/// Splits a message into its fields, all of which have a length.
fn fields(mut message: &[u8]) -> Vec<(u8, &[u8])> {
    let mut fields = Vec::new();
    while let [tag, rest @ ..] = message {
        assert_eq!(tag & 7, 2);
        let (mut len, mut used) = (0, 0);
        loop {
            len |= usize::from(rest[used] & 0x7f) << (7 * used);
            used += 1;
            if rest[used - 1] < 0x80 {
                break;
            }
        }
        fields.push((tag >> 3, &rest[used..used + len]));
        message = &rest[used + len..];
    }
    fields
}

/// Returns true if a reader accepts the slot's record.
fn visible() -> bool {
    // SAFETY: null or a record, perhaps a wiped one.
    unsafe { (*own_slot()).context.load(Relaxed).cast::<Record>().as_ref() }
        .is_some_and(|record| record.valid == VALID)
}

/// Runs in the child. Returns 0, or the number of the failed check. A child of a process with threads should
/// do no more than it must.
fn child(inside: u64, parents: u64) -> i32 {
    let wrong = |what: i32, right: bool| if right { 0 } else { what };
    let mut found = wrong(1, !visible());
    found |= wrong(2, process_context().is_none());
    found |= wrong(4, !end(inside) && current().is_none());
    let own = begin("child");
    let ids = current();
    found |= wrong(8, own != 0 && ids.is_some_and(|ids| ids.parent_span_id == 0 && ids.span_id != parents));
    found |= wrong(16, label("in child", "x").is_ok() && visible());
    let context = process_context();
    found |= wrong(
        32,
        context
            .is_some_and(|(_, names)| names.contains(&"in child".into()) && names.contains(&"tenant".into())),
    );
    found | wrong(64, end(own) && current().is_none() && !visible())
}

fn forked(fork: impl FnOnce() -> libc::pid_t, inside: u64, parents: u64) {
    match fork() {
        // SAFETY: ends the child.
        0 => unsafe { libc::_exit(child(inside, parents)) },
        pid => {
            assert!(pid > 0, "fork");
            let mut status = 0;
            // SAFETY: `status` is written only.
            assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
        }
    }
}

/// A single test, because it concerns the whole process.
#[test]
fn forked_child_has_no_active_span() {
    assert_eq!(process_context(), None);
    let span = Span::root("parent");
    let _entered = span.enter();
    assert_eq!(process_context(), Some((SCHEMA.into(), vec![])));
    label("tenant", "a").unwrap();
    label("endpoint", "b").unwrap();
    assert_eq!(process_context(), Some((SCHEMA.into(), vec!["tenant".into(), "endpoint".into()])));
    let inside = begin("inner");
    let ids = current().unwrap().span_id;
    // SAFETY: the child ends soon.
    forked(|| unsafe { libc::fork() }, inside, ids);
    // Without the C library, as some sandboxes and runtimes do. SAFETY: the child ends soon.
    forked(
        || unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t },
        inside,
        ids,
    );
    // The parent's state is unchanged.
    assert!(visible() && current().is_some_and(|current| current.span_id == ids));
    assert_eq!(process_context().unwrap().1.len(), 2);
    // All keys that a byte can distinguish, and the process context contains all of them.
    for i in 2..keys::KEYS_MAX {
        label(&format!("{i:063}"), "")
            .unwrap_or_else(|e| assert_eq!(e, flightline_context::LabelError::Full));
    }
    assert_eq!(label("one more", ""), Err(flightline_context::LabelError::Key));
    let names = process_context().unwrap().1;
    assert!(
        names.len() == 256
            && names.iter().map(String::as_str).eq(keys::all())
            && names[255] == format!("{:063}", 255)
    );
    assert!(end(inside));
}
