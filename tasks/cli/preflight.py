"""Findings of a preflight, as a table and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from tasks.cluster.api import Finding, State
from tasks.cluster.preflight import Target

_STYLES: dict[State, str] = {"ok": "green", "warning": "yellow", "failed": "bold red", "not tried": "dim"}

_NAME_WIDTH = 22


def failed(findings: Sequence[Finding]) -> bool:
    """Return True if something stops a run."""
    return any(one.state == "failed" for one in findings)


def preflight_table(findings: Sequence[Finding], target: Target) -> RenderableType:
    """Return a row for each check, with its fix below what was found, and their sum."""
    table = Table(box=box.SIMPLE_HEAD, title=f"a run in {target.namespace}", title_justify="left", title_style="bold")
    table.add_column("check", overflow="fold", max_width=_NAME_WIDTH)
    table.add_column("state", no_wrap=True)
    table.add_column("found, and how to fix it", overflow="fold")
    for one in findings:
        fix = f"\n[bold]fix[/]  {escape(one.fix)}" if one.fix else ""
        table.add_row(one.name, f"[{_STYLES[one.state]}]{one.state}[/]", escape(one.found) + fix)
    counts = {state: sum(one.state == state for one in findings) for state in _STYLES}
    summed = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    result = "a run cannot start" if counts["failed"] else "nothing found that stops a run"
    return Group(table, f"{summed}: {result}")


def preflight_json(findings: Sequence[Finding], target: Target) -> str:
    """Return the target and its checks as JSON."""
    where = {"project": target.project, "domain": target.domain, "namespace": target.namespace}
    return json.dumps({**where, "ok": not failed(findings), "checks": [asdict(one) for one in findings]}, indent=1)
