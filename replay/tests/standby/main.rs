//! Standbys of catalogs, made from real servers of 16, 17 and 18.
//!
//! | file | what it shows |
//! |---|---|
//! | `bootstrap.rs` | both ways, fed by the source itself: equal catalogs; what is received does not grow with the data; interrupted and refused ones |
//! | `facts.rs` | `pg_control` and pages of real clusters are read as PostgreSQL's own tools read them |
//! | `support.rs` | sources with what makes a copy hard; a standby on a folder that was made |

mod bootstrap;
mod facts;
mod support;
