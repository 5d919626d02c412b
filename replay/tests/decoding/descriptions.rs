//! B13 on real servers.

use setup::on_every_major;

use super::Source;

on_every_major!(a_table_changes_inside_a_transaction, generated_columns);

/// Insert, add a column with a default, insert, drop the first column, rename, change a type, insert.
const CHANGES: [&str; 8] = [
    "INSERT INTO t VALUES (1, 'a', 10)",
    "ALTER TABLE t ADD COLUMN extra int4 NOT NULL DEFAULT 7",
    "INSERT INTO t VALUES (2, 'b', 20)",
    "ALTER TABLE t DROP COLUMN first, ADD PRIMARY KEY (number)",
    "INSERT INTO t VALUES ('c', 30)",
    "ALTER TABLE t RENAME COLUMN word TO name",
    "ALTER TABLE t ALTER COLUMN number TYPE numeric(10, 2)",
    "INSERT INTO t VALUES ('d', 40)",
];

/// For each insert the columns that were described for it (name, type, modifier, key), and the row.
const EXPECTED: [&str; 8] = [
    "first:23:-1:true word:25:-1:false number:23:-1:false",
    "insert table=public.t new={first=1 word=a number=10}",
    "first:23:-1:true word:25:-1:false number:23:-1:false extra:23:-1:false",
    "insert table=public.t new={first=2 word=b number=20 extra=7}",
    "word:25:-1:false number:23:-1:true extra:23:-1:false",
    "insert table=public.t new={word=c number=30 extra=7}",
    "name:25:-1:false number:1700:655366:true extra:23:-1:false",
    "insert table=public.t new={name=d number=40.00 extra=7}",
];

async fn a_table_changes_inside_a_transaction(major: u32) {
    for filling in [0, 3000] {
        let schema =
            "CREATE TABLE t (first int4 PRIMARY KEY, word text, number int4); CREATE TABLE filler (id int8, note text)";
        let source = Source::start(major, schema, "CREATE PUBLICATION p FOR ALL TABLES").await;
        source.run("BEGIN").await;
        for sql in CHANGES {
            source.run(sql).await;
            let fill = format!("INSERT INTO filler SELECT g, repeat('f', 100) FROM generate_series(1, {filling}) g");
            source.run(&fill).await;
        }
        source.run("COMMIT").await;
        let decoded = source.decode(4096).await;
        assert_eq!(decoded.blocks > 3, filling > 0, "streamed only where it is long: {} blocks", decoded.blocks);
        let entry = &decoded.entries[0];
        let inserts = entry.changes().zip(&entry.inserted).filter(|(_, (table, _))| table == "t");
        let seen: Vec<_> = inserts.flat_map(|(change, (_, columns))| [columns.as_str(), change]).collect();
        // Rewriting the table for its new type is no change of its rows.
        assert_eq!(seen, EXPECTED);
    }
}

/// 16 and 17 never send a generated column; 18 sends a stored one when the publication says so, or when it is listed.
async fn generated_columns(major: u32) {
    let schema = "CREATE TABLE t (id int4 PRIMARY KEY, twice int4 GENERATED ALWAYS AS (id * 2) STORED, note text)";
    let publications: &[(&str, &str)] = match major {
        16 | 17 => &[("CREATE PUBLICATION p FOR ALL TABLES", "{id=1 note=n}")],
        _ => &[
            ("CREATE PUBLICATION p FOR ALL TABLES", "{id=1 note=n}"),
            ("CREATE PUBLICATION p FOR ALL TABLES WITH (publish_generated_columns = stored)", "{id=1 twice=2 note=n}"),
            ("CREATE PUBLICATION p FOR TABLE t (id, twice)", "{id=1 twice=2}"),
        ],
    };
    for (publication, row) in publications {
        let source = Source::start(major, schema, publication).await;
        assert_eq!(source.major, major);
        source.run("INSERT INTO t (id, note) VALUES (1, 'n')").await;
        let decoded = source.decode(4096).await;
        assert_eq!(decoded.entries[0].changes().collect::<Vec<_>>(), [format!("insert table=public.t new={row}")]);
    }
}
