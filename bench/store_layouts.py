"""Writes the samples of a Flightline store in the storage layouts of other tools, and queries them with DuckDB.

usage: store_layouts.py write LAYOUT STORE TO      → {"bytes", "cpu_s", "wall_s", "rows"}
       store_layouts.py ask LAYOUT FROM ROUNDS     → {question: {"digest", "rows", "cpu_s", "wall_s"}}

bench/store.py runs this script with the Python that has the engines. It writes from Arrow tables in memory, so the cost of reading recordings is excluded.
"""
import hashlib, json, resource, sys, time
from pathlib import Path

THREADS = 2
# The queried samples: those of a service and day, and those of a task.
SERVICE, DAY, TASK = "svc3", "2025-11-20", "task7"
# The conditions of the queries; every layout has these columns.
WHERE = {"all": "true", "service and day": f"service = '{SERVICE}' AND day = '{DAY}'", "task": f"label_task = '{TASK}'"}
LABELS = "service, day, event_type, state, thread, tid, label_task"


def used(work):
    """Calls a function. Returns CPU and wall seconds, and its result."""
    usage = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    cpu, wall = usage(), time.monotonic()
    result = work()
    return usage() - cpu, time.monotonic() - wall, result


def written(work):
    """Calls a function. Returns CPU and wall seconds of this thread only, because DuckDB's threads make the next rows at the same time."""
    cpu, wall = time.thread_time(), time.monotonic()
    work()
    return time.thread_time() - cpu, time.monotonic() - wall


def connect():
    # Imported here and below, because bench/store.py imports this file with a Python without engines.
    import duckdb
    db = duckdb.connect()
    db.execute(f"SET threads = {THREADS}; SET TimeZone = 'UTC'; SET preserve_insertion_order = true")
    return db


def store_views(db, store):
    for table in ["samples", "stacks", "nodes", "frames"]:
        how = "hive_partitioning = true, hive_types_autocast = false, union_by_name = true"
        db.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{store}/{table}/**/*.parquet', {how})")


def stacks_of(db):
    """Makes a table `text` of the store's stacks with their frames, root first."""
    db.execute("""CREATE TABLE text AS WITH once AS (SELECT DISTINCT stack_id, prefix_ids FROM stacks),
        step AS (SELECT stack_id, unnest(prefix_ids) AS node_id, generate_subscripts(prefix_ids, 1) AS place FROM once),
        n AS (SELECT DISTINCT node_id, frame_hash FROM nodes), f AS (SELECT DISTINCT * EXCLUDE (day, service) FROM frames)
        SELECT stack_id, list({class_name: f.class_name, method_name: f.method_name, line_number: f.line, is_java_frame: false, type: f.type} ORDER BY place)
        AS frames FROM step JOIN n USING (node_id) JOIN f USING (frame_hash) GROUP BY stack_id""")


FOLDED = "array_to_string(list_transform(frames, lambda f: f.method_name), ';')"
# For each layout: the query that makes its rows from samples and stacks, in the layout's order, and the settings of the Parquet writer.
ROWS = {
    "HDPS: a list of structs in each row":
        (f"SELECT ts, {LABELS}, frames AS stack_trace FROM samples JOIN text USING (stack_id) ORDER BY service, day, ts", {}),
    "wide rows, stack as one text":
        (f"SELECT ts, {LABELS}, {FOLDED} AS stack FROM samples JOIN text USING (stack_id) ORDER BY service, day, ts",
         {"dictionary_pagesize_limit": 64 << 20}),
    "wide rows, stack as a list of texts":
        (f"SELECT ts, {LABELS}, list_transform(frames, lambda f: f.method_name) AS stack FROM samples JOIN text USING (stack_id) ORDER BY service, day, ts", {}),
    # Sorted by labels and stack before the time, strings in dictionaries, LZ4: the schema of Parca in FrostDB.
    "as Parca: sorted by labels, stack as a repeated text":
        (f"SELECT {LABELS}, list_transform(frames, lambda f: f.method_name) AS stack, ts, 1::BIGINT AS value FROM samples JOIN text USING (stack_id) "
         f"ORDER BY service, event_type, label_task, thread, stack, ts", {"compression": "lz4"}),
}
# One row per series and 15 s, with the IDs of its stacks. The stacks are in a separate tree, shared by all rows.
PYROSCOPE = "as Pyroscope: profiles of 15 s with numbers of stacks, a tree beside"


