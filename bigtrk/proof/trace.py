"""The tensors that a model makes on its way, in order: what its layers read and give, what goes to
the exchange, and what each torch function gives in between.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from bigtrk.models.protocol import Exchange


class Step(NamedTuple):
    """A place on a model's way: the `n`-th time that `layer` does `what`.

    what: "reads" or "gives" of a layer as a whole, "sends" to the exchange; else the name of a
    torch function that is called in it. blamed: the layer at fault if the rows here are wrong and
    those before were right.
    """

    layer: str
    what: str
    n: int
    blamed: str

    @property
    def is_whole(self) -> bool:
        """Says whether the tensors are those between layers, not those within one."""
        return self.what in ("reads", "gives", "sends")


Note = Callable[[Step, Sequence[Tensor]], None]


class Trace(AbstractContextManager["Trace"]):
    """Calls `note` at each step of one forward pass of `model`, with the step's floating tensors.

    The steps of two passes are the same wherever these do the same.
    """

    def __init__(self, model: nn.Module, note: Note) -> None:
        self.model, self._note = model, note
        self._layers: list[str] = []
        self._counts: Counter[tuple[str, str]] = Counter()
        self._open = ExitStack()

    def __enter__(self) -> Self:
        for name, module in self.model.named_modules():
            self._keep(
                module.register_forward_pre_hook(partial(self._enter, name), with_kwargs=True)
            )
            self._keep(module.register_forward_hook(self._leave))
        self._open.enter_context(_Functions(self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    @property
    def within(self) -> str:
        """Names the layer that is at work."""
        return self._layers[-1] if self._layers else ""

    def _keep(self, hook: RemovableHandle) -> None:
        self._open.callback(hook.remove)

    def sending(self, exchange: Exchange) -> Exchange:
        """Notes what is given to `exchange`."""

        def noted(owned: Tensor) -> Tensor:
            self._step("sends", owned)
            return exchange(owned)

        return noted

    def next_step(self, what: str) -> Step:
        """Gives the step that comes when the layer at work next does `what`."""
        return Step(self.within, what, self._counts[self.within, what] + 1, self.within)

    def called(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Any) -> Any:
        """Calls a torch function, and notes what it gives."""
        made = function(*args, **kwargs)
        self._step(name_of(function), changed(function, args, made))
        return made

    def _enter(self, name: str, _: nn.Module, args: Any, kwargs: Any) -> None:
        self._step("reads", (args, kwargs), name)
        self._layers.append(name)

    def _leave(self, _: nn.Module, __: Any, made: Any) -> None:
        self._step("gives", made)
        self._layers.pop()

    def _step(self, what: str, values: Any, layer: str | None = None) -> None:
        within = self.within
        layer = within if layer is None else layer
        with torch._C.DisableTorchFunction():  # what is computed for notes is no step itself
            tensors = [tensor for tensor in tensors_of(values) if tensor.is_floating_point()]
            if tensors:
                self._counts[layer, what] += 1
                self._note(Step(layer, what, self._counts[layer, what], within), tensors)


class _Functions(TorchFunctionMode):
    """Passes each torch function on to a trace."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        return self._trace.called(func, args, kwargs or {})


def changed(function: Callable[..., Any], args: Sequence[Any], made: Any) -> Any:
    """Gives what a torch function has made: an assignment to rows gives nothing, and changes its
    first argument.
    """
    return args[0] if name_of(function) == "__setitem__" else made


def name_of(function: Callable[..., Any]) -> str:
    """Names a torch function; one that was compiled from a script has no name of its own."""
    return str(getattr(function, "__name__", type(function).__name__))


def tensors_of(values: Any) -> Iterator[Tensor]:
    """Yields the tensors in nested lists, tuples and mappings, in order."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, dict):
        yield from tensors_of(list(values.values()))
    elif isinstance(values, list | tuple):
        for value in values:
            yield from tensors_of(value)
