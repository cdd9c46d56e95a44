"""Plug-ins: classes and modules of other packages, guarded so that their faults count as theirs.

A registry hands out a guarded form of the named object. An unexpected exception that
leaves one of its public methods becomes a :class:`~weft.dsl.base.errors.PluginFault`, which names
the plug-in, its distribution, the method and the exception. The plug-in's own class stays as it is:
its package may catch its own exceptions, test and pickle it as if there were no guard.
"""

from __future__ import annotations

import copyreg
import inspect
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from importlib import import_module
from types import ModuleType, SimpleNamespace, new_class
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import BrokenPlugin, PluginFault, WeftError, an
from .lazy_dataclass import Frozen

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint  # takes 50 ms

T = TypeVar("T")

SLOW = 2.0
"""CPU seconds of an import from which the plug-in that takes them is reported."""

MARK = "__weft_plugin__"
"""Attribute of guarded classes and modules: their :class:`Plugin`."""

LONGEST = 400
"""Characters of an exception's text in a message."""


class Plugin(Frozen):
    """One entry point of an installed package.

    ``kind``: of its registry (``engine``); ``target``: ``module:attribute``; ``package`` and
    ``version``: of its distribution, empty where the metadata do not name one.
    """

    kind: str
    name: str
    target: str
    package: str = ""
    version: str = ""

    @staticmethod
    def of(kind: str, point: EntryPoint) -> Plugin:
        """Return the plug-in of an entry point."""
        if point.dist is None:
            return Plugin(kind, point.name, point.value)
        package, version = point.dist.name, point.dist.version
        return Plugin(kind, point.name, point.value, str(package or ""), str(version or ""))

    @property
    def module(self) -> str:
        """The module that has it."""
        return self.target.partition(":")[0]

    @property
    def author(self) -> str:
        """The package to mend, uninstall or report to, in words."""
        return self.package or f"the package of {self.module}"

    @property
    def origin(self) -> str:
        """Package and version: ``weft-toy 1.0``; the module where they are not known."""
        return " ".join(filter(None, (self.package, self.version))) or self.module

    def __str__(self) -> str:
        return f"the {self.kind} {self.name!r} of {self.origin}"


