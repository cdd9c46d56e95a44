"""``weft completion``: the script of a shell, or the words that may end a command line."""

from __future__ import annotations

from argparse import Action, ArgumentParser, _SubParsersAction
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.dsl.base.lazy_dataclass import dataclass
from weft.dsl.base.registry import BACKENDS, ENGINES, PASSES

from ..flags.machines import CompletionFlags
from ..frame.parser import VerbParser, build_parser, other_verbs
from ..output.console import Console, Exit


def run(args: CompletionFlags, console: Console) -> int:
    if args.line is None:
        script = SCRIPTS[args.shell]
        console.result(script.rstrip(), {"status": "ok", "shell": args.shell, "script": script})
    else:
        found = candidates(args.line)
        console.result("\n".join(found), {"status": "ok", "words": found})
    return Exit.DONE


# Words that may stand at the end of a command line, and the scripts by which shells ask for them.
#
# The candidates come from the parser, so that they are those of its flags; a script only calls
# ``weft completion SHELL --line=…``. Where nothing is known, the shell completes files.

SEVERAL = ("+", "*")
"""``nargs`` of arguments of any number of words."""


def candidates(line: str) -> list[str]:
    """Return the words that may stand for the last of a command line, sorted; [] for files.

    ``line`` begins with the name of the command; words are parted by blanks, and after a blank
    the last word is a new one. A candidate that ends in ``:`` wants more.
    """
    *before, word = (*line.split()[1:], *([""] if line[-1:].isspace() else [])) or ("",)
    asked = before[:1] == ["help"]
    place = _place(before[1:] if asked else before)
    if place is None:
        return []
    found = place.verbs() if asked else place.candidates(word)
    if len(before) == 0 and not word.startswith("-"):
        found = [*found, "help"]
    return sorted({one for one in found if one.startswith(word)})


@dataclass(frozen=True, slots=True)
class _Place:
    """Place of a word: in the arguments of a verb, behind an option that wants a value."""

    parser: ArgumentParser
    values: int = 0  # positional ones before it
    option: Action | None = None  # whose value it may be

    def verbs(self) -> list[str]:
        return [name for action in _subparsers(self.parser) for name in action.choices]

    def options(self) -> list[str]:
        return [name for action in self.parser._actions for name in action.option_strings]

    def candidates(self, word: str) -> Iterable[str]:
        option, equals, _ = word.partition("=")
        if equals and option.startswith("--"):
            action = self.parser._option_string_actions.get(option)
            return [f"{option}={one}" for one in values(action, word[len(option) + 1 :])]
        if self.option is not None and not (word[:1] == "-" and self.option.nargs in SEVERAL):
            return values(self.option, word)
        if word.startswith("-"):
            return self.options()
        if names := self.verbs():
            return names
        action = self._positional()
        return values(action, word) if action else self.options()

    def after(self, word: str) -> _Place | None:
        """Return the place after a word; None where the line is none of weft's."""
        action = self.parser._option_string_actions.get(word)
        if action is not None:
            return _Place(self.parser, self.values, None if action.nargs == 0 else action)
        if self.option is not None:
            stays = self.option.nargs in SEVERAL
            return _Place(self.parser, self.values, self.option if stays else None)
        if word.startswith("-") and word != "-":
            return self
        for verbs in _subparsers(self.parser):
            parser = verbs.choices.get(word)
            if isinstance(parser, VerbParser):
                parser.configure()
            return parser and _Place(parser)
        return _Place(self.parser, self.values + 1)

    def _positional(self) -> Action | None:
        actions = [a for a in self.parser._actions if not a.option_strings]
        if self.values < len(actions):
            return actions[self.values]
        return actions[-1] if actions and actions[-1].nargs in SEVERAL else None


def _place(words: Sequence[str]) -> _Place | None:
    place: _Place | None = _Place(build_parser(other_verbs(words)))
    for word in words:
        place = place and place.after(word)
    return place


def _subparsers(parser: ArgumentParser) -> list[_SubParsersAction[Any]]:
    return [action for action in parser._actions if isinstance(action, _SubParsersAction)]


# --- values by what a flag's metavar stands for ---------------------------------------------------


def _machines() -> Iterable[str]:
    from weft.dsl.catalogue import names  # the importers: only where a machine is completed

    for entry in names():
        yield f"{entry.name}:" if entry.synopsis.startswith(f"{entry.name}:") else entry.name


def _collectives() -> Iterable[str]:
    from weft.dsl.nouns.collective import Kind

    return [str(kind.value) for kind in Kind if kind is not Kind.CUSTOM]


def _sketches() -> Iterable[str]:
    from weft.dsl.language.load import sketch_names

    return sketch_names()


def _protocols() -> Iterable[str]:
    from ..flags.files import PROTOCOLS

    return PROTOCOLS


NAMES: dict[str, Callable[[], Iterable[str]]] = {
    "TOPO": _machines,
    "COLL": _collectives,
    "SKETCH": _sketches,
    "ENGINE": ENGINES.names,
    "BACKEND": BACKENDS.names,
    "BACKEND,…": BACKENDS.names,
    "PASS": PASSES.names,
    "PASSES": PASSES.names,
    "P,P": _protocols,
}
"""Names that a flag takes, by its metavar."""

LISTS = ("BACKEND,…", "PASSES", "P,P")
"""Metavars of lists with commas, of which the last element is completed."""


def values(action: Action | None, word: str) -> list[str]:
    """Return the values of a flag, each with the elements of a list that ``word`` already has."""
    if action is None:
        return []
    kind = str(action.metavar)
    found = action.choices or NAMES.get(kind, tuple)()
    done = word[: word.rfind(",") + 1] if kind in LISTS else ""
    return [f"{done}{one}" for one in found]


# --- scripts --------------------------------------------------------------------------------------

BASH = r"""# Completion of weft in bash; in ~/.bashrc: source <(weft completion bash)
_weft() {
    # bash also splits words at the ":" and "=" of COMP_WORDBREAKS, and replaces only what stands
    # after the last of these.
    local line="${COMP_LINE:0:COMP_POINT}" breaks="${COMP_WORDBREAKS//[^:=]/}" head=""
    local word="${line##*[[:space:]]}" IFS=$'\n'
    [[ $breaks ]] && head="${word%"${word##*[$breaks]}"}"
    COMPREPLY=($(weft completion bash --line="$line" 2> /dev/null))
    COMPREPLY=("${COMPREPLY[@]#"$head"}")
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[:=,] ]]; then
        compopt -o nospace 2> /dev/null
    fi
}
complete -o default -F _weft weft
"""

ZSH = r"""#compdef weft
# Completion of weft in zsh: a file _weft in a folder of $fpath, or sourced after compinit.
_weft() {
    local line="${words[1,CURRENT-1]} $PREFIX"
    local -a found open closed
    found=("${(@f)$(weft completion zsh --line="$line" 2> /dev/null)}")
    open=(${(M)found:#*[:=,]})
    closed=(${found:#*[:=,]})
    if (( $#open + $#closed )); then
        (( $#closed )) && compadd -a closed
        (( $#open )) && compadd -S '' -a open
    else
        _files
    fi
}
if [[ $funcstack[1] == _weft ]]; then _weft "$@"; else compdef _weft weft; fi
"""

FISH = r"""# Completion of weft in fish: ~/.config/fish/completions/weft.fish
function __weft_complete
    set -l line (commandline -cp)
    set -l found (weft completion fish --line="$line" 2> /dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c weft -f -a '(__weft_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
"""The script of each shell."""
