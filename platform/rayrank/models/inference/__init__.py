"""Scoring with a trained model: batching, compiled and fused layers, fp8, ONNX Runtime."""
