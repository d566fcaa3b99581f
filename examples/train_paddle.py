"""Trains on handwritten digits by Paddle, and survives every failure.

In a job:    everstep run --job digits --nproc-per-node 2 train_paddle.py --steps 2000
On its own:  python train_paddle.py

On several ranks Paddle averages gradients by its DataParallel; the global batch stays the same.
"""

import digits
import paddle  # pyright: ignore[reportMissingImports]
from paddle import nn  # pyright: ignore[reportMissingImports]

import everstep
from everstep.integrations.paddle import parallel_environment


def main() -> None:
    options = digits.options(__doc__)
    run = everstep.init()
    parallel_environment(backend="gloo")
    if run.world_size > 1:
        paddle.distributed.init_parallel_env()
    paddle.seed(options.seed)
    model = nn.Sequential(
        nn.Linear(digits.PIXELS, 128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, digits.CLASSES)
    )
    parallel = paddle.DataParallel(model) if run.world_size > 1 else model
    schedule = paddle.optimizer.lr.CosineAnnealingDecay(0.003, T_max=options.steps)
    optimizer = paddle.optimizer.AdamW(schedule, parameters=model.parameters())

    paddle.seed(options.seed + run.rank)  # each rank drops other pixels
    state = {"model": model, "optimizer": optimizer}
    snapshots = run.snapshots(state, equal=("model", "optimizer"))
    restored = snapshots.restore()
    data = digits.load()
    share = run.share(digits.GLOBAL_BATCH, digits.GLOBAL_BATCH)
    for step in range(0 if restored is None else restored + 1, options.steps):
        images, labels = map(paddle.to_tensor, data.batch(options.seed, step))
        (part,) = share.micro_batches
        own = slice(part.samples.start, part.samples.stop)
        loss = nn.functional.cross_entropy(parallel(images[own]), labels[own]) * part.weight
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        schedule.step()

        loss = loss.detach()
        if run.world_size > 1:
            paddle.distributed.all_reduce(loss)
        if run.rank == 0:
            digits.tell(step, float(loss) / run.world_size, options)
        snapshots.snapshot(step)
        run.step(step)


if __name__ == "__main__":
    main()
