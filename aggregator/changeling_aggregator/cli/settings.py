"""A command whose options may also stand in a TOML file and in the environment, with every mistake named at once.

What is on the command line counts before the environment, and that before the file. A setting has the name of its
option: `--store-key-file`, `store-key-file = "…"`, $CHANGELING_STORE_KEY_FILE.
"""

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from changeling_protocol import ChangelingError
from typer.core import TyperCommand, TyperOption

if TYPE_CHECKING:
    from typer._click.core import Context

FILE = "settings"
"""The option that names the file."""
PREFIX = "CHANGELING"
"""The prefix of variables of the environment."""


class SettingsCommand(TyperCommand):
    """A Typer command with an option `--settings`; what is wrong raises the one mistake, or one that names all.

    takes_others: whether the file may hold what this command has no option for.
    """

    takes_others = False

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        """Read the settings from wherever they stand, and check each."""
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        ctx.auto_envvar_prefix = PREFIX
        given, rest, _ = self.make_parser(ctx).parse_args(args=[*args])
        options = {_name(each): each for each in self.params if isinstance(each, TyperOption)}
        mistakes: list[Exception] = []
        try:
            file = options[FILE].consume_value(ctx, given)[0]
            ctx.default_map = {} if file is None else _read(Path(file), options, mistakes, self.takes_others)
        except (OSError, ValueError) as error:
            mistakes.append(error)
        for parameter in sorted(self.get_params(ctx), key=lambda each: not each.is_eager):
            try:
                _, rest = parameter.handle_parse_result(ctx, given, rest)
            except (ChangelingError, ValueError, OSError, typer.BadParameter) as error:
                mistakes.append(error)
        if len(mistakes) == 1:
            raise mistakes[0]
        if mistakes:
            lines = [f"{len(mistakes)} settings are wrong", *map(_shown, mistakes)]
            raise ValueError("\n- ".join(lines))
        ctx.args = rest
        if rest:
            raise typer.BadParameter(f"there is no {rest[0]!r} among the words it takes", ctx=ctx)
        return rest


def _read(
    path: Path, options: Mapping[str, TyperOption], mistakes: list[Exception], takes_others: bool
) -> dict[str, Any]:
    """The settings in a file, by the names of parameters; adds to the mistakes.

    Raises OSError, or ValueError where it is no TOML.
    """
    try:
        content = tomllib.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is no TOML: {error}") from error
    settings = {}
    for name, value in content.items():
        option = options.get(name)
        if option is None and takes_others:
            continue
        if option is None or name == FILE:
            near = get_close_matches(name, options, 1)
            meant = f": {near[0]}?" if near else f"; there are {', '.join(each for each in options if each != FILE)}"
            mistakes.append(ValueError(f"{path}: there is no setting {name!r}{meant}"))
        elif not _fits(option, value):
            mistakes.append(ValueError(f"{path}: {name} = {value!r} is not of the kind that --{name} takes"))
        else:
            settings[option.name] = [value] if option.multiple and not isinstance(value, list) else value
    return settings


def _fits(option: TyperOption, value: object) -> bool:
    values = value if option.multiple and isinstance(value, list) else [value]
    kind = (bool,) if option.is_bool_flag else (str, int, float)
    return all(isinstance(each, kind) and isinstance(each, bool) == option.is_bool_flag for each in values)


def _name(option: TyperOption) -> str:
    return max(option.opts, key=len).removeprefix("--")


def _shown(mistake: Exception) -> str:
    if isinstance(mistake, typer.BadParameter):
        return mistake.format_message()
    if isinstance(mistake, OSError) and mistake.filename is not None:
        return f"{mistake.filename}: {mistake.strerror}"
    return str(mistake)
