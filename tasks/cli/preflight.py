"""Output of the command ``preflight``, as a table and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from tasks.cluster.api import Finding, State, Target

_STYLES: dict[State, str] = {"ok": "green", "warning": "yellow", "failed": "bold red", "not tried": "dim"}


def failed(findings: Sequence[Finding]) -> bool:
    """Return True if a check failed, which means that a run cannot start."""
    return any(finding.state == "failed" for finding in findings)


def preflight_table(findings: Sequence[Finding], target: Target) -> RenderableType:
    """Return a table with a row for each check, its finding and its fix, and a summary."""
    table = Table(box=box.SIMPLE_HEAD, title=f"a run in {target.namespace}", title_justify="left", title_style="bold")
    table.add_column("check", overflow="fold", max_width=22)
    table.add_column("state", no_wrap=True)
    table.add_column("found, and how to fix it", overflow="fold")
    for finding in findings:
        fix = f"\n[bold]fix[/]  {escape(finding.fix)}" if finding.fix else ""
        table.add_row(finding.name, f"[{_STYLES[finding.state]}]{finding.state}[/]", escape(finding.found) + fix)
    counts = {state: sum(finding.state == state for finding in findings) for state in _STYLES}
    summary = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    result = "a run cannot start" if counts["failed"] else "nothing prevents a run"
    return Group(table, f"{summary}: {result}")


def preflight_json(findings: Sequence[Finding], target: Target) -> str:
    """Return the target and the findings as JSON."""
    where = {"project": target.project, "domain": target.domain, "namespace": target.namespace}
    checks = [asdict(finding) for finding in findings]
    return json.dumps({**where, "ok": not failed(findings), "checks": checks}, indent=1)
