from cavia.evaluation.verdict import MEANING, Verdict, verdict

__all__ = ["MEANING", "Verdict", "verdict"]
