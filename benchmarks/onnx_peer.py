"""A baseline for CPUs: a cross-encoder after ONNX Runtime's own optimizer and dynamic int8 quantization."""

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers.fusion_options import FusionOptions
from onnxruntime.transformers.optimizer import optimize_model
from transformers import AutoModelForSequenceClassification, AutoTokenizer

INPUTS = ["input_ids", "attention_mask", "token_type_ids"]


class OnnxPeer:
    """A Hugging Face model as an int8 ONNX graph; it scores texts in batches sorted by length, as CrossEncoder does."""

    def __init__(self, folder: str) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForSequenceClassification.from_pretrained(folder, attn_implementation="eager").eval()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        self._session = onnxruntime.InferenceSession(_int8(model), options, providers=["CPUExecutionProvider"])

    def predict(self, texts: Sequence[tuple[str, str]], batch_size: int = 32) -> NDArray[np.float32]:
        """Return scores in the caller's order."""
        scores = np.empty(len(texts), np.float32)
        order = np.argsort([-len(query) - len(passage) for query, passage in texts], kind="stable")
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            given = self._tokenizer(
                [texts[at] for at in chosen], padding=True, truncation=True, return_tensors="np"
            )  # fmt: skip
            (found,) = self._session.run(None, {name: np.asarray(given[name], np.int64) for name in INPUTS})
            scores[chosen] = np.asarray(found)[:, 0]
        return scores


def _int8(model: torch.nn.Module) -> bytes:
    config = model.config
    example = torch.ones((2, 8), dtype=torch.int64)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        traced, better, small = (Path(folder) / name for name in ("traced.onnx", "better.onnx", "int8.onnx"))
        torch.onnx.export(
            model, (example,) * 3, traced, input_names=INPUTS, output_names=["logits"], opset_version=17, dynamo=False,
            dynamic_axes={**{name: {0: "pairs", 1: "length"} for name in INPUTS}, "logits": {0: "pairs"}},
        )  # fmt: skip
        fused = optimize_model(
            str(traced), "bert", num_heads=config.num_attention_heads, hidden_size=config.hidden_size,
            optimization_options=FusionOptions("bert"),
        )  # fmt: skip
        fused.save_model_to_file(str(better))
        extra = {"DefaultTensorType": onnx.TensorProto.FLOAT}
        quantize_dynamic(better, small, per_channel=True, weight_type=QuantType.QInt8, extra_options=extra)
        return small.read_bytes()
