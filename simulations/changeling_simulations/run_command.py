"""`changeling-sim run`: options in; a population, a survey and an experiment out."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import typer
from changeling_commands import best_rung, read_count, read_date, read_duration, read_epsilon, read_length, taking
from changeling_protocol import MICRO, AtMost, Calendar, Node, Survey
from changeling_statistics import Changelog, Wish, constraint_of, pilot_of, read_csv, read_survey, rung
from rich.console import Console
from rich.progress import track

from .commands import ReportOption, rate, rate_option, recorder, span, write_report
from .experiment import Experiment, Trials, exact_error, in_the_field, simulate, trials_of, tried
from .field import Field
from .plots import draw_experiment, save_plot
from .population import (
    HISTORIES,
    Population,
    World,
    aligned,
    calendar_for,
    changelog_path,
    check_dates,
    paper_survey,
    synthetic_calendar,
    synthetic_changelog,
)
from .reports import RecordingConsole, print_freezing, print_paper, print_report, print_trials, silent

ANSWERS, CHANGES, BRANCHING, LAYERS, EPSILON = 4, 2, 2, 1, Decimal(8)
"""What a survey is like, if the command line does not say."""
ALL, FITTED, BEST = "all of the changelog, or 10,000", "fitted to the changelog", "so many that the error is least"
Step = TypeVar("Step")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of `changeling-sim run`, as they were given; durations and times in seconds."""

    changelog: Annotated[
        str | None, typer.Argument(help="A .csv or .csv.gz of entry,time,answer, or the bundled school-to-work.")
    ] = None
    synthetic: Annotated[bool, typer.Option("--synthetic", help="Make up a population instead.")] = False
    answers: Annotated[
        int | None,
        typer.Option(min=1, metavar="Z", help="Synthetic: how many answers.", show_default=str(ANSWERS)),
    ] = None
    changes: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="X",
            help="Synthetic: an entry's changes, on average.",
            show_default=f"{CHANGES}, or as --survey expects",
        ),
    ] = None
    gradual: Annotated[bool, typer.Option("--gradual", help="Synthetic: entries arrive all through.")] = False
    world: Annotated[
        World,
        typer.Option(help="Synthetic: how answers change over time; in heavy, a tenth of the entries change most."),
    ] = World.DRIFT
    entries: Annotated[
        int | None,
        typer.Option(parser=read_count, metavar="N", help="Resample to so many entries: 2e5.", show_default=ALL),
    ] = None
    period: Annotated[
        int | None,
        typer.Option(parser=read_duration, metavar="DURATION", help="As 10s, 1h, 1d, 13w.", show_default=FITTED),
    ] = None
    start: Annotated[
        int | None,
        typer.Option(parser=read_date, metavar="DATE", help="When the calendar starts.", show_default=FITTED),
    ] = None
    periods: Annotated[
        int | None,
        typer.Option(min=1, metavar="T", help="How many periods.", show_default=FITTED),
    ] = None
    at_most: Annotated[
        int | None,
        typer.Option(min=1, metavar="K", help="Changes of an entry; appearing counts.", show_default=BEST),
    ] = None
    within: Annotated[
        int | None,
        typer.Option(
            parser=read_length,
            metavar="DURATION",
            help="Changes lie within so long of the first. With --at-most: both hold.",
        ),
    ] = None
    branching: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="C",
            help="The paper's plan: nodes of 1, c, c², … periods.",
            show_default=str(BRANCHING),
        ),
    ] = None
    layers: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="H",
            help="The paper's plan: layers; 1 is the flat release.",
            show_default=str(LAYERS),
        ),
    ] = None
    epsilon: Annotated[
        Decimal | None,
        typer.Option(
            parser=read_epsilon,
            metavar="EPSILON",
            help="The most an entry may lose in all.",
            show_default=str(EPSILON),
        ),
    ] = None
    survey_file: Annotated[
        Path | None,
        typer.Option(
            "--survey", metavar="FILE", help="Instead of a plan and calendar: run this survey, signed or not."
        ),
    ] = None
    question: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --survey: the question of several that is simulated.")
    ] = None
    align: Annotated[
        bool, typer.Option("--align", help="Move a changelog of other dates to the start of the calendar.")
    ] = False
    minimum: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Nodes with fewer reports are not published.",
            show_default="that of --survey, or 1",
        ),
    ] = None
    arrivals: Annotated[
        float | None, rate_option("New entries in each period after the first, as a share of those who came before.")
    ] = None
    uninstalls: Annotated[float | None, rate_option("Chance to leave for good, per period.")] = None
    reinstalls: Annotated[float | None, rate_option("Chance to come back as a new entry, per period.")] = None
    offline: Annotated[float | None, rate_option("Chance that an entry is not heard as a period closes.")] = None
    spell: Annotated[
        float | None,
        typer.Option(
            min=1, metavar="X", help="How many periods offline last in a row, mean.", show_default="by chance alone"
        ),
    ] = None
    late: Annotated[float | None, rate_option("Chance to be heard only after the next period has closed.")] = None
    outage: Annotated[
        Node | None,
        typer.Option(parser=span, metavar="PERIODS", help="Closings that the server loses: 5-7. 1-3 is a late start."),
    ] = None
    behind: Annotated[float | None, rate_option("Chance that an entry's clock is a whole period behind.")] = None
    reluctant: Annotated[
        list[str] | None,
        typer.Option(metavar="ANSWER:RATE", help="Chance not to be heard while holding this answer; once or more."),
    ] = None
    liars: Annotated[
        float | None, rate_option("Invented entries, as a share of the true ones; they answer at random.")
    ] = None
    push: Annotated[
        str | None, typer.Option(metavar="ANSWER", help="What --liars raise as far as they can, instead.")
    ] = None
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="The same seed repeats the run.")] = 0
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write all periods and answers.")] = None
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw truth and estimates: .png, .pdf, .svg."),
    ] = None
    report: ReportOption = None
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures, and every row, as JSON alone.")] = False

    @property
    def dates(self) -> tuple[int | None, int | None, int | None]:
        """A period in seconds, a start in Unix seconds, and how many periods, as far as they are asked for."""
        return self.period, self.start, self.periods


