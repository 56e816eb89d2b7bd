"""Generated requests by the OpenAPI description: no answer is a fault of the server, and each is as described."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving.test_process import POINTS, post, process
from tests.serving.test_rows import ROWS

pytest.importorskip("schemathesis")
pytestmark = [pytest.mark.slow, pytest.mark.check]
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.mark.parametrize("kind", ["points", "rows"])
def test_generated_requests_find_no_fault(learner_file, table_models, tmp_path, kind):
    model = learner_file / "curves.cavia" if kind == "points" else table_models / "number.cavia"
    with process(model, "--store", tmp_path / "s") as (running, url):
        post(f"{url}/adapt", {"tasks": {"0": POINTS}} if kind == "points" else {"rows": ROWS})
        order = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{url}/openapi.json", "--checks", CHECKS]
        order += ["--max-examples", "50", "--request-timeout", "120", "--suppress-health-check", "too_slow"]
        done = subprocess.run(order, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stdout[-3000:]
        assert "8 selected / 8 total" in done.stdout
        assert running.poll() is None
