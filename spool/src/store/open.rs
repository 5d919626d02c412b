//! Opening a store: lock, recovery, threads.

use std::path::Path;
use std::sync::Arc;

use segments::{StreamKind, parse_segment_file_name, planted};

use super::{Inner, STREAMS, Store, spawn};
use crate::control::{ControlWriter, Published};
use crate::cursor::CursorHub;
use crate::disk::Disk;
use crate::environment::Environment;
use crate::error::{Error, IoContext, Result};
use crate::layout::{CURSOR_SUFFIX, CURSORS_DIR, MARKS_FILE, POOL_DIR, cursor_path};
use crate::lock::StoreLock;
use crate::maintenance::{self, Maintenance};
use crate::mark::{MarkRegister, Marks};
use crate::options::StoreOptions;
use crate::pool::Pool;
use crate::recovery::{Examination, Examined, RecoveredStream, Recovery, RecoveryReport, StreamEnd};
use crate::shared::{Drive, Shared};
use crate::stream::{Front, FrontLimits, Stream};
use crate::sync::Mutex;
use crate::writer::{self, Committer, Hub};

impl<D: Disk> Store<D> {
    /// As `open` of a [`super::SystemStore`], on any disk, with time and randomness from outside.
    ///
    /// # Errors
    /// As there.
    pub fn open_on(
        disk: D,
        environment: Environment,
        drive: Drive,
        dir: &Path,
        options: &StoreOptions,
    ) -> Result<Self> {
        options.check()?;
        check_is_store(&disk, dir)?;
        let lock = StoreLock::take(&disk, dir)?;
        // A creation that was interrupted may have left names that are not durable yet.
        disk.sync_dir(dir).doing("sync", dir)?;
        if !planted!("store_name_not_synced") {
            disk.sync_dir(parent_of(dir)).doing("sync", parent_of(dir))?;
        }
        check_folders(&disk, dir)?;
        refuse_newer_cursors(&disk, dir)?;
        let mut marks = MarkRegister::open(&disk, dir)?;
        check_geometry(marks.marks(), options, dir)?;
        let store = marks.marks().store;
        // Everything is looked at and decided about before the first byte is changed: a store that is refused stays as it
        // was found.
        let examined = {
            let lock_wait = options.writer_lock_wait;
            let examination = Examination { disk: &disk, dir, store, lock_wait, drive };
            examine_all(&examination, &marks)?
        };
        marks.settle()?;
        assert!(examined.iter().map(|(kind, _)| *kind).eq(STREAMS), "every stream was looked at, in order");
        let mut pool = Pool::open(disk.clone(), dir, store, environment.clone(), options.recycled_segments_max)?;
        let mut recovery = Recovery { disk: &disk, dir, pool: &mut pool };
        let recovered: Recovered<D> = examined
            .into_iter()
            .map(|(kind, examined)| Ok((kind, recovery.carry_out(examined)?)))
            .collect::<Result<_>>()?;
        assert!(recovered.iter().map(|(kind, _)| *kind).eq(STREAMS), "every stream was recovered, in order");
        publish_marks(&mut marks, &recovered)?;
        let opening = marks.marks().openings;
        let cursors = CursorHub::new(disk.clone(), dir, environment.clone());
        cursors.settle()?;
        disk.process_memory().forget(marks.identity());
        let report = report(&recovered);
        say(&report, marks.is_direct(), dir);
        let queue = disk.queue(options.queue_depth).doing("set up the write queue of", dir)?;
        let (streams, times): (Vec<_>, Vec<_>) =
            recovered.into_iter().map(|(kind, stream)| open_stream(kind, stream, marks.marks(), options)).unzip();
        assert_eq!(streams.len(), STREAMS.len(), "every stream is opened");
        let committer = Committer::new(queue, streams.iter().cloned().zip(times));
        let control = ControlWriter::begin(&disk, dir, store, environment.clock.now());
        let shared = Arc::new(Shared {
            cursors,
            control,
            disk,
            dir: dir.to_owned(),
            store,
            options: options.clone(),
            identity: marks.identity(),
            opening,
            environment,
            drive,
            streams,
            committer: Mutex::new(Some(committer)),
            hub: Hub::default(),
            maintenance: Maintenance::default(),
            pool: Mutex::new(pool),
            marks: Mutex::new(marks),
            ended: Mutex::new(None),
            unremoved: Mutex::default(),
            store_lock: Mutex::new(Some(lock)),
            housekeeping: Mutex::default(),
        });
        shared.check_begin();
        shared.streams.iter().for_each(|stream| shared.control.publish(stream.kind, recovered_end(stream)));
        Self::start(shared, report)
    }

