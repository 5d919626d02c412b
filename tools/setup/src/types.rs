//! The tables that are written to: every kind of type that a stream of text values can get wrong.
//!
//! The same statements make them at source and target, since walspool never creates a table. All lie in the schema `demo`,
//! but for pgbench's own.

use crate::document::TableEntry;

/// Types and tables, to be run at source and target.
pub const SCHEMA: &str = r#"
CREATE SCHEMA demo;
CREATE TYPE demo.mood AS ENUM ('sad', 'ok', 'happy', 'mixed "up"');
CREATE DOMAIN demo.percent AS int4 CHECK (VALUE BETWEEN 0 AND 100);
CREATE DOMAIN demo.share AS demo.percent CHECK (VALUE <> 13);
CREATE TYPE demo.place AS (x float8, y float8, label text);

-- One column of every type; values come from INSERT_TYPED.
CREATE TABLE demo.typed (
    id int8 PRIMARY KEY,
    c_int2 int2, c_int4 int4, c_int8 int8,
    c_numeric numeric, c_money_like numeric(20, 4),
    c_float4 float4, c_float8 float8, c_bool bool,
    c_text text, c_varchar varchar(40), c_char char(8), c_bytea bytea,
    c_date date, c_time time, c_timetz timetz, c_timestamp timestamp, c_timestamptz timestamptz, c_interval interval,
    c_uuid uuid, c_json json, c_jsonb jsonb, c_inet inet, c_bits varbit,
    c_int_array int4[], c_text_array text[], c_grid int4[],
    c_enum demo.mood, c_enum_array demo.mood[], c_domain demo.share,
    c_range int8range, c_times tstzrange, c_multirange int4multirange, c_composite demo.place, c_places demo.place[],
    c_toasted text,
    c_generated int8 GENERATED ALWAYS AS (id * 2) STORED
);
ALTER TABLE demo.typed ALTER COLUMN c_toasted SET STORAGE EXTERNAL;

-- Rows whose key changes, and whose big column does not.
CREATE TABLE demo.moving (id int8 PRIMARY KEY, note text NOT NULL, big text);
ALTER TABLE demo.moving ALTER COLUMN big SET STORAGE EXTERNAL;

-- Emptied again and again.
CREATE TABLE demo.emptied (id int8 PRIMARY KEY, note text);

-- Written inside savepoints, of which some are rolled back.
CREATE TABLE demo.savepoints (id int8 PRIMARY KEY, note text NOT NULL);

-- One transaction of many rows.
CREATE TABLE demo.bulk (id int8 PRIMARY KEY, note text NOT NULL);

-- A key of two columns, in another order than the table's; an identity that refuses explicit values.
CREATE TABLE demo.pairs (
    a int4 NOT NULL, b text NOT NULL, value text,
    number int8 GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (b, a)
);
"#;

/// pgbench's history has no key; with an identity column of its own it gets one, and pgbench never notices.
pub const HISTORY_KEY: &str = "ALTER TABLE pgbench_history ADD COLUMN id int8 GENERATED ALWAYS AS IDENTITY; ALTER TABLE pgbench_history ADD PRIMARY KEY (id)";

/// Tables of [`SCHEMA`].
pub const DEMO_TABLES: [&str; 6] =
    ["demo.typed", "demo.moving", "demo.emptied", "demo.savepoints", "demo.bulk", "demo.pairs"];

/// Tables of pgbench.
pub const PGBENCH_TABLES: [&str; 4] =
    ["public.pgbench_accounts", "public.pgbench_branches", "public.pgbench_history", "public.pgbench_tellers"];

/// All of them as entries of a configuration, copied first.
pub fn all_tables() -> Vec<TableEntry> {
    let key = |name: &str| match name {
        "demo.pairs" => vec!["b", "a"],
        "public.pgbench_accounts" => vec!["aid"],
        "public.pgbench_branches" => vec!["bid"],
        "public.pgbench_tellers" => vec!["tid"],
        _ => vec!["id"],
    };
    DEMO_TABLES.iter().chain(&PGBENCH_TABLES).map(|name| TableEntry::copied(name, &key(name))).collect()
}

/// Rows for `demo.typed` with keys from `$1` to `$2`: the special values take turns, so 64 rows hold all of them.
pub const INSERT_TYPED: &str = r#"
INSERT INTO demo.typed (
    id, c_int2, c_int4, c_int8, c_numeric, c_money_like, c_float4, c_float8, c_bool, c_text, c_varchar, c_char, c_bytea,
    c_date, c_time, c_timetz, c_timestamp, c_timestamptz, c_interval, c_uuid, c_json, c_jsonb, c_inet, c_bits,
    c_int_array, c_text_array, c_grid, c_enum, c_enum_array, c_domain, c_range, c_times, c_multirange, c_composite, c_places,
    c_toasted)
