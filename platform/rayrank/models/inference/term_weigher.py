"""Weights of the word pieces of many texts by DeepCT's model, in batches of similar length."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rayrank.models.batches import PackedBatch, PaddedBatch
from rayrank.models.inference.scorer import CPU_TOKENS, GPU_TOKENS, length_sorted_batches
from rayrank.models.term_weights import TermWeights, batch_of
from rayrank.text.ragged import Ragged, Windows
from rayrank.text.template import Template


class TermWeigher:
    """Predicts weights in batches of a token budget: packed rows on a GPU, padded batches on a CPU."""

    def __init__(self, model: TermWeights, template: Template) -> None:
        self._model, self._template = model.eval(), template
        self._device = next(model.parameters()).device
        on_gpu = self._device.type == "cuda"
        self._packs = on_gpu and model.encoder.packs
        is_bfloat16 = next(model.encoder.parameters()).dtype == torch.bfloat16
        self._autocast = torch.autocast(self._device.type, torch.bfloat16, enabled=on_gpu and not is_bfloat16)
        self._tokens = GPU_TOKENS if on_gpu else CPU_TOKENS

    @torch.inference_mode()
    def __call__(self, windows: Ragged) -> NDArray[np.float32]:
        """Return the weight of each piece of `windows`, which must not be longer than the template allows."""
        inputs = self._template.prefixes(windows)
        batches = list(length_sorted_batches(inputs.lengths(), self._tokens))
        if not batches:
            return np.empty(0, np.float32)
        with self._autocast:
            # .cpu() waits for the device, so it is called after the last launch.
            pending = [self._weights(batch_of(inputs, rows, self._template, self._packs)) for rows in batches]
        found = torch.cat(pending).float().cpu().numpy()
        numbers = np.arange(len(inputs.values), dtype=np.int32)
        ordered = np.empty_like(found)
        ordered[Windows(numbers, inputs.starts, inputs.stops).take(np.concatenate(batches)).flat()] = found
        return np.delete(ordered, np.concatenate([inputs.starts, inputs.stops - 1]))

    def _weights(self, batch: PaddedBatch | PackedBatch) -> Tensor:
        """Return the weights of all inputs of a batch, one input after another, without padding."""
        weights: Tensor = self._model(batch.to(self._device))
        if isinstance(batch, PackedBatch):
            return weights[: int(batch.offsets[batch.num_inputs])]
        return weights.flatten()[torch.from_numpy(np.flatnonzero(batch.attention_mask.numpy())).to(self._device)]
