//! A model of the server: sessions with savepoints, and logical decoding with streaming, after the rules of
//! `reorderbuffer.c`, `decode.c` and `pgoutput.c`. It says what goes over the wire and which entries must come out.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::*;
use crate::pgoutput::ReplicaIdentity;
use crate::pgoutput::wire::{self, Random, WireColumn};
use crate::transaction::{RelationColumn, TypeName};

/// What the client meets.
pub(super) enum Step {
    Message(Vec<u8>),
    /// The connection is lost; everything not committed is sent again.
    Reconnect,
}

/// A history under way.
pub(super) struct Server {
    random: Random,
    lsn: u64,
    xid: u32,
    tables: Vec<Table>,
    sessions: Vec<Option<Session>>,
    pub(super) steps: Vec<Step>,
    pub(super) expected: Vec<SeenEntry>,
    pub(super) expected_empty: Vec<Lsn>,
    /// The canary: pretend that rolled-back savepoints count.
    pub(super) keeps_aborted: bool,
    pub(super) counts: Counts,
}

/// How often what mattered happened.
#[derive(Default, Debug)]
pub(super) struct Counts {
    pub(super) blocks: usize,
    pub(super) subtransaction_aborts: usize,
    pub(super) streamed_aborts: usize,
    pub(super) streamed_commits: usize,
    pub(super) alters: usize,
    pub(super) reconnects: usize,
}

struct Table {
    version: Arc<RelationVersion>,
    locked_by: Option<usize>,
    users: HashSet<usize>,
    /// `RelationSyncEntry`: has the connection the description, and which streamed transactions carried it.
    schema_sent: bool,
    streamed_in: HashSet<u32>,
}

struct Session {
    origin: Option<OriginInfo>,
    top: Sub,
    open_subs: Vec<Sub>,
    log: Vec<Logged>,
    versions: HashMap<usize, Arc<RelationVersion>>,
    streamed: bool,
    streamed_xids: HashSet<u32>,
    /// For the canary only.
    aborted: Vec<(usize, Seen)>,
}

/// A transaction or subtransaction; `children` are those that were released into it.
#[derive(Default)]
struct Sub {
    xid: Option<u32>,
    children: BTreeSet<u32>,
}

/// One decoded WAL record of an open transaction.
struct Logged {
    number: usize,
    xid: u32,
    what: What,
    sent: bool,
}

#[derive(Clone)]
enum What {
    Change { tables: Vec<usize>, seen: Seen },
    Alter { table: usize, version: Arc<RelationVersion> },
}

const SESSIONS: usize = 4;
const TABLES: usize = 6;

impl Server {
    pub(super) fn new(seed: u64) -> Self {
        let mut server = Self {
            random: Random::new(seed),
            lsn: 1000,
            xid: 700,
            tables: Vec::new(),
            sessions: (0..SESSIONS).map(|_| None).collect(),
            steps: Vec::new(),
            expected: Vec::new(),
            expected_empty: Vec::new(),
            keeps_aborted: false,
            counts: Counts::default(),
        };
        for index in 0..TABLES {
            let version = server.new_version(index);
            server.tables.push(Table {
                version,
                locked_by: None,
                users: HashSet::new(),
                schema_sent: false,
                streamed_in: HashSet::new(),
            });
        }
        server
    }

    /// Runs `count` random actions and ends what is open.
    pub(super) fn run(&mut self, count: usize) {
        for _ in 0..count {
            let session = self.random.below(SESSIONS as u64) as usize;
            match self.random.below(100) {
                0..46 => self.write(session),
                46..56 => self.savepoint(session),
                56..62 => self.release(session),
                62..70 => self.rollback_to(session),
                70..82 => self.stream(session),
                82..88 => self.commit(session),
                88..90 => self.rollback(session),
                90..97 => self.alter(session),
                97..99 => self.message_alone(),
                _ => self.reconnect(),
            }
        }
        (0..SESSIONS).for_each(|session| self.commit(session));
    }

    fn next_lsn(&mut self) -> Lsn {
        self.lsn += 8 + self.random.below(50) * 8;
        Lsn::new(self.lsn)
    }

    fn send(&mut self, message: Vec<u8>) {
        self.steps.push(Step::Message(message));
    }

