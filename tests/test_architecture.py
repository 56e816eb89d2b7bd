"""Folders import only from those above them, and importing cavia stays lean."""

import ast
import subprocess
import sys
from pathlib import Path

import cavia

SOURCE = Path(cavia.__file__).parent
ORDER = [
    "tasks",
    "envs",
    "compiler",
    "models",
    "learners",
    "store",
    "evaluation",
    "training",
    "tables",
    "experiments",
    "report",
]


def test_folders_import_only_from_those_above():
    wrong = []
    for path in SOURCE.rglob("*.py"):
        folder = path.relative_to(SOURCE).parts[0]
        if folder not in ORDER:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in filter(None, names):
                part = ([*name.split("."), ""])[1]
                if name.startswith("cavia.") and part in ORDER and ORDER.index(part) > ORDER.index(folder):
                    wrong.append(f"{path.relative_to(SOURCE)} imports {name}")
    assert not wrong


def test_no_pickle_is_loaded_anywhere():
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        assert "pickle" not in text.replace("allow_pickle=False", ""), path
        assert "torch.load" not in text, path


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
        "torch._dynamo.convert_frame",
    ]
    code = f"import sys; from cavia import *; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_pytorch_is_left_to_the_first_use():
    code = """if True:
        import sys, cavia, cavia.cli
        assert "torch" not in sys.modules and "numpy" not in sys.modules
        cavia.MLP
        assert "torch" in sys.modules"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_all_public_names_are_there():
    for name in cavia.__all__:
        assert getattr(cavia, name) is not None
    assert set(cavia.__all__) <= set(dir(cavia))
