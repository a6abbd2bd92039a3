"""MovieLens' files: what is read of each kind, what is held out, and what is refused by file and line."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from conf.schema import ConfigError
from trainers.data.ratings import RatingsData, movielens
from trainers.data.ratings.movielens_files import LAYOUTS, read_columns

USERS, ITEMS, RATINGS = 3, 40, 20  # of each user
pytestmark = pytest.mark.usefixtures("own_cache")

Row = tuple[int, int, str, int]


def rows() -> list[Row]:
    """Ratings whose order in the file is not that of their times; ids have gaps."""
    rng = np.random.RandomState(0)
    made = []
    for user in range(USERS):
        items = rng.permutation(ITEMS)[:RATINGS]
        times = rng.permutation(1000)[:RATINGS]
        made += [
            (10 + 7 * user, 100 + 3 * int(item), "3.5", 900_000_000 + int(time))
            for item, time in zip(items, times, strict=True)
        ]
    return [made[place] for place in rng.permutation(len(made))]


def lines(kind: str, content: list[Row]) -> list[str]:
    layout = LAYOUTS[kind]
    body = [layout.separator.join(map(str, row)) for row in content]
    return ([layout.header] if layout.header else []) + body


def write(folder: Path, text: list[str] | bytes, kind: str = "ratings.csv") -> str:
    folder.mkdir(exist_ok=True)
    content = text if isinstance(text, bytes) else ("\n".join(text) + "\n").encode()
    (folder / kind).write_bytes(content)
    return str(folder)


def original(data: RatingsData, content: list[Row]) -> list[tuple[set[int], int]]:
    """Each user's training items and held-out item, by the ids of the file."""
    held = data.interactions
    ids = sorted({row[1] for row in content})
    bounds = zip(held.start[:-1], held.start[1:], strict=True)
    trained = [{ids[item] for item in held.items[first:last]} for first, last in bounds]
    return list(zip(trained, (ids[item] for item in held.held_out), strict=True))


@pytest.mark.parametrize("kind", LAYOUTS)
def test_the_last_rating_of_each_user_is_held_out(tmp_path: Path, kind: str) -> None:
    content = rows()
    data = movielens(write(tmp_path, lines(kind, content), kind))
    expected = []
    for user in sorted({row[0] for row in content}):
        own = sorted((row for row in content if row[0] == user), key=lambda row: row[3])
        expected.append(({row[1] for row in own[:-1]}, own[-1][1]))
    assert original(data, content) == expected
    assert data.num_items == len({row[1] for row in content})
    assert len(data.interactions.items) == USERS * (RATINGS - 1)


def test_of_equal_times_the_last_in_the_file_is_held_out(tmp_path: Path) -> None:
    content = [(1, item, "1", 5) for item in np.random.RandomState(1).permutation(RATINGS).tolist()]
    data = movielens(write(tmp_path, lines("ratings.csv", content)))
    assert original(data, content)[0][1] == content[-1][1]


def test_users_of_few_ratings_are_left_out(tmp_path: Path) -> None:
    content = rows()
    few = [(999, 100 + 3 * item, "1", 1) for item in range(RATINGS - 1)] + [(5, 4000, "5.0", 1)]
    data = movielens(write(tmp_path, lines("ratings.csv", few + content)))
    assert data.num_users == USERS
    assert data.num_items == len({row[1] for row in content})  # an item that only they rated goes with them


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("1,2,3", "'1,2,3' is not 'user,item,rating,time' with whole numbers"),
        ("one,2,3,4", "'one,2,3,4' is not"),
        ("1,2.5,3,4", "is not"),
        ("1,2,3,", "is not"),
        ("1,\xff,3,4", "is not"),
        ("-1,2,3,4", "user -1 is out of range; ids must be 0 to 2147483647"),
        ("1,3000000000,3,4", "item 3000000000 is out of range"),
        ("1,99999999999999999999,3,4", "is not"),
        ("1,2,3,4,5", "'1,2,3,4,5' is not"),
        ("1:2,3,4,5", "is not"),
        ("1,1_000,3,4", "is not"),
        (" ", "' ' is not"),
    ],
)
def test_a_line_that_is_none_is_refused_with_its_number(tmp_path: Path, kind: str, bad: str, words: str) -> None:
    separator = LAYOUTS[kind].separator
    text = lines(kind, rows())
    text[10:10] = ["", bad.replace(",", separator)]  # an empty line is passed over, and counts
    path = write(tmp_path, "\n".join(text).encode("latin-1"), kind)
    with pytest.raises(ConfigError) as refused:
        movielens(path)
    message = str(refused.value)
    assert f"{kind}:12: " in message
    assert words.replace(",", repr(separator).strip("'")) in message


