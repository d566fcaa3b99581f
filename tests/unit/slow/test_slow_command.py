"""``everstep slow``: tables of both kinds, what is wrong with them, what it prints, exit codes."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from everstep_cli.slow.command import run
from everstep_cli.slow.table import TableError, read_table


def _rows(steps: int = 40, slow: float = 1.0) -> list[tuple[int, str, float]]:
    noise = np.random.default_rng(3).normal(1.0, 0.01, (steps, 8))
    noise[15:, 5] *= slow
    return [(100 + s, f"gpu{w}", float(noise[s, w])) for s in range(steps) for w in range(8)]


def _written(folder: Path, text: str) -> Path:
    path = folder / "steps.csv"
    path.write_text(text, encoding="utf-8")
    return path


def _csv(folder: Path, rows: list[tuple[int, str, float]], between: str = ",") -> Path:
    lines = [("step", "worker", "seconds"), *rows]
    return _written(folder, "".join(between.join(map(str, line)) + "\n" for line in lines))


def test_a_slow_worker_is_told_to_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([str(_csv(tmp_path, _rows(slow=1.3)))]) == 0
    told = capsys.readouterr().out
    assert told.startswith("Worker gpu5 takes 1.30 times as long as its peers, since step 115;")
    assert "  gpu5    -     1.30    since step 115  " in told


def test_and_to_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(_csv(tmp_path, _rows(slow=1.3))), "--json"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert [(one["worker"], one["advice"]) for one in verdict["slow"]] == [("gpu5", "swap")]


def test_nobody_is_slow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([str(_csv(tmp_path, _rows()))]) == 1
    assert capsys.readouterr().out.startswith("No worker is slow.")


@pytest.mark.parametrize("between", [",", ";", "\t"])
def test_columns_may_be_separated_by_what_spreadsheets_write(tmp_path: Path, between: str) -> None:
    assert read_table(_csv(tmp_path, _rows(), between)).seconds.shape == (40, 8)


def test_rows_may_come_in_any_order_and_be_missing(tmp_path: Path) -> None:
    rows = _rows()
    expected = read_table(_csv(tmp_path, rows)).seconds
    table = read_table(_csv(tmp_path, [*reversed(rows[1:])]))
    assert table.steps.tolist() == list(range(100, 140))
    assert np.isnan(table.seconds[0, table.roster.names.index("gpu0")])
    order = [table.roster.names.index(f"gpu{worker}") for worker in range(8)]
    np.testing.assert_array_equal(table.seconds[1:, order], expected[1:])


def test_a_parquet_file_is_the_same_table(tmp_path: Path) -> None:
    rows = _rows()
    step, worker, seconds = zip(*rows, strict=True)
    path = tmp_path / "steps.parquet"
    pq.write_table(pa.table({"seconds": seconds, "step": step, "worker": worker}), path)
    one, other = read_table(path), read_table(_csv(tmp_path, rows))
    assert one.roster.names == other.roster.names
    np.testing.assert_array_equal(one.seconds, other.seconds)


def test_a_file_that_is_no_table_and_a_folder_are_told(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="is a folder: name one file"):
        read_table(tmp_path)
    path = tmp_path / "steps.parquet"
    path.write_text("half a file", encoding="utf-8")
    with pytest.raises(TableError, match="is no Parquet file, or not a whole one"):
        read_table(path)


def test_a_slow_node_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noise = np.random.default_rng(3).normal(1.0, 0.01, (40, 32))
    noise[15:, 8:16] *= 1.3
    lines = [f"{s},w{w},n{w // 8},{noise[s, w]:.4f}\n" for s in range(40) for w in range(32)]
    path = _written(tmp_path, "step,worker,node,seconds\n" + "".join(lines))
    assert run([str(path)]) == 0
    told = capsys.readouterr().out
    assert told.startswith("The 8 workers of node n1 take ")
    assert told.lower().count("8 workers of node n1") == 1
    assert "garbage" not in told, "what is slow does not pause"
    assert "  table     40 steps, 32 workers, 1 role\n" in told


def test_roles_and_places_are_read(tmp_path: Path) -> None:
    text = "step,worker,role,seconds,rack\n1,a,x,1,r1\n1,b,y,2,r2\n1,c,x,3,r1\n"
    roster = read_table(_written(tmp_path, text)).roster
    assert [roster.role_names[one] for one in roster.roles] == ["x", "y", "x"]
    assert [roster.place_names["rack"][one] for one in roster.places["rack"]] == ["r1", "r2", "r1"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no column step or worker or seconds"),
        ("step worker seconds\n1 a 2\n", "with commas, semicolons or tabs between, and has: step"),
        ("step;worker;seconds\n1;a;1.002,5\n", "seconds '1.002,5' is no number; write a plain"),
        ("step,rank,seconds\n1,a,2\n", "no column worker; the first line names the columns, with"),
        ("step,rank,seconds\n1,a,2\n", "has: step, rank, seconds"),
        ("step,worker,seconds,step\n", "two columns step"),
        ("step,worker,seconds\n", "no rows"),
        ("step,worker,seconds\n1,a,1\n2,a,1\n", "one worker only (a)"),
        ("step,worker,seconds\n1,a,1\n1,b,fast\n", "line 3: seconds 'fast' is no number"),
        ("step,worker,seconds\n1,a,nan\n", "line 2: seconds is NaN; leave out the row"),
        ("step,worker,seconds\n1,a,-1\n", "line 2: seconds must be above 0"),
        ("step,worker,seconds\n1,a,inf\n", "line 2: seconds must be above 0"),
        ("step,worker,seconds\n1.5,a,1\n", "line 2: step '1.5' is no whole number"),
        ("step,worker,seconds\n1,a\n", "line 2: 2 columns, where the first line has more"),
        ("step,worker,seconds\n1,,1\n", "line 2: worker is empty"),
        (
            "step,worker,seconds\n1,a,1\n1,b,1\n1,a,2\n",
            "row 3 below the first line tells step 1 of worker a again",
        ),
        ("step,worker,role,seconds\n1,a,x,1\n2,a,y,1\n", "worker a has role 'y', and 'x' above"),
        ("step,worker,seconds\n1,\0,1\n", "neither CSV nor Parquet"),
        ("x" * 70_000, "neither CSV nor Parquet"),
        ('step,worker,seconds\n1,"a"b,1\n', "line 2: "),
        ('step,worker,seconds\n1,a,1\n2,"a,1\n', "a quote may be open since row 2"),
        ("step,worker,seconds\n1,a,1,5\n", "4 columns, where the first line has 3; write 1.5"),
        ("step,worker,seconds\n1,a,1.5s\n", "without a unit"),
        ("step,worker,seconds\n1,a,\n", "line 2: seconds is empty; leave out the row"),
        (f"step,worker,seconds\n1,{'h' * 201},1\n", "is longer than 200 characters"),
        ("iteration,rank,ms\n", "Rename iteration to step, rank to worker, ms to seconds"),
    ],
)
def test_what_is_wrong_with_a_table_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(TableError) as raised:
        read_table(_written(tmp_path, text))
    assert told in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "step;worker;seconds\n1;a;1,5\n1;b;1,25\n",
        "step\tworker\tseconds\n1.0\ta\t1,5\n1.0\tb\t1,25\n",
        "\n\nstep,worker,seconds,\n1,a,1.5,\n1,b,1.25,\n",
        '\ufeffstep,worker,seconds\r\n1,"a","1,5"\r\n1,b,1.25\r\n',
    ],
)
def test_numbers_are_read_as_spreadsheets_write_them(tmp_path: Path, text: str) -> None:
    table = read_table(_written(tmp_path, text))
    assert table.steps.tolist() == [1]
    assert table.seconds.tolist() == [[1.5, 1.25]]


def test_a_packed_table_is_the_same(tmp_path: Path) -> None:
    whole = gzip.compress(b"step,worker,seconds\n1,a,1.5\n1,b,1.25\n")
    path = tmp_path / "steps.csv.gz"
    path.write_bytes(whole)
    assert read_table(path).seconds.tolist() == [[1.5, 1.25]]
    path.write_bytes(whole[:-12])
    with pytest.raises(TableError, match="damaged, or not a whole one"):
        read_table(path)


def test_a_table_that_is_not_one_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([str(tmp_path / "none.csv")]) == 2
    assert "No such file" in capsys.readouterr().err
    path = tmp_path / "broken.parquet"
    path.write_bytes(b"PAR1 and no more")
    assert run([str(path)]) == 2
    path.write_bytes(b"\xff\xfe\x00\x01")
    assert run([str(path)]) == 2


def test_workers_that_share_no_steps_take_no_memory(tmp_path: Path) -> None:
    lines = (f"{number},w{number},1\n" for number in range(12_000))
    with pytest.raises(TableError, match="most workers miss most steps"):
        read_table(_written(tmp_path, "step,worker,seconds\n" + "".join(lines)))
