"""A made-up population for the experiments: people with homes, jobs, habits and whims, for months on end.

Unlike the people of the demo, who share nine contexts, everybody here has places of their own. Nothing is downloaded:
all follows from one seed, and a person is the same however many others there are.
"""

from reticent_sim.world.resident import ACTIVE_EVERY, MAX_DAYS, Resident, resident
from reticent_sim.world.traces import FIRST_DAY, write_traces

__all__ = ["ACTIVE_EVERY", "FIRST_DAY", "MAX_DAYS", "Resident", "resident", "write_traces"]
