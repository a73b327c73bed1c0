//! Tables, and the statements on them.

use crate::settings::{Consistency, Replication, Settings};
use scylla::client::session::Session;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency as CqlConsistency, SerialConsistency};
use std::io;

/// Tables with their columns. Nothing but Rheostat may write to them: its timestamps are counted, and far below those of the time of day.
pub(crate) const TABLES: [(&str, &str); 5] = [
    // One row for each opening's record; the generation of the last opening, and a number of keys that counts those in `chains` and those of the record `unsure`.
    ("records", "store bigint, generation bigint static, keys bigint static, name text, value blob, PRIMARY KEY (store, name)"),
    // The partitions of `chains` that may have rows.
    ("buckets", "store bigint, bucket int, PRIMARY KEY (store, bucket)"),
    ("chains", "store bigint, bucket int, key blob, value blob, PRIMARY KEY ((store, bucket), key)"),
    // The values in `pieces` that may be there.
    ("large", "store bigint, key blob, written bigint, PRIMARY KEY (store, key, written)"),
    ("pieces", "store bigint, key blob, written bigint, piece int, value blob, PRIMARY KEY ((store, key, written), piece)"),
];

/// Rows with values that come at once: with values of the greatest size in a row, 8 MiB.
const VALUES_PER_PAGE: i32 = 64;
/// Rows with keys that come at once.
const KEYS_PER_PAGE: i32 = 1024;

/// The statements, prepared.
pub(crate) struct Statements {
    pub(crate) generation: PreparedStatement,
    pub(crate) first_generation: PreparedStatement,
    pub(crate) next_generation: PreparedStatement,
    pub(crate) raise: PreparedStatement,
    pub(crate) keep_count: PreparedStatement,
    pub(crate) record: PreparedStatement,
    pub(crate) keep_record: PreparedStatement,
    pub(crate) delete_record: PreparedStatement,
    pub(crate) stores: PreparedStatement,
    pub(crate) names: PreparedStatement,
    pub(crate) buckets: PreparedStatement,
    pub(crate) add_bucket: PreparedStatement,
    pub(crate) delete_buckets: PreparedStatement,
    pub(crate) get: PreparedStatement,
    pub(crate) put: PreparedStatement,
    pub(crate) delete: PreparedStatement,
    pub(crate) delete_bucket: PreparedStatement,
    pub(crate) walk_from: PreparedStatement,
    pub(crate) walk_after: PreparedStatement,
    pub(crate) walk_keys_from: PreparedStatement,
    pub(crate) walk_keys_after: PreparedStatement,
    pub(crate) large: PreparedStatement,
    pub(crate) add_large: PreparedStatement,
    pub(crate) delete_large: PreparedStatement,
    pub(crate) delete_all_large: PreparedStatement,
    pub(crate) piece: PreparedStatement,
    pub(crate) put_piece: PreparedStatement,
    pub(crate) delete_pieces: PreparedStatement,
}

impl Consistency {
    pub(crate) fn of_cql(self) -> CqlConsistency {
        match self {
            Consistency::One => CqlConsistency::One,
            Consistency::LocalQuorum => CqlConsistency::LocalQuorum,
            Consistency::Quorum => CqlConsistency::Quorum,
        }
    }

    /// Of conditions.
    pub(crate) fn serial(self) -> SerialConsistency {
        match self {
            Consistency::LocalQuorum => SerialConsistency::LocalSerial,
            Consistency::One | Consistency::Quorum => SerialConsistency::Serial,
        }
    }

    /// Of reads that see every condition that was decided.
    fn of_decided(self) -> CqlConsistency {
        match self.serial() {
            SerialConsistency::Serial => CqlConsistency::Serial,
            SerialConsistency::LocalSerial => CqlConsistency::LocalSerial,
        }
    }
}

fn failed(doing: &str) -> impl Fn(&dyn std::error::Error) -> io::Error {
    move |error| io::Error::other(format!("cannot {doing} in Cassandra: {error}"))
}

/// Whether the keyspace is there. Errors: `NotFound` if it is not, and the settings do not say how to make it.
pub(crate) async fn is_there(session: &Session, settings: &Settings) -> io::Result<bool> {
    let keyspace = &settings.keyspace;
    let looking = failed("look for the keyspace");
    let names = session
        .query_unpaged("SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?", (keyspace,))
        .await
        .map_err(|error| looking(&error))?
        .into_rows_result()
        .map_err(|error| looking(&error))?;
    if names.rows_num() == 0 && settings.replication.is_none() {
        let why =
            format!("there is no keyspace {keyspace} in Cassandra, and the configuration does not say how it is replicated: make it, or say so");
        return Err(io::Error::new(io::ErrorKind::NotFound, why));
    }
    Ok(names.rows_num() > 0)
}

