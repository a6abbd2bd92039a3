"""What a training step is made of, on the device and on the host; and steps without a launcher around them."""
