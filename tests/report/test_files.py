"""Files: written whole or not at all, whatever the text, and refused before a check where they cannot be written."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from gradproof.report.files import destination, write_whole

SURROGATE = "a name with \ud800 in it"


def names_in(folder):
    return [each.name for each in folder.iterdir()]


def test_a_text_is_written_and_nothing_stays_beside_it(tmp_path):
    write_whole(tmp_path / "report.html", "±")

    assert (tmp_path / "report.html").read_text(encoding="utf-8") == "±"
    assert names_in(tmp_path) == ["report.html"]


def test_a_lone_surrogate_is_written_as_an_escape(tmp_path):
    write_whole(tmp_path / "report.html", SURROGATE)

    assert (tmp_path / "report.html").read_text() == r"a name with \ud800 in it"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_on_the_way_leaves_what_was_there(tmp_path, monkeypatch, step):
    file = tmp_path / "report.html"
    file.write_text("what was there")

    def fails(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr("os.fsync" if step == "fsync" else "pathlib.Path.replace", fails)
    with pytest.raises(OSError, match="full"):
        write_whole(file, "what is new")

    assert file.read_text() == "what was there"
    assert names_in(tmp_path) == ["report.html"]


def test_permissions_are_those_of_any_new_file_and_those_of_an_old_one_are_kept(tmp_path):
    (tmp_path / "plain").write_text("")
    write_whole(tmp_path / "new", "")
    (tmp_path / "old").write_text("")
    (tmp_path / "old").chmod(0o600)
    write_whole(tmp_path / "old", "x")

    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o600


def test_a_link_still_leads_to_the_file_that_was_written(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_whole(tmp_path / "link", "x")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "x"


def test_a_device_is_written_to():
    write_whole("/dev/null", "x")

    assert Path("/dev/null").is_char_device()


def test_a_destination_does_not_move_with_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = destination("new/folder/report.html")
    monkeypatch.chdir("/")

    assert found == tmp_path / "new" / "folder" / "report.html"
    assert names_in(tmp_path / "new" / "folder") == []


def test_what_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(OSError, match="folder"):
        destination(tmp_path)
    with pytest.raises(OSError, match="file"):
        destination(tmp_path / "file" / "report.html")
