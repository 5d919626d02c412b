//! Cursors.