    fn new_version(&mut self, index: usize) -> Arc<RelationVersion> {
        let full = self.random.once_in(4);
        let count = 1 + self.random.below(3) as usize;
        let columns = (0..count).map(|column| {
            let own_type = self.random.once_in(4);
            let name = || TypeName { schema: "public".to_owned(), name: "mood".to_owned() };
            RelationColumn {
                name: format!("c{column}_{}", self.random.below(1000)),
                type_oid: if own_type { 16_400 } else { 25 },
                type_modifier: if self.random.once_in(2) { -1 } else { self.random.below(100) as i32 },
                is_key: full || column == 0,
                type_name: own_type.then(name),
            }
        });
        Arc::new(RelationVersion {
            oid: 20_000 + index as u32,
            schema: "public".to_owned(),
            name: format!("t{index}"),
            columns: columns.collect(),
            identity: if full { ReplicaIdentity::Full } else { ReplicaIdentity::Default },
        })
    }

    // --- sessions ---

    fn begin(&mut self, session: usize) {
        if self.sessions[session].is_none() {
            let origin = self.random.once_in(5).then(|| OriginInfo { name: "upstream".to_owned(), lsn: Lsn::ZERO });
            self.sessions[session] = Some(Session {
                origin,
                top: Sub::default(),
                open_subs: Vec::new(),
                log: Vec::new(),
                versions: HashMap::new(),
                streamed: false,
                streamed_xids: HashSet::new(),
                aborted: Vec::new(),
            });
        }
    }

    /// The innermost open (sub)transaction's id; its parents get theirs first (`AssignTransactionId`).
    fn assign_xid(&mut self, session: usize) -> u32 {
        let open = self.sessions[session].as_mut().expect("begun");
        for sub in std::iter::once(&mut open.top).chain(&mut open.open_subs) {
            if sub.xid.is_none() {
                self.xid += 1;
                sub.xid = Some(self.xid);
            }
        }
        open.open_subs.last().unwrap_or(&open.top).xid.expect("just assigned")
    }

    fn log(&mut self, session: usize, what: What) {
        let xid = self.assign_xid(session);
        self.next_lsn();
        let open = self.sessions[session].as_mut().expect("begun");
        let number = open.log.last().map_or(0, |logged| logged.number + 1).max(open.aborted.len() + open.log.len());
        open.log.push(Logged { number, xid, what, sent: false });
    }

    fn free_table(&mut self, session: usize) -> Option<usize> {
        let table = self.random.below(TABLES as u64) as usize;
        self.tables[table].locked_by.is_none_or(|by| by == session).then_some(table)
    }

    fn version(&self, session: usize, table: usize) -> Arc<RelationVersion> {
        let own = self.sessions[session].as_ref().and_then(|open| open.versions.get(&table));
        Arc::clone(own.unwrap_or(&self.tables[table].version))
    }

    fn write(&mut self, session: usize) {
        self.begin(session);
        if self.random.once_in(12) {
            let (prefix, content) = (format!("p{}", self.random.below(10)), self.bytes());
            let lsn = self.next_lsn();
            let seen = Seen::Message(true, lsn, prefix, content);
            return self.log(session, What::Change { tables: vec![], seen });
        }
        let Some(table) = self.free_table(session) else { return };
        self.tables[table].users.insert(session);
        if self.random.once_in(15) {
            let other = self.free_table(session).filter(|other| *other != table);
            let tables: Vec<_> = std::iter::once(table).chain(other).collect();
            tables.iter().for_each(|table| self.tables[*table].users.extend([session]));
            let versions = tables.iter().map(|table| self.version(session, *table)).collect();
            let seen = Seen::Truncate(versions, self.random.once_in(2), self.random.once_in(2));
            return self.log(session, What::Change { tables, seen });
        }
        let version = self.version(session, table);
        let seen = self.row_change(version);
        self.log(session, What::Change { tables: vec![table], seen });
    }

    fn row_change(&mut self, version: Arc<RelationVersion>) -> Seen {
        let full = version.identity == ReplicaIdentity::Full;
        match self.random.below(3) {
            0 => {
                let new = self.row(&version, false);
                Seen::Insert(version, new)
            }
            1 => {
                let old = match full {
                    true => Some((OldKind::Full, self.row(&version, false))),
                    false => self.random.once_in(2).then(|| (OldKind::Key, self.key(&version))),
                };
                let new = self.row(&version, true);
                Seen::Update(version, old, new)
            }
            _ if full => {
                let old = self.row(&version, false);
                Seen::Delete(version, OldKind::Full, old)
            }
            _ => {
                let old = self.key(&version);
                Seen::Delete(version, OldKind::Key, old)
            }
        }
    }

