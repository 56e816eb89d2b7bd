from cavia.paper.running.display import Display
from cavia.training.progress import Progress


def test_without_a_terminal_a_cell_is_shown_when_it_starts(capsys):
    state = Progress(1, 500, metrics={"loss": 4.0}, score=None, per_second=0.0, seconds_left=1.0, share=0.002)
    with Display("table1", total=1, finished=0) as display:
        display.progress("CAVIA", state)
        display.progress("CAVIA", state)  # a moment later
    assert capsys.readouterr().err.count("iteration 1/500") == 1
