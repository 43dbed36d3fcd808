"""The proof of the protocol: cases, the reference, the simulator, the specification's writer.

Nothing of it is in the wheel.

``docs/explanation/decisions/0026-one-proof.md`` has the plan.
"""
