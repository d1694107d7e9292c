"""Runs the queries of bench/store.py on a Flightline store with one engine.

usage: store_ask.py ENGINE STORE ROUNDS QUESTIONS.json   → {question: {"digest", "rows", "first": [cpu, wall], "best": [cpu, wall]}}

QUESTIONS.json: {question: SQL in the engine's dialect}. CPU is that of this process and of the processes it started, such as Spark's JVM.
"""
import contextlib, hashlib, json, os, resource, sys, time
from pathlib import Path

THREADS = 2
TABLES = ["samples", "stacks", "nodes", "frames"]
TICK = os.sysconf("SC_CLK_TCK")


class DuckDb:
    def __init__(self, store):
        import duckdb
        self.db = duckdb.connect()
        self.db.execute(f"SET threads = {THREADS}; SET TimeZone = 'UTC'")
        for table in TABLES:
            how = "hive_partitioning = true, hive_types_autocast = false, union_by_name = true"
            self.db.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{store}/{table}/**/*.parquet', {how})")

    def ask(self, sql):
        return self.db.execute(sql).fetchall()


class DataFusion:
    """The engine in Flightline's command, here from the Python package of its project."""

    def __init__(self, store):
        import datafusion, pyarrow
        self.context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(THREADS))
        folders = [("day", pyarrow.string()), ("service", pyarrow.string())]
        for table in TABLES:
            self.context.register_parquet(table, f"{store}/{table}/", table_partition_cols=folders, file_extension=".parquet")

    def ask(self, sql):
        return [tuple(row.values()) for batch in self.context.sql(sql).collect() for row in batch.to_pylist()]


class ClickHouse:
    """chDB: ClickHouse as a library."""

    def __init__(self, store):
        from chdb.session import Session
        self.session = Session()
        self.session.query(f"SET max_threads = {THREADS}")
        for table in TABLES:
            self.session.query(f"CREATE VIEW {table} AS SELECT * FROM file('{store}/{table}/**/*.parquet', Parquet) "
                               "SETTINGS use_hive_partitioning = 1, session_timezone = 'UTC'")

    def ask(self, sql):
        told = self.session.query(sql, "JSONCompactEachRow").bytes().decode()
        return [tuple(json.loads(line)) for line in told.splitlines()]


class Spark:
    def __init__(self, store):
        from pyspark.sql import SparkSession
        config = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1",
                  "spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": str(THREADS), "spark.driver.memory": "4g",
                  "spark.sql.sources.partitionColumnTypeInference.enabled": "false"}
        builder = SparkSession.builder.master(f"local[{THREADS}]").appName("store")
        for key, value in config.items():
            builder = builder.config(key, value)
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("OFF")
        for table in TABLES:
            self.spark.read.option("mergeSchema", "true").parquet(f"{store}/{table}").createOrReplaceTempView(table)

    def ask(self, sql):
        return [tuple(row) for row in self.spark.sql(sql).collect()]

    def close(self):
        self.spark.stop()


class Polars:
    """polars. Its SQL cannot unnest lists, so the flame graph query uses its own API; the result has the same columns."""

    def __init__(self, store):
        import polars
        self.polars = polars
        names = {"day": polars.String, "service": polars.String}
        self.tables = {table: polars.scan_parquet(f"{store}/{table}/**/*.parquet", hive_partitioning=True, hive_schema=names,
                                                  missing_columns="insert", extra_columns="ignore") for table in TABLES}
        self.sql = polars.SQLContext(self.tables)

    def ask(self, sql):
        if not sql.startswith("flame "):
            return self.sql.execute(sql).collect().rows()
        _, condition = sql.split(" ", 1)
        return self.flame(condition).collect().rows()

    def flame(self, condition):
        col = self.polars.col
        chosen = self.sql.execute(f"SELECT stack_id, sum(samples) AS n FROM samples WHERE {condition} GROUP BY stack_id")
        stacks = self.tables["stacks"].select("stack_id", "prefix_ids").unique("stack_id")
        boxes = (chosen.join(stacks, on="stack_id").explode("prefix_ids").group_by("prefix_ids").agg(col("n").sum().alias("num"))
                 .join(chosen.select(col("n").sum().alias("total")), how="cross").filter(col("num") * 100.0 / col("total") >= 1.0))
        nodes = self.tables["nodes"].select("node_id", "parent_id", "frame_hash", "depth").unique("node_id")
        frames = self.tables["frames"].unique("frame_hash")
        wanted = ["parent_id", "prefix_ids", "depth", "class_name", "method_name", "line", "type", "num"]
        return boxes.join(nodes, left_on="prefix_ids", right_on="node_id").join(frames, on="frame_hash").select(wanted)


ENGINES = {"DuckDB": DuckDb, "DataFusion": DataFusion, "ClickHouse": ClickHouse, "Spark": Spark, "polars": Polars}


def cpu():
    """Returns the CPU seconds of this process and of all its descendants."""
    parents, ticks = {}, {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                values = Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()
                parents[int(name)], ticks[int(name)] = int(values[1]), int(values[11]) + int(values[12])
    mine, started = {os.getpid()}, set()
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
        started |= more
    # getrusage is more precise than /proc for this process.
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime + sum(ticks.get(pid, 0) for pid in started) / TICK


def text(value):
    return "" if value is None else str(value)


def digest(rows):
    return hashlib.md5("\n".join(sorted("\t".join(map(text, row)) for row in rows)).encode()).hexdigest()


def peak():
    """Returns the peak MB of this process or of a process that it started, whichever is larger."""
    most = 0
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int(Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()[1])
            if int(name) == os.getpid() or parent == os.getpid():
                most = max(most, int(Path(f"/proc/{name}/status").read_text().split("VmHWM:")[1].split()[0]))
    return most / 1024


def main():
    name, store, rounds, asked = sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(Path(sys.argv[4]).read_text())
    before, begin = cpu(), time.monotonic()
    engine = ENGINES[name](store)
    told = {"start": [cpu() - before, time.monotonic() - begin]}
    for question, sql in asked.items():
        runs = []
        for _ in range(rounds):
            before, begin = cpu(), time.monotonic()
            try:
                rows = engine.ask(sql)
            except Exception as error:
                told[question] = {"error": str(error).strip().splitlines()[0][:120]}
                break
            runs.append((cpu() - before, time.monotonic() - begin))
        else:
            told[question] = {"digest": digest(rows), "rows": len(rows), "first": runs[0], "best": min(runs)}
        print(f"  {name}: {question}: {told[question].get('best', told[question])}", file=sys.stderr, flush=True)
    told["peak_mb"] = peak()
    getattr(engine, "close", lambda: None)()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
