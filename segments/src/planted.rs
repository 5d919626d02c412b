//! Planted bugs: mistakes on purpose, by which the simulation shows that it can see.
//!
//! One line plants a bug where a programmer would make it, in `segments/src` or `spool/src`:
//!
//! ```text
//! if planted!("acknowledge_before_sync") { return Ok(()) }
//! ```
//!
//! Without the cargo feature `planted` the macro is the constant `false`, so an ordinary build has neither the bug nor a
//! branch for it. With the feature it is true in a process that chose this bug by [`plant`], or that was started with the
//! environment variable `WALSPOOL_PLANTED` set to its name. The runner (`make planted`) finds the names by reading the
//! sources.

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
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{LazyLock, Mutex, PoisonError};

    static CHOSEN: Mutex<Option<&'static str>> = Mutex::new(None);
    /// Counts the choices, so that a thread looks at the newest one only when there is a new one.
    static CHOICES: AtomicU64 = AtomicU64::new(0);
    static REACHED: AtomicU64 = AtomicU64::new(0);
    static OF_ENVIRONMENT: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("WALSPOOL_PLANTED").ok());

    thread_local! {
        static SEEN: Cell<(u64, Option<&'static str>)> = const { Cell::new((0, None)) };
    }

    /// Plants this bug in the process, or none, and begins to count anew how often its place is reached.
    pub fn plant(name: Option<&'static str>) {
        *CHOSEN.lock().unwrap_or_else(PoisonError::into_inner) = name;
        CHOICES.fetch_add(1, Ordering::SeqCst);
        REACHED.store(0, Ordering::SeqCst);
    }

    /// How often the place of the bug that is planted was reached.
    #[must_use]
    pub fn planted_reached() -> u64 {
        REACHED.load(Ordering::SeqCst)
    }

    fn chosen() -> Option<&'static str> {
        let choices = CHOICES.load(Ordering::SeqCst);
        let (seen, name) = SEEN.get();
        if seen == choices {
            return name;
        }
        let name = *CHOSEN.lock().unwrap_or_else(PoisonError::into_inner);
        SEEN.set((choices, name));
        name
    }

    /// What [`crate::planted!`] asks.
    #[must_use]
    pub fn is_planted(name: &'static str) -> bool {
        let here = chosen() == Some(name);
        if here {
            REACHED.fetch_add(1, Ordering::Relaxed);
        }
        here || OF_ENVIRONMENT.as_deref() == Some(name)
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
    fn a_bug_is_planted_in_every_thread_until_another_is() {
        assert!(!planted!("one"));
        super::plant(Some("one"));
        assert!(planted!("one") && !planted!("two"));
        std::thread::spawn(|| assert!(planted!("one"))).join().expect("there too");
        assert_eq!(super::planted_reached(), 2);
        super::plant(Some("two"));
        assert!(planted!("two") && !planted!("one"));
        super::plant(None);
        assert!(!planted!("two"));
    }
}
