"""Speed of data: making generated data, decoding images, and loading batches by our loader and by others."""