    fn start(shared: Arc<Shared<D>>, report: RecoveryReport) -> Result<Self> {
        let inner = Arc::new(Inner { shared, report, threads: Mutex::default() });
        assert!(crate::stream::lock(&inner.threads).is_empty(), "nobody works yet");
        if inner.shared.drive == Drive::Threads {
            let committer = spawn("walspool-commit", &inner.shared, writer::run)?;
            crate::stream::lock(&inner.threads).push(committer);
            let maintenance = spawn("walspool-maint", &inner.shared, maintenance::run)?;
            crate::stream::lock(&inner.threads).push(maintenance);
            assert_eq!(crate::stream::lock(&inner.threads).len(), 2, "one commits, one does the rest");
        }
        assert!(inner.report.ends.iter().map(|end| end.stream).eq(STREAMS), "the report says where each stream ends");
        Ok(Self { inner })
    }
}

pub(crate) fn check_is_store<D: Disk>(disk: &D, dir: &Path) -> Result<()> {
    let not_a_store = |reason: String| Err(Error::NotAStore { path: dir.to_owned(), reason });
    if !disk.is_dir(dir).doing("look for", dir)? {
        return not_a_store("there is no such folder".to_owned());
    }
    let names = disk.list(dir).doing("list", dir)?;
    if names.iter().any(|name| name == MARKS_FILE) {
        return Ok(());
    }
    check_marks_not_lost(disk, dir, &names)?;
    not_a_store(format!("it has no file `{MARKS_FILE}`"))
}

/// `marks` is there before the first segment and the first cursor. Where one of these lies without it, the folder is no
/// new store but what is left of one.
pub(super) fn check_marks_not_lost<D: Disk>(disk: &D, dir: &Path, names: &[String]) -> Result<()> {
    let folders = STREAMS.map(StreamKind::name).into_iter().chain([CURSORS_DIR]);
    for folder in folders.filter(|folder| names.iter().any(|name| name == folder)) {
        let path = dir.join(folder);
        if !disk.is_dir(&path).doing("look for", &path)? {
            continue;
        }
        let content = disk.list(&path).doing("list", &path)?;
        let is_ours = |name: &&String| parse_segment_file_name(name).is_some() || name.ends_with(CURSOR_SUFFIX);
        if let Some(found) = content.iter().find(is_ours) {
            return Err(Error::Incomplete {
                path: dir.to_owned(),
                missing: format!("the mark register `{MARKS_FILE}`"),
                evidence: format!("{folder}/{found} is there"),
            });
        }
    }
    Ok(())
}

/// A store with its marks has all its folders, whatever is in them.
fn check_folders<D: Disk>(disk: &D, dir: &Path) -> Result<()> {
    for folder in STREAMS.map(StreamKind::name).into_iter().chain([CURSORS_DIR, POOL_DIR]) {
        let path = dir.join(folder);
        if !disk.is_dir(&path).doing("look for", &path)? {
            return Err(folder_missing(dir, folder));
        }
    }
    Ok(())
}

pub(crate) fn folder_missing(dir: &Path, folder: &str) -> Error {
    Error::Incomplete {
        path: dir.to_owned(),
        missing: format!("the folder {folder}"),
        evidence: format!("the mark register `{MARKS_FILE}` is there"),
    }
}

