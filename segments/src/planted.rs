//! Planted bugs: mistakes on purpose, by which the simulation shows that it can see.
//!
//! One line plants a bug where a programmer would make it, in `segments/src` or `spool/src`:
//!
//! ```text
//! if planted!("acknowledge_before_sync") { return Ok(()) }
//! ```
//!
//! Without the cargo feature `planted` the macro is the constant `false`, so an ordinary build has neither the bug nor a
//! branch for it. With the feature it is true in a thread that asked for this bug by [`plant`], and in the whole of a
//! process that was started with the environment variable `WALSPOOL_PLANTED` set to its name. The runner (`make
//! planted`) finds the names by reading the sources.

/// True where the bug of this name is planted now. A constant without the feature `planted`.
#[cfg(not(feature = "planted"))]
#[macro_export]
macro_rules! planted {
    ($name:literal) => {
        false
    };
}

/// True where the bug of this name is planted now. A constant without the feature `planted`.
#[cfg(feature = "planted")]
#[macro_export]
macro_rules! planted {
    ($name:literal) => {
        $crate::is_planted($name)
    };
}

#[cfg(feature = "planted")]
mod choice {
    use std::cell::Cell;
    use std::sync::LazyLock;

    thread_local! {
        static CHOSEN: Cell<Option<&'static str>> = const { Cell::new(None) };
        static REACHED: Cell<u64> = const { Cell::new(0) };
    }

    static OF_PROCESS: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("WALSPOOL_PLANTED").ok());

    /// Plants this bug in the calling thread, or none, and begins to count anew how often its place is reached.
    pub fn plant(name: Option<&'static str>) {
        CHOSEN.set(name);
        REACHED.set(0);
    }

    /// How often the calling thread came to the place of the bug that is planted.
    #[must_use]
    pub fn planted_reached() -> u64 {
        REACHED.get()
    }

    /// What [`crate::planted!`] asks.
    #[must_use]
    pub fn is_planted(name: &'static str) -> bool {
        let here = CHOSEN.get() == Some(name);
        if here {
            REACHED.set(REACHED.get() + 1);
        }
        here || OF_PROCESS.as_deref() == Some(name)
    }
}

#[cfg(feature = "planted")]
pub use choice::{is_planted, plant, planted_reached};

#[cfg(test)]
mod tests {
    #[cfg(not(feature = "planted"))]
    #[test]
    fn an_ordinary_build_has_no_bug() {
        const IS_PLANTED: bool = planted!("any");
        const { assert!(!IS_PLANTED) };
    }

    #[cfg(feature = "planted")]
    #[test]
    fn a_bug_is_planted_in_the_thread_that_asked_for_it() {
        assert!(!planted!("one"));
        super::plant(Some("one"));
        assert!(planted!("one") && !planted!("two"));
        assert_eq!(super::planted_reached(), 1);
        std::thread::spawn(|| assert!(!planted!("one"))).join().expect("not there");
        super::plant(None);
        assert!(!planted!("one"));
    }
}