    fn row(&mut self, version: &RelationVersion, unchanged: bool) -> Values {
        let value = |_: &RelationColumn| match self.random.below(10) {
            0 | 1 => Value::Null,
            2 if unchanged => Value::Unchanged,
            3 => Value::Binary(self.bytes()),
            _ => Value::Text(self.bytes()),
        };
        version.columns.iter().map(value).collect()
    }

    fn key(&mut self, version: &RelationVersion) -> Values {
        let value = |column: &RelationColumn| if column.is_key { Value::Text(self.bytes()) } else { Value::Absent };
        version.columns.iter().map(value).collect()
    }

    /// Mostly short, sometimes beyond small records.
    fn bytes(&mut self) -> Vec<u8> {
        let limit = [1, 8, 20, 60, 3000][self.random.below(5) as usize];
        let length = self.random.below(limit);
        (0..length).map(|_| self.random.next() as u8).collect()
    }

    fn alter(&mut self, session: usize) {
        self.begin(session);
        let Some(table) = self.free_table(session) else { return };
        if self.tables[table].users.iter().any(|user| *user != session) {
            return;
        }
        self.counts.alters += 1;
        self.tables[table].users.insert(session);
        self.tables[table].locked_by = Some(session);
        let version = self.new_version(table);
        self.log(session, What::Alter { table, version: Arc::clone(&version) });
        self.sessions[session].as_mut().expect("begun").versions.insert(table, version);
    }

    fn savepoint(&mut self, session: usize) {
        self.begin(session);
        self.sessions[session].as_mut().expect("begun").open_subs.push(Sub::default());
    }

    fn release(&mut self, session: usize) {
        let Some(open) = &mut self.sessions[session] else { return };
        let Some(sub) = open.open_subs.pop() else { return };
        let parent = open.open_subs.last_mut().unwrap_or(&mut open.top);
        parent.children.extend(sub.children);
        parent.children.extend(sub.xid);
    }

    /// ROLLBACK TO a savepoint somewhere on the stack: innermost first, an abort record each.
    fn rollback_to(&mut self, session: usize) {
        let Some(depth) = self.sessions[session].as_ref().map(|open| open.open_subs.len()) else { return };
        if depth == 0 {
            return;
        }
        let keep = self.random.below(depth as u64) as usize;
        while self.sessions[session].as_ref().is_some_and(|open| open.open_subs.len() > keep) {
            let sub = self.sessions[session].as_mut().and_then(|open| open.open_subs.pop()).expect("open");
            if sub.xid.is_some() {
                self.next_lsn();
                sub.children.iter().chain(&sub.xid).for_each(|xid| self.abort_xid(session, *xid));
            }
        }
        self.restore_versions(session);
    }

    /// `ReorderBufferAbort` of one (sub)transaction.
    fn abort_xid(&mut self, session: usize, xid: u32) {
        let open = self.sessions[session].as_mut().expect("begun");
        let top = open.top.xid.expect("a subtransaction's parent has one");
        let (gone, kept) = std::mem::take(&mut open.log).into_iter().partition::<Vec<_>, _>(|logged| logged.xid == xid);
        open.log = kept;
        let altered: Vec<_> = gone.iter().filter_map(Logged::altered).collect();
        open.aborted.extend(gone.into_iter().filter_map(|logged| match logged.what {
            What::Change { seen, .. } => Some((logged.number, seen)),
            What::Alter { .. } => None,
        }));
        if open.streamed && (open.streamed_xids.contains(&xid) || xid == top) {
            self.counts.subtransaction_aborts += usize::from(xid != top);
            self.send(wire::stream_abort(top, xid));
            self.tables.iter_mut().for_each(|table| table.streamed_in.retain(|streamed| *streamed != top));
            altered.into_iter().for_each(|table| self.invalidate(table));
        }
    }

    /// The session's view of descriptions after a rollback: what its surviving alters made of them.
    fn restore_versions(&mut self, session: usize) {
        let open = self.sessions[session].as_mut().expect("begun");
        let survivor = |logged: &Logged| match &logged.what {
            What::Alter { table, version } => Some((*table, Arc::clone(version))),
            What::Change { .. } => None,
        };
        open.versions = open.log.iter().filter_map(survivor).collect();
    }

    fn finish(&mut self, session: usize) -> Session {
        for table in &mut self.tables {
            table.users.remove(&session);
            table.locked_by = table.locked_by.filter(|by| *by != session);
        }
        self.sessions[session].take().expect("begun")
    }

