//! Sizes that a message of PostgreSQL cannot exceed. What is larger is refused before anything is allocated for it.

/// Longest message: PostgreSQL builds each in one buffer of at most `MaxAllocSize` (1 GiB - 1, `memutils.h`).
pub const MESSAGE_BYTES_MAX: usize = 0x3fff_ffff;

/// Most columns of a table (`MaxHeapAttributeNumber`, `htup_details.h`).
pub const COLUMNS_MAX: u16 = 1600;

/// Longest name of a schema, table, column or type. PostgreSQL's own limit is 63 (`NAMEDATALEN` - 1); servers built
/// with a larger one exist.
pub const NAME_BYTES_MAX: usize = 1023;

/// Longest name of a replication origin; 512 since PostgreSQL 18 (`MAX_RONAME_LEN`), before that bounded by an index
/// tuple of a third of a page.
pub const ORIGIN_NAME_BYTES_MAX: usize = 4096;

/// Longest identifier of a prepared transaction (`GIDSIZE`, `xact.h`).
pub const GID_BYTES_MAX: usize = 200;
