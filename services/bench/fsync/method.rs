//! The ways to make writes durable that are compared.

use serde::Serialize;

/// A way to make one write, or several at once, durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "kebab-case")]
pub enum Method {
    /// pwrite, then fdatasync: two plain calls.
    PwriteFdatasync,
    /// One pwritev2 with RWF_DSYNC.
    PwriteDsync,
    /// A write on the ring, and when it is done a fdatasync on the ring.
    RingFdatasync,
    /// A write on the ring with a fdatasync linked to it: one call.
    RingLinked,
    /// Eight writes at once on the ring, then one fdatasync for all of them.
    Shared8,
    /// Sixteen writes at once on the ring, then one fdatasync for all of them.
    Shared16,
    /// As `PwriteFdatasync`, through the page cache.
    Buffered,
    /// As `Shared8`, with a thread of the kernel that polls for submissions (SQPOLL).
    Shared8Sqpoll,
    /// As `Shared8`, with file and buffers registered.
    Shared8Registered,
}

impl Method {
    /// Those that are measured when none is named, those of one write first. The others were tried and do not help.
    pub const DEFAULT: [Self; 6] = [
        Self::PwriteFdatasync,
        Self::PwriteDsync,
        Self::RingFdatasync,
        Self::RingLinked,
        Self::Shared8,
        Self::Shared16,
    ];

    /// Writes that one sync makes durable.
    #[must_use]
    pub fn depth(self) -> usize {
        match self {
            Self::Shared8 | Self::Shared8Sqpoll | Self::Shared8Registered => 8,
            Self::Shared16 => 16,
            _ => 1,
        }
    }

    /// Whether it needs io_uring.
    #[must_use]
    pub fn needs_ring(self) -> bool {
        !matches!(self, Self::PwriteFdatasync | Self::PwriteDsync | Self::Buffered)
    }

    /// In words, for tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PwriteFdatasync => "pwrite + fdatasync",
            Self::PwriteDsync => "pwritev2 RWF_DSYNC",
            Self::RingFdatasync => "ring: write, then fdatasync",
            Self::RingLinked => "ring: write linked to fdatasync",
            Self::Shared8 => "ring: 8 writes, one fdatasync",
            Self::Shared16 => "ring: 16 writes, one fdatasync",
            Self::Buffered => "buffered write + fdatasync",
            Self::Shared8Sqpoll => "ring: 8 writes, SQPOLL",
            Self::Shared8Registered => "ring: 8 writes, registered",
        }
    }
}
