"""`cavia doctor`: it says what is there, and what to do about what is not."""

import re
from importlib import metadata

import pytest
import torch

import cavia
from cavia.cli import main
from cavia.kernels import build
from cavia.tools import doctor


def test_it_prints_versions_machine_and_extras(capsys):
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert re.search(rf"^cavia +{re.escape(cavia.__version__)} ", printed, flags=re.MULTILINE)
    assert torch.__version__ in printed
    assert "[tables]" in printed
    assert "[dev]" not in printed


def test_a_missing_package_comes_with_the_command_that_installs_it(monkeypatch):
    def version(package):
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(doctor, "version", version)
    finding = next(one for one in doctor.examine() if one.name == "[tables]")
    assert finding.value == "without pyarrow"
    assert finding.advice == "pip install 'cavia-torch[tables]'"


def test_too_many_threads_a_missing_compiler_and_an_untested_pytorch_get_advice(monkeypatch):
    monkeypatch.setattr(doctor, "cores", lambda: 2)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 16)
    monkeypatch.setattr(build, "COMPILERS", ())
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(torch, "__version__", "3.0.0")
    advice = {one.name: one.advice for one in doctor.examine()}
    assert "OMP_NUM_THREADS=2" in advice["cores"]
    assert "install g++" in advice["C++ compiler"]
    assert "uncompiled" in advice["PyTorch"]


def test_a_cache_that_cannot_be_written_gets_advice(monkeypatch, tmp_path):
    monkeypatch.setenv("CAVIA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(doctor.os, "access", lambda *_: False)
    finding = next(one for one in doctor.examine() if one.name == "cache")
    assert finding.advice == "set CAVIA_CACHE to a folder that can"


def test_a_compiler_that_does_not_start_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", str(tmp_path / "nothing"))
    finding = next(one for one in doctor.examine() if one.name == "C++ compiler")
    assert "does not start" in finding.value
    assert "install g++" in finding.advice


def test_it_says_what_an_issue_report_should_contain(capsys):
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.endswith(doctor.REPORTING)


@pytest.mark.slow
def test_the_folder_of_graphs_is_pytorchs(monkeypatch):
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    assert str(doctor.graphs_folder()) == default_cache_dir()


def test_code_that_was_not_installed_has_no_extras(monkeypatch):
    def unknown(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "metadata", unknown)
    assert doctor.extras() == {}


def test_cavia_alone_prints_commands_that_there_are(capsys):
    from cavia.cli import make_parser

    assert main([]) == 0
    printed = capsys.readouterr().out
    commands = set(re.findall(r"  cavia ([a-z]+)", printed))
    known = set(next(part for part in make_parser()._actions if part.dest == "command").choices)
    assert commands
    assert commands <= known


@pytest.mark.parametrize("arguments", [["doctor", "--bad"], ["doctor", "now"]])
def test_misuse_is_exit_code_2(arguments, capsys):
    assert main(arguments) == 2
    assert arguments[1] in capsys.readouterr().err
