//! One store's life, driven on the simulated disk until something stops it, and the account of what was promised.

use std::time::Duration;

use segments::{RecordKind, Seqno, StreamKind};
use spool::{CursorStart, Error, Store, StoreOptions};

use crate::worlds::{SimWorld, TXN, World, body_of, entry, read_all, record};

/// What was acknowledged, and what was merely tried.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Entries appended, in order, with their LSN and body.
    pub appended: Vec<(u64, Vec<u8>)>,
    /// How many of them were acknowledged.
    pub acknowledged: usize,
    /// Number of the last state tried, and of the last acknowledged.
    pub state_tried: u16,
    pub state_acknowledged: u16,
    /// LSN that the consumer confirmed durably, and the last that it tried to.
    pub confirmed: u64,
    pub confirm_tried: u64,
    pub is_created: bool,
    pub is_registered: bool,
}

pub const STATE: RecordKind = RecordKind(17);

pub fn state_body(number: u16) -> Vec<u8> {
    body_of(u64::from(number), 700 * (usize::from(number) % 9))
}

impl Account {
    fn lsn(&self) -> u64 {
        self.appended.last().map_or(0, |(lsn, _)| *lsn) + 16
    }

    /// Creates, appends over several segments, confirms, retains, recycles, closes; the error that ended it, if any.
    pub fn live(&mut self, world: &SimWorld) -> Result<(), Error> {
        let store = world.create_with(&StoreOptions::tiny())?;
        self.is_created = true;
        let lived = self.go_on(world, &store, 30);
        let closed = store.close();
        lived.and(closed)
    }

    /// Some more of the same on an open store.
    pub fn go_on(&mut self, world: &SimWorld, store: &Store<spool::SimDisk>, rounds: u64) -> Result<(), Error> {
        let mut cursor = match self.is_registered {
            true => store.cursor("consumer")?,
            false => store.register("consumer", TXN, CursorStart::Earliest)?,
        };
        self.is_registered = true;
        for round in 0..rounds {
            let lsn = self.lsn();
            let body = body_of(lsn, 300 + (round as usize * 97) % 900);
            self.appended.push((lsn, body.clone()));
            let (begin, end) = body.split_at(body.len() / 2);
            store.append(TXN, record(true, false, lsn - 16, begin))?;
            store.append_durable(TXN, record(false, true, lsn, end))?;
            self.acknowledged = self.appended.len();
            if round % 6 == 5 {
                self.append_together(store)?;
                self.state_tried += 1;
                store.append_state(StreamKind::Ledger, STATE, self.state_tried, &state_body(self.state_tried))?;
                self.state_acknowledged = self.state_tried;
            }
            if round % 9 == 8 {
                read_to_the_end(&mut cursor)?;
                let end = store.watermarks(TXN).durable_entry_end;
                self.confirm_tried = end.lsn.get();
                cursor.confirm(end)?;
                cursor.sync()?;
                self.confirmed = end.lsn.get();
                world.clock.advance(Duration::from_secs(2));
                while store.step() {}
                check_failure(store)?;
                store.retain()?;
            }
        }
        Ok(())
    }

    /// Several entries in one write.
    fn append_together(&mut self, store: &Store<spool::SimDisk>) -> Result<(), Error> {
        let mut last = Seqno::NONE;
        for _ in 0..3 {
            let lsn = self.lsn();
            self.appended.push((lsn, body_of(lsn, 200)));
            last = store.append(TXN, entry(lsn, &body_of(lsn, 200)))?;
        }
        store.wait_durable(TXN, last)?;
        self.acknowledged = self.appended.len();
        Ok(())
    }

    /// What must hold of a store opened after any end. Entries that were tried and are there count as acknowledged from
    /// here on, the others as never tried.
    pub fn check(&mut self, store: &Store<spool::SimDisk>, what: &str) {
        let end = store.watermarks(TXN).durable_entry_end.lsn.get();
        let there = self.appended.iter().take_while(|(lsn, _)| *lsn <= end).count();
        assert!(
            there >= self.acknowledged,
            "{what}: {} entries were acknowledged, {there} are there",
            self.acknowledged
        );
        self.appended.truncate(there);
        self.acknowledged = there;
        let mut reader = store.register("checker", TXN, CursorStart::Earliest).expect("registered");
        let seen = read_all(&mut reader);
        let mut entries: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut body = Vec::new();
        for record in seen {
            if record.first {
                body.clear();
            }
            body.extend_from_slice(&record.body);
            if record.last {
                entries.push((record.lsn, body.clone()));
            }
        }
        assert!(self.appended.ends_with(&entries), "{what}: what is read is not what was appended");
        let oldest_needed = self.appended.iter().find(|(lsn, _)| *lsn > self.confirmed.max(self.confirm_tried));
        if let Some((lsn, _)) = oldest_needed {
            assert!(
                entries.first().is_some_and(|(first, _)| first <= lsn),
                "{what}: retention took what a cursor needs"
            );
        }
        drop(reader);
        store.unregister("checker").expect("removed");
        let state = store.latest_state(StreamKind::Ledger).expect("readable").map_or(0, |state| {
            assert_eq!(state.body, state_body(state.schema));
            state.schema
        });
        assert!((self.state_acknowledged..=self.state_tried).contains(&state), "{what}: state {state}");
        (self.state_tried, self.state_acknowledged) = (state, state);
        self.check_cursor(store, what);
    }

    fn check_cursor(&mut self, store: &Store<spool::SimDisk>, what: &str) {
        match store.cursor("consumer") {
            Ok(cursor) => {
                let confirmed = cursor.confirmed().lsn.get();
                assert!(
                    confirmed == self.confirmed || confirmed == self.confirm_tried,
                    "{what}: confirmed {confirmed}"
                );
                (self.is_registered, self.confirmed, self.confirm_tried) = (true, confirmed, confirmed);
            }
            Err(Error::Unregistered { .. }) => {
                assert_eq!(self.confirmed, 0, "{what}: a confirmed cursor does not vanish");
                self.is_registered = false;
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

fn read_to_the_end(cursor: &mut spool::Cursor<spool::SimDisk>) -> Result<(), Error> {
    while let Some(batch) = cursor.next_batch(spool::BatchLimits::default())? {
        batch.finish()?;
    }
    Ok(())
}

fn check_failure(store: &Store<spool::SimDisk>) -> Result<(), Error> {
    store.failure().map_or(Ok(()), Err)
}
