"""Trains a small network on handwritten digits, data-parallel, and survives every failure.

On each node:  everstep run --job digits --nnodes 3:4 -- python train_numpy.py --steps 2000
On its own:    python train_numpy.py --steps 200

The loss of every step is equal to the bit on 1, 2, 3, 4, 6 or 12 processes, whatever was restarted
in between: a batch depends on the seed and the step alone, it is cut into 12 micro-batches whatever
the number of processes, and their gradients are summed in the order of their index.

digits.npz holds the 1,797 images (8 x 8, 0 to 16) of the test part of "Optical Recognition of
Handwritten Digits" by E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, CC BY 4.0, as
scikit-learn's load_digits() has them.
"""

import argparse
import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path

# Several threads share a sum in an order of their own, so one BLAS thread. Set before numpy loads.
for _library in ("OMP", "OPENBLAS", "MKL", "BLIS", "VECLIB"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

import everstep  # noqa: E402

Array = NDArray[np.float64]

SHARDS = 12  # of parameters and optimizer state, divided among the processes
MICRO_BATCHES = 12
MICRO_BATCH_SIZE = 8
BATCH_SIZE = MICRO_BATCHES * MICRO_BATCH_SIZE
TRAIN_IMAGES = 1500  # the other 297 are the test
LEARNING_RATE, MOMENTUM = 0.1, 0.9
DEADLINE_S = 60.0  # for every collective: a peer that hangs must not hang this process for ever


class Group:
    """The processes of one generation, joined in a star of TCP connections around rank 0."""

    def __init__(self, rank: int, size: int, generation: int) -> None:
        self.rank, self.size = rank, size
        self._hello = struct.pack(">QI", generation, rank)
        self._peers: list[socket.socket] = []  # rank 0: in rank order; another rank: rank 0 only
        if size > 1:
            address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
            self._peers = self._listen(address) if rank == 0 else [self._connect(address)]

    def all_gather(self, mine: Array) -> Array:
        """Return everybody's arrays, stacked in rank order: the same on every process."""
        return self._through_rank_0(mine, (self.size, *mine.shape), lambda rows: rows)

    def sum_rows(self, mine: Array) -> Array:
        """Return the sum of everybody's rows, added one by one in rank order."""
        return self._through_rank_0(mine, mine.shape[1:], _sum_in_order)

    def _through_rank_0(
        self, mine: Array, shape: tuple[int, ...], combine: Callable[[Array], Array]
    ) -> Array:
        if self.rank != 0:
            self._peers[0].sendall(mine.tobytes())
            return _receive(self._peers[0], shape)
        rows = np.stack([mine, *(_receive(peer, mine.shape) for peer in self._peers)])
        result = combine(rows)
        for peer in self._peers:
            peer.sendall(result.tobytes())
        return result

    def _listen(self, address: tuple[str, int]) -> list[socket.socket]:
        peers: dict[int, socket.socket] = {}
        with socket.create_server(address, backlog=self.size) as server:
            server.settimeout(DEADLINE_S)
            while len(peers) < self.size - 1:
                peer = _tuned(server.accept()[0])
                hello = _receive_bytes(peer, len(self._hello))
                if hello[:8] == self._hello[:8]:  # not a straggler of an older generation
                    peers[struct.unpack(">QI", hello)[1]] = peer
        return [peers[rank] for rank in sorted(peers)]

    def _connect(self, address: tuple[str, int]) -> socket.socket:
        give_up_at = time.monotonic() + DEADLINE_S
        while True:  # rank 0 may not listen yet
            try:
                peer = _tuned(socket.create_connection(address, timeout=DEADLINE_S))
                break
            except OSError:
                if time.monotonic() > give_up_at:
                    raise
                time.sleep(0.02)
        peer.sendall(self._hello)
        return peer


def _sum_in_order(rows: Array) -> Array:
    rows = rows.reshape(-1, rows.shape[-1])
    total: Array = np.zeros_like(rows[0])
    for row in rows:  # a plain loop: np.sum adds in an order that depends on the shape
        total += row
    return total


def _tuned(peer: socket.socket) -> socket.socket:
    peer.settimeout(DEADLINE_S)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def _receive_bytes(peer: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, end = memoryview(data), time.monotonic() + DEADLINE_S
    while view:
        count = peer.recv_into(view)
        if count == 0:
            raise ConnectionError("a peer is gone")
        if time.monotonic() > end:
            raise TimeoutError("a peer is too slow")
        view = view[count:]
    return data


def _receive(peer: socket.socket, shape: tuple[int, ...]) -> Array:
    size = int(np.prod(shape)) * 8
    return np.frombuffer(_receive_bytes(peer, size), dtype=np.float64).reshape(shape)


class Network:
    """Two layers in float64; all parameters lie in one flat array."""

    def __init__(self, hidden: int) -> None:
        self._shapes = ((64, hidden), (hidden,), (hidden, 10), (10,))
        self.size = sum(int(np.prod(shape)) for shape in self._shapes)

    def initial(self, seed: int) -> Array:
        """Return the parameters to start from, padded so that the shards are of equal size."""
        scales = (64**-0.5, 0.0, self._shapes[0][1] ** -0.5, 0.0)
        random = np.random.default_rng([seed, 0])
        parts = zip(self._shapes, scales, strict=True)
        flat = np.concatenate([(random.normal(size=s) * k).ravel() for s, k in parts])
        return np.pad(flat, (0, -self.size % SHARDS))

    def layers(self, flat: Array) -> list[Array]:
        """Return views of a flat array: weights and biases of both layers."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])
        parts = np.split(flat[: self.size], ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def gradient(self, flat: Array, images: Array, labels: NDArray[np.uint8], out: Array) -> float:
        """Write the gradient of the summed loss to ``out``; return the summed loss."""
        w1, b1, w2, b2 = self.layers(flat)
        g1, gb1, g2, gb2 = self.layers(out)
        hidden = np.tanh(images @ w1 + b1)
        logits = hidden @ w2 + b2
        logits -= logits.max(axis=1, keepdims=True)
        log_sums = np.log(np.exp(logits).sum(axis=1, keepdims=True))
        rows = np.arange(len(labels))
        error = np.exp(logits - log_sums)
        error[rows, labels] -= 1.0
        g2[...], gb2[...] = hidden.T @ error, error.sum(axis=0)
        back = (error @ w2.T) * (1.0 - hidden * hidden)
        g1[...], gb1[...] = images.T @ back, back.sum(axis=0)
        return float((log_sums[:, 0] - logits[rows, labels]).sum())

    def accuracy(self, flat: Array, images: Array, labels: NDArray[np.uint8]) -> float:
        """Return the share of images that are recognized."""
        w1, b1, w2, b2 = self.layers(flat)
        guesses = (np.tanh(images @ w1 + b1) @ w2 + b2).argmax(axis=1)
        return float((guesses == labels).mean())


def batch(seed: int, step: int) -> NDArray[np.int64]:
    """Return the images of a step, one row per micro-batch: never a matter of rank or restart."""
    random = np.random.default_rng([seed, 1, step])
    return random.integers(TRAIN_IMAGES, size=(MICRO_BATCHES, MICRO_BATCH_SIZE))


def train(options: argparse.Namespace) -> None:
    """Train to the last step, from wherever the job has been."""
    run = everstep.init()
    if SHARDS % run.world_size:
        raise SystemExit(f"train on 1, 2, 3, 4, 6 or 12 processes, not on {run.world_size}")
    data = np.load(options.data)
    images, labels = data["images"] / 16.0, data["labels"]
    network = Network(options.hidden)
    group = Group(run.rank, run.world_size, run.generation)

    # Each process keeps the parameters and the momentum of its own shards, nobody else's.
    share = SHARDS // run.world_size
    own = range(run.rank * share, (run.rank + 1) * share)
    parameters = network.initial(options.seed).reshape(SHARDS, -1)
    shards = np.stack([parameters[own], np.zeros_like(parameters[own])], axis=1)

    snapshots = run.snapshots({f"shard-{k:02}": shards[i] for i, k in enumerate(own)})
    restored = snapshots.restore()
    parameters = group.all_gather(shards[:, 0].copy()).reshape(SHARDS, -1)

    gradients = np.zeros((share, parameters.size + 1))  # the last column is the loss
    losses = options.losses.open("a", buffering=1) if options.losses and run.rank == 0 else None
    for step in range(0 if restored is None else restored + 1, options.steps):
        due = time.monotonic() + options.step_seconds_min
        for row, picked in zip(gradients, batch(options.seed, step)[own], strict=True):
            row[-1] = network.gradient(parameters.ravel(), images[picked], labels[picked], row)
        total = group.sum_rows(gradients) / BATCH_SIZE

        shards[:, 1] = MOMENTUM * shards[:, 1] + total[:-1].reshape(SHARDS, -1)[own]
        shards[:, 0] -= LEARNING_RATE * shards[:, 1]
        parameters = group.all_gather(shards[:, 0].copy()).reshape(SHARDS, -1)

        if losses:  # before the snapshot: then a step that is not repeated has been written
            losses.write(f"{step}\t{float(total[-1]).hex()}\n")
        snapshots.snapshot(step)
        run.step(step)
        time.sleep(max(0.0, due - time.monotonic()))
    if run.rank == 0:
        test = slice(TRAIN_IMAGES, None)
        accuracy = network.accuracy(parameters.ravel(), images[test], labels[test])
        print(f"{options.steps} steps: {accuracy:.1%} of the test images recognized")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Train on handwritten digits; see the file's top.")
    here = Path(__file__).parent
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=128, help="size of the hidden layer")
    parser.add_argument("--data", type=Path, default=here / "digits.npz")
    parser.add_argument("--losses", type=Path, help="append 'step<TAB>loss' to this file")
    pace = "a step takes at least this many seconds (to watch, or to leave a busy machine room)"
    parser.add_argument("--step-seconds-min", type=float, default=0.0, help=pace)
    with contextlib.suppress(KeyboardInterrupt):
        train(parser.parse_args(arguments))


if __name__ == "__main__":
    main()
