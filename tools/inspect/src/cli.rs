//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use segments::{Lsn, RecordKind, Seqno, StreamKind};

/// Version, commit and on-disk format, as `walspool --version` prints them.
fn version() -> &'static str {
    static TEXT: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
        let (version, commit) = (env!("CARGO_PKG_VERSION"), env!("WALSPOOL_COMMIT"));
        format!("{version} (commit {commit}, on-disk format {})", segments::FORMAT_MAJOR)
    });
    &TEXT
}

#[derive(Parser)]
#[command(
    name = "walspool-inspect",
    version = version(),
    about = "Look into a walspool store: segments, records, registers, integrity. Never writes.",
    after_help = "Example:\n  walspool-inspect ls /var/lib/walspool/retail\n\nExit codes: 0 ok, 1 findings or nothing there, 2 usage, 5 corruption."
)]
pub(crate) struct Cli {
    /// JSON instead of text; every document has a schema_version.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Streams and segments with their ranges, state, bytes and holders.
    #[command(after_help = "Example:\n  walspool-inspect ls /var/lib/walspool/retail --stream txn")]
    Ls(Place),
    /// One segment: header, footer, index, groups.
    #[command(after_help = "Example:\n  walspool-inspect show /var/lib/walspool/retail 3 --stream txn")]
    Show {
        #[command(flatten)]
        place: Place,
        /// Segment: its ordinal, or its file name.
        segment: String,
    },
    /// Records with their bodies decoded.
    #[command(
        after_help = "Example:\n  walspool-inspect dump /var/lib/walspool/retail -s 0/1A2B3C40 -n 20\n\nThe letters are pg_waldump's. As LSNs, -s and -e name positions of the source: an entry lies between the end of the entry before it and its own end, and is printed where that range has a byte in [FROM, TO). Numbers are seqnos and name records."
    )]
    Dump {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        selection: Selection,
        /// When the end is reached, wait for more; Ctrl-C ends it.
        #[arg(short = 'f', long, conflicts_with = "stats")]
        follow: bool,
        /// Statistics instead of records: by kind, or with `=record` also by what the records say.
        #[arg(short = 'z', long, value_name = "record", num_args = 0..=1, require_equals = true, default_missing_value = "kind")]
        stats: Option<Stats>,
        /// Print nothing but faults: the exit code says whether the range can be read.
        #[arg(short = 'q', long, conflicts_with = "stats")]
        quiet: bool,
    },
    /// The last records of a stream, and with -f those that come.
    #[command(after_help = "Example:\n  walspool-inspect tail -f /var/lib/walspool/retail")]
    Tail {
        #[command(flatten)]
        place: Place,
        /// How many.
        #[arg(short = 'n', long, default_value_t = 10)]
        records: u64,
        /// Wait for more; Ctrl-C ends it.
        #[arg(short = 'f', long)]
        follow: bool,
        /// How records are printed.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Every checksum and every rule of order; exit 5 names the exact place of damage.
    #[command(
        after_help = "Example:\n  walspool-inspect verify /var/lib/walspool/retail\n  walspool-inspect verify /var/lib/walspool/retail continuity --json"
    )]
    Verify {
        #[command(flatten)]
        place: Place,
        /// What is verified: every byte of each segment, how segments, marks and cursors fit together, or both.
        #[arg(value_enum, default_value_t)]
        what: What,
        /// Segments read at once; the machine's processors, at most 8.
        #[arg(long, value_parser = clap::value_parser!(u8).range(1..=64))]
        threads: Option<u8>,
    },
    /// The WAL of a store as files that PostgreSQL knows; the last segment is filled up with zeros.
    #[command(after_help = "Example:\n  walspool-inspect export /var/lib/walspool/retail --wal /srv/recovery/wal")]
    Export {
        #[command(flatten)]
        directory: Directory,
        /// Where the files go: a new or empty folder.
        #[arg(long, value_name = "DIR")]
        wal: PathBuf,
    },
    /// The cursors' registers: what was confirmed, what is held.
    #[command(after_help = "Example:\n  walspool-inspect cursors /var/lib/walspool/retail")]
    Cursors(Directory),
    /// The newest manifest: which source, database, publication and slot the store belongs to.
    #[command(after_help = "Example:\n  walspool-inspect manifest /var/lib/walspool/retail --json")]
    Manifest(Directory),
    /// The newest ledger: the slot's state and each table's initial load.
    #[command(after_help = "Example:\n  walspool-inspect ledger /var/lib/walspool/retail")]
    Ledger(Directory),
}

