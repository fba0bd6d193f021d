"""Settings of evaluation, for a run and for each of its benchmarks."""

from dataclasses import dataclass

from pydantic import Field, model_validator

from tasks.errors import SettingsError
from tasks.settings.base import Number, Settings
from tasks.settings.data_sets import HELD_OUT, ArithmeticSettings, BenchmarkSettings
from tasks.settings.devices import EngineSettings
from tasks.settings.steps import PromptsSettings
from tasks.settings.verify import VerifySettings

_SAMPLING_DEFAULTS = {"samples_per_problem": None, "max_new_tokens": None, "temperature": None, "greedy": False}
"""Defaults of the fields of a benchmark that change responses, but not problems."""


class EvaluationSettings(Settings):
    """Measurement of a policy's accuracy on a benchmark."""

    samples_per_problem: int = Field(4, ge=1)
    """k of avg@k."""
    max_new_tokens: int = Field(ge=1)
    """Largest length of a response to a problem, in tokens."""
    temperature: Number = Field(1.0, ge=0.01)
    """Sampling temperature. Values near 0 would overflow; ``greedy`` takes the most probable tokens."""
    greedy: bool = True
    """Generate one greedy response to every problem, too, on the benchmarks whose own ``greedy`` is true."""
    engine: EngineSettings | None = None
    """Engine of the evaluations; ``rollout.engine`` when null, and transformers in the workflow ``evaluation``."""
    responses_per_part: int = Field(1024, ge=1)
    """Responses, in whole problems, that a task samples at once and then saves; the engine waits for the longest."""

    @property
    def problems_per_call(self) -> int:
        """Return the number of problems of a call of the engine, at least one."""
        return max(1, self.responses_per_part // self.samples_per_problem)


class EvaluateSettings(EvaluationSettings):
    """Measurement of a policy's accuracy: the benchmarks, and defaults for their fields."""

    problems: int = Field(500, ge=1)
    """Largest number of problems of the benchmark ``held_out``."""
    benchmarks: list[BenchmarkSettings] = Field([BenchmarkSettings(name=HELD_OUT)], min_length=1)
    """Names of known benchmarks, or benchmarks of your own. The mean over them is the headline."""

    @model_validator(mode="after")
    def _names_differ(self) -> "EvaluateSettings":
        names = [benchmark.name for benchmark in self.benchmarks]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"benchmarks: {', '.join(repeated)} is given twice; allowed: names that differ")
        return self


@dataclass(frozen=True)
class Measurement:
    """The measurement of accuracy on one benchmark of a run, with all settings filled in."""

    benchmark: BenchmarkSettings
    """The problems; the fields of sampling have their defaults."""
    evaluation: EvaluationSettings
    verify: VerifySettings


def check_kind(kind: str, arithmetic: ArithmeticSettings | None, name: str) -> None:
    """Raise SettingsError if a kind of verifier cannot judge the generated problems of a source, if it has any."""
    if arithmetic is not None and kind != "function" and arithmetic.as_code != (kind == "code"):
        raise SettingsError(
            f"verify.kind: {kind} with {name}.arithmetic.as_code {str(arithmetic.as_code).lower()}; allowed: "
            "code with true, math with false"
        )


def measurements(
    evaluate: EvaluateSettings, prompts: PromptsSettings, verify: VerifySettings, engine: EngineSettings | None
) -> list[Measurement]:
    """Return a measurement for each benchmark; ``engine`` is used if ``evaluate`` names none.

    Raises:
        SettingsError: a benchmark has no problems, or no verifier that judges them.
    """
    filled = []
    for benchmark in evaluate.benchmarks:
        held_out = benchmark.source is None
        kind = benchmark.answer_type or verify.kind
        if held_out and prompts.held_out is None:
            raise SettingsError(
                f"evaluate.benchmarks: {HELD_OUT} with prompts.held_out_share 0, so it has no problems; allowed: a "
                "larger share, or other benchmarks"
            )
        if kind == "function" != verify.kind:
            raise SettingsError(
                f"{benchmark.full_name}: answer_type function with verify.kind {verify.kind}, which "
                "names no function; allowed: math or code, or verify.kind function"
            )
        source = prompts.held_out if held_out else benchmark.source
        name = "prompts" if held_out else benchmark.full_name
        check_kind(kind, source.arithmetic if source else None, name)
        problems = {
            "source": source,
            "problems": benchmark.problems or (evaluate.problems if held_out else None),
            "template": prompts.template if benchmark.template is None else benchmark.template,
            "chat": prompts.chat if benchmark.chat is None else benchmark.chat,
            "date": benchmark.date or prompts.date,
            "answer_type": kind,
        }
        evaluation = EvaluationSettings(
            samples_per_problem=benchmark.samples_per_problem or evaluate.samples_per_problem,
            max_new_tokens=benchmark.max_new_tokens or evaluate.max_new_tokens,
            temperature=benchmark.temperature or evaluate.temperature,
            greedy=benchmark.greedy and evaluate.greedy,
            engine=evaluate.engine or engine,
            responses_per_part=evaluate.responses_per_part,
        )
        verifier = verify
        if kind != verify.kind:
            verifier = VerifySettings.parse(VerifySettings.merge(verify.model_dump(mode="json"), {"kind": kind}))
        filled.append(Measurement(benchmark.model_copy(update=problems | _SAMPLING_DEFAULTS), evaluation, verifier))
    return filled