/// Makes keyspace and tables (with their columns) where they are missing.
pub(crate) async fn make(session: &Session, settings: &Settings, tables: &[(&str, &str)]) -> io::Result<()> {
    let keyspace = &settings.keyspace;
    let looking = failed("look for the tables");
    if !is_there(session, settings).await?
        && let Some(replication) = settings.replication.as_ref().map(Replication::to_cql)
    {
        let making = failed("make the keyspace");
        let statement = format!("CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {replication}");
        session.query_unpaged(statement, ()).await.map_err(|error| making(&error))?;
    }
    let present = session
        .query_unpaged("SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?", (keyspace,))
        .await
        .map_err(|error| looking(&error))?
        .into_rows_result()
        .map_err(|error| looking(&error))?;
    let present: Vec<String> = present.rows::<(String,)>().map_err(|error| looking(&error))?.filter_map(Result::ok).map(|(name,)| name).collect();
    for (table, columns) in tables.iter().filter(|(table, _)| !present.iter().any(|name| name == table)) {
        let making = failed("make a table");
        session.query_unpaged(format!("CREATE TABLE IF NOT EXISTS {keyspace}.{table} ({columns})"), ()).await.map_err(|error| making(&error))?;
    }
    Ok(())
}

impl Statements {
    pub(crate) async fn prepare(session: &Session, settings: &Settings) -> io::Result<Statements> {
        let keyspace = &settings.keyspace;
        let failed = failed("prepare a statement");
        let prepare = async |text: &str| {
            let text = text.replace("IN.", &format!("{keyspace}."));
            let mut statement = session.prepare(text).await.map_err(|error| failed(&error))?;
            // Their timestamps are said, and conditions hold as well the second time.
            statement.set_is_idempotent(true);
            Ok::<_, io::Error>(statement)
        };
        let decided = settings.consistency.of_decided();
        let paged = |mut statement: PreparedStatement, rows: i32| {
            statement.set_page_size(rows);
            statement
        };
        let reads_decided = |mut statement: PreparedStatement| {
            statement.set_consistency(decided);
            statement
        };
        let walk = |columns: &str, bound: &str| format!("SELECT {columns} FROM IN.chains WHERE store = ? AND bucket = ? AND key {bound} ? LIMIT ?");
        Ok(Statements {
            generation: reads_decided(prepare("SELECT generation, keys FROM IN.records WHERE store = ? LIMIT 1").await?),
            first_generation: prepare("UPDATE IN.records SET generation = ? WHERE store = ? IF generation = null").await?,
            next_generation: prepare("UPDATE IN.records SET generation = ? WHERE store = ? IF generation = ?").await?,
            raise: prepare("UPDATE IN.records SET generation = ?, value = ? WHERE store = ? AND name = ? IF generation = ?").await?,
            keep_count: prepare("UPDATE IN.records SET keys = ?, value = ? WHERE store = ? AND name = ? IF generation = ?").await?,
            record: reads_decided(prepare("SELECT value FROM IN.records WHERE store = ? AND name = ?").await?),
            keep_record: prepare("UPDATE IN.records SET value = ? WHERE store = ? AND name = ? IF generation = ?").await?,
            delete_record: prepare("DELETE FROM IN.records WHERE store = ? AND name = ? IF generation = ?").await?,
            stores: paged(prepare("SELECT store, name FROM IN.records").await?, KEYS_PER_PAGE),
            names: prepare("SELECT name FROM IN.records WHERE store = ?").await?,
            buckets: paged(prepare("SELECT bucket FROM IN.buckets WHERE store = ?").await?, KEYS_PER_PAGE),
            add_bucket: prepare("INSERT INTO IN.buckets (store, bucket) VALUES (?, ?) USING TIMESTAMP ?").await?,
            delete_buckets: prepare("DELETE FROM IN.buckets USING TIMESTAMP ? WHERE store = ?").await?,
            get: prepare("SELECT value FROM IN.chains WHERE store = ? AND bucket = ? AND key = ?").await?,
            put: prepare("INSERT INTO IN.chains (store, bucket, key, value) VALUES (?, ?, ?, ?) USING TIMESTAMP ?").await?,
            delete: prepare("DELETE FROM IN.chains USING TIMESTAMP ? WHERE store = ? AND bucket = ? AND key = ?").await?,
            delete_bucket: prepare("DELETE FROM IN.chains USING TIMESTAMP ? WHERE store = ? AND bucket = ?").await?,
            walk_from: paged(prepare(&walk("key, value", ">=")).await?, VALUES_PER_PAGE),
            walk_after: paged(prepare(&walk("key, value", ">")).await?, VALUES_PER_PAGE),
            walk_keys_from: paged(prepare(&walk("key", ">=")).await?, KEYS_PER_PAGE),
            walk_keys_after: paged(prepare(&walk("key", ">")).await?, KEYS_PER_PAGE),
            large: paged(prepare("SELECT key, written FROM IN.large WHERE store = ?").await?, KEYS_PER_PAGE),
            add_large: prepare("INSERT INTO IN.large (store, key, written) VALUES (?, ?, ?) USING TIMESTAMP ?").await?,
            delete_large: prepare("DELETE FROM IN.large USING TIMESTAMP ? WHERE store = ? AND key = ? AND written = ?").await?,
            delete_all_large: prepare("DELETE FROM IN.large USING TIMESTAMP ? WHERE store = ?").await?,
            piece: prepare("SELECT value FROM IN.pieces WHERE store = ? AND key = ? AND written = ? AND piece = ?").await?,
            put_piece: prepare("INSERT INTO IN.pieces (store, key, written, piece, value) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?").await?,
            delete_pieces: prepare("DELETE FROM IN.pieces USING TIMESTAMP ? WHERE store = ? AND key = ? AND written = ?").await?,
        })
    }
}
