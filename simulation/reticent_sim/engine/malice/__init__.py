"""Malicious phones, and what servers and analysts notice of them.

A malicious phone is a real phone whose messages are changed on their way out. Its client enrols, fetches queries and
encrypts as every other one. Give `MaliciousPhone.servers` to the phone, and run the count:

    malicious = MaliciousPhone("wild", number, store, seed=seed)
    phone = Phone(store=store, servers=malicious.servers, ...)
    ...
    findings([malicious.experience], [DecidedCount(handle.progress, release)])
"""

from reticent_sim.engine.malice.assignment import assign
from reticent_sim.engine.malice.attacks import honest_kinds, malicious_kinds
from reticent_sim.engine.malice.experience import Experience, QueryAttempts
from reticent_sim.engine.malice.findings import Collusion, DecidedCount, MaliceFinding, collusions, findings
from reticent_sim.engine.malice.phone import MaliciousPhone

__all__ = [
    "Collusion",
    "DecidedCount",
    "Experience",
    "MaliceFinding",
    "MaliciousPhone",
    "QueryAttempts",
    "assign",
    "collusions",
    "findings",
    "honest_kinds",
    "malicious_kinds",
]
