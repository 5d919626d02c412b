//! Which promise a failure breaks.

use std::fmt;

use crate::Failure;

/// The promises, by their letters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// D: every byte at or below an acknowledged position is there and identical after any crash.
    Durable,
    /// P: what is recovered and read is a gap-free prefix of what was appended, never a foreign or stale byte.
    Prefix,
    /// C: a changed byte is seen before anyone uses it.
    Corruption,
    /// A: what is called durable is, and never goes back.
    Acknowledgement,
    /// R: nothing goes that a cursor needs, and a cursor stands where it was put.
    Retention,
    /// L: when the fault stops, the store goes on; it does not stop, refuse or panic without one.
    Liveness,
}

/// What the model says (`life/`), and what it means. The first line that fits counts.
const SIGNS: [(&str, Promise); 29] = [
    ("while a reader has it mapped", Promise::Prefix),
    ("panicked at", Promise::Liveness),
    ("an interruption was taken", Promise::Liveness),
    ("with fewer records", Promise::Durable),
    ("acknowledged by a store that had failed", Promise::Acknowledgement),
    ("was acknowledged, but durable", Promise::Acknowledgement),
    ("durable went back", Promise::Acknowledgement),
    ("durable moved", Promise::Acknowledgement),
    ("watermarks contradict", Promise::Acknowledgement),
    ("the last complete entry ends at", Promise::Acknowledgement),
    ("this process knew", Promise::Durable),
    ("were acknowledged", Promise::Durable),
    ("was acknowledged", Promise::Durable),
    ("durable bytes are not what was written", Promise::Durable),
    ("are durable", Promise::Durable),
    ("accepts records", Promise::Acknowledgement),
    ("damage in", Promise::Durable),
    ("but c", Promise::Retention),
    ("were appended", Promise::Prefix),
    ("comes next", Promise::Prefix),
    ("is there", Promise::Retention),
    ("stands at", Promise::Retention),
    ("not there any more", Promise::Retention),
    ("and is back", Promise::Retention),
    ("begins after", Promise::Retention),
    ("was put to", Promise::Retention),
    ("starts", Promise::Retention),
    ("no fault explains", Promise::Liveness),
    ("does not open", Promise::Liveness),
];

impl Promise {
    /// The promise that a failure breaks. What the model says of a record that is another than was appended needs no
    /// sign of its own: it is the rest.
    #[must_use]
    pub fn of(failure: &Failure) -> Self {
        let sign = SIGNS.iter().find(|(sign, _)| failure.what.contains(sign));
        sign.map_or(Self::Prefix, |(_, promise)| *promise)
    }

    /// The letter.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Durable => 'D',
            Self::Prefix => 'P',
            Self::Corruption => 'C',
            Self::Acknowledgement => 'A',
            Self::Retention => 'R',
            Self::Liveness => 'L',
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.letter())
    }
}
