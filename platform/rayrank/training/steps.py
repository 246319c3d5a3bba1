"""One training step: forward, backward, gradient clipping and AdamW; on a GPU, CUDA graphs replay most of it."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

from rayrank.core.config import PhaseConfig
from rayrank.core.errors import RayrankError
from rayrank.models.batches import PackedBatch
from rayrank.training.layer_rates import rate_factors

logger = logging.getLogger(__name__)

COMPILE_AFTER = 60.0
"""Seconds of training on a GPU after which layers are compiled. Compiling takes half a minute for a small encoder and
over a minute for BERT-large, too long for a training that is over sooner."""

MAX_GRAPHS = 32
"""Maximum number of CUDA graphs, one per batch shape; capturing one takes a fraction of a second."""


class Prepared(Protocol):
    """Collated examples: a named tuple of tensors on the model's device and of numbers."""

    @property
    def inputs(self) -> Any:
        """The batch that the model reads."""


class Objective(Protocol):
    """What a training step minimises."""

    def prepare(self, model: nn.Module, examples: Any) -> Prepared:
        """Return examples collated on the model's device."""

    def loss(self, model: nn.Module, prepared: Any) -> tuple[Tensor, Tensor]:
        """Return the mean loss of the examples, and scores for the collapse check; NaN for an example without one."""


def adamw(model: nn.Module, config: PhaseConfig) -> AdamW:
    """Return the optimiser; biases, STRM's among them, and layer norms have no weight decay."""
    factors, groups = (
        rate_factors(plain_model(model), config),
        defaultdict[tuple[float, bool], list[nn.Parameter]](list),
    )
    for name, parameter in model.named_parameters():
        is_decayed = parameter.ndim > 1 and not name.endswith("strm_bias")
        groups[factors.get(parameter, 1.0), is_decayed].append(parameter)
    # The rate in the log is that of the first group.
    settings = [
        {"params": groups[factor, decayed], "lr": config.lr * factor, "weight_decay": config.weight_decay * decayed}
        for factor, decayed in sorted(groups, reverse=True)
    ]
    return AdamW(settings, lr=config.lr, fused=True)


class TrainStep:
    """Trains a model on one batch per call."""

    def __init__(self, model: nn.Module, objective: Objective, optimizer: AdamW, config: PhaseConfig) -> None:
        self._model, self._objective, self._optimizer, self._config = model, objective, optimizer, config
        self._device = next(model.parameters()).device
        # Workers exchange gradients during the backward pass, which a graph would have to capture as well.
        self._uses_graphs = self._device.type == "cuda" and not isinstance(model, DistributedDataParallel)
        self._graphs: CudaGraphs | None = None
        self._first_packed: float | None = None
        """The time of the first packed batch; infinite once layers are compiled."""

    def __call__(self, examples: Any, seed: int, rank: int = 0, world: int = 1) -> Tensor:
        """Train on this rank's share of a batch; return the loss of the batch and the gradient norm."""
        try:
            return self._step(examples, seed, rank, world)
        except torch.OutOfMemoryError:
            if self._graphs is None or not self._graphs.has_tried_capture:
                raise
        # AdamW allocates its state in the first step, before any graph is captured. So the allocation that failed came
        # before `optimizer.step()`, and this step has not changed the weights.
        logger.warning("There is not enough memory for CUDA graphs; training continues without them.")
        self._uses_graphs, self._graphs = False, None
        self._optimizer.zero_grad()
        torch.cuda.empty_cache()
        return self._step(examples, seed, rank, world)

    def _step(self, examples: Any, seed: int, rank: int, world: int) -> Tensor:
        torch.manual_seed(seed)
        share = examples[rank::world]
        # A last batch may have fewer examples than there are ranks. A rank without any still takes part in the
        # exchange of gradients, with one example of weight 0.
        has_share = len(share) > 0
        share = share if has_share else examples[:1]
        size = self._config.micro_batch_size or len(share)
        total = torch.zeros((), device=self._device)
        for begin in range(0, len(share), size):
            part = share[begin : begin + size]
            # DDP takes the mean over ranks; with these weights it is the mean over the batch, however it is divided.
            weight = len(part) * world / len(examples) if has_share else 0.0
            prepared = self._objective.prepare(self._model, part)
            with _gradient_exchange(self._model, is_last=begin + size >= len(share)):
                total += self._accumulate(_MicroBatch(prepared, torch.full((), weight, device=self._device)))
        # The loss is made equal on all ranks, so that all of them stop if it is NaN.
        total = mean_over_ranks(total)
        norm = nn.utils.clip_grad_norm_(self._model.parameters(), self._config.clip)
        self._optimizer.step()
        # CUDA graphs add to gradients at fixed addresses, so with graphs gradients are set to zero, not to None.
        self._optimizer.zero_grad(set_to_none=self._graphs is None)
        return torch.stack([total, norm])

    def _accumulate(self, batch: "_MicroBatch") -> Tensor:
        """Add a micro-batch's gradients to the accumulated ones, by a CUDA graph if possible; return its loss."""
        if not isinstance(batch.prepared.inputs, PackedBatch):
            return self._backward(batch)
        self._compile_when_due()
        if self._graphs is None and self._uses_graphs:
            self._graphs = CudaGraphs()
        return self._graphs(self._backward, batch) if self._graphs is not None else self._backward(batch)

    def _backward(self, batch: "_MicroBatch") -> Tensor:
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._device.type == "cuda"):
            loss, _ = self._objective.loss(self._model, batch.prepared)
        weighted = loss * batch.weight
        weighted.backward()  # type: ignore[no-untyped-call]
        return weighted.detach()

    def _compile_when_due(self) -> None:
        now = time.monotonic()
        self._first_packed = self._first_packed or now
        if now - self._first_packed > COMPILE_AFTER:
            self.compile()

    def compile(self) -> None:
        """Compile the model's layers now; without this call that happens after COMPILE_AFTER seconds."""
        self._first_packed = float("inf")
        plain_model(self._model).encoder.compile_for_training()
        if self._graphs is not None:
            self._graphs.clear()


