"""Trains on handwritten digits by Paddle, and survives every failure.

In a job:    everstep run --job digits --nproc-per-node 1 train_paddle.py --steps 2000
On its own:  python train_paddle.py
"""

import digits
import paddle  # pyright: ignore[reportMissingImports]
from paddle import nn  # pyright: ignore[reportMissingImports]

import everstep


def main() -> None:
    options = digits.options(__doc__)
    paddle.seed(options.seed)
    model = nn.Sequential(nn.Linear(digits.PIXELS, 128), nn.GELU(), nn.Linear(128, digits.CLASSES))
    schedule = paddle.optimizer.lr.CosineAnnealingDecay(0.003, T_max=options.steps)
    optimizer = paddle.optimizer.AdamW(schedule, parameters=model.parameters())

    snapshots = everstep.snapshots({"model": model, "optimizer": optimizer})
    restored = snapshots.restore()
    data = digits.load()
    for step in range(0 if restored is None else restored + 1, options.steps):
        images, labels = map(paddle.to_tensor, data.batch(options.seed, step))
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        schedule.step()

        digits.tell(step, float(loss), options)
        snapshots.snapshot(step)
        everstep.step(step)


if __name__ == "__main__":
    main()
