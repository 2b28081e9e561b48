"""Inference: loading, prediction, ONNX, highlighting, heatmaps and the demo page."""
