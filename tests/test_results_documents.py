"""Tables of results in README and docs are what the files in docs/results say."""

from pathlib import Path

import pytest

from fedade.core.errors import FedadeError
from fedade.products.documents import write_documents

ROOT = Path(__file__).parents[1]
BLOCK = "Text.\n\n<!-- results\n{}\n-->\n<!-- end of results -->\nMore."


def test_every_table_of_the_documents_is_up_to_date():
    documents = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "results").glob("*.md")]
    documents += (ROOT / "research").glob("*.md")
    assert write_documents(documents, ROOT / "docs" / "results", check=True) == [], "run `make results`"


def test_a_table_is_written_once_and_the_text_around_it_stays(tmp_path):
    (tmp_path / "r.csv").write_text("row,schedule,seed,accuracy_post\nA,lin,0,0.5\n")
    document = tmp_path / "d.md"
    document.write_text(BLOCK.format("file: r.csv"))
    assert write_documents([document], tmp_path, check=True) == [document]
    assert "50.00" not in document.read_text()
    assert write_documents([document], tmp_path) == [document]
    assert write_documents([document], tmp_path) == []
    assert document.read_text().startswith("Text.\n\n<!-- results\nfile: r.csv\n-->\n\n| method | Lin. |")
    assert document.read_text().endswith("| A | 50.00 |\n\n<!-- end of results -->\nMore.")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BLOCK.format("file: none.csv"), "d.md, table 'file: none.csv': cannot read"),
        (BLOCK.format("file: r.csv\nrow_: a"), "row_ Extra inputs are not permitted"),
        (BLOCK.format("file: ["), "d.md, table"),
        (BLOCK.format("file: r.csv\ntable: text"), "no column 'text'"),
        (BLOCK.format("file: bad.csv"), "could not convert string to float: 'half'"),
        ("\n<!-- results\nfile: r.csv\n-->\n", "a table of results has no end"),
    ],
)
def test_a_description_that_is_wrong_is_named_with_its_document(tmp_path, text, message):
    (tmp_path / "r.csv").write_text("row,schedule,seed,accuracy_post\nA,lin,0,0.5\n")
    (tmp_path / "bad.csv").write_text("row,schedule,seed,accuracy_post\nA,lin,0,half\n")
    (tmp_path / "d.md").write_text(text)
    with pytest.raises(FedadeError, match=message) as caught:
        write_documents([tmp_path / "d.md"], tmp_path)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "d.md").read_text() == text
