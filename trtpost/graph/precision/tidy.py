"""The network's graph before and after the converters of other libraries."""

from __future__ import annotations

import onnx

from trtpost.graph.proto import attributes_of, replace, sort_nodes, used_by


def tidied(network: onnx.ModelProto) -> onnx.ModelProto:
    """A copy for the converters: every node has a name of its own, constants are initializers, regions of Resize gone.

    A Resize reads its region (`roi`) in one mode alone, but its type is checked always, and is never bfloat16.
    """
    model = onnx.ModelProto()
    model.CopyFrom(network)
    graph = model.graph
    nodes = []
    for node in graph.node:
        attributes = attributes_of(node)
        if node.op_type == "Constant" and "value" in attributes:
            graph.initializer.append(attributes["value"])
            graph.initializer[-1].name = node.output[0]
            continue
        node.name = node.output[0]
        if node.op_type == "Resize" and attributes.get("coordinate_transformation_mode") != b"tf_crop_and_resize":
            node.input[1] = ""
        nodes.append(node)
    replace(graph.node, nodes)
    used = {value.name for value in graph.output}.union(*map(used_by, graph.node))
    replace(graph.initializer, [one for one in graph.initializer if one.name in used])
    return model


def finished(result: onnx.ModelProto, network: onnx.ModelProto) -> onnx.ModelProto:
    """What converters made of the network, with nodes in order, types inferred anew, and its own metadata alone."""
    sort_nodes(result)
    replace(result.metadata_props, network.metadata_props)
    del result.graph.value_info[:]
    return onnx.shape_inference.infer_shapes(result, data_prop=True)
