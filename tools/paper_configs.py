"""The files that are made from the table of the paper's runs: a file per run, the reproduction, and a page.

python -m tools.paper_configs      writes configs/paper/ and docs/hyperparameters.md (make configs)
"""

import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tasks.settings.base import flat
from tasks.settings.run import STAGES
from tools import ROOT
from tools.paper_table import FOLDER, TABLE, Entry, PaperRun, entry, layers, ordered, runs, table

REPRODUCE = FOLDER / "reproduce.yaml"
PAGE = ROOT / "docs/hyperparameters.md"
_REPRODUCED_ON = "gpu-4"
_WIDTH = 120
_ORIGIN = "from configs/paper/table.yaml"


def config(run: PaperRun) -> str:
    """Return the text of the file of a run."""
    settings, entries = run.settings, run.entries
    path, axes = run.path.relative_to(ROOT), table()["axes"]
    workflow = "grpo" if settings.updates_per_rollout else "mu_grpo"
    head = [
        f"{axes['model'][run.model]} by {axes['system'][run.system]} on {axes['hardware'][run.hardware]}: "
        f"{STAGES * settings.updates_per_stage} updates, new rollouts after every {settings.mu}.",
        *_legend(),
        "",
        f"  mu-grpo plan --config {path} --gpus {settings.optimize.backend.processes}",
        *_started(run.hardware, workflow, path),
    ]
    given = ordered(name for name, one in entries.items() if one.given)
    return _text(head, ((name.split("."), entries[name]) for name in given))


def reproduction() -> str:
    """Return the text of the reproduction's file: settings of the runs on one hardware, shared ones and others."""
    axes = table()["axes"]
    sections: dict[tuple[str, ...], dict[str, Entry]] = {}
    for one in layers():
        apart = {axis: names for axis, names in one.runs.items() if axis != "hardware"}
        if not one.given or _REPRODUCED_ON not in one.runs.get("hardware", [_REPRODUCED_ON]):
            continue
        if len(apart) > 1:
            raise ValueError(f"{TABLE.name}: {one.setting} for {apart}: a reproduction's layer has one axis")
        shared: tuple[str, ...] = () if one.setting == "store" else ("experiment", "common")
        by_axis = [("experiment", f"{axis}s", name) for axis, names in apart.items() for name in names]
        paths: list[tuple[str, ...]] = [*by_axis] or [shared]
        for section in paths:
            sections.setdefault(section, {})[one.setting] = one
    of_models = [("experiment", f"{axis}s", name) for axis in ("model", "system") for name in axes[axis]]
    entries = [
        ((*place, *name.split(".")), sections[place][name])
        for place in ((), ("experiment", "common"), *of_models)
        for name in ordered(sections[place])
    ]
    entries += [(("experiment", name), entry(name, fields, {})) for name, fields in table()["experiment"].items()]
    numbers = f"{len(axes['model'])} models x {len(axes['system'])} systems"
    path = REPRODUCE.relative_to(ROOT)
    head = [
        f"The paper's comparison on {axes['hardware'][_REPRODUCED_ON]}: {numbers} x the seeds below.",
        *_legend(),
        "",
        *_started(_REPRODUCED_ON, "reproduce", path),
    ]
    return _text(head, entries)


def _legend() -> list[str]:
    tags = {tag: meaning for tag, meaning in table()["tags"].items() if tag != "unused"}
    lines = [f"Written by `make configs` {_ORIGIN}: change it there. Every line says where its value comes from:"]
    return lines + [f"  {tag:<10}{meaning}" for tag, meaning in tags.items()]


def _started(hardware: str, workflow: str, path: Path) -> list[str]:
    return [
        f"  MU_GRPO_DEPLOYMENT=configs/deployments/{hardware}.yaml pyflyte --config flyte.yaml run --remote \\",
        "    --copy all --project mu-grpo --domain development \\",
        f"    workflows/{workflow}.py {workflow} --inputs-file {path}",
    ]


def _text(head: Sequence[str], entries: Iterable[tuple[Sequence[str], Entry]]) -> str:
    lines = [f"# {line}".rstrip() for line in head]
    section: list[str] = []
    for place, one in entries:
        shared = next((i for i, key in enumerate(place[:-1]) if key != "".join(section[i : i + 1])), len(place) - 1)
        lines += [f"{'  ' * depth}{place[depth]}:" for depth in range(shared, len(place) - 1)]
        section = list(place[:-1])
        lines += _setting("  " * len(section), place[-1], one)
    return "\n".join(lines) + "\n"


