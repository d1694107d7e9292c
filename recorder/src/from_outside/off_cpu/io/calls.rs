//! The system calls that are recorded, and their effects.

use flightline_in_signal::payload::io::{ACCEPT, CONNECT, FORCE, FORCE_DATA, READ, WRITE};
use libc::c_long;

/// The effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// Moves data, or waits for data or a connection: one of the operations of
    /// [`flightline_in_signal::payload::io`], on the descriptor in this argument.
    Moves(u64, usize),
    /// Closes the descriptor in this argument, so that the number may mean another file later.
    Closes(usize),
    /// Closes a range of descriptors, from the first argument to the second.
    ClosesRange,
    /// Grows the program's memory.
    Grows(Grows),
}

/// How a call grows memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grows {
    /// Moves the end of the heap.
    Brk,
    /// Maps as many bytes as the second argument, with flags in the fourth.
    Mmap,
    /// Resizes a mapping from the second to the third argument, bytes.
    Mremap,
}

const TABLE: &[(c_long, Does)] = &[
    (libc::SYS_read, Does::Moves(READ, 0)),
    (libc::SYS_readv, Does::Moves(READ, 0)),
    (libc::SYS_pread64, Does::Moves(READ, 0)),
    (libc::SYS_preadv, Does::Moves(READ, 0)),
    (libc::SYS_preadv2, Does::Moves(READ, 0)),
    (libc::SYS_recvfrom, Does::Moves(READ, 0)),
    (libc::SYS_recvmsg, Does::Moves(READ, 0)),
    (libc::SYS_write, Does::Moves(WRITE, 0)),
    (libc::SYS_writev, Does::Moves(WRITE, 0)),
    (libc::SYS_pwrite64, Does::Moves(WRITE, 0)),
    (libc::SYS_pwritev, Does::Moves(WRITE, 0)),
    (libc::SYS_pwritev2, Does::Moves(WRITE, 0)),
    (libc::SYS_sendto, Does::Moves(WRITE, 0)),
    (libc::SYS_sendmsg, Does::Moves(WRITE, 0)),
    (libc::SYS_sendfile, Does::Moves(WRITE, 0)),
    (libc::SYS_copy_file_range, Does::Moves(WRITE, 2)),
    (libc::SYS_splice, Does::Moves(WRITE, 2)),
    (libc::SYS_fsync, Does::Moves(FORCE, 0)),
    (libc::SYS_fdatasync, Does::Moves(FORCE_DATA, 0)),
    (libc::SYS_sync_file_range, Does::Moves(FORCE_DATA, 0)),
    (libc::SYS_connect, Does::Moves(CONNECT, 0)),
    (libc::SYS_accept, Does::Moves(ACCEPT, 0)),
    (libc::SYS_accept4, Does::Moves(ACCEPT, 0)),
    (libc::SYS_close, Does::Closes(0)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_dup2, Does::Closes(1)),
    (libc::SYS_dup3, Does::Closes(1)),
    (libc::SYS_close_range, Does::ClosesRange),
    (libc::SYS_brk, Does::Grows(Grows::Brk)),
    (libc::SYS_mmap, Does::Grows(Grows::Mmap)),
    (libc::SYS_mremap, Does::Grows(Grows::Mremap)),
];

/// Returns the effect of call `number`.
pub fn effect(number: i64) -> Option<Does> {
    TABLE.iter().find(|(found, _)| *found == number).map(|(_, does)| *does)
}

/// Returns true if a call works on sockets only.
pub fn is_socket_call(number: i64) -> bool {
    [libc::SYS_recvfrom, libc::SYS_recvmsg, libc::SYS_sendto, libc::SYS_sendmsg].contains(&number)
}

/// The calls that pass the kernel filter.
#[derive(Clone, Copy, Debug)]
pub struct CallFilter {
    /// Calls that move data or change descriptors.
    pub moves: bool,
    /// Calls that grow memory.
    pub grows: bool,
}

impl CallFilter {
    /// Returns the filter on the starts of calls, or on their ends. The end of a close is not needed.
    pub fn filter(self, ends: bool) -> String {
        let passes = |does: &Does| match does {
            Does::Moves(..) => self.moves,
            Does::Closes(_) | Does::ClosesRange => self.moves && !ends,
            Does::Grows(_) => self.grows,
        };
        let ids = TABLE.iter().filter(|(_, does)| passes(does)).map(|(id, _)| format!("id=={id}"));
        ids.collect::<Vec<_>>().join("||")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_contain_the_selected_calls() {
        let filter = |moves, grows, ends| CallFilter { moves, grows }.filter(ends);
        let has = |text: &str, id: c_long| text.split("||").any(|part| part == format!("id=={id}"));
        let (all, ends, grows) =
            (filter(true, true, false), filter(true, false, true), filter(false, true, true));
        for (id, does) in TABLE {
            assert!(has(&all, *id), "{does:?}");
            assert_eq!(has(&ends, *id), matches!(does, Does::Moves(..)), "{does:?}");
            assert_eq!(has(&grows, *id), matches!(does, Does::Grows(_)), "{does:?}");
            assert_eq!(effect(*id), Some(*does));
        }
        assert_eq!(effect(libc::SYS_getpid), None);
        assert!(is_socket_call(libc::SYS_sendto) && !is_socket_call(libc::SYS_write));
    }
}
