//! Faults under a mapping: the file was cut short from outside, or the medium does not give a page.
//!
//! The kernel answers a touch of such a page with SIGBUS, and by default that ends the process. A program that maps
//! calls [`install`] once. From then on such a touch is answered like this:
//!
//! 1. The address is looked for among the registered ranges, which are those of live mappings of segments.
//! 2. The range is marked with the offset of the page. This comes first: once the page is there, another thread may
//!    read zeros from it without a signal, and must find the mark when it asks.
//! 3. A private page of zeros is put under the address, and the touch goes on. The page stays until the mapping goes, so
//!    the mark stays as long: whatever is read through this mapping from then on is suspect, and a reader that finds
//!    the mark gives the mapping up and makes a new one.
//!
//! A range is registered after its file was mapped and forgotten before it is unmapped, so an address that another mapping
//! got later is never taken for one of ours. Whoever touches a range borrows its mapping, so the range that a fault
//! belongs to cannot be forgotten while the handler runs; other ranges can, and a slot that changes hands under the
//! handler's eyes is passed over ([`table`]).
//!
//! Every other SIGBUS is passed on to whoever was asked before, in the end to the default, which kills. A program that
//! does not call [`install`] (a user of this library) is killed by a fault under a mapping too, and loses nothing by it
//! but its life: a store that was killed recovers.

mod handler;
mod table;

pub use handler::install;
pub(crate) use table::Registration;
