"""ResNet-50 in JAX and Flax, with the data, the recipe and the options of resnet50_pytorch.py."""

from __future__ import annotations

from functools import partial
from typing import Any

import images as data
import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

# Those of resnet50_pytorch.py: He's of the outputs, and PyTorch's own of its last layer.
OF_CONVOLUTIONS = nn.initializers.variance_scaling(2.0, "fan_out", "normal")
OF_THE_LAST = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")


class Convolution(nn.Module):
    width: int
    kernel: int
    stride: int
    training: bool
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        pad = self.kernel // 2
        x = nn.Conv(
            self.width, (self.kernel, self.kernel), self.stride, [(pad, pad), (pad, pad)], use_bias=False,
            dtype=self.dtype, kernel_init=OF_CONVOLUTIONS,
        )(x)  # fmt: skip
        return nn.BatchNorm(not self.training, momentum=0.9, epsilon=1e-5, dtype=self.dtype)(x)


class ResNet(nn.Module):
    size: data.Size
    dtype: Any

    @nn.compact
    def __call__(self, x: jax.Array, training: bool) -> jax.Array:
        layer = partial(Convolution, training=training, dtype=self.dtype)
        x = nn.relu(layer(self.size.width, 7, 2)(x))
        x = nn.max_pool(x, (3, 3), (2, 2), [(1, 1), (1, 1)])
        for stage, depth in enumerate(self.size.depths):
            width = self.size.width * 2**stage
            for block in range(depth):
                stride = 2 if stage and not block else 1
                new = nn.relu(layer(width, 1, 1)(x))
                new = nn.relu(layer(width, 3, stride)(new))
                new = layer(4 * width, 1, 1)(new)
                x = nn.relu(new + (x if x.shape == new.shape else layer(4 * width, 1, stride)(x)))
        x = x.mean((1, 2))
        return nn.Dense(data.CLASSES, dtype=self.dtype, kernel_init=OF_THE_LAST)(x).astype(jnp.float32)


def normal(pixels: jax.Array) -> jax.Array:
    return (pixels.astype(jnp.float32) - data.MEAN) / data.STD


def functions(model: ResNet, optimizer: optax.GradientTransformation, compiled: bool) -> tuple[Any, Any]:
    """A step of training, from and to a state, and the number of right answers."""

    def train_step(state: Any, x: jax.Array, y: jax.Array, indices: jax.Array) -> tuple[Any, jax.Array]:
        variables, momenta = state

        def loss_of(weights: Any) -> tuple[jax.Array, Any]:
            seen = {"params": weights, "batch_stats": variables["batch_stats"]}
            logits, moved = model.apply(seen, normal(x[indices]), True, mutable=["batch_stats"])
            labels = optax.smooth_labels(jax.nn.one_hot(y[indices], data.CLASSES), data.SMOOTHING)
            return optax.softmax_cross_entropy(logits, labels).mean(), moved["batch_stats"]

        (loss, stats), gradients = jax.value_and_grad(loss_of, has_aux=True)(variables["params"])
        updates, momenta = optimizer.update(gradients, momenta, variables["params"])
        weights = optax.apply_updates(variables["params"], updates)
        return ({"params": weights, "batch_stats": stats}, momenta), loss

    def num_right(variables: Any, pixels: jax.Array, labels: jax.Array) -> jax.Array:
        return (model.apply(variables, normal(pixels), False).argmax(1) == labels).sum()

    return (jax.jit(train_step), jax.jit(num_right)) if compiled else (train_step, num_right)


def main() -> None:
    arguments = data.options("ResNet-50 in JAX", compiled="true")
    size, batch_size = data.SIZES[arguments.size], arguments.batch_size
    x, y, held_out, answers = (jax.device_put(array) for array in data.dataset(size))
    model = ResNet(size, jnp.bfloat16 if arguments.precision == "bf16" else jnp.float32)
    steps = size.train // batch_size
    optimizer = optax.chain(
        optax.add_decayed_weights(data.WEIGHT_DECAY),
        optax.sgd(optax.cosine_decay_schedule(arguments.lr, arguments.epochs * steps), data.MOMENTUM),
    )
    train_step, num_right = functions(model, optimizer, arguments.compile == "true")
    variables = jax.jit(partial(model.init, training=False))(jax.random.PRNGKey(arguments.seed), normal(x[:1]))
    state = dict(variables), optimizer.init(variables["params"])
    print(f"training on {jax.devices()[0].platform} with jax {jax.__version__}", flush=True)
    for epoch in range(1, arguments.epochs + 1):
        for step, indices in enumerate(data.batches(size.train, batch_size, arguments.seed, epoch), 1):
            if arguments.trace and (epoch, step) == (2, 1):
                jax.profiler.start_trace(arguments.trace)
            with jax.profiler.StepTraceAnnotation("train", step_num=step):
                state, loss = train_step(state, x, y, indices)
            if arguments.trace and (epoch, step) == (2, 10):
                jax.block_until_ready(state)
                jax.profiler.stop_trace()
            if step % data.LOG_EVERY == 0 or step == steps:
                data.say(epoch, step, steps, batch_size, float(loss))
        starts = range(0, size.validation, batch_size)
        parts = [slice(start, start + batch_size) for start in starts]
        right = sum(int(num_right(state[0], held_out[part], answers[part])) for part in parts)
        print(f"epoch {epoch} accuracy {right / size.validation:.4f}", flush=True)


if __name__ == "__main__":
    main()
