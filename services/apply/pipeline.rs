//! Statements in flight: sent in order without waiting, answered in order.
//!
//! A statement leaves for the server when its future is polled for the first time (tokio-postgres encodes and queues
//! it before it waits), so [`Pipeline::push`] polls once and then only keeps the future. Answers are taken from the
//! front: the first failure is the true one, everything behind it in the same transaction merely says that the
//! transaction is aborted.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use super::error::Result;

/// What a statement in flight resolves to, already sorted into our errors.
type InFlight = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// At most this many statements wait for their answer: enough to hide the round trip, few enough that an error is
/// seen soon.
const STATEMENTS_MAX: usize = 512;

/// At most about this many bytes of values wait for their answer.
const BYTES_MAX: usize = 4 << 20;

/// A queue of statements in flight.
#[derive(Default)]
pub(crate) struct Pipeline {
    queue: VecDeque<(InFlight, usize)>,
    bytes: usize,
}

impl Pipeline {
    /// Sends a statement; waits for older ones while too many are under way.
    pub(crate) async fn push(
        &mut self,
        bytes: usize,
        statement: impl Future<Output = Result<()>> + Send + 'static,
    ) -> Result<()> {
        let mut statement: InFlight = Box::pin(statement);
        let sent = poll_fn(|context| Poll::Ready(statement.as_mut().poll(context))).await;
        if let Poll::Ready(answer) = sent {
            // It failed before it was sent, or the connection is gone: what is older may say why.
            self.drain().await?;
            return answer;
        }
        self.queue.push_back((statement, bytes));
        self.bytes += bytes;
        if self.queue.len() >= STATEMENTS_MAX || self.bytes >= BYTES_MAX {
            // Down to half, so that the two sides take turns in larger steps than one statement.
            self.drain_to(STATEMENTS_MAX / 2, BYTES_MAX / 2).await?;
        }
        Ok(())
    }

    /// Waits until every statement was answered.
    pub(crate) async fn drain(&mut self) -> Result<()> {
        self.drain_to(0, 0).await
    }

    async fn drain_to(&mut self, statements: usize, bytes: usize) -> Result<()> {
        while self.queue.len() > statements || self.bytes > bytes {
            let Some((front, size)) = self.queue.front_mut() else { break };
            let answer = front.await;
            self.bytes -= *size;
            self.queue.pop_front();
            answer?;
        }
        assert!(!self.queue.is_empty() || self.bytes == 0, "bytes are counted with their statements");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::error::ApplyError;
    use super::*;

    #[tokio::test]
    async fn statements_start_in_order_and_the_first_failure_is_reported() {
        let started = Arc::new(Mutex::new(Vec::new()));
        let mut pipeline = Pipeline::default();
        for number in 0..10 {
            let started = Arc::clone(&started);
            pipeline
                .push(1, async move {
                    started.lock().expect("unpoisoned").push(number);
                    tokio::task::yield_now().await;
                    if number >= 3 { Err(ApplyError::NeedsResync(number.to_string())) } else { Ok(()) }
                })
                .await
                .expect("queued");
        }
        assert_eq!(*started.lock().expect("unpoisoned"), (0..10).collect::<Vec<_>>());
        assert_eq!(pipeline.drain().await.expect_err("the fourth fails").to_string(), "3");
    }

    #[tokio::test]
    async fn the_queue_stays_within_its_limits() {
        let mut pipeline = Pipeline::default();
        for _ in 0..3 * STATEMENTS_MAX {
            pipeline
                .push(1, async {
                    tokio::task::yield_now().await;
                    Ok(())
                })
                .await
                .expect("queued");
            assert!(pipeline.queue.len() < STATEMENTS_MAX);
        }
        for _ in 0..20 {
            pipeline
                .push(BYTES_MAX / 4, async {
                    tokio::task::yield_now().await;
                    Ok(())
                })
                .await
                .expect("queued");
            assert!(pipeline.bytes < BYTES_MAX);
        }
        pipeline.drain().await.expect("all answered");
        assert_eq!((pipeline.queue.len(), pipeline.bytes), (0, 0));
    }
}
