//! A panic of the store is something that was found: it is caught, with its place, and said nothing about on stderr.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

static HOOK: Once = Once::new();

fn install() {
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            if CATCHING.get() {
                MESSAGE.set(info.to_string());
            } else {
                before(info);
            }
        }));
    });
}

/// Does `work`; the message and place of its panic if it panics. What `work` borrows must not be used after that.
///
/// # Errors
/// The panic, as it would have been printed.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    install();
    let before = CATCHING.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(before);
    done.map_err(|_| MESSAGE.take())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_with_its_place() {
        assert_eq!(catch(|| 7), Ok(7));
        let told = catch(|| panic!("an assertion of the store")).expect_err("it panics");
        assert!(told.contains("an assertion of the store") && told.contains("panics.rs"), "{told}");
    }
}