SELECT g,
    (ARRAY[-32768, 32767, 0, NULL])[1 + g % 4]::int2,
    (ARRAY[-2147483648, 2147483647, -1, NULL])[1 + g % 4]::int4,
    (ARRAY[-9223372036854775808, 9223372036854775807, g, NULL])[1 + g % 4]::int8,
    (ARRAY['NaN', 'Infinity', '-Infinity', '0.000', '-123456789012345678901234567890.0123456789', '1e-20', '1e131', NULL])[1 + g % 8]::numeric,
    (g * 1.2345)::numeric(20, 4),
    (ARRAY['NaN', 'Infinity', '-0', '1.17549435e-38', '3.4028235e+38', NULL])[1 + g % 6]::float4,
    (ARRAY['NaN', 'Infinity', '-Infinity', '-0', '0.1', '2.2250738585072014e-308', '1.7976931348623157e+308', NULL])[1 + g % 8]::float8,
    (ARRAY[true, false, NULL])[1 + g % 3],
    (ARRAY['', ' ', 'Grüße, мир, 世界, 🐘', E'tab\tline\nreturn\rback\\slash \\N \\.', '''quoted'' "double"', 'null', 'NULL', NULL])[1 + g % 8],
    (ARRAY['', 'ends in blanks   ', 'e' || U&'\0301' || ' combining', NULL])[1 + g % 4],
    (ARRAY['', 'ab', 'ab  ', NULL])[1 + g % 4]::char(8),
    (ARRAY['\x', '\x00', '\x00ff5c27', '\xdeadbeef', NULL])[1 + g % 5]::bytea,
    (ARRAY['infinity', '-infinity', '0044-03-15 BC', '2024-02-29', '5874897-12-31', NULL])[1 + g % 6]::date,
    (ARRAY['00:00', '24:00', '12:34:56.789012', NULL])[1 + g % 4]::time,
    (ARRAY['00:00+15:59', '23:59:59.999999-15:59', '12:00+05:45', NULL])[1 + g % 4]::timetz,
    (ARRAY['infinity', '-infinity', '4713-01-01 00:00 BC', '294276-12-31 23:59:59.999999', '2026-03-29 02:30', NULL])[1 + g % 6]::timestamp,
    (ARRAY['infinity', '-infinity', '4713-01-01 00:00+00 BC', '2026-10-25 02:30+02', '1883-11-18 12:03:58-04:56:02', NULL])[1 + g % 6]::timestamptz,
    (ARRAY['0', '1 year -2 mons +3 days -04:05:06.789', '-178000000 years', '1 mon', '30 days', NULL])[1 + g % 6]::interval,
    (ARRAY['00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-4fff-bfff-ffffffffffff', NULL])[1 + g % 3]::uuid,
    (ARRAY['{"b": 1,  "a": [1, 2.50, null], "b": 2}', '"\u00e9"', 'null', NULL])[1 + g % 4]::json,
    (ARRAY['{"b": 1, "a": {"deep": [[[[]]]]}}', '1234567890123456789012345678901234567890.5', 'null', '""', NULL])[1 + g % 5]::jsonb,
    (ARRAY['127.0.0.1', '10.0.0.0/8', '::1', '2001:db8::/32', '::ffff:1.2.3.4/128', NULL])[1 + g % 6]::inet,
    (ARRAY['', '1', '010101', NULL])[1 + g % 4]::varbit,
    (ARRAY['{}', '{1,NULL,3}', '{NULL}', NULL])[1 + g % 4]::int4[],
    (ARRAY['{}', '{"",NULL,"NULL","a,b","{}","back\\slash","quo\"te"}', '{" "}', NULL])[1 + g % 4]::text[],
    (ARRAY['{{1,2},{3,NULL}}', '[-1:0][2:3]={{1,2},{3,4}}', NULL])[1 + g % 3]::int4[],
    (ARRAY['sad', 'ok', 'happy', 'mixed "up"', NULL])[1 + g % 5]::demo.mood,
    (ARRAY['{}', '{sad,NULL,"mixed \"up\""}', NULL])[1 + g % 3]::demo.mood[],
    (ARRAY[0, 100, NULL])[1 + g % 3]::demo.share,
    (ARRAY['empty', '[1,10)', '(,5]', '(,)', NULL])[1 + g % 5]::int8range,
    (ARRAY['empty', '["2026-01-01 00:00+00",infinity)', '(,"2026-06-01 12:00+02"]', NULL])[1 + g % 4]::tstzrange,
    (ARRAY['{}', '{[1,3),[5,8)}', NULL])[1 + g % 3]::int4multirange,
    (ARRAY['(1.5,-0,"a, (b) ""c"" \\d")', '(,,)', '(NaN,Infinity,"")', NULL])[1 + g % 4]::demo.place,
    (ARRAY['{}', '{"(1,2,\"x y\")",NULL,"(,,)"}', NULL])[1 + g % 3]::demo.place[],
    CASE g % 3 WHEN 0 THEN repeat(md5(g::text), 700) WHEN 1 THEN 'short' END
FROM generate_series($1::int8, $2::int8) AS g
"#;

#[cfg(test)]
mod tests {
    use super::{DEMO_TABLES, INSERT_TYPED, SCHEMA};
    use crate::compare::{compare, same_session};
    use crate::postgres::{Options, Postgres};

    /// Every column holds at least one value and, where the type allows it, one NULL within 64 rows, on the oldest major too.
    #[tokio::test]
    async fn typed_rows_hold_every_special_value() {
        let server = Postgres::start(Options::major(16)).await.expect("started");
        let client = server.client("postgres").await.expect("connected");
        client.batch_execute(SCHEMA).await.expect("schema");
        client.execute(INSERT_TYPED, &[&1_i64, &64_i64]).await.expect("rows");
        same_session(&client).await.expect("session");
        let columns = client
            .query("SELECT attname::text FROM pg_attribute WHERE attrelid = 'demo.typed'::regclass AND attnum > 0", &[])
            .await
            .expect("columns");
        assert!(columns.len() > 30);
        for row in columns {
            let column: String = row.get(0);
            let sql = format!("SELECT count({column}), count(DISTINCT {column}::text) FROM demo.typed");
            let counts = client.query_one(&sql, &[]).await.expect("counted");
            let (values, distinct): (i64, i64) = (counts.get(0), counts.get(1));
            assert!(values > 0 && distinct > 1, "{column} holds {values} values, {distinct} distinct");
        }
        let same = compare(&client, &client, &DEMO_TABLES).await.expect("compared");
        assert!(same.iter().all(|table| table.equal()));
    }
}
