"""Progress messages of long work, on a terminal and elsewhere."""

import io
import logging
import os
import re
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from rayrank.core import progress as shown
from rayrank.core.progress import LOG_FORMAT, add_place, keep_screen, live, log, progress, say, working_on


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    monkeypatch.setattr(shown, "_screen", None)
    monkeypatch.setattr(shown, "QUICK_S", -1.0)
    stream = io.StringIO()
    keep_screen(stream)
    return stream


def test_without_a_terminal_progress_is_printed_as_occasional_lines_and_a_last_one(
    look: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown, "LINE_EVERY_S", 0.0)

    with progress("index", 2000, "passages") as advance:
        advance(1500)
        advance(500)

    lines = look.getvalue().splitlines()
    assert [line.split(",")[0] for line in lines[:1]] == ["index: 1"]
    assert re.fullmatch(r"index: 1,500 of 2,000 passages, [\d,]+ s left, [\d,]+/s", lines[0])
    assert lines[-1].startswith("index: 2,000 passages in ")
    assert "\x1b" not in look.getvalue()


def test_on_a_terminal_a_bar_counts_up_and_messages_are_printed_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "_screen", None)
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    keep_screen(stream)

    with progress("candidates", 10, "queries") as advance:
        advance(4, "loss 0.500")
        say("4 of 8 partitions exist already")

    assert "4/10" in stream.getvalue()
    assert re.search(r"[\d,]+/s, loss 0\.500", stream.getvalue())
    assert "4 of 8 partitions exist already\n" in stream.getvalue()


def test_a_quick_step_is_written_to_the_log_only(
    look: io.StringIO, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shown, "QUICK_S", 60.0)

    with caplog.at_level(logging.INFO), progress("corpus: check ids", 1, "shards") as advance:
        advance(1)

    assert look.getvalue() == ""
    assert "corpus: check ids: 1 shards in " in caplog.text


def test_long_paths_and_brackets_are_printed_unchanged(look: io.StringIO) -> None:
    message = "error: The file /" + "very/long/" * 30 + "corpus.jsonl [bold] line 17 cannot be read."

    say(message)

    assert look.getvalue() == message + "\n"


def test_a_live_table_is_drawn_on_a_terminal_and_nowhere_else(
    look: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    with live(lambda: "a table"):
        say("a line")
    assert look.getvalue() == "a line\n"

    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    keep_screen(terminal)
    with live(lambda: "a table"), progress("index", 10, "passages") as advance:
        advance(10)
    assert "a table" in terminal.getvalue()
    assert "index: 10 passages" in terminal.getvalue()


def test_log_lines_name_the_machine_the_node_of_the_flow_and_its_key_in_all_threads() -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.addFilter(add_place)
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    log.addHandler(handler)
    try:
        with working_on("run:bm25", "abc"):
            with working_on("index", "def"), ThreadPoolExecutor(1) as pool:
                pool.submit(log.warning, "one").result()
            log.warning("two")
        log.warning("three")
    finally:
        log.removeHandler(handler)
    place = f"WARNING {socket.gethostname()}:{os.getpid()}"
    assert [line[line.index(place) + len(place) + 1 :] for line in written.getvalue().splitlines()] == [
        "[index def] rayrank one",
        "[run:bm25 abc] rayrank two",
        "[-] rayrank three",
    ]
