"""Some of the kills of `python -m attacks.kills`, and that it would see what is lost or left behind."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def python(*arguments):
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600)


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.parametrize("target", ["cavia.fit", "cavia fit", "cavia reproduce", "ContextStore.put"])
def test_nothing_is_lost_or_left_behind(target):
    ended = python("-m", "attacks.kills", "--kills", "5", "--only", target)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    name, kills, _, acknowledged, *problems = ended.stdout.splitlines()[-1].strip("| ").split(" | ")
    assert (name, kills, problems) == (target, "5", ["0", "0", "0"])
    assert int(acknowledged) > 5


FAULTY = """if True:
    import os, sys, time
    from attacks.kill_targets import Target, files
    from attacks.kills import attack

    def careless(folder, said):  # says that it has done what it has not, and forgets its temporary file
        (folder / "temporary").touch()
        for number in range(30):
            said.say("number", number)
            time.sleep(0.01)
            (folder / "number").write_text(str(number))
        if sys.argv[1] == "lost":
            (folder / "temporary").unlink()

    def lost(folder, said):
        there = int((folder / "number").read_text() or -1) if (folder / "number").exists() else -1
        return ["number"] if sys.argv[1] == "lost" and said.highest.get("number", -1) > there else []

    def left(folder):
        return dict.fromkeys(files(folder), 0)

    def leaves(folder, said):
        mine = folder / f"{os.getpid()}.part"
        mine.touch()
        time.sleep(0.5)
        mine.unlink()

    work, kills = (careless, 50) if sys.argv[1] == "lost" else (leaves, 3)  # the first loss is the end
    print({kind: len(problems) for kind, problems in attack(Target("it", work, lost, left), kills, 0).problems.items()})
"""


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "kind"), [("lost", "lost"), ("left", "different")])
def test_what_is_lost_or_left_behind_is_seen(fault, kind):
    ended = python("-c", FAULTY, fault)
    assert f"'{kind}': 1" in ended.stdout, ended.stdout + ended.stderr