def run(options: RunOptions) -> None:
    """Simulate one survey of a population under the best plan, and show its estimates beside the truth.

    The error that the paper's plan would have stands below.

    If something goes wrong in the field, many are simulated, to show what that does to error, bias and coverage.
    """
    console = silent() if options.as_json else recorder()
    generator, entries = np.random.default_rng(options.seed), options.entries
    if options.synthetic == (options.changelog is not None):
        raise ValueError("name one changelog, such as school-to-work, or say --synthetic")
    if options.synthetic and options.align:
        raise ValueError("--align moves a changelog; what is made up has the dates of the calendar")
    given, asked = _given(options)
    if options.changelog is not None:
        source, calendar = _named(options, given)
    else:
        changes = _changes(console, options, given)
        source, calendar = _made_up(options, given, changes, generator)
    fields = _fields(source.answers, options)
    survey, papers = given, None
    if survey is None:
        said = options.at_most is not None or options.within is not None
        wish = Wish(
            len(source.answers),
            calendar,
            constraint_of(options.at_most, options.within) if said else AtMost(calendar.periods),
            options.epsilon or EPSILON,
            entries or len(source.entries),
            minimum=options.minimum or 1,
        )
        survey = _planned(console, wish, source, choose=not said)
        shape = {"branching": options.branching or BRANCHING, "layers": options.layers or LAYERS}
        papers = paper_survey(source.answers, calendar, survey.constraint, epsilon=wish.epsilon, **shape)
    population = Population.from_changelog(source, calendar, survey.constraint)
    if entries not in (None, population.entries):
        population = population.resampled(entries, generator)
    survey = survey if options.minimum is None else replace(survey, minimum=options.minimum)
    worst = [*fields.values()][-1] if fields else None
    experiment = _simulated(population, survey, worst, generator)
    print_report(console, experiment)
    frozen = None
    if asked is not None:
        freezing = Population.of_freezing(source, calendar, survey.constraint)
        freezing = freezing if entries is None else freezing.resampled(entries, generator)
        frozen = _simulated(freezing, replace(asked, minimum=survey.minimum), worst, generator)
        print_freezing(console, frozen)
    if papers is not None:
        print_paper(console, experiment, exact_error(population, papers), options.layers or LAYERS)
    trials = _tried(population, survey, fields, options.seed)
    if trials:
        print_trials(console, trials, trials_of(population.entries))
    _write(console, experiment, options)
    if options.as_json:
        in_field = {
            name: {"rms_error": each.rms_error, "bias": each.bias, "coverage": each.coverage, "gaps": each.gaps}
            for name, each in trials.items()
        }
        more: dict[str, object] = {"field": in_field} if in_field else {}
        more |= {} if frozen is None else {"freezing": frozen.as_fields()}
        print(json.dumps(experiment.as_fields() | more, indent=1))


