"""Tables and counts of all processes, in each of them."""

import json

import pyarrow as pa

from tasks.optimize import processes
from tasks.rollout.engine import Work


def gathered(table: pa.Table) -> pa.Table:
    """The rows of every process's table, in the order of their ranks."""
    if processes.count() == 1:
        return table
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    parts = processes.gather_bytes(sink.getvalue().to_pybytes())
    return pa.concat_tables([pa.ipc.open_stream(part).read_all() for part in parts]).combine_chunks()


def gathered_work(work: Work) -> list[Work]:
    """Return the work of every process's engine, in the order of their ranks."""
    return [Work(*json.loads(one)) for one in processes.gather_bytes(json.dumps(work).encode())]
