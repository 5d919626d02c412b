//! How what stops a start becomes an exit code. What a code means stands in `README.md` beside this file.

use std::io;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::load::BookError;
use crate::runtime::Reason;

/// The store cannot be opened or created.
impl From<spool::Error> for Failure {
    fn from(error: spool::Error) -> Self {
        let exit = exit_of(&error);
        match reason_of(&error) {
            Some(reason) => Self::new(exit, format!("{reason}: {error}")),
            None => Self::new(exit, error.to_string()),
        }
    }
}

/// The named state that a running daemon would be in with this error.
pub(super) fn reason_of(error: &spool::Error) -> Option<Reason> {
    use spool::Error;
    match error {
        Error::Locked { .. } => Some(Reason::StoreLocked),
        Error::UnsupportedVersion { .. } => Some(Reason::StoreNewerFormat),
        Error::Poisoned { cause } if !cause.is_corruption() => Some(Reason::StorePoisoned),
        Error::CursorDamaged { .. } => Some(Reason::CursorDamaged),
        Error::CursorExpired { .. } => Some(Reason::ConsumerExpired),
        error if error.is_corruption() => Some(Reason::StoreDamaged),
        _ => None,
    }
}

fn exit_of(error: &spool::Error) -> Exit {
    use spool::Error;
    match error {
        Error::Corrupt(_) | Error::Incomplete { .. } | Error::CursorDamaged { .. } => Exit::Corrupt,
        Error::Unregistered { .. } | Error::NoHold { .. } => Exit::Negative,
        Error::UnsupportedVersion { .. } | Error::Foreign { .. } | Error::Backend { .. } => Exit::Refused,
        Error::NotAStore { .. }
        | Error::NotEmpty { .. }
        | Error::OptionsDiffer { .. }
        | Error::LimitExceeded { .. }
        | Error::Invalid(_) => Exit::Usage,
        Error::Io { source, .. } => exit_of_io(source),
        // Another daemon that is about to end, or a failure that a second try may not meet.
        Error::Locked { .. } | Error::Poisoned { .. } | Error::Faulted(_) | Error::Closed => Exit::Temporary,
        _ => Exit::Refused,
    }
}

/// Rights and a read-only disk do not mend themselves, a path that names a file is the configuration's; everything else
/// may pass.
fn exit_of_io(error: &io::Error) -> Exit {
    match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => Exit::Refused,
        io::ErrorKind::NotADirectory => Exit::Usage,
        _ => Exit::Temporary,
    }
}

/// Ledger or manifest cannot be read.
impl From<BookError> for Failure {
    fn from(error: BookError) -> Self {
        match error {
            BookError::Store(error) => error.into(),
            BookError::Body { error: replay::BodyError::UnsupportedVersion { .. }, .. } => {
                Self::new(Exit::Refused, format!("{}: {error}", Reason::StoreNewerFormat))
            }
            BookError::Body { .. } | BookError::AheadOfStream { .. } => {
                Self::new(Exit::Corrupt, format!("{}: {error}", Reason::StoreDamaged))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::*;

    fn io(kind: io::ErrorKind) -> spool::Error {
        let source = Arc::new(io::Error::from(kind));
        spool::Error::Io { operation: "open", path: PathBuf::from("/s"), source, remedy: "mend it" }
    }

    #[test]
    fn each_kind_of_failure_has_its_code() {
        for (error, exit) in [
            (spool::Error::Locked { path: PathBuf::from("/s"), pid: Some(1) }, Exit::Temporary),
            (io(io::ErrorKind::ReadOnlyFilesystem), Exit::Refused),
            (io(io::ErrorKind::PermissionDenied), Exit::Refused),
            (io(io::ErrorKind::StorageFull), Exit::Temporary),
            (io(io::ErrorKind::NotADirectory), Exit::Usage),
            (spool::Error::Backend { reason: "io_uring is switched off".to_owned() }, Exit::Refused),
            (spool::Error::Invalid("no".to_owned()), Exit::Usage),
        ] {
            let text = error.to_string();
            assert_eq!(Failure::from(error).exit(), exit, "{text}");
        }
        let incomplete = spool::Error::Incomplete {
            path: PathBuf::from("/s"),
            missing: "the folder ledger".to_owned(),
            evidence: "the mark register `marks` is there".to_owned(),
        };
        let incomplete = Failure::from(incomplete);
        assert_eq!(incomplete.exit(), Exit::Corrupt);
        assert!(incomplete.to_string().starts_with("store_damaged: /s is an incomplete store: the folder ledger"));
        let locked = Failure::from(spool::Error::Locked { path: PathBuf::from("/s"), pid: Some(1) });
        assert!(locked.to_string().starts_with("store_locked: /s is in use by process 1"), "{locked}");
    }
}
