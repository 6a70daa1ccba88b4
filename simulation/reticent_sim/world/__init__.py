"""Simulated people, places and ads. Everything follows from a seed, and a person does not depend on the others.

People have habits, from which their days follow. The people of a `World`, for the simulator and the demo, share nine
contexts and a town with ads. The residents of the experiments each have places of their own, over months.
"""

from reticent_sim.world.resident import ACTIVE_EVERY, MAX_DAYS, Resident, resident
from reticent_sim.world.traces import FIRST_DAY, write_traces

__all__ = ["ACTIVE_EVERY", "FIRST_DAY", "MAX_DAYS", "Resident", "resident", "write_traces"]
