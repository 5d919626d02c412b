//! Unix accounts by name.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;

/// Room for an account's entry; more than any real one takes.
const ENTRY_BYTES: usize = 64 << 10;

/// Number of the account that is called `name`, or whose number it is; `None` where there is no such account.
///
/// # Errors
/// The system cannot look accounts up.
pub(super) fn number(name: &str) -> io::Result<Option<u32>> {
    if let Ok(number) = name.parse() {
        return Ok(Some(number));
    }
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let mut entry = MaybeUninit::<libc::passwd>::uninit();
    let mut text = vec![0; ENTRY_BYTES];
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are to memory of this function that outlives the call, and the length is the buffer's own.
    let code = unsafe {
        libc::getpwnam_r(name.as_ptr(), entry.as_mut_ptr(), text.as_mut_ptr().cast(), text.len(), &raw mut found)
    };
    match (code, found.is_null()) {
        (0, true) => Ok(None),
        // SAFETY: the call succeeded and has set its result to the entry that it filled in.
        (0, false) => Ok(Some(unsafe { entry.assume_init() }.pw_uid)),
        (code, _) => Err(io::Error::from_raw_os_error(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_name_and_by_number() {
        assert_eq!(number("root").expect("looked up"), Some(0));
        assert_eq!(number("4711").expect("looked up"), Some(4711));
        assert_eq!(number("nobody-is-called-so").expect("looked up"), None);
        assert_eq!(number("a\0b").expect("looked up"), None);
    }
}