run_command = taking(RunOptions, run)


def _simulated(
    population: Population, survey: Survey, field: Field | None, generator: np.random.Generator
) -> Experiment:
    if field is None:
        return simulate(population, survey, generator)
    return in_the_field(population, survey, field, generator)


def _write(console: RecordingConsole, experiment: Experiment, options: RunOptions) -> None:
    if options.report is not None:
        console.picture(
            draw_experiment(experiment), "The truth and the estimates of every answer over time, with bands"
        )
    write_report(console, options.report, "A simulated survey beside the truth")
    for path, write in ((options.csv, experiment.write_csv), (options.plot, lambda path: save_plot(experiment, path))):
        if path is not None:
            write(path)
            console.print(f"wrote {path}")


def _named(options: RunOptions, given: Survey | None) -> tuple[Changelog, Calendar]:
    """The changelog that is named, and the calendar of a given survey, or one that fits it."""
    source = read_csv(changelog_path(options.changelog or ""), given.answers if given else None)
    calendar = given.calendar if given else calendar_for(source, *options.dates)
    source = aligned(source, calendar) if options.align else source
    check_dates(source, calendar)
    return source, calendar


def _changes(console: Console, options: RunOptions, given: Survey | None) -> float:
    """How many changes an entry makes: as the options say, else as a given survey expects, which is then said."""
    if options.changes is not None:
        return options.changes
    if given is None:
        return CHANGES
    left = (given.calendar.periods - 1) / (2 if options.gradual else 1)  # the periods after an entry's first
    changes = left * given.expected.later / MICRO
    console.print(f"An entry changes {changes:.3g} times on average, as the survey expects: --changes says otherwise.")
    return changes


def _made_up(
    options: RunOptions, given: Survey | None, changes: float, generator: np.random.Generator
) -> tuple[Changelog, Calendar]:
    """A changelog with the answers and the calendar of a given survey, or of the options."""
    calendar = given.calendar if given else synthetic_calendar(*options.dates)
    source = synthetic_changelog(
        len(given.answers) if given else options.answers or ANSWERS,
        min(options.entries or HISTORIES, HISTORIES),
        changes,
        calendar,
        generator,
        gradual=options.gradual,
        world=options.world,
    )
    return replace(source, answers=given.answers) if given else source, calendar


def _planned(console: Console, wish: Wish, source: Changelog, *, choose: bool) -> Survey:
    """The best plan for a changelog's habits; choose: whether for the number of changes that they make best."""
    habits = pilot_of(source, wish.calendar)
    best = best_rung(console, wish, habits) if choose else rung(wish, habits)
    return best.wish.survey(best.planned.plan, source.answers, "a simulation")


