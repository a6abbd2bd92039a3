"""Keras 3, on PyTorch or JAX: `KERAS_BACKEND=jax python with_keras.py`."""

import keras
from sklearn.datasets import load_digits

from timetrial import KerasTimeTrial

keras.utils.set_random_seed(1)
data = load_digits()
images, labels = data.data / 16, data.target
model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)])
model.compile(
    optimizer=keras.optimizers.Adam(0.01),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
trial = KerasTimeTrial({"val_accuracy": 0.9}, batch_size=50, num_samples=1500, name="mlp", dataset="digits")
validation = (images[1500:], labels[1500:])
model.fit(images[:1500], labels[:1500], batch_size=50, epochs=10, validation_data=validation, callbacks=[trial])