class PluginWarning(UserWarning):
    """A plug-in that is left out, or slow. ``trace``: the traceback of its fault, if any."""

    def __init__(self, text: str, trace: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.trace = trace


def warn(text: str, error: BaseException | None = None) -> None:
    """Issue a :class:`PluginWarning`, with the traceback of its cause."""
    trace = "".join(traceback.format_exception(error)) if error is not None else ""
    repeat(PluginWarning(text, trace))


def repeat(warning: PluginWarning) -> None:
    """Issue a warning that another process gave."""
    warnings.warn(warning, stacklevel=3)


@contextmanager
def warnings_to(tell: Callable[[PluginWarning], None]) -> Iterator[None]:
    """Give warnings about plug-ins to ``tell``; other warnings are shown as before."""

    def show(message: Warning | str, *rest: Any, **more: Any) -> None:
        if isinstance(message, PluginWarning):
            tell(message)
        else:
            usual(message, *rest, **more)

    with warnings.catch_warnings():
        usual: Callable[..., None] = warnings.showwarning
        warnings.simplefilter("always", PluginWarning)
        warnings.showwarning = show
        yield


def plugin_of(thing: object) -> Plugin | None:
    """Return the plug-in that an instance, class or module came from; None for weft's own."""
    found: Plugin | None = getattr(thing, MARK, None)
    return found


_RUNNING: ContextVar[tuple[Plugin, ...]] = ContextVar("running plug-ins", default=())
"""Plug-ins whose code is on the stack of this thread: inside, their exceptions are their own."""


_PASSING_VERBS = (WeftError, BrokenPipeError)  # a verb prints, and its reader may stop early


@contextmanager
def blamed(plugin: Plugin | None, doing: str) -> Iterator[None]:
    """Turn unexpected exceptions of the block into faults of a plug-in; None: leave them.

    Raises:
        PluginFault: as above. Errors of weft's own tree and KeyboardInterrupt pass.
    """
    running = _RUNNING.get()
    if plugin is None or plugin in running:
        yield
        return
    passing = _PASSING_VERBS if plugin.kind == "verb" else WeftError
    token = _RUNNING.set((*running, plugin))
    try:
        yield
    except passing:
        raise
    except MemoryError as error:
        raised = fault(plugin, f"ran out of memory in {doing}")
        raised.hint = f"a smaller problem, or a larger machine; or {raised.hint}"
        raise raised from error
    except (Exception, SystemExit) as error:  # SystemExit: a plug-in must not end the process
        raise fault(plugin, f"failed in {doing}: {_text(error)}") from error
    finally:
        _RUNNING.reset(token)


def fault(plugin: Plugin, what: str) -> PluginFault:
    """Return the error for a fault of a plug-in: ``the engine 'toy' of weft-toy 1.0 WHAT``."""
    return PluginFault(f"{plugin} {what}", hint=f"report this to the authors of {plugin.author}")


def expect(kind: type[T], made: object, maker: object, doing: str) -> T:
    """Return a result of an engine, a pass, a format …, which must be of a class.

    Raises:
        PluginFault: it is not, and a plug-in made it. TypeError: weft made it.
    """
    if isinstance(made, kind):
        return made
    what = f"returned {type(made).__name__} from {doing} instead of {kind.__name__}"
    plugin = plugin_of(maker)
    raise TypeError(what) if plugin is None else fault(plugin, what)


# --- loading --------------------------------------------------------------------------------------


def load(plugin: Plugin, needs: tuple[str, ...] = (), reasons: tuple[str, ...] = ()) -> Any:
    """Import the object of a plug-in's entry point, and return it guarded.

    ``needs``: attributes it must have; if ``name`` is one, it must equal the entry point's.
    ``reasons``: methods that return a text (why something cannot be done) or None.

    Raises:
        BrokenPlugin: it cannot be imported, is not there, or lacks something.
    """
    module, _, path = plugin.target.partition(":")
    started = time.thread_time()  # of its own work: a busy machine is not the plug-in's fault
    try:
        found: Any = import_module(module)
    except (Exception, SystemExit) as error:
        raise _unloadable(plugin, error) from error
    spent = time.thread_time() - started
    if spent > SLOW:
        warn(f"{plugin} took {spent:.1f} CPU s to be imported")
    try:
        for name in filter(None, path.split(".")):
            found = getattr(found, name)
    except AttributeError:
        raise BrokenPlugin(
            f"{plugin} is not at {plugin.target}", hint=f"reinstall {plugin.author}"
        ) from None
    made = guarded(plugin, found, reasons)
    _require(plugin, made, needs)
    return made


def _unloadable(plugin: Plugin, error: BaseException) -> BrokenPlugin:
    hint = f"fix or uninstall {plugin.author}"
    if isinstance(error, ModuleNotFoundError):
        missing = str(error.name)
        if missing.partition(".")[0] == "weft":
            hint = f"{plugin.author} was written for another version of weft"
        elif missing == plugin.module or plugin.module.startswith(f"{missing}."):
            hint = f"reinstall {plugin.author}"
        else:
            hint = f"install {missing}, which {plugin.author} needs, or uninstall {plugin.author}"
    return BrokenPlugin(f"{plugin} cannot be loaded: {_text(error)}", hint=hint)


def _require(plugin: Plugin, found: object, needs: tuple[str, ...]) -> None:
    hint = f"fix or uninstall {plugin.author}"
    lacking = [name for name in needs if not hasattr(found, name)]
    lacking += sorted(getattr(found, "__abstractmethods__", ()))
    if lacking:
        raise BrokenPlugin(f"{plugin} lacks {', '.join(lacking)}", hint=hint)
    name = getattr(found, "name", plugin.name) if "name" in needs else plugin.name
    if isinstance(name, str) and name != plugin.name:
        raise BrokenPlugin(
            f"{plugin} calls itself {name!r}",
            hint=f"its entry point and its class must have one name: fix {plugin.author}",
        )


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:LONGEST].removesuffix(": ")


