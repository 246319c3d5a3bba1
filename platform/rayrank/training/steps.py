"""One step of training: forward, backward, clipping and the optimizer's, on a GPU mostly replayed from a recording."""

import logging
import time
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

from rayrank.core.config import PhaseConfig
from rayrank.models.batches import PackedBatch

logger = logging.getLogger(__name__)

LONG = 60.0
"""Seconds of training on a GPU after which layers are compiled: that takes half a minute for a small encoder and over a
minute for BERT-large, and what is over sooner does not wait for it."""

MOST = 32
"""Shapes of batches that are recorded; each takes a fraction of a second."""


class Prepared(Protocol):
    """What a phase's loss is computed from: a named tuple of tensors and numbers, where the model is."""

    @property
    def inputs(self) -> Any:
        """What the model reads."""


class Learns(Protocol):
    """The part of a phase that a step needs."""

    def prepare(self, model: nn.Module, examples: Any) -> Prepared:
        """Return some examples as the loss takes them."""

    def loss(self, model: nn.Module, prepared: Any) -> tuple[Tensor, Tensor]:
        """Return their mean loss, and the scores behind it."""


class Learner:
    """Learns batches with a model, one step each."""

    def __init__(self, model: nn.Module, phase: Learns, optimizer: AdamW, config: PhaseConfig) -> None:
        self._model, self._phase, self._optimizer, self._config = model, phase, optimizer, config
        self._device = next(model.parameters()).device
        # Several workers meet in the midst of a backward, which a recording would have to hold as well.
        self._may_record = self._device.type == "cuda" and not isinstance(model, DistributedDataParallel)
        self._recorder: Recorder | None = None
        self._since: float | None = None

    def __call__(self, examples: Any, seed: int, place: tuple[int, int] = (0, 1)) -> Tensor:
        """Learn one batch, this rank's share of it, and return the loss and the gradient norm."""
        try:
            return self._step(examples, seed, place)
        except torch.OutOfMemoryError:
            if self._recorder is None or not self._recorder.has_begun:
                raise
        # Nothing was learnt of this batch: the optimizer has all its memory since the first step.
        logger.warning("There is not enough memory to record steps; they go on without.")
        self._may_record, self._recorder = False, None
        self._optimizer.zero_grad()
        torch.cuda.empty_cache()
        return self._step(examples, seed, place)

    def _step(self, examples: Any, seed: int, place: tuple[int, int]) -> Tensor:
        # Dropout too is a function of the step, so that a resumed run draws what the unbroken one drew.
        torch.manual_seed(seed)
        rank, world = place
        mine = examples[rank::world]
        # A last batch smaller than the group: others' gradients wait for this rank's, so it learns nothing, in step.
        counts = len(mine) > 0
        mine = mine if counts else examples[:1]
        micro = self._config.micro_batch_size or len(mine)
        total = torch.zeros((), device=self._device)
        for start in range(0, len(mine), micro):
            part = mine[start : start + micro]
            # DDP takes the mean over ranks; weights make that the mean over the batch, whatever the shares.
            weight = len(part) * world / len(examples) if counts else 0.0
            prepared = self._phase.prepare(self._model, part)
            with _meeting_others(self._model, last=start + micro >= len(mine)):
                total += self._learnt(_Share(prepared, torch.full((), weight, device=self._device)))
        # The same on all ranks: what one rank stops for, all stop for.
        total = mean_over_ranks(total)
        norm = nn.utils.clip_grad_norm_(self._model.parameters(), self._config.clip)
        self._optimizer.step()
        # What is recorded adds to gradients where they are.
        self._optimizer.zero_grad(set_to_none=self._recorder is None)
        return torch.stack([total, norm])

    def _learnt(self, share: "_Share") -> Tensor:
        if not isinstance(share.prepared.inputs, PackedBatch):
            return self._learn(share)
        self._compile_if_long()
        if self._recorder is None and self._may_record:
            self._recorder = Recorder()
        return self._recorder(self._learn, share) if self._recorder is not None else self._learn(share)

    def _learn(self, share: "_Share") -> Tensor:
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._device.type == "cuda"):
            loss, _ = self._phase.loss(self._model, share.prepared)
        weighted = loss * share.weight
        weighted.backward()  # type: ignore[no-untyped-call]
        return weighted.detach()

    def _compile_if_long(self) -> None:
        now = time.monotonic()
        self._since = self._since or now
        if now - self._since > LONG:
            self.compile()

    def compile(self) -> None:
        """Compile the model's layers; training does so by itself when it goes on for long."""
        self._since = float("inf")
        plain_model(self._model).encoder.compile_for_training()
        if self._recorder is not None:
            self._recorder.forget()


class _Share(NamedTuple):
    """Examples that are learnt at once, and what their mean loss counts for in the batch's."""

    prepared: Any
    weight: Tensor


class Recorder:
    """Does work on a GPU again by replaying its kernels, where the shape of what is given was seen before.

    A CPU takes longer to call the kernels of a small batch one by one than a GPU to run them.
    """

    def __init__(self) -> None:
        self.has_begun = False
        """Whether anything was recorded, or tried to be."""
        self.forget()

    def forget(self) -> None:
        """Begin anew: the work is done by other kernels from now on."""
        self._seen: set[Hashable] = set()
        self._recorded: dict[Hashable, tuple[torch.cuda.CUDAGraph, Any, Tensor]] = {}
        # Recordings run one after another, so that one may use the memory of another.
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Callable[[Any], Tensor], given: Any) -> Tensor:
        """Return what the work returns, always the same work; the next overwrites it.

        Work may leave nothing behind but numbers changed in place.
        """
        shape = tuple(map(_shape, _leaves(given)))
        if shape not in self._recorded:
            if shape not in self._seen or len(self._recorded) == MOST:
                # The first time as it is: kernels are loaded and compiled, which cannot be recorded.
                self._seen.add(shape)
                return work(given)
            self._recorded[shape] = self._record(work, given)
        graph, places, result = self._recorded[shape]
        for place, value in zip(_leaves(places), _leaves(given), strict=True):
            if isinstance(place, Tensor):
                place.copy_(value)
        graph.replay()
        return result

    def _record(self, work: Callable[[Any], Tensor], given: Any) -> tuple[torch.cuda.CUDAGraph, Any, Tensor]:
        self.has_begun = True
        places, graph = _copied(given), torch.cuda.CUDAGraph()
        # Other threads of the process may go on using the GPU meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            result = work(places)
        return graph, places, result


def _leaves(tree: Any) -> list[Any]:
    return [leaf for part in tree for leaf in _leaves(part)] if isinstance(tree, tuple) else [tree]


def _copied(tree: Any) -> Any:
    if isinstance(tree, tuple):
        return type(tree)(*map(_copied, tree))
    return tree.clone() if isinstance(tree, Tensor) else tree


def _shape(leaf: Any) -> Hashable:
    return (leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf


def _meeting_others(model: nn.Module, last: bool) -> AbstractContextManager[None]:
    """Gradients of a batch's pieces add up on each rank and are exchanged once, with the last."""
    if last or not isinstance(model, DistributedDataParallel):
        return nullcontext()
    return model.no_sync()


def mean_over_ranks(value: Tensor) -> Tensor:
    """Return the mean of what all ranks have, the same on each."""
    if dist.is_initialized():
        dist.all_reduce(value)
        value = value / dist.get_world_size()
    return value


def plain_model(model: nn.Module) -> Any:
    """Return the model inside a DDP wrapper."""
    return getattr(model, "module", model)
