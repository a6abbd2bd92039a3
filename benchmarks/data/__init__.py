"""Speed of data: making generated data, decoding images, loading batches by our loader and others, COCO evaluation."""
