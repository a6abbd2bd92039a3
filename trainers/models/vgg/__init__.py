"""The VGG-like CNN of the Fashion-MNIST study."""

from trainers.models.vgg.module import WORKLOAD, Vgg, forward_loss

__all__ = ["WORKLOAD", "Vgg", "forward_loss"]
