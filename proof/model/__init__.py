"""A model of the protocol in Promela, checked by Spin: every interleaving within its bounds.

``runs.py`` lists the searches, ``spin.py`` runs Spin, ``trail.py`` turns a counterexample into
sentences, and ``history.py`` into a file for ``acker-redis simulate --history FILE``.
``docs/explanation/model.md`` has the invariants and the bounds.
"""