def _setting(indent: str, key: str, one: Entry) -> Iterator[str]:
    """Yield a setting with its comment on one line, or below its comment if the line is too long."""
    setting, comment = f"{indent}{key}: {scalar(one.value)}", f"# {one.tag}: {one.reason}"
    if len(setting) + 2 + len(comment) <= _WIDTH:
        yield f"{setting}  {comment}"
        return
    yield from textwrap.wrap(comment, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}# ")
    yield setting


def scalar(value: Any) -> str:
    """Return a value as one line of YAML."""
    if isinstance(value, str) and "\n" in value:
        return json.dumps(value)
    return yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()


def page() -> str:
    """Return the text of docs/hyperparameters.md."""
    rows, counts = list(_rows()), dict.fromkeys(table()["tags"], 0)
    for *_, tag, _reason in rows:
        counts[tag] += 1
    shown = ", ".join(f"{count} {tag}" for tag, count in counts.items() if count)
    legend = "\n".join(f"- **{tag}** {meaning}" for tag, meaning in table()["tags"].items() if counts[tag])
    lines = [f"| {' | '.join(row)} |" for row in (("setting", "runs", "value", "source", "why"), ("---",) * 5, *rows)]
    unused = "\n".join(f"- {reason}: {', '.join(names)}" for reason, names in _unused().items())
    return _PAGE.format(origin=_ORIGIN, shown=shown, legend=legend, table="\n".join(lines), unused=unused)


_PAGE = """# Hyperparameters

Which values do the paper's runs have, and where does each value come from?
`make configs` writes this page {origin}, and a file per run into configs/paper: five models, three
systems, 4 H200 or one. Every setting that can change a result is in this table or in the list below it. The table has
the source of each value ({shown}):

{legend}

The public parts of the paper name two of its five models; the other three are chosen. If *runs* is empty, the value is
that of all runs. A row replaces the rows above it in the runs that it names. A run has four stages (stated), which is a
constant of the workflows, and uses the groups of a stage in a random order (chosen).

{table}

These settings have no effect in the runs that are named, or in all runs. A section stands for its settings that are not
in the table.

{unused}
"""


def _rows() -> Iterator[tuple[str, str, str, str, str]]:
    """Yield setting, runs, value, source and reason of all entries that have an effect."""
    entries = [one for one in layers() if one.tag != "unused"]
    resolved = [(run.entries, flat(run.settings.model_dump(mode="json"))) for run in runs()]
    for setting in ordered({one.setting for one in entries}):
        same = [one for one in entries if one.setting == setting]
        for one in same:
            held = [found for own, found in resolved if own.get(setting) is one]
            values = [one.value] if one.given else [found[setting] for found in held]
            if any(value != values[0] for value in values):
                raise ValueError(f"{TABLE.name}: {setting} has values {values} for one reason; give each its own")
            names = _names(one) or ("others" if len(same) > 1 else "")
            yield f"`{setting}`", names, f"`{_shown(values[0])}`", one.tag, one.reason
    for setting, fields in table()["experiment"].items():
        one = entry(setting, fields, {})
        yield f"`experiment.{setting}`", REPRODUCE.name, f"`{_shown(one.value)}`", one.tag, one.reason


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value)[1:-1] if isinstance(value, str) else scalar(value)


def _names(one: Entry) -> str:
    """Return the names of the runs of an entry."""
    axes = table()["axes"]
    return "; ".join(", ".join(axes[axis][name] for name in names) for axis, names in one.runs.items())


def _unused() -> dict[str, list[str]]:
    """Return the settings without effect, by the reason."""
    settings: dict[str, list[str]] = {}
    for one in layers():
        if one.tag == "unused":
            names = _names(one)
            settings.setdefault(f"{one.reason} ({names})" if names else one.reason, []).append(f"`{one.setting}`")
    return settings


@cache
def written() -> dict[Path, str]:
    """Return the texts of all files that are made from the table, by path."""
    return {**{run.path: config(run) for run in runs()}, REPRODUCE: reproduction(), PAGE: page()}


def main() -> None:
    """Write all files, and delete the files of runs that are not in the table."""
    files = written()
    for path in FOLDER.glob("*/*.yaml"):
        if path not in files:
            path.unlink()
    for path, text in files.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    print(f"wrote {len(files)} files: {FOLDER.relative_to(ROOT)}, {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
