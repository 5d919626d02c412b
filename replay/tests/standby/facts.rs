//! What is read off real clusters' files is what PostgreSQL's own tools say.

use std::process::Command;

use replay::standby::page::{BLOCK_BYTES, checksum};
use replay::standby::{ClusterState, ControlFile};
use setup::postgres::{Options, Postgres, StopMode};
use setup::process::run_to_end;

async fn control_file(major: u32) {
    let options = Options::major(major).conf("max_connections", "43").conf("max_prepared_transactions", "5");
    let mut server = Postgres::start(options).await.expect("a server");
    server.sql("postgres", "CHECKPOINT").await.expect("a checkpoint");
    assert_eq!(ControlFile::read(&server.data_dir()).expect("read").state, ClusterState::InProduction);
    server.stop(StopMode::Fast).await.expect("stopped");
    let found = ControlFile::read(&server.data_dir()).expect("read");
    let mut command = Command::new(server.installation().program("pg_controldata"));
    command.arg("-D").arg(server.data_dir()).env("LC_ALL", "C");
    let text = run_to_end(command, setup::account::server_account().expect("an account")).expect("it runs");
    let said = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name} in {text}"));
        line.trim_start_matches(':').trim().to_owned()
    };
    let pairs = [
        ("pg_control version number", found.control_version.to_string()),
        ("Catalog version number", found.catalog_version.to_string()),
        ("Database system identifier", found.system_identifier.to_string()),
        ("Latest checkpoint location", found.checkpoint.to_string()),
        ("Latest checkpoint's REDO location", found.redo.to_string()),
        ("Latest checkpoint's TimeLineID", found.timeline.to_string()),
        ("Minimum recovery ending location", found.min_recovery_point.to_string()),
        ("max_connections setting", found.floors.max_connections.to_string()),
        ("max_worker_processes setting", found.floors.max_worker_processes.to_string()),
        ("max_wal_senders setting", found.floors.max_wal_senders.to_string()),
        ("max_prepared_xacts setting", found.floors.max_prepared_transactions.to_string()),
        ("max_locks_per_xact setting", found.floors.max_locks_per_transaction.to_string()),
        ("Bytes per WAL segment", found.wal_segment_bytes.to_string()),
        ("Data page checksum version", u32::from(found.has_data_checksums).to_string()),
    ];
    for (name, ours) in pairs {
        assert_eq!(said(name), ours, "{name}");
    }
    assert_eq!((found.state, said("Database cluster state").as_str()), (ClusterState::ShutDown, "shut down"));
    let seconds = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    assert!(found.checkpoint_unix_s.abs_diff(seconds.cast_signed()) < 600, "{}", found.checkpoint_unix_s);
}

setup::on_every_major!(control_file);

#[tokio::test]
async fn checksums_of_real_pages_match() {
    let mut server = Postgres::start(Options::major(18).initdb_arg("--data-checksums")).await.expect("a server");
    server.stop(StopMode::Fast).await.expect("stopped");
    let mut pages_count = 0;
    for folder in ["global", "base/5"] {
        for entry in std::fs::read_dir(server.data_dir().join(folder)).expect("listed").flatten() {
            let name = entry.file_name().into_string().expect("text");
            if !name.starts_with(|first: char| first.is_ascii_digit()) {
                continue;
            }
            let content = std::fs::read(entry.path()).expect("read");
            for (block, page) in content.as_chunks::<BLOCK_BYTES>().0.iter().enumerate() {
                if u16::from_le_bytes([page[14], page[15]]) != 0 {
                    let stored = u16::from_le_bytes([page[8], page[9]]);
                    assert_eq!(checksum(page, block as u32), stored, "{folder}/{name} block {block}");
                    pages_count += 1;
                }
            }
        }
    }
    assert!(pages_count > 500, "{pages_count} pages");
}