    fn rollback(&mut self, session: usize) {
        let Some(open) = &mut self.sessions[session] else { return };
        while let Some(sub) = open.open_subs.pop() {
            open.top.children.extend(sub.children);
            open.top.children.extend(sub.xid);
        }
        if let Some(top) = open.top.xid {
            self.counts.streamed_aborts += usize::from(open.streamed);
            let xids: Vec<_> = open.top.children.iter().copied().chain([top]).collect();
            self.next_lsn();
            xids.into_iter().for_each(|xid| self.abort_xid(session, xid));
        }
        self.finish(session);
    }

    // --- decoding ---

    fn invalidate(&mut self, table: usize) {
        self.tables[table].schema_sent = false;
        self.tables[table].streamed_in.clear();
    }

    /// `maybe_send_schema`
    fn describe(&mut self, table: usize, version: &RelationVersion, stream: Option<(u32, u32)>) {
        let entry = &self.tables[table];
        let sent = stream.map_or(entry.schema_sent, |(top, _)| entry.streamed_in.contains(&top));
        if sent {
            return;
        }
        let xid = stream.map(|(_, xid)| xid);
        if version.columns.iter().any(|column| column.type_name.is_some()) {
            self.send(wire::type_name(xid, 16_400, "public", "mood"));
        }
        let column =
            |column: &RelationColumn| (column.is_key, column.name.clone(), column.type_oid, column.type_modifier);
        let columns: Vec<_> = version.columns.iter().map(column).collect();
        let columns: Vec<_> = columns
            .iter()
            .map(|(key, name, type_oid, type_modifier)| WireColumn {
                key: *key,
                name,
                type_oid: *type_oid,
                type_modifier: *type_modifier,
            })
            .collect();
        let name = (version.schema.as_str(), version.name.as_str());
        self.send(wire::relation(xid, version.oid, name, version.identity as u8, &columns));
        match stream {
            Some((top, _)) => self.tables[table].streamed_in.extend([top]),
            None => self.tables[table].schema_sent = true,
        }
    }

    /// Plays one decoded record; `stream` is the top and the own transaction id inside a stream block.
    fn play(&mut self, what: &What, stream: Option<(u32, u32)>) {
        let (tables, seen) = match what {
            What::Alter { table, .. } => return self.invalidate(*table),
            What::Change { tables, seen } => (tables, seen),
        };
        for (table, version) in tables.iter().zip(relations(seen)) {
            self.describe(*table, version, stream);
        }
        let xid = stream.map(|(_, xid)| xid);
        self.send(wire_change(xid, seen));
    }

    /// A stream block with all that was not sent yet (`ReorderBufferStreamTXN`).
    fn stream(&mut self, session: usize) {
        let Some(open) = &mut self.sessions[session] else { return };
        let Some(top) = open.top.xid else { return };
        let mut block = Vec::new();
        for logged in open.log.iter_mut().filter(|logged| !logged.sent) {
            logged.sent = true;
            open.streamed_xids.insert(logged.xid);
            block.push((logged.xid, logged.what.clone()));
        }
        let first = !std::mem::replace(&mut open.streamed, true);
        let origin = open.origin.clone().filter(|_| first);
        self.counts.blocks += 1;
        self.send(wire::stream_start(top, first));
        if let Some(origin) = origin {
            self.send(wire::origin(origin.lsn, &origin.name));
        }
        block.iter().for_each(|(xid, what)| self.play(what, Some((top, *xid))));
        self.send(wire::stream_stop());
    }

    fn commit(&mut self, session: usize) {
        if self.sessions[session].is_none() {
            return;
        }
        while self.sessions[session].as_ref().is_some_and(|open| !open.open_subs.is_empty()) {
            self.release(session);
        }
        if self.sessions[session].as_ref().is_some_and(|open| open.streamed) {
            self.stream(session);
        }
        let commit_lsn = self.next_lsn();
        let end_lsn = self.next_lsn();
        let commit_time = self.random.next() as i64 >> 8;
        if !self.sessions[session].as_ref().expect("begun").streamed {
            self.commit_plain(session, commit_lsn, end_lsn, commit_time);
        }
        let open = self.finish(session);
        let Some(top) = open.top.xid else { return };
        if open.streamed {
            self.counts.streamed_commits += 1;
            self.send(wire::stream_commit(top, commit_lsn, end_lsn, commit_time));
            for table in &mut self.tables {
                // `cleanup_rel_sync_cache`: what the streamed transaction carried is now the connection's.
                table.schema_sent |= table.streamed_in.remove(&top);
            }
        }
        for table in open.log.iter().filter_map(Logged::altered) {
            self.invalidate(table);
            self.tables[table].version = Arc::clone(&open.versions[&table]);
        }
        self.expect(open, top, commit_lsn, end_lsn, commit_time);
    }