THE_SURVEYS_OWN = (
    "answers", "period", "start", "periods", "at_most", "within", "branching", "layers", "epsilon"
)  # fmt: skip
"""Options of what a given survey says itself."""


def _given(options: RunOptions) -> tuple[Survey | None, Survey | None]:
    """The survey of a file as it is to one of its questions, and as it is to the freezing question about that, if any.

    What entries say about one question has the law that it has among all, so one is simulated by itself.
    Raises ValueError for an option of what a survey says itself, and for no question where there are several.
    """
    question = options.question
    if options.survey_file is None:
        if question is not None:
            raise ValueError("--question is one of a survey's: say --survey, too")
        return None, None
    for name in THE_SURVEYS_OWN:
        if getattr(options, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} is the survey's own: leave it out, or leave out --survey")
    survey = read_survey(options.survey_file)
    if question is None and len(survey.asked) > 1:
        names = ", ".join(each.name for each in survey.asked)
        raise ValueError(f"the survey asks several questions: say which with --question, of {names}")
    place = survey.place_of(survey.asked[0].name if question is None else question)
    if survey.questions[place].freezing_of:
        raise ValueError(f"{question} is simulated with the question that it is about: say that one")
    frozen = survey.freezing[place]
    return survey.about(place), None if frozen is None else survey.about(frozen)


SWITCHES = (
    "arrivals", "uninstalls", "reinstalls", "offline", "late", "outage", "behind", "reluctant", "liars"
)  # fmt: skip
"""Options of what goes wrong in the field."""


def _fields(answers: Sequence[str], options: RunOptions) -> dict[str, Field]:
    """The rows of the table of trials: nothing, each switch alone, and all together, which is last; empty for none."""
    each: dict[str, dict[str, Any]] = {
        name: {name: value} for name in SWITCHES if (value := getattr(options, name)) not in (None, [])
    }
    if options.spell is not None:
        if "offline" not in each:
            raise ValueError("--spell is how long --offline lasts: say how many are offline, too")
        each["offline"]["spell"] = options.spell
    if options.push is not None:
        if "liars" not in each:
            raise ValueError("--push is what --liars raise: say how many lie, too")
        each["liars"]["pushed"] = 1 + _number(answers, options.push)
    if "reluctant" in each:
        each["reluctant"] = {"reluctance": _reluctance(answers, options.reluctant or [])}
    if not each:
        return {}
    alone = {f"--{name}": Field(**values) for name, values in each.items()}
    everything = {name: value for values in each.values() for name, value in values.items()}
    together = {"all of these": Field(**everything)} if len(each) > 1 else {}
    return {"everybody answers": Field(), **alone, **together}


def _reluctance(answers: Sequence[str], said: Sequence[str]) -> tuple[float, ...]:
    """The chance of each state, NULL first, of which --reluctant says ANSWER:RATE."""
    rates = [0.0] * (len(answers) + 1)
    for each in said:
        answer, _, chance = each.rpartition(":")
        rates[1 + _number(answers, answer)] = rate(chance)
    return tuple(rates)


def _number(answers: Sequence[str], answer: str) -> int:
    if answer not in answers:
        raise ValueError(f"the answers are {', '.join(answers)}: there is no {answer!r}")
    return answers.index(answer)


def _tried(population: Population, survey: Survey, fields: Mapping[str, Field], seed: int) -> dict[str, Trials]:
    """Trials of each field, all from the same seeds, with a progress bar on a terminal."""
    count = trials_of(population.entries)
    return {
        name: tried(
            population,
            survey,
            field,
            _track((np.random.default_rng([seed, 1, i]) for i in range(count)), name, count),
        )
        for name, field in fields.items()
    }


def _track(steps: Iterable[Step], description: str, total: int) -> Iterable[Step]:
    terminal = Console(stderr=True)
    return track(
        steps,
        description=description,
        total=total,
        console=terminal,
        transient=True,
        disable=not terminal.is_terminal,
    )
