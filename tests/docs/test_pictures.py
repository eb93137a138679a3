"""Pictures of the documentation that a script draws are those of today."""

import runpy

from tests.docs.markdown import DOCS


def test_the_way_of_a_batch_is_drawn_anew_after_a_change():
    names = runpy.run_path(str(DOCS / "way_of_a_batch.py"))
    assert names["FILE"].read_text(encoding="utf-8") == names["picture"](), "run the script"
