"""The last layer of an ONNX graph computed for the first position alone, which is all that a score reads.

A value is narrowed where everything that reads it is: from the state that the head takes, back to the last attention,
whose queries are narrowed and whose keys and values are not.
"""

from collections import defaultdict

import numpy as np
from onnx import GraphProto, NodeProto, helper, numpy_helper

_BY_POSITION = {"Add", "Div", "Erf", "LayerNormalization", "MatMul", "Mul", "Tanh"}
"""Nodes whose value at a position is made of the same position of their inputs, and of weights."""

_ATTENTION = "MultiHeadAttention"
_QUERY, _MASK = 0, 5
"""Attention's inputs that have a row for each position that asks."""

_FIRST, _SECOND = "first_position", "second_position"


def compute_first_only(graph: GraphProto) -> None:
    """Change the graph in place; what is not as expected goes on to be computed for every position."""
    _without_reshapes(graph)
    narrowed, fixed = _narrowed(graph), _fixed(graph)
    graph.initializer.extend(numpy_helper.from_array(np.array([at]), name) for at, name in enumerate((_FIRST, _SECOND)))
    nodes: list[NodeProto] = []
    sliced: set[str] = set()
    for node in graph.node:
        for place, name in enumerate(node.input if node.output[0] in narrowed else ()):
            axis = _axis(node, place)
            if axis is None or name in narrowed | fixed:
                continue
            node.input[place] = f"{name}_first"
            if name not in sliced:
                nodes.append(_slice(graph, name, axis))
                sliced.add(name)
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _without_reshapes(graph: GraphProto) -> None:
    """Take out what splits states into heads and joins them again: attention takes and gives them whole."""
    makers = {name: node for node in graph.node for name in node.output}
    whole: dict[str, str] = {}
    for node in graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = whole.get(name, name)
            while node.op_type == _ATTENTION and place < 3 and makers[node.input[place]].op_type == "Reshape":
                node.input[place] = makers[node.input[place]].input[0]
        if node.op_type == "Reshape" and makers.get(node.input[0], node).op_type == _ATTENTION:
            whole[node.output[0]] = node.input[0]
    _drop_unread(graph)


def _drop_unread(graph: GraphProto) -> None:
    """Take out nodes whose results nobody reads."""
    read = {output.name for output in graph.output}
    kept = []
    for node in reversed(graph.node):
        if read.intersection(node.output):
            read.update(node.input)
            kept.append(node)
    del graph.node[:]
    graph.node.extend(reversed(kept))


def _narrowed(graph: GraphProto) -> set[str]:
    """Return the values that are read at the first position only."""
    readers: dict[str, list[tuple[NodeProto, int]]] = defaultdict(list)
    for node in graph.node:
        for place, name in enumerate(node.input):
            readers[name].append((node, place))
    pooled, fixed = _pooled(graph), _fixed(graph)
    found: set[str] = set()
    for node in reversed(graph.node):
        (name,) = node.output
        mixes = node.op_type not in {*_BY_POSITION, _ATTENTION} or (
            node.op_type == "MatMul" and node.input[1] not in fixed
        )
        if not mixes and all(
            reader.output[0] == pooled or (reader.output[0] in found and _axis(reader, place) == 1)
            for reader, place in readers[name]
        ):
            found.add(name)
    return found


def _pooled(graph: GraphProto) -> str:
    """Return the first position's state, which the head reads."""
    makers = {name: node for node in graph.node for name in node.output}
    (node,) = (node for node in graph.node if node.op_type == "Gemm")
    while node.op_type != "Gather":
        node = makers[node.input[0]]
    return str(node.output[0])


def _fixed(graph: GraphProto) -> set[str]:
    """Return weights and other constants, and the name of inputs that are left out."""
    found = {"", *(tensor.name for tensor in graph.initializer)}
    for node in graph.node:
        # Weights that are the same, such as biases of zero, are stored once and go by their other names from here.
        if node.op_type == "Constant" or (node.op_type == "Identity" and node.input[0] in found):
            found.add(node.output[0])
    return found


def _axis(node: NodeProto, place: int) -> int | None:
    """Return the dimension of an input that counts the positions a node answers for."""
    if node.op_type != _ATTENTION:
        return 1
    return {_QUERY: 1, _MASK: 2}.get(place)


def _slice(graph: GraphProto, name: str, axis: int) -> NodeProto:
    """Return the node that takes a value's first position, as a range of one."""
    along = f"{name}_first_axis"
    graph.initializer.append(numpy_helper.from_array(np.array([axis]), along))
    return helper.make_node("Slice", [name, _FIRST, _SECOND, along], [f"{name}_first"])
