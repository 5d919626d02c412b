//! Locks beside child processes of the same program.

use spool::CursorStart;

use crate::worlds::{SystemWorld, TXN, World, entry};

/// A child between its fork and its exec: it has every descriptor of its parent.
struct Forked(libc::pid_t);

impl Forked {
    fn new() -> Self {
        // SAFETY: the child calls nothing but `pause`, which a child of a program with threads may.
        match unsafe { libc::fork() } {
            0 => loop {
                // SAFETY: a plain call.
                unsafe { libc::pause() };
            },
            pid => {
                assert!(pid > 0, "forked");
                Self(pid)
            }
        }
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        // SAFETY: plain calls on our own child, which is there until it is waited for.
        let ended = unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0)
        };
        assert_eq!(ended, self.0);
    }
}

#[test]
fn a_lock_ends_with_its_holder_also_while_a_child_is_on_its_way_to_exec() {
    let world = SystemWorld::<false>::new();
    let store = world.create();
    store.append_durable(TXN, entry(8, b"one")).expect("durable");
    let cursor = store.register("reader", TXN, CursorStart::Earliest).expect("registered");
    let child = Forked::new();
    drop(cursor);
    store.cursor("reader").expect("the next holder is let in");
    store.unregister("reader").expect("nobody holds it");
    store.close().expect("closed");
    // The writer's locks on segments end when nobody can write any more, so opening waits for the child; not for long,
    // because its exec closes what it has.
    drop(child);
    world.open().close().expect("closed");
}
