"""Known data sets, each as a row."""

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from tasks.cli.pages import write_page
from tasks.report.tables import render_markdown
from tasks.settings import BENCHMARKS, TRAINING_SETS, BenchmarkSettings, SourceSettings

_NOTHING = "-"
_GOLD = {"plain": "", "hashes": ", after ####", "boxed": ", in its box", "livecodebench": ""}


def benchmarks_table() -> Table:
    """Known benchmarks: source, fields, samples, and what is whose choice."""
    table = Table(box=box.SIMPLE_HEAD)
    headings = ("name", "source", "commit", "fields", "problems", "samples", "the paper", "chosen here")
    for heading in headings:
        table.add_column(heading, no_wrap=heading == "name", overflow="fold")
    for name, benchmark in BENCHMARKS.items():
        settings = BenchmarkSettings.parse({"name": name})
        samples = str(settings.samples_per_problem or "of the run")
        table.add_row(
            name,
            *_source(settings.source),
            str(settings.problems or "of the run"),
            f"{samples}{', greedy' if settings.greedy else ''}",
            benchmark.stated,
            benchmark.chosen or _NOTHING,
        )
    return table


def training_sets_table() -> Table:
    """Known training sets: source, fields, and what is known about them."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("name", "source", "commit", "fields", "rows", "about"):
        table.add_column(heading, no_wrap=heading == "name", overflow="fold")
    for name, one in TRAINING_SETS.items():
        table.add_row(name, *_source(SourceSettings.parse(one.source)), str(one.rows or _NOTHING), one.about)
    return table


def _source(source: SourceSettings | None) -> tuple[str, str, str]:
    if source is None:
        return "prompts, held out", _NOTHING, _NOTHING
    first, *others = source.files
    files = first + (f" and {len(others)} more" if others else "")
    identity = f", {source.id}" if source.id else ""
    fields = f"{source.prompt}, {source.answer}{_GOLD[source.gold]}{identity}"
    return f"{source.hub}: {files}", source.pinned[:12] or "looked up", fields


_ABOUT_BENCHMARKS = r"""# Data

Written by `mu-grpo data --markdown docs/data.md`.

## Benchmarks

`evaluate.benchmarks` lists what every policy is evaluated on; the mean over them, each with the same weight, is the
headline. Without it a run has one, `held_out`: problems that its `prompts` keep from training.

```yaml
evaluate:
  max_new_tokens: 2560
  benchmarks:
    - math500                                   # a name of the table below
    - {name: aime24, samples_per_problem: 8}    # with fields of its own
    - name: mine                                # a benchmark of your own
      source: {path: problems.jsonl}            # JSON lines, JSON or parquet with prompt and answer; a folder; s3://
      samples_per_problem: 4
    - name: level3                              # generated problems that training never sees
      source: {arithmetic: {levels: [3]}}
      problems: 200
```

Every policy and benchmark is an evaluation of its own in the cache: another benchmark evaluates nothing else again,
unless it asks what the run trains on: then that leaves the training set, and the run is another one. A benchmark
takes what it does not say (template, chat, date, samples, lengths, temperature) from the run. The gold answers are read
by the verifier that judges: those that it cannot read are listed in the log and in the manifest of the problems, count
as not solved, and are an error above `max_unreadable_share`. A row without prompt or answer, or with the id of
another one, is an error.

Files come from the Hugging Face hub, at a commit; where a record has only a branch, the commit is looked up when a
run opens and noted in the manifest. `operation.mirror` names a folder or an `s3://` prefix in the hub's place, with
`<mirror>/<data set>/<file>`; pods on a cluster that reach no network need it, or commits. What changed under its
revision is refused: the store has a digest of the rows that it took in first. A source of your own beside a known
name takes the place of the name's.

Sources, fields and commits of the table were read in public code that pins them; the files themselves were not
fetched here. The paper ([arXiv 2605.17570](https://arxiv.org/abs/2605.17570)) names its five benchmarks and no
version of them.

"""


_ABOUT_TRAINING_SETS = """
## Training sets

`prompts.source` names a training set of the table, or says where rows are and what their fields are called;
`prompts.path` is a file, a folder or an `s3://` address of your own with `prompt` and `answer`. A field of an object is
named with a point. A prompt that is a list of messages with `role` and `content` goes through the policy's chat
template as it is. So rows in the format of verl are read by

```yaml
prompts:
  source: {path: train.parquet, answer: reward_model.ground_truth, id: extra_info.index}
```

A gold answer that is a number becomes the shortest decimal that is this number in the file's own type: a 32-bit 98.6 is
98.6, and 1e-05 is 0.00001; from 10^21 and below 10^-7 with a power of ten.

```yaml
prompts:
  source: dapo
  held_out_share: 0          # nothing for the benchmark held_out
  prompts_per_stage: 4096
```

The rows become one artifact of the store, of which the stages are cut in an order that the run's seed decides. What
cannot be trained on leaves it: a row whose fields are missing or empty, an id that comes twice, a gold answer that
the verifier does not find equal to itself. These rows are counted and listed, and are an error above
`prompts.max_unusable_share`. So does what the benchmarks of the run ask: prompts that equal one of their problems,
whatever the case and the spaces, and prompts that share `prompts.overlap_words` words in a row with one. A problem
that is shorter counts with all of its words, if these are 8; a run of words that many problems of a benchmark share
is how it words them, and does not count. The numbers are printed, and noted in the artifact's manifest with the ids;
`removed.parquet` in it has every row with the reason and the problem. The paper does not name its training set.

"""


def data_page() -> str:
    """docs/data.md."""
    tables = [render_markdown(table) + "\n" for table in (benchmarks_table(), training_sets_table())]
    return _ABOUT_BENCHMARKS + tables[0] + _ABOUT_TRAINING_SETS + tables[1]


def data(
    markdown: Annotated[Path | None, typer.Option(help="Write the page to this file instead.")] = None,
) -> None:
    """Known benchmarks and training sets: where they are from, what is the paper's about them, and what was chosen."""
    if markdown is not None:
        write_page(markdown, data_page(), "--markdown")
        print(f"wrote {markdown}")
        return
    console = Console(width=max(Console().width, 220))
    for table in (benchmarks_table(), training_sets_table()):
        console.print(table)