#[derive(Args)]
pub(crate) struct Directory {
    /// The store's directory.
    pub(crate) store: PathBuf,
}

#[derive(Args)]
pub(crate) struct Place {
    /// The store's directory.
    pub(crate) store: PathBuf,
    /// Only this stream: txn, wal, manifest or ledger (`show`, `dump` and `tail`: txn unless another is given).
    #[arg(long, value_parser = parse_stream)]
    pub(crate) stream: Option<StreamKind>,
}

/// What every command knows.
pub(crate) struct Common {
    pub(crate) store: PathBuf,
    pub(crate) stream: Option<StreamKind>,
    pub(crate) json: bool,
}

/// Which records `dump` prints, and how.
#[derive(Args, Clone, Default)]
pub(crate) struct Selection {
    /// First position: an LSN, or a seqno.
    #[arg(short = 's', long, value_name = "FROM", value_parser = parse_position)]
    pub(crate) start: Option<Position>,
    /// Exclusive end: an LSN, or a seqno.
    #[arg(short = 'e', long, value_name = "TO", value_parser = parse_position)]
    pub(crate) end: Option<Position>,
    /// At most this many records.
    #[arg(short = 'n', long)]
    pub(crate) limit: Option<u64>,
    /// Only records of the transaction with this id.
    #[arg(short = 'x', long)]
    pub(crate) xid: Option<u32>,
    /// Only records of this kind, by number or by name (transaction, slot_begin, progress, manifest, ledger …).
    #[arg(long, value_parser = parse_kind)]
    pub(crate) kind: Option<RecordKind>,
    /// How records are printed; --json is the same as --format json.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}

/// A place in a stream as a user gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Position {
    /// By record.
    Seqno(Seqno),
    /// By the source's position.
    Lsn(Lsn),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Format {
    /// A line for each record, and one for each thing that it says.
    #[default]
    Text,
    /// One JSON document a line.
    Json,
    /// A line for each record, and its body's bytes.
    Hex,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Stats {
    /// By kind of record.
    #[value(hide = true)]
    Kind,
    /// Also by what the records say.
    Record,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum What {
    /// Every checksum, every padding byte, each footer against its content.
    Integrity,
    /// Order and completeness over segments, marks and cursors; sealed segments are believed their footers.
    Continuity,
    /// Both.
    #[default]
    All,
}

fn parse_position(text: &str) -> Result<Position, String> {
    match text.parse::<u64>() {
        Ok(number) => Ok(Position::Seqno(Seqno::new(number))),
        Err(_) => text.parse().map(Position::Lsn).map_err(|error| format!("{error}, or a seqno")),
    }
}

fn parse_stream(text: &str) -> Result<StreamKind, String> {
    let known = StreamKind::from_name(text).filter(|stream| StreamKind::PERMANENT.contains(stream));
    known.ok_or_else(|| format!("\"{text}\" is no stream: use txn, wal, manifest or ledger"))
}

fn parse_kind(text: &str) -> Result<RecordKind, String> {
    let named = |number: &u16| replay::kind::name(RecordKind(*number)).is_some_and(|name| name == text);
    let number = text.parse().ok().or_else(|| (0..=u16::from(u8::MAX)).find(named));
    let names: Vec<_> = (0..=u16::from(u8::MAX)).filter_map(|number| replay::kind::name(RecordKind(number))).collect();
    number.map(RecordKind).ok_or_else(|| format!("\"{text}\" is no kind: use a number, or {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound_and_every_command_has_an_example() {
        let mut cli = Cli::command();
        cli.build();
        cli.clone().debug_assert();
        for command in cli.get_subcommands().filter(|command| command.get_name() != "help") {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let example = format!("walspool-inspect {}", command.get_name());
            assert!(help.starts_with("Example:") && help.contains(&example), "{}: {help}", command.get_name());
        }
    }

    #[test]
    fn positions_are_seqnos_or_lsns_in_both_spellings() {
        assert_eq!(parse_position("12"), Ok(Position::Seqno(Seqno::new(12))));
        assert_eq!(parse_position("0/1A2B"), parse_position("0/00001a2b"));
        assert_eq!(parse_position("1/0"), Ok(Position::Lsn(Lsn::new(1 << 32))));
        assert!(parse_position("0/").expect_err("no position").contains("or a seqno"));
        assert_eq!(parse_kind("progress"), Ok(replay::kind::PROGRESS));
        assert_eq!(parse_kind("777"), Ok(RecordKind(777)));
        assert!(parse_kind("nothing").expect_err("no kind").contains("slot_begin"));
        assert!(parse_stream("spill").is_err());
    }
}
