"""A simulated population for the experiments: people with homes, jobs, habits and occasional visits, over months.

Unlike the people of the demo, who share nine contexts, each person has places of their own. Everything follows from one
seed, and a person does not depend on the number of others.
"""

from reticent_sim.world.resident import ACTIVE_EVERY, MAX_DAYS, Resident, resident
from reticent_sim.world.traces import FIRST_DAY, write_traces

__all__ = ["ACTIVE_EVERY", "FIRST_DAY", "MAX_DAYS", "Resident", "resident", "write_traces"]
