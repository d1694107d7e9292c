#!/usr/bin/env python3
"""Samples by thread, state and innermost function, as DuckDB and Spark count them in what `flightline` writes as lines of text.

usage: rows.py HDPS NDJSON CSV

HDPS of `export --format hdps`, NDJSON and CSV of `print --events jdk.ExecutionSample`. Prints engine, file, thread, state, function and
number, tab-separated. Run it by target/store-engines/bin/python (setup.sh).
"""

import sys

# One function for both kinds of nested frames; `first` is the index at which an engine begins to count.
NESTED = "CASE WHEN {c} = '' THEN {m} ELSE concat({c}, '.', {m}) END"


def questions(first):
    """A question for each file, with `{}` for the table."""
    row, event = f"stack_trace[{first}]", f"stackTrace.frames[{first}].method"
    hdps = NESTED.format(c=f"{row}.class_name", m=f"{row}.method_name")
    ndjson = NESTED.format(c=f"{event}.type.name", m=f"{event}.name")
    ask = "SELECT {thread}, {state}, {leaf}, count(*) FROM {{}} WHERE {only} GROUP BY ALL".format
    return {
        "hdps": ask(thread="thread", state="state", leaf=hdps, only="event_type = 'jdk.ExecutionSample'"),
        "ndjson": ask(thread="sampledThread.osName", state="state", leaf=ndjson, only="event = 'jdk.ExecutionSample'"),
        "csv": ask(thread="sampledThread", state="state", leaf=f"split(stackTrace, ';')[{first}]", only="true"),
    }


def duckdb(files):
    import duckdb

    read = {"hdps": "read_ndjson_auto", "ndjson": "read_ndjson_auto", "csv": "read_csv"}
    for name, question in questions(1).items():
        yield name, duckdb.sql(question.format(f"{read[name]}('{files[name]}')")).fetchall()


def spark(files):
    from pyspark.sql import SparkSession

    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for key in ["bindAddress", "host"]:
        session = session.config(f"spark.driver.{key}", "127.0.0.1")
    session = session.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    for name, question in questions(0).items():
        read = session.read.option("header", True)
        table = read.csv(files[name]) if name == "csv" else read.json(files[name])
        table.createOrReplaceTempView("t")
        yield name, [tuple(row) for row in session.sql(question.format("t")).collect()]
    session.stop()


def main():
    files = dict(zip(["hdps", "ndjson", "csv"], sys.argv[1:4], strict=True))
    for engine in [duckdb, spark]:
        for name, rows in engine(files):
            for row in rows:
                print(engine.__name__, name, *row, sep="\t")


if __name__ == "__main__":
    main()