class _MicroBatch(NamedTuple):
    """Examples that go through the model at once, and the weight of their mean loss in the loss of the batch."""

    prepared: Any
    weight: Tensor


class CudaGraphs:
    """Captures GPU work as a CUDA graph for each shape of its argument, and replays it when the shape comes again.

    Launching the kernels of a small batch one by one takes a CPU longer than the GPU needs to run them.
    """

    def __init__(self) -> None:
        self.has_tried_capture = False
        """Whether a capture was started; it may have failed."""
        self.clear()

    def clear(self) -> None:
        """Drop all graphs, because the work consists of other kernels from now on."""
        self._seen: set[Hashable] = set()
        self._graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, Any, Tensor]] = {}
        # One memory pool for all graphs, because they never run at the same time.
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Callable[[Any], Tensor], argument: Any) -> Tensor:
        """Run `work`, the same function at every call, and return its result, which the next call overwrites.

        The only side effect of `work` may be to change tensors in place.
        """
        shape = tuple(map(_shape, _leaves(argument)))
        if shape not in self._graphs:
            if shape not in self._seen or len(self._graphs) == MAX_GRAPHS:
                # The first call with a shape loads and compiles kernels, which cannot be captured.
                self._seen.add(shape)
                return work(argument)
            self._graphs[shape] = self._capture(work, argument)
        graph, inputs, result = self._graphs[shape]
        for captured, value in zip(_leaves(inputs), _leaves(argument), strict=True):
            if isinstance(captured, Tensor):
                captured.copy_(value)
        graph.replay()
        return result

    def _capture(self, work: Callable[[Any], Tensor], argument: Any) -> tuple[torch.cuda.CUDAGraph, Any, Tensor]:
        self.has_tried_capture = True
        inputs, graph = _cloned(argument), torch.cuda.CUDAGraph()
        # thread_local: other threads of the process may use the GPU meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            result = work(inputs)
        return graph, inputs, result


def _leaves(tree: Any) -> list[Any]:
    return [leaf for part in tree for leaf in _leaves(part)] if isinstance(tree, tuple) else [tree]


def _cloned(tree: Any) -> Any:
    if isinstance(tree, tuple):
        return type(tree)(*map(_cloned, tree))
    return tree.clone() if isinstance(tree, Tensor) else tree


def _shape(leaf: Any) -> Hashable:
    return (leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf


def _gradient_exchange(model: nn.Module, is_last: bool) -> AbstractContextManager[None]:
    """Return a context for a micro-batch, in which ranks exchange gradients only if it is the last of its batch."""
    if is_last or not isinstance(model, DistributedDataParallel):
        return nullcontext()
    return model.no_sync()


def rank_and_world() -> tuple[int, int]:
    """Return this worker's rank and the number of workers."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def mean_over_ranks(value: Tensor) -> Tensor:
    """Return the mean of a tensor over all ranks, the same on each."""
    if dist.is_initialized():
        dist.all_reduce(value)
        value = value / dist.get_world_size()
    return value


@contextmanager
def same_error_on_all_ranks() -> Iterator[None]:
    """Raise on every rank the error that the block raises on one of them, else the others would wait for that rank.

    The block must not communicate with other ranks.
    """
    mine: RayrankError | None = None
    try:
        yield
    except RayrankError as error:
        mine = error
    errors: list[RayrankError | None] = [mine]
    if dist.is_initialized():
        errors = [None] * dist.get_world_size()
        dist.all_gather_object(errors, mine)
    for raised in errors:
        if raised is not None:
            raise raised


def plain_model(model: nn.Module) -> Any:
    """Return the model inside a DDP wrapper."""
    return getattr(model, "module", model)
