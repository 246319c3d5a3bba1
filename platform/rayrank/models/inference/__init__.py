"""Scoring with a trained model: torch, compiled layers, fp8, ONNX Runtime."""