def pyroscope(db):
    db.execute("CREATE TABLE number AS SELECT stack_id, row_number() OVER (ORDER BY stack_id)::INTEGER AS stack FROM text")
    db.execute("""CREATE TABLE tree AS WITH n AS (SELECT DISTINCT node_id, parent_id, frame_hash FROM nodes)
        SELECT row_number() OVER (ORDER BY node_id)::INTEGER AS node, node_id, parent_id, frame_hash FROM n""")
    profiles = f"""WITH s AS (SELECT time_bucket(INTERVAL 15 SECOND, ts) AS since, {LABELS}, stack, count(*) AS n FROM samples JOIN number USING (stack_id)
        GROUP BY ALL) SELECT since AS ts, {LABELS}, list({{stack: stack, value: n}} ORDER BY stack) AS samples FROM s GROUP BY ALL
        ORDER BY service, event_type, label_task, thread, ts"""
    tree = """SELECT tree.node, p.node AS parent, dense_rank() OVER (ORDER BY tree.frame_hash)::INTEGER AS location FROM tree LEFT JOIN tree p ON tree.parent_id = p.node_id
        ORDER BY tree.node"""
    locations = "SELECT dense_rank() OVER (ORDER BY frame_hash)::INTEGER AS location, * FROM (SELECT DISTINCT * EXCLUDE (day, service) FROM frames) ORDER BY 1"
    ends = "SELECT number.stack, tree.node FROM number JOIN tree ON number.stack_id = tree.node_id ORDER BY 1"
    return {"profiles": profiles, "tree": tree, "locations": locations, "stacks": ends}


def write(layout, store, to):
    to.mkdir(parents=True, exist_ok=True)
    db = connect()
    store_views(db, store)
    stacks_of(db)
    wanted = pyroscope(db) if layout == PYROSCOPE else {"rows": ROWS[layout][0]}
    how = {} if layout == PYROSCOPE else ROWS[layout][1]
    cpu = wall = rows = 0
    for name, sql in wanted.items():
        with parquet_writer(to / f"{name}.parquet", reader := db.sql(sql).to_arrow_reader(100_000), how) as out:
            # Write half a million frames at a time: a whole table of nested rows would have tens of GB.
            for batch in reader:
                took = written(lambda: out.write_batch(batch, row_group_size=250_000))
                cpu, wall, rows = cpu + took[0], wall + took[1], rows + (batch.num_rows if name in ("rows", "profiles") else 0)
            cpu, wall = (x + y for x, y in zip((cpu, wall), written(out.close)))
    return {"bytes": sum(p.stat().st_size for p in to.iterdir()), "cpu_s": cpu, "wall_s": wall, "rows": rows}


def parquet_writer(path, reader, how):
    import pyarrow.parquet as parquet
    how = {"compression": "zstd", **how}
    # Times are delta-encoded, as in Flightline's store; all other columns use dictionaries.
    plain = [f.name for f in reader.schema if f.name == "ts"]
    names = [name for name in leaves(reader.schema) if name not in plain]
    return parquet.ParquetWriter(path, reader.schema, use_dictionary=names, column_encoding={"ts": "DELTA_BINARY_PACKED"} if plain else None, **how)


def leaves(schema):
    """Returns the paths of the Parquet columns of nested types."""
    import pyarrow

    def of(path, kind):
        if pyarrow.types.is_list(kind):
            return of(f"{path}.list.element", kind.value_type)
        if pyarrow.types.is_struct(kind):
            return [leaf for f in kind for leaf in of(f"{path}.{f.name}", f.type)]
        return [path]
    return [leaf for f in schema for leaf in of(f.name, f.type)]


