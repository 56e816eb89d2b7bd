"""Folders import only from those above them, and importing cavia stays lean."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cavia
import cavia.envs

ROOT = Path(__file__).parent.parent
FOR_USERS = [
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.name != "architecture.md"),
]
SOURCE = Path(cavia.__file__).parent
WRITTEN = (".py", ".pyi", ".h", ".cpp", ".css", ".js", ".html")
MOST_LINES, MOST_OF_A_FUNCTION = 300, 60  # a function's docstring is not counted
ORDER = [
    "kernels",
    "tasks",
    "envs",
    "compiler",
    "models",
    "learners",
    "store",
    "cluster",
    "evaluation",
    "conformance",
    "training",
    "tables",
    "streaming",
    "pictures",
    "published",
    "tools",
    "demo",
    "serving",
    "paper",
    "cli",
]


def imports(path):
    """The modules of ours that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            assert not node.level, f"{path}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name for name in names if name.split(".")[0] == "cavia")


def folder_of(path):
    return path.relative_to(SOURCE).parts[0]


def test_folders_import_only_from_those_above():
    wrong = []
    for path in SOURCE.rglob("*.py"):
        if folder_of(path) not in ORDER:
            continue
        for name in imports(path):
            part = ([*name.split("."), ""])[1]
            if part in ORDER and ORDER.index(part) > ORDER.index(folder_of(path)):
                wrong.append(f"{path.relative_to(SOURCE)} imports {name}")
    assert not wrong


def test_every_folder_has_its_place():
    folders = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert folders == set(ORDER)


def test_only_the_command_line_imports_the_paper():
    importing = {
        path.relative_to(SOURCE)
        for path in SOURCE.rglob("*.py")
        if folder_of(path) != "paper" and any(name.split(".")[1:2] == ["paper"] for name in imports(path))
    }
    assert importing == {Path("cli/experiments.py")}


@pytest.mark.slow
def test_the_library_does_without_the_paper():
    code = """if True:
        import sys, cavia
        from cavia import *
        import cavia.tools.opening, cavia.pictures.complete, cavia.tools.watch
        print([name for name in sys.modules if name.startswith("cavia.paper")])"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_pickle_is_loaded_anywhere():
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        assert "pickle" not in text.replace("allow_pickle=False", ""), path
        assert "torch.load" not in text, path


@pytest.mark.slow
def test_importing_cavia_is_lean():
    heavy = [
        "matplotlib",
        "mujoco",
        "gymnasium",
        "rich",
        "tensorboard",
        "PIL",
        "pandas",
        "pyarrow",
        "sklearn",
        "psycopg",
        "onnx",
        "ray",
        "fsspec",
        "fastapi",
        "uvicorn",
        "prometheus_client",
        "torch._dynamo.convert_frame",
        "torch.distributed.elastic.agent",
        "cavia.training.group",
    ]
    estimators = {"ContextClassifier", "ContextRegressor", "few_shot_score"}  # scikit-learn imports pandas
    code = f"""if True:
        import sys, cavia
        names = [getattr(cavia, name) for name in cavia.__all__ if name not in {estimators}]
        print([name for name in {heavy} if name in sys.modules])"""
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert imported.stdout.strip() == "[]"


@pytest.mark.slow
def test_pytorch_is_left_to_the_first_use():
    code = """if True:
        import sys, cavia, cavia.cli
        cavia.cli.make_parser()
        assert "torch" not in sys.modules and "numpy" not in sys.modules
        cavia.MLP
        assert "torch" in sys.modules"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_all_public_names_are_there():
    for name in cavia.__all__:
        assert getattr(cavia, name) is not None
    assert set(cavia.__all__) <= set(dir(cavia))


def test_only_public_folders_export_names():
    for folder in (path.parent for path in SOURCE.glob("*/__init__.py")):
        exports = ast.parse((folder / "__init__.py").read_text()).body[1:]  # behind the docstring
        assert not exports or folder.name in ("envs", "cli"), f"{folder.name} is private: it exports nothing"


@pytest.mark.parametrize("document", FOR_USERS, ids=lambda path: path.stem)
def test_users_are_shown_public_names_only(document):
    text = document.read_text()
    assert not re.search(r"(from|import) cavia\.(?!envs\b)", text)
    for name in re.findall(r"(?<![\w./])cavia(?!\.md\b)((?:\.[A-Za-z]\w*)+)", text):
        first, *rest = name.removeprefix(".").split(".")
        assert first in cavia.__all__, f"cavia{name}"
        assert first != "envs" or not rest or rest[0] in cavia.envs.__all__, f"cavia{name}"


def too_long():
    """Files, and functions as "file: name", that are longer than they may be."""
    for path in (
        path for path in SOURCE.rglob("*") if path.suffix in (".py", ".pyi", ".h", ".cpp", ".css", ".js", ".html")
    ):
        name, text = path.relative_to(SOURCE).as_posix(), path.read_text()
        if len(text.splitlines()) > MOST_LINES:
            yield name
        if path.suffix == ".py":
            functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
            yield from (f"{name}: {node.name}" for node in functions if length(node) > MOST_OF_A_FUNCTION)


def length(function):
    """Its lines, apart from its docstring."""
    docstring = function.body[0] if ast.get_docstring(function) else None
    return lines(function) - (lines(docstring) if docstring else 0)


def lines(node):
    return node.end_lineno - node.lineno + 1


def test_files_and_functions_are_short():
    assert not set(too_long())


def test_no_text_installs_the_package_of_another():
    """`cavia` on PyPI is somebody else's: ours is cavia-torch."""
    wrong = re.compile(r"pip install" r" (-\S+ )*['\"]?cavia(?!-torch)\b")
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    texts = [ROOT / name for name in files if Path(name).suffix in (".md", ".py", ".yml", ".toml", ".ipynb", "")]
    guilty = [
        f"{path}: {line.strip()}"
        for path in texts
        if path.is_file()
        for line in path.read_text(errors="replace").splitlines()
        if wrong.search(line)
    ]
    assert not guilty
