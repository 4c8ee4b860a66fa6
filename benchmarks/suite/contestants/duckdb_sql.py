"""DuckDB: the accounting as one chain of SQL statements, over everything or file by file.

python -m benchmarks.suite.contestants.duckdb_sql whole|chunks DIRECTORY OUT
"""

from __future__ import annotations

import sys
from pathlib import Path

import duckdb

SQL = (Path(__file__).parent / "accounting.sql").read_text(encoding="utf-8")


def main() -> None:
    way, directory, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    files = sorted(directory.glob("*.parquet"))
    for number, part in enumerate([files] if way == "whole" else [[file] for file in files]):
        target = out / f"part-{number:05d}"
        target.mkdir(parents=True)
        listed = ", ".join(f"'{file}'" for file in part)
        with duckdb.connect() as connection:
            # Rows need not come out in the order in which they went in, which DuckDB is faster without.
            connection.execute("SET preserve_insertion_order = false")
            text = SQL.replace("$FILES", f"[{listed}]").replace("$OUT", str(target)).replace("$RUN", directory.name)
            connection.execute(text)


if __name__ == "__main__":
    main()
