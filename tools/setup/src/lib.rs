//! Real servers, real loads, real comparisons, for the demo and the tests.
//!
//! Reading order: [`fetch`] (where PostgreSQL comes from), [`process`] (how a server is kept from outliving us),
//! [`postgres`] (a throw-away server), [`types`] and [`mutate`] (what is written into it), [`pgbench`] (the load),
//! [`compare`] (are two servers equal?), [`catalogs`] (is a standby its source, as far as catalogs go?), [`daemon`] (a `walspool run` that may be killed), [`ddl`] and [`shadow`] (what a shadow
//! follows, and a stage for one), [`report`] (what a test run used).
//!
//! ```no_run
//! # async fn example() -> Result<(), setup::SetupError> {
//! use setup::postgres::{Options, Postgres};
//! let server = Postgres::start(Options::major(18).conf("wal_level", "logical")).await?;
//! let client = server.client("postgres").await?;
//! client.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await?;
//! # Ok(()) }
//! ```

pub mod account;
pub mod catalogs;
pub mod compare;
pub mod daemon;
pub mod ddl;
pub mod document;
mod error;
pub mod fetch;
pub mod mutate;
pub mod pgbench;
pub mod port;
pub mod postgres;
pub mod process;
pub mod report;
pub mod roles;
pub mod shadow;
pub mod tls;
pub mod types;

pub use error::{Result, SetupError};

/// Makes one test per supported major (16, 17, 18) from each async function that takes the major. Servers cost a second or
/// two each, so a function starts what it needs once and runs its cases on them.
#[macro_export]
macro_rules! on_every_major {
    ($($name:ident),+ $(,)?) => { $(
        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_16() {
                super::$name(16).await;
            }
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_17() {
                super::$name(17).await;
            }
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_18() {
                super::$name(18).await;
            }
        }
    )+ };
}
