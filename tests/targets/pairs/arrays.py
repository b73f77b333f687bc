"""Predictions with numpy.
The fault: the predictions are kept for statistics that nobody makes.

arrays.py leak|ok SEED
"""
import random
import sys
import time

import numpy as np

leaks = sys.argv[1] == "leak"
random.seed(int(sys.argv[2]))
np.random.seed(int(sys.argv[2]))


class Model:
    def __init__(self):
        self.weights = np.random.rand(256, 64)

    def predict(self, batch):
        scores = batch @ self.weights
        scores -= scores.max(axis=1, keepdims=True)
        shares = np.exp(scores)
        return shares / shares.sum(axis=1, keepdims=True)  # allocates


class Service:
    def __init__(self):
        self.model, self.predictions = Model(), []

    def record(self, prediction):
        if leaks:  # the fault
            self.predictions.append(prediction)  # keeps

    def handle(self, raw):
        batch = np.frombuffer(raw, dtype=np.uint8).reshape(-1, 256) / 255.0
        prediction = self.model.predict(batch)
        self.record(prediction)
        return prediction.argmax(axis=1).tolist()


service = Service()
request = 0
while True:
    service.handle(random.randbytes(256 * random.randint(8, 60)))
    request += 1
    if request == 100:
        print("serving", flush=True)
    time.sleep(random.uniform(0.02, 0.03))
