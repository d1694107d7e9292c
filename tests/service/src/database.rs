//! Orders in SQLite, behind a pool.

use std::path::Path;
use std::sync::{Arc, Mutex};

use rusqlite::{Connection, params};
use tokio::sync::Semaphore;
use tracing::{Instrument, info_span};

/// Connections; more requests than that wait.
const CONNECTIONS: usize = 2;
const ORDERS: u32 = 60_000;
const CUSTOMERS: u32 = 500;

/// A pool of connections.
#[derive(Clone)]
pub struct Database {
    free: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
}

impl Database {
    /// A new database with orders in it.
    pub fn open(path: &Path) -> rusqlite::Result<Self> {
        let mut first = Connection::open(path)?;
        first.execute_batch(
            "PRAGMA journal_mode = OFF; CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, total INTEGER, note TEXT)",
        )?;
        let all = first.transaction()?;
        for id in 0..ORDERS {
            let note = format!("order {id} of this shop, to be delivered some day");
            all.execute(
                "INSERT INTO orders VALUES (?, ?, ?, ?)",
                params![id, id % CUSTOMERS, id % 97, note],
            )?;
        }
        all.commit()?;
        let mut free = vec![first];
        for _ in 1..CONNECTIONS {
            free.push(Connection::open(path)?);
        }
        Ok(Self { free: Arc::new(Mutex::new(free)), permits: Arc::new(Semaphore::new(CONNECTIONS)) })
    }

    /// Number and sum of a customer's orders.
    pub async fn orders_of(&self, customer: u32) -> Result<(u32, u64), String> {
        let acquire = info_span!("db.acquire");
        let permit =
            self.permits.clone().acquire_owned().instrument(acquire).await.map_err(|e| e.to_string())?;
        let free = self.free.clone();
        let query = info_span!("db.query", customer = customer % CUSTOMERS);
        // SQLite waits for the disk, so this runs outside of the serving threads.
        let query = move || {
            let _inside = query.entered();
            let _permit = permit;
            let taken = free.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).pop();
            let connection = taken.ok_or("a permit without a connection")?;
            let result = sum(&connection, customer % CUSTOMERS).map_err(|e| e.to_string());
            free.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(connection);
            result
        };
        tokio::task::spawn_blocking(query).await.map_err(|e| e.to_string())?
    }
}

#[inline(never)]
fn sum(connection: &Connection, customer: u32) -> rusqlite::Result<(u32, u64)> {
    let mut statement = connection.prepare_cached(
        "SELECT count(*), sum(total) FROM orders WHERE customer = ? AND note LIKE '%shop%'",
    )?;
    statement.query_row([customer], |row| Ok((row.get(0)?, row.get(1)?)))
}
