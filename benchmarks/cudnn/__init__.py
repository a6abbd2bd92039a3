"""cuDNN's fused layers beside the compiled passes of ResNet-50's step."""