def questions(layout, db, folder):
    """Returns the SQL of each query: counts, and weights of stacks as text."""
    ours = layout.startswith("flightline")
    rows = folder / ("profiles.parquet" if layout == PYROSCOPE else "rows.parquet")
    sql = {}
    if ours:
        store_views(db, folder)
        sql["counts"] = "SELECT service, event_type, sum(samples) FROM samples GROUP BY ALL"
    elif layout == PYROSCOPE:
        db.execute(f"CREATE VIEW r AS SELECT * EXCLUDE samples, s.unnest.stack AS stack, s.unnest.value AS value FROM '{rows}', unnest(samples) AS s")
        for name in ["tree", "locations", "stacks"]:
            db.execute(f"CREATE VIEW {name} AS SELECT * FROM '{folder}/{name}.parquet'")
        sql["counts"] = "SELECT service, event_type, sum(value) FROM r GROUP BY ALL"
    else:
        db.execute(f"CREATE VIEW r AS SELECT * FROM '{rows}'")
        sql["counts"] = "SELECT service, event_type, count(*) FROM r GROUP BY ALL"
    for name, where in WHERE.items():
        sql[f"stacks of {name}"] = folded(layout, where)
    return sql


def folded(layout, where):
    """Returns the query for stacks as text with their number of samples."""
    if layout.startswith("flightline"):
        # Join the names once per stack, not once per sample.
        return f"""WITH s AS (SELECT stack_id, sum(samples) AS n FROM samples WHERE {where} GROUP BY 1),
            once AS (SELECT stack_id, any_value(prefix_ids) AS p FROM stacks SEMI JOIN s USING (stack_id) GROUP BY 1),
            step AS (SELECT stack_id, unnest(p) AS node_id, generate_subscripts(p, 1) AS place FROM once),
            n AS (SELECT node_id, any_value(frame_hash) AS frame_hash FROM nodes GROUP BY 1), f AS (SELECT frame_hash, any_value(method_name) AS name FROM frames GROUP BY 1),
            t AS (SELECT stack_id, string_agg(name, ';' ORDER BY place) AS stack FROM step JOIN n USING (node_id) JOIN f USING (frame_hash) GROUP BY 1)
            SELECT stack, sum(n) FROM s JOIN t USING (stack_id) GROUP BY 1"""
    if layout == PYROSCOPE:
        return f"""WITH RECURSIVE s AS (SELECT stack, sum(value) AS n FROM r WHERE {where} GROUP BY 1),
            up AS (SELECT s.stack, stacks.node, 0 AS place FROM s JOIN stacks USING (stack)
                   UNION ALL SELECT up.stack, tree.parent, place + 1 FROM up JOIN tree ON up.node = tree.node WHERE tree.parent IS NOT NULL),
            t AS (SELECT up.stack, string_agg(method_name, ';' ORDER BY place DESC) AS text FROM up JOIN tree USING (node) JOIN locations USING (location) GROUP BY 1)
            SELECT text, sum(n) FROM s JOIN t USING (stack) GROUP BY 1"""
    if layout.startswith("HDPS"):
        return (f"WITH s AS (SELECT stack_trace, count(*) AS n FROM r WHERE {where} GROUP BY 1) "
                "SELECT array_to_string(list_transform(stack_trace, lambda f: f.method_name), ';') AS stack, sum(n) FROM s GROUP BY 1")
    text = "stack" if "one text" in layout else "array_to_string(stack, ';')"
    return f"WITH s AS (SELECT stack, count(*) AS n FROM r WHERE {where} GROUP BY 1) SELECT {text} AS stack, sum(n) FROM s GROUP BY 1"


def digest(rows):
    return hashlib.md5("\n".join(sorted(" ".join(str(value) for value in row) for row in rows)).encode()).hexdigest()


def ask(layout, folder, rounds):
    db = connect()
    told = {}
    for name, sql in questions(layout, db, folder).items():
        runs = [used(lambda: db.execute(sql).fetchall()) for _ in range(rounds)]
        told[name] = {"digest": digest(runs[0][2]), "rows": len(runs[0][2]), "cpu_s": min(r[0] for r in runs), "wall_s": min(r[1] for r in runs)}
    return told


if __name__ == "__main__":
    what, layout, place, last = sys.argv[1:]
    result = write(layout, Path(place), Path(last)) if what == "write" else ask(layout, Path(place), int(last))
    json.dump(result, sys.stdout)
