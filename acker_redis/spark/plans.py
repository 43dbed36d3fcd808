"""What the plan of a DataFrame says about its rows, by Spark's internal classes.

Spark Connect shows no plan. Each function then answers that it does not know, and so it does for a
plan that is not exactly as expected.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame


def keeps_rows(df: DataFrame, base: DataFrame, columns: Sequence[str]) -> bool:
    """Return whether ``df`` surely has one row for each row of ``base``, with these columns.

    That is so if its plan only selects and computes columns of ``base``, and does not compute
    these. False if it is not known.
    """
    with contextlib.suppress(Exception):
        plan, inner = (each._jdf.queryExecution().analyzed() for each in (df, base))
        ids = ids_of(plan.output(), df.columns, columns)
        while not plan.equals(inner):
            found = through_project(plan, ids)
            if found is None:
                return False
            plan, ids = found
        return ids == ids_of(inner.output(), base.columns, columns)
    return False


def constants(df: DataFrame) -> list[Any] | None:
    """Return the values of the columns if they are the same in each row by the plan, else None."""
    with contextlib.suppress(Exception):
        plan = df._jdf.queryExecution().optimizedPlan()
        made = [each.child() for each in items(plan.projectList())]
        if all(each.nodeName() == "Literal" for each in made):
            values = [each.value() for each in made]
            return [each if isinstance(each, int) else each.toString() for each in values]
    return None


def through_project(plan: Any, ids: Sequence[str]) -> tuple[Any, list[str]] | None:
    """Return the plan below a projection, and the attributes there that these attributes are.

    None if the plan is no projection, or computes one of them.
    """
    if plan.nodeName() == "SubqueryAlias":
        return plan.child(), list(ids)
    if plan.nodeName() != "Project":
        return None
    inside = {}
    for each in items(plan.projectList()):
        child = each.child() if each.nodeName() == "Alias" else each
        if child.nodeName() == "AttributeReference":
            inside[each.exprId().toString()] = child.exprId().toString()
    if not inside.keys() >= set(ids):
        return None
    return plan.child(), [inside[each] for each in ids]


def ids_of(output: Any, names: Sequence[str], columns: Sequence[str]) -> list[str]:
    """Return what identifies these columns of a plan whose output has these names."""
    attributes = dict(zip(names, items(output), strict=True))
    return [attributes[column].exprId().toString() for column in columns]


def items(seq: Any) -> list[Any]:
    """Return the elements of a Seq of Scala."""
    return [seq.apply(n) for n in range(seq.size())]
