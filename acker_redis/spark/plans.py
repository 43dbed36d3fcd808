"""What the plan of a DataFrame says about its rows, by Spark's internal classes.

Spark Connect shows no plan. Each function then answers that it does not know, and so it does for a
plan that is not exactly as expected.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame


def keeps_rows(df: DataFrame, base: DataFrame, columns: Sequence[str]) -> bool:
    """Return whether ``df`` surely has one row for each row of ``base``, with these columns.

    That is so if its plan only selects and computes columns of ``base``, and does not compute
    these. False if it is not known.
    """
    with contextlib.suppress(Exception):
        plan, inner = (each._jdf.queryExecution().analyzed() for each in (df, base))
        # A computed or renamed column is another attribute.
        for column in columns:
            one, other = attributes(plan, df, [column]), attributes(inner, base, [column])
            if not one[0].exprId().equals(other[0].exprId()):
                return False
        while not plan.equals(inner):
            if plan.nodeName() not in _SAME_ROWS:
                return False
            plan = plan.child()
        return True
    return False


def repeats(df: DataFrame, kept: Sequence[DataFrame]) -> bool | None:
    """Return whether each evaluation of ``df`` surely has the same rows; None if no plan is shown.

    That is so if its plan selects, filters, explodes, unites, sorts and joins rows of ``kept``,
    which are committed files, and constants. Spark must call each expression deterministic, and
    none may be the time. Other steps may depend on the order of rows, such as a limit.
    """
    if not hasattr(df, "_jdf"):
        return None
    with contextlib.suppress(Exception):
        plan, *bases = (each._jdf.queryExecution().analyzed() for each in (df, *kept))
        return _repeats(plan, _leaves(bases), df.sparkSession)
    return False


def reads(df: DataFrame, base: DataFrame) -> bool:
    """Return whether a plan reads what the other one reads, such as committed files."""
    with contextlib.suppress(Exception):
        one, other = (_leaves([each._jdf.queryExecution().analyzed()]) for each in (df, base))
        return _meet(one, other)
    return False


def share(one: DataFrame, other: DataFrame, messages: DataFrame, kept: Sequence[DataFrame]) -> bool:
    """Return whether both plans compute the same rows of messages, which may change.

    The messages are those of the batch, ``messages``, and rows made from them, ``kept``.
    """
    with contextlib.suppress(Exception):
        first, second, *bases = (
            each._jdf.queryExecution().analyzed() for each in (one, other, messages, *kept)
        )
        rows, files, others = _leaves(bases), _leaves(bases[1:]), list(nodes_of(second))
        return any(
            _meet([node], others)
            and _meet(_leaves([node]), rows)
            and not _repeats(node, files, one.sparkSession)
            for node in nodes_of(first)
        )
    return False


def _repeats(plan: Any, kept: Sequence[Any], session: Any) -> bool:
    time = session._jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    plans = [plan, *_listed(plan.subqueriesAll())]
    if any(not each.deterministic() or each.containsPattern(time) for each in plans):
        return False
    return all(
        node.nodeName() in _REPEATED or _meet([node], kept)
        for each in plans
        for node in nodes_of(each)
    )


def _leaves(plans: Sequence[Any]) -> list[Any]:
    return [leaf for plan in plans for leaf in _listed(plan.collectLeaves())]


def _meet(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return any(one.sameResult(other) for one in some for other in others)


def constants(df: DataFrame) -> list[Any] | None:
    """Return the values of the columns if they are the same in each row by the plan, else None."""
    with contextlib.suppress(Exception):
        plan = df._jdf.queryExecution().optimizedPlan()
        made = [plan.projectList().apply(n).child() for n in range(len(df.columns))]
        if all(each.nodeName() == "Literal" for each in made):
            values = [each.value() for each in made]
            return [each if isinstance(each, int) else each.toString() for each in values]
    return None


def may_drop_rows(df: DataFrame, columns: Sequence[str]) -> bool:
    """Return whether missing rows of ``df`` must have been dropped by its plan.

    That is so if the plan reads rows with these columns, and combines none to one row, as an
    aggregate does. False if it is not known.
    """
    with contextlib.suppress(Exception):
        nodes = list(nodes_of(df._jdf.queryExecution().analyzed()))
        if any(node.nodeName() in _COMBINES for node in nodes):
            return False
        for node in nodes:
            output = node.output()
            held = {output.apply(n).name() for n in range(output.size())}
            if held.issuperset(columns):
                return True
    return False


def nodes_of(plan: Any) -> Iterator[Any]:
    """Yield the nodes of a plan."""
    yield plan
    children = plan.children()
    for n in range(children.size()):
        yield from nodes_of(children.apply(n))


def through_project(plan: Any, wanted: Sequence[Any]) -> tuple[Any, list[Any]] | None:
    """Return the plan below a projection, and the attributes there that these attributes are.

    None if the plan is no projection, or computes one of them.
    """
    if plan.nodeName() not in _SAME_ROWS:
        return None
    below, found = plan.child(), []
    output, inside = plan.output(), below.outputSet()
    for each in wanted:
        if inside.contains(each):
            found.append(each)
            continue
        child = plan.projectList().apply(output.indexOf(each)).child()
        if child.nodeName() != "AttributeReference":
            return None
        found.append(child)
    return below, found


def _listed(found: Any) -> list[Any]:
    return [found.apply(n) for n in range(found.size())]


def attributes(plan: Any, df: DataFrame, columns: Sequence[str]) -> list[Any]:
    """Return the attributes of a plan of ``df`` for these columns."""
    output = plan.output()
    return [output.apply(df.columns.index(column)) for column in columns]


_SAME_ROWS = ("Project", "SubqueryAlias")
_COMBINES = ("Aggregate", "Deduplicate", "Distinct", "Intersect", "Except")
_REPEATED = {
    *(*_SAME_ROWS, "Filter", "Generate", "Union", "Join", "Sort", "View", "ResolvedHint"),
    *("Repartition", "RepartitionByExpression", "LocalRelation", "Range", "OneRowRelation"),
    *("CollectMetrics", "Expand", "WithCTE", "CTERelationDef", "CTERelationRef"),
}
"""Steps with the same rows each time, and constants."""
