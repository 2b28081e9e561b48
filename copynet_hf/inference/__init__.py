"""Inference: predictions for texts and files, ONNX export and search."""