def test_a_rating_that_is_there_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    content = rows()
    path = write(tmp_path, lines("ratings.csv", [*content, content[4]]))
    user, item = content[4][:2]
    line = 1 + len(content) + 1
    with pytest.raises(
        ConfigError, match=rf"ratings\.csv:{line}: user {user} rates item {item} again, after line 6\. Next"
    ):
        movielens(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (["userId,rating,movieId,timestamp"], r"ratings\.csv:1: the header must be userId,movieId,rating,timestamp"),
        (lines("ratings.csv", []), "ratings.csv: has no rating"),
        (lines("ratings.csv", rows()[:19]), r"no user has 20 ratings or more \(the most are \d+\), so nothing is left"),
        (lines("ratings.csv", [(1, 2, "5", 3)]), r"no user has 20 ratings or more \(the most are 1\)"),
        (b"", r"ratings\.csv:1: the header must be"),
    ],
)
def test_a_file_without_a_test_set_is_refused(tmp_path: Path, text: list[str] | bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        movielens(write(tmp_path, text))


def test_a_pipe_in_place_of_ratings_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ratings.csv").symlink_to(os.devnull)
    with pytest.raises(ConfigError, match=r"ratings.csv: cannot be read \(is not a regular file\)\. Next: put the"):
        read_columns(tmp_path / "ratings.csv")


def test_a_folder_without_ratings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"dataset\.path=.*has no file of ratings. .*ratings\.csv, ratings\.dat, u\.data"
    ):
        movielens(str(tmp_path))
    write(tmp_path, lines("u.data", rows()), "u.data")
    with pytest.raises(ConfigError, match=r"has ratings\.csv and u\.data. Next: set dataset\.path to"):
        movielens(write(tmp_path, lines("ratings.csv", rows())))


@pytest.mark.parametrize("kind", LAYOUTS)
def test_a_byte_order_mark_and_windows_ends_of_lines_are_read(tmp_path: Path, kind: str) -> None:
    content = rows()
    text = b"\xef\xbb\xbf" + "\r\n".join(lines(kind, content)).encode()
    assert movielens(write(tmp_path, text, kind)).num_users == USERS
    with pytest.raises(ConfigError, match=rf"{kind}:{len(lines(kind, content)) + 1}: .* again, after line"):
        movielens(write(tmp_path, text + b"\r\n" + text.splitlines()[-1], kind))


def test_single_colons_separate_nothing(tmp_path: Path) -> None:
    text = [*lines("ratings.dat", rows()), "1:9:99:8:3:7:4"]
    with pytest.raises(ConfigError, match=rf"ratings\.dat:{len(text)}: '1:9:99:8:3:7:4' is not"):
        movielens(write(tmp_path, text, "ratings.dat"))


def test_ratings_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = rows()
    path = write(tmp_path, lines("ratings.csv", content))
    first = movielens(path)
    with monkeypatch.context() as patch:
        patch.setattr("trainers.data.ratings.movielens_files.read", lambda file: pytest.fail("read again"))
        assert movielens(path).version() == first.version()
    content[0] = (content[0][0], 7777, "1.0", content[0][3])
    assert movielens(write(tmp_path, lines("ratings.csv", content))).version() != first.version()
