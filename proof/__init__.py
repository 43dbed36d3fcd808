"""The proof of the protocol: cases, the reference and the simulator. Not in the wheel.

``docs/explanation/decisions/0026-one-proof.md`` has the plan.
"""
