//! Names for the operations of a store, so that a process can be ended at one of them.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// When, seen from the operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Moment {
    /// Nothing of it was done.
    Before,
    /// The first half of a write was done.
    Half,
    /// All of it was done, and nobody was told.
    After,
}

/// A kind of operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Point(pub &'static str);

impl<'de> Deserialize<'de> for Point {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let name = String::deserialize(input)?;
        let known = POINTS.iter().map(|(point, _)| *point).find(|known| known.0 == name);
        known.ok_or_else(|| serde::de::Error::custom(format!("no point is called {name}")))
    }
}

/// Every point, and whether it is a write, which can be done by half.
pub const POINTS: [(Point, bool); 23] = [
    (Point("group_write"), true),
    (Point("group_sync"), false),
    (Point("footer_write"), true),
    (Point("segment_sync"), false),
    (Point("pool_write"), true),
    (Point("pool_sync"), false),
    (Point("marks_write"), true),
    (Point("marks_sync"), false),
    (Point("cursor_write"), true),
    (Point("cursor_sync"), false),
    (Point("lock_write"), true),
    (Point("create"), false),
    (Point("create_dir"), false),
    (Point("rename_to_stream"), false),
    (Point("rename_to_pool"), false),
    (Point("rename_cursor"), false),
    (Point("unlink_segment"), false),
    (Point("unlink_cursor"), false),
    (Point("unlink_other"), false),
    (Point("sync_stream_dir"), false),
    (Point("sync_pool_dir"), false),
    (Point("sync_other_dir"), false),
    (Point("punch"), false),
];

/// What a file, or a part of one, is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Groups of a segment.
    Group,
    /// A segment's reserved tail.
    Footer,
    /// A file that is no segment yet: zeros and headers.
    Pool,
    /// The mark register.
    Marks,
    /// A cursor's register.
    Cursor,
    /// The lock file.
    Lock,
}

fn folder_of(path: &Path) -> &str {
    path.parent().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or_default()
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn is_segment(path: &Path) -> bool {
    name_of(path).ends_with(".seg")
}

impl Place {
    /// Where a write at `offset` goes.
    #[must_use]
    pub fn of_write(path: &Path, offset: u64, content_end: u64) -> Self {
        match Self::of_sync(path, false) {
            Self::Group if offset >= content_end => Self::Footer,
            place => place,
        }
    }

    /// What a sync of a file is about; of a segment, its footer's where it covers the file's metadata too.
    #[must_use]
    pub fn of_sync(path: &Path, is_whole: bool) -> Self {
        match (folder_of(path), name_of(path)) {
            ("pool", _) => Self::Pool,
            ("cursors", _) => Self::Cursor,
            _ if is_segment(path) => {
                if is_whole {
                    Self::Footer
                } else {
                    Self::Group
                }
            }
            (_, "lock") => Self::Lock,
            _ => Self::Marks,
        }
    }
}

impl Point {
    /// A write.
    #[must_use]
    pub fn of_write(place: Place) -> Self {
        Self(match place {
            Place::Group => "group_write",
            Place::Footer => "footer_write",
            Place::Pool => "pool_write",
            Place::Marks => "marks_write",
            Place::Cursor => "cursor_write",
            Place::Lock => "lock_write",
        })
    }

    /// A file's sync.
    #[must_use]
    pub fn of_sync(place: Place) -> Self {
        Self(match place {
            Place::Group => "group_sync",
            Place::Footer => "segment_sync",
            Place::Pool => "pool_sync",
            Place::Marks | Place::Lock => "marks_sync",
            Place::Cursor => "cursor_sync",
        })
    }

    /// A rename, by its new name.
    #[must_use]
    pub fn of_rename(to: &Path) -> Self {
        Self(match folder_of(to) {
            "pool" => "rename_to_pool",
            "cursors" => "rename_cursor",
            _ => "rename_to_stream",
        })
    }

    /// A removal.
    #[must_use]
    pub fn of_unlink(path: &Path) -> Self {
        Self(match folder_of(path) {
            "cursors" => "unlink_cursor",
            _ if is_segment(path) => "unlink_segment",
            _ => "unlink_other",
        })
    }

    /// A folder's sync.
    #[must_use]
    pub fn of_sync_dir(path: &Path) -> Self {
        Self(match name_of(path) {
            "txn" | "wal" | "manifest" | "ledger" => "sync_stream_dir",
            "pool" => "sync_pool_dir",
            _ => "sync_other_dir",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_names() {
        let segment = Path::new("/s/txn/0000000000000001.seg");
        assert_eq!(Place::of_write(segment, 512, 1024), Place::Group);
        assert_eq!(Place::of_write(segment, 1024, 1024), Place::Footer);
        assert_eq!(Place::of_sync(segment, true), Place::Footer);
        assert_eq!(Place::of_sync(Path::new("/s/pool/1.free"), true), Place::Pool);
        assert_eq!(Place::of_sync(Path::new("/s/marks"), false), Place::Marks);
        assert_eq!(Point::of_rename(segment), Point("rename_to_stream"));
        assert_eq!(Point::of_unlink(segment), Point("unlink_segment"));
        assert_eq!(Point::of_sync_dir(Path::new("/s/wal")), Point("sync_stream_dir"));
        let places = [Place::Group, Place::Footer, Place::Pool, Place::Marks, Place::Cursor, Place::Lock];
        let named = |point: Point| POINTS.iter().any(|(known, _)| *known == point);
        assert!(places.iter().all(|place| named(Point::of_write(*place)) && named(Point::of_sync(*place))));
    }
}
