//! Exit codes, fixed by the operator's surface.

use std::process::ExitCode;

/// How a command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// It did what was asked, or the answer is yes.
    Ok = 0,
    /// A negative answer: findings, differences, not there.
    Negative = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The daemon cannot be reached.
    DaemonNotReachable = 3,
    /// Refused by a safety gate.
    Refused = 4,
    /// Corruption was found.
    Corrupt = 5,
    /// Temporary: try again later.
    Temporary = 75,
}

impl Exit {
    /// The number the shell sees.
    pub const fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_the_documented_ones() {
        let codes = [
            Exit::Ok,
            Exit::Negative,
            Exit::Usage,
            Exit::DaemonNotReachable,
            Exit::Refused,
            Exit::Corrupt,
            Exit::Temporary,
        ]
        .map(Exit::code);
        assert_eq!(codes, [0, 1, 2, 3, 4, 5, 75]);
    }
}
