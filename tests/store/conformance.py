#!/usr/bin/env python3
"""The same questions to the same files by several engines: their answers must be the same, row for row.

usage: conformance.py STORE [--sql target/release/flightline-sql] [--engines datafusion,duckdb,spark] [--where CONDITION]...

Run it by target/store-engines/bin/python (setup.sh). Our own command reads by its manifests, the others read directories.
Prints rows, seconds and the MD5 of the sorted rows for each; exit status 1 if any two differ.
"""

import argparse
import csv
import hashlib
import io
import pathlib
import subprocess
import sys
import time

TABLES = ["samples", "stacks", "nodes", "frames"]
# Queries of `samples` alone, without features that differ between engines.
PLAIN = {
    "rows": "SELECT count(*) AS n FROM samples",
    "events": "SELECT service, event_type, count(*) AS n, sum(value) AS v FROM samples GROUP BY service, event_type",
    "days": "SELECT day, min(stack_id) AS a, max(stack_id) AS b, count(DISTINCT stack_id) AS n FROM samples GROUP BY day",
}


class DataFusion:
    """Our own command, a process for each question."""

    def __init__(self, store, command):
        self.store, self.command = store, command

    def ask(self, sql):
        run = [self.command, "sql", sql, "--store", self.store, "--format", "csv"]
        text = subprocess.run(run, check=True, capture_output=True, text=True).stdout
        return [tuple(row) for row in list(csv.reader(io.StringIO(text)))[1:]]


class DuckDb:
    def __init__(self, store, _):
        import duckdb

        self.db = duckdb.connect()
        self.db.execute("SET TimeZone = 'UTC'")
        for table in TABLES:
            options = "hive_partitioning = true, hive_types_autocast = false, union_by_name = true"
            self.db.execute(
                f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{store}/{table}/**/*.parquet', {options})"
            )

    def ask(self, sql):
        return [texts(row) for row in self.db.execute(sql).fetchall()]


class Spark:
    # Two executors, each a JVM of its own.
    MASTER = "local-cluster[2,1,1024]"

    def __init__(self, store, _):
        from pyspark.sql import SparkSession

        self.spark = (
            SparkSession.builder.master(self.MASTER)
            .appName("conformance")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.executor.memory", "1g")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "4")
            # A day is a text in every engine.
            .config("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
            .getOrCreate()
        )
        self.spark.sparkContext.setLogLevel("ERROR")
        for table in TABLES:
            read = self.spark.read.option("mergeSchema", "true").parquet(f"{store}/{table}")
            read.createOrReplaceTempView(table)

    def ask(self, sql):
        return [texts(row) for row in self.spark.sql(sql).collect()]

    def close(self):
        # Without it, executors fail with many messages.
        self.spark.stop()


ENGINES = {"datafusion": DataFusion, "duckdb": DuckDb, "spark": Spark}


def texts(row):
    return tuple("" if value is None else str(value) for value in row)


def flame(command, engine, where):
    """The SQL of a flame graph that our own command prints for an engine."""
    run = [command, "flame", "--store", "-", "--sql", "--engine", engine, "--where", where, "--min-percent", "1"]
    return subprocess.run(run, check=True, capture_output=True, text=True).stdout


def dialects(command, wheres):
    """That the SQL for engines that are not here is SQL to a parser that knows how they speak; how many were parsed."""
    import sqlglot

    count = 0
    for engine in ["trino", "hive", "clickhouse", "duckdb", "spark"]:
        for where in wheres:
            sql = flame(command, engine, where)
            (tree,) = sqlglot.parse(sql, read=engine, error_level=sqlglot.ErrorLevel.RAISE)
            tables = {table.name for table in tree.find_all(sqlglot.exp.Table)}
            assert set(TABLES) <= tables, (engine, tables)
            count += 1
    return count


def main():
    options = argparse.ArgumentParser()
    options.add_argument("store")
    options.add_argument("--sql", default="target/release/flightline-sql")
    options.add_argument("--engines", default="datafusion,duckdb,spark")
    options.add_argument("--where", action="append", default=[""])
    options = options.parse_args()
    store = str(pathlib.Path(options.store).resolve())

    print(f"{dialects(options.sql, options.where)} questions are SQL to trino, hive, clickhouse, duckdb and spark")
    digests = {}
    for name in options.engines.split(","):
        engine = ENGINES[name](store, options.sql)
        questions = dict(PLAIN)
        for where in options.where:
            questions[f"flame {where or 'of all'}"] = flame(options.sql, name, where)
        for question, sql in questions.items():
            begin = time.monotonic()
            rows = sorted(engine.ask(sql))
            took = time.monotonic() - begin
            digest = hashlib.md5("\n".join(map(repr, rows)).encode()).hexdigest()
            digests.setdefault(question, {})[name] = (digest, len(rows))
            print(f"{name:<11} {took:7.2f} s {len(rows):>7} rows {digest}  {question}", flush=True)
        getattr(engine, "close", lambda: None)()

    differ = [question for question, of in digests.items() if len(set(of.values())) > 1]
    for question in differ:
        print(f"DIFFERS: {question}: {digests[question]}")
    empty = [question for question, of in digests.items() if any(rows == 0 for _, rows in of.values())]
    for question in empty:
        print(f"EMPTY: {question}: nothing was compared")
    if not differ and not empty:
        print(f"{len(digests)} questions, the same answers of {options.engines}")
    return 1 if differ or empty else 0


if __name__ == "__main__":
    sys.exit(main())
