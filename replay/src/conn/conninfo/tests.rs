//! Tests of the connection string.
