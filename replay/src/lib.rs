//! PostgreSQL: connections, replication protocol, `pgoutput`, transactions, and the states kept about them.

pub mod conn;