/// The folder that holds the store's own name.
pub(super) fn parent_of(dir: &Path) -> &Path {
    dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Registers of cursors, pins and restartpoints: what only a newer version understands is not looked at when it is too late. The streams and marks are judged by
/// recovery; whatever else is wrong with a register is its holder's to hear.
fn refuse_newer_cursors<D: Disk>(disk: &D, dir: &Path) -> Result<()> {
    for name in crate::cursor::names(disk, &dir.join(CURSORS_DIR))? {
        if let Err(error @ Error::UnsupportedVersion { .. }) = crate::cursor::peek(disk, &cursor_path(dir, &name)) {
            return Err(error);
        }
    }
    crate::hold::refuse_newer(disk, dir)
}

fn check_geometry(marks: &Marks, options: &StoreOptions, dir: &Path) -> Result<()> {
    for stream in &marks.streams {
        let configured = options.geometry_of(stream.stream);
        if configured != stream.geometry {
            return Err(Error::OptionsDiffer {
                path: dir.to_owned(),
                what: format!("the geometry of stream {}", stream.stream),
                stored: format!("{:?}", stream.geometry),
                configured: format!("{configured:?}"),
            });
        }
    }
    Ok(())
}

type Recovered<D> = Vec<(StreamKind, RecoveredStream<<D as Disk>::File>)>;

fn examine_all<D: Disk>(
    examination: &Examination<'_, D>,
    register: &MarkRegister<D>,
) -> Result<Vec<(StreamKind, Examined<D::File>)>> {
    assert_eq!(register.marks().store, examination.store, "the identity is the register's");
    let memory = examination.disk.process_memory();
    let one = |stream: &crate::mark::StreamMarks| {
        let known = memory.known(register.identity(), register.marks().openings, stream.stream);
        Ok((stream.stream, examination.stream(stream, known)?))
    };
    register.marks().streams.iter().map(one).collect()
}

/// Everything that recovery kept is synced, so the mark may say so. Both slots count the opening before anything is
/// written by it: another process that remembers the store from before must see, whichever slot it reads, that it was
/// not the last one here.
fn publish_marks<D: Disk>(register: &mut MarkRegister<D>, recovered: &Recovered<D>) -> Result<()> {
    for (kind, stream) in recovered {
        let mark = &mut register.marks_mut().stream_mut(*kind).mark;
        let durable = stream.table.durable();
        assert!(durable.is_none() || durable.segment >= stream.table.start().segment, "the durable end is kept");
        assert!(durable.is_none() || durable.position.seqno == stream.watermarks.durable.seqno);
        if durable.place() > mark.place() {
            *mark = durable;
        }
        assert!(mark.place() >= durable.place(), "all that was recovered lies below the mark");
    }
    let openings = &mut register.marks_mut().openings;
    *openings = openings.checked_add(1).expect("2^64 openings take ages");
    register.write_both()
}

fn report<F>(recovered: &[(StreamKind, RecoveredStream<F>)]) -> RecoveryReport {
    let rows = recovered.iter().flat_map(|(_, stream)| stream.rows.iter().copied()).collect();
    let end = |(stream, recovered): &(StreamKind, RecoveredStream<F>)| StreamEnd {
        stream: *stream,
        last_record: recovered.watermarks.durable.seqno,
        entry_end: recovered.watermarks.durable_entry_end,
    };
    let report = RecoveryReport { rows, ends: recovered.iter().map(end).collect() };
    assert_eq!(report.ends.len(), recovered.len(), "each stream has an end");
    let rows_of = |kind| report.rows.iter().filter(|row| row.stream == kind).count();
    assert!(recovered.iter().all(|(kind, stream)| rows_of(*kind) == stream.rows.len()), "a row is told of its stream");
    assert!(report.ends.iter().all(|end| end.entry_end.seqno <= end.last_record), "an entry ends with a record");
    report
}

fn say(report: &RecoveryReport, is_direct: bool, dir: &Path) {
    if !is_direct {
        tracing::warn!(store = %dir.display(), "this file system has no direct I/O: the store writes through the page cache");
    }
    for line in &report.rows {
        tracing::debug!(stream = %line.stream, segment = %line.segment, row = line.row.label(), end = line.end_offset, "recovered");
    }
    if report.has_cut() {
        tracing::info!(store = %dir.display(), "writes that a crash had not finished were left out; none of them was acknowledged");
    }
}

fn open_stream<F>(
    kind: StreamKind,
    recovered: RecoveredStream<F>,
    marks: &Marks,
    options: &StoreOptions,
) -> (Arc<Stream<F>>, segments::UnixMicros) {
    let (epoch, geometry) = (marks.stream(kind).epoch, marks.stream(kind).geometry);
    assert_eq!(geometry, options.geometry_of(kind), "other sizes are refused");
    assert_eq!(recovered.watermarks.appended, recovered.watermarks.durable, "all that was recovered is durable");
    let in_table = |segment| recovered.table.get(segment).is_some();
    assert!(recovered.prepared.iter().all(|ready| in_table(ready.header.segment)), "the table knows of every file");
    assert!(recovered.prepared.iter().all(|ready| ready.header.epoch == epoch), "others are refused");
    let limits =
        FrontLimits { group_bytes_max: options.group_bytes_max, buffer_bytes_max: options.append_buffer_bytes_max };
    let front = Front::new(kind, geometry, limits, recovered.watermarks);
    let tail_bytes_max = options.tail_memory_bytes_max;
    let RecoveredStream { table, prepared, last_written_at, .. } = recovered;
    (Arc::new(Stream::new(kind, epoch, geometry, front, table, prepared, tail_bytes_max)), last_written_at)
}

/// What readers in other processes are told before anything new is durable.
fn recovered_end<F>(stream: &Stream<F>) -> Published {
    let (durable, watermarks) = (stream.table().durable(), stream.watermarks());
    let written_at = stream.table().get(durable.segment).map(|entry| entry.info.last_written_at).unwrap_or_default();
    assert!(durable.is_none() || durable.position.seqno == watermarks.durable.seqno, "all that is there is durable");
    assert!(watermarks.durable_entry_end.seqno <= watermarks.durable.seqno, "an entry ends with a record");
    assert_eq!(durable.segment.get() == 0, durable.offset == 0, "an end lies in a segment");
    Published {
        generation: 0,
        epoch: stream.epoch,
        segment: durable.segment,
        offset: durable.offset,
        record: watermarks.durable.seqno,
        entry_end: watermarks.durable_entry_end,
        written_at,
    }
}