# --- guards ---------------------------------------------------------------------------------------


def guarded(plugin: Plugin, found: Any, reasons: tuple[str, ...] = ()) -> Any:
    """Return the guarded form of a plug-in's class or module; ``reasons`` as in :func:`load`.

    Raises:
        BrokenPlugin: it is neither.
    """
    if isinstance(found, type):
        return _guarded_class(plugin, found, reasons)
    if isinstance(found, ModuleType):
        public = {name: value for name, value in vars(found).items() if not name.startswith("_")}
        calls = {n: _call(plugin, n, f) for n, f in public.items() if inspect.isfunction(f)}
        return SimpleNamespace(**{**public, **calls, MARK: plugin})
    raise BrokenPlugin(
        f"{plugin} leads to {an(type(found).__name__)}, where a class is needed",
        hint=f"fix or uninstall {plugin.author}",
    )


@cache
def _guarded_class(plugin: Plugin, cls: type[Any], reasons: tuple[str, ...]) -> type[Any]:
    """Return a subclass whose public methods, as far as they are not weft's, are guarded."""
    body = {
        "__slots__": (),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__reduce_ex__": _reduced(cls),
        MARK: plugin,
        **dict(_calls(plugin, cls, reasons)),
    }
    with blamed(plugin, "being loaded"):
        return new_class(cls.__name__, (cls,), {}, lambda space: space.update(body))


def _calls(plugin: Plugin, cls: type[Any], reasons: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield the guarded public methods and properties that classes other than weft's define."""
    fields = getattr(cls, "__dataclass_fields__", {})
    for name in dir(cls):
        if name.startswith("_") or name in fields:
            continue
        owner = next(base for base in cls.__mro__ if name in vars(base))
        if owner.__module__.partition(".")[0] == "weft":
            continue
        call = _reason if name in reasons else _call
        match vars(owner)[name]:
            case staticmethod() as method:
                yield name, staticmethod(call(plugin, name, method.__func__))
            case classmethod() as method:
                yield name, classmethod(call(plugin, name, method.__func__))
            case property(fget=getter) if getter is not None:
                yield name, property(call(plugin, name, getter))
            case method if inspect.isfunction(method):
                yield name, call(plugin, name, method)


def _call(plugin: Plugin, name: str, function: Callable[..., Any]) -> Any:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with blamed(plugin, name):
            return function(*args, **kwargs)

    return call


def _reason(plugin: Plugin, name: str, function: Callable[..., Any]) -> Any:
    """Guard a method that returns a text or None: callers take all else for a reason."""
    call = _call(plugin, name, function)

    @wraps(function)
    def reason(*args: Any, **kwargs: Any) -> str | None:
        made = call(*args, **kwargs)
        if made is None or isinstance(made, str):
            return made
        raise fault(plugin, f"returned {type(made).__name__} from {name} instead of str or None")

    return reason


def _reduced(cls: type[Any]) -> Callable[[Any, Any], Any]:
    """Return a ``__reduce_ex__`` that pickles instances as those of the class itself."""

    def reduced(self: Any, protocol: Any) -> Any:
        reduce: Any = cls.__reduce_ex__
        made = reduce(self, protocol)
        if not isinstance(made, tuple):
            return made
        make, (kind, *arguments), *rest = made
        if kind is not type(self):
            return made
        # pickle refuses copyreg's own function for a class that is not the instance's.
        return (_new if make is vars(copyreg)["__newobj__"] else make, (cls, *arguments), *rest)

    return reduced


def _new(cls: type[T], *arguments: Any) -> T:
    return cls.__new__(cls, *arguments)