    /// A transaction that was never streamed: begin, changes, commit; nothing at all without a change. Now and then the
    /// connection is lost in its middle.
    fn commit_plain(&mut self, session: usize, commit_lsn: Lsn, end_lsn: Lsn, commit_time: i64) {
        let open = self.sessions[session].as_ref().expect("begun");
        let (Some(top), origin) = (open.top.xid, open.origin.clone()) else { return };
        let log: Vec<_> = open.log.iter().map(|logged| logged.what.clone()).collect();
        if !log.iter().any(|what| matches!(what, What::Change { .. })) {
            return;
        }
        let from = self.steps.len();
        for attempt in 0..2 {
            self.send(wire::begin(commit_lsn, commit_time, top));
            if let Some(origin) = &origin {
                self.send(wire::origin(origin.lsn, &origin.name));
            }
            log.iter().for_each(|what| self.play(what, None));
            self.send(wire::commit(commit_lsn, end_lsn, commit_time));
            if attempt == 1 || !self.random.once_in(10) {
                return;
            }
            let sent = 1 + self.random.below((self.steps.len() - from - 1) as u64) as usize;
            self.steps.truncate(from + sent);
            self.reconnect();
        }
    }

    fn expect(&mut self, open: Session, xid: u32, commit_lsn: Lsn, end_lsn: Lsn, commit_time: i64) {
        let mut changes: Vec<_> = open
            .log
            .into_iter()
            .filter_map(|logged| match logged.what {
                What::Change { seen, .. } => Some((logged.number, seen)),
                What::Alter { .. } => None,
            })
            .collect();
        if self.keeps_aborted {
            changes.extend(open.aborted);
            changes.sort_by_key(|(number, _)| *number);
        }
        if changes.is_empty() {
            if open.streamed {
                self.expected_empty.push(end_lsn);
            }
            return;
        }
        let changes = changes.into_iter().map(|(_, seen)| seen).collect();
        let commit_time = Some(SourceTime::from_postgres(commit_time));
        self.expected.push(SeenEntry { xid, commit_lsn, end_lsn, commit_time, origin: open.origin, changes });
    }

    fn message_alone(&mut self) {
        let (prefix, content) = ("alone".to_owned(), self.bytes());
        let lsn = self.next_lsn();
        self.send(wire::message(None, false, lsn, &prefix, &content));
        self.expected.push(SeenEntry {
            xid: 0,
            commit_lsn: lsn,
            end_lsn: lsn,
            commit_time: None,
            origin: None,
            changes: vec![Seen::Message(false, lsn, prefix, content)],
        });
    }

    /// A new walsender: nothing of what is open was sent yet.
    fn reconnect(&mut self) {
        self.counts.reconnects += 1;
        self.steps.push(Step::Reconnect);
        (0..TABLES).for_each(|table| self.invalidate(table));
        for open in self.sessions.iter_mut().flatten() {
            open.streamed = false;
            open.streamed_xids.clear();
            open.log.iter_mut().for_each(|logged| logged.sent = false);
        }
    }
}

impl Logged {
    fn altered(&self) -> Option<usize> {
        match self.what {
            What::Alter { table, .. } => Some(table),
            What::Change { .. } => None,
        }
    }
}

fn wire_change(xid: Option<u32>, seen: &Seen) -> Vec<u8> {
    let kind = |kind: &OldKind| if *kind == OldKind::Key { b'K' } else { b'O' };
    match seen {
        Seen::Insert(relation, new) => wire::insert(xid, relation.oid, &datums(new)),
        Seen::Update(relation, old, new) => {
            let before = old.as_ref().map(|(before, values)| (kind(before), datums(values)));
            wire::update(xid, relation.oid, before.as_ref().map(|(kind, row)| (*kind, &row[..])), &datums(new))
        }
        Seen::Delete(relation, before, old) => wire::delete(xid, relation.oid, kind(before), &datums(old)),
        Seen::Truncate(relations, cascade, restart) => {
            let oids: Vec<_> = relations.iter().map(|relation| relation.oid).collect();
            wire::truncate(xid, u8::from(*cascade) | u8::from(*restart) << 1, &oids)
        }
        Seen::Message(transactional, lsn, prefix, content) => wire::message(xid, *transactional, *lsn, prefix, content),
    }
}

fn datums(values: &Values) -> Vec<Datum<'_>> {
    values.iter().map(Value::datum).collect()
}
