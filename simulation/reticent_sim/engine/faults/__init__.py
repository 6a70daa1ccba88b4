"""Faults of a simulation, as data: what fails in the network, in processes, on disks, in clocks and among phones.

schedule = FaultSchedule.from_text(Path("faults.jsonl").read_text())  # or sample(seed, phones=1000, days=7)
schedule.check(phones=1000, days=7)
faults = schedule.of_phone(3)  # for the phone: `PhoneNetwork`, `FullDiskStore`, `SkewedClock`
processes = ProcessFaults(schedule, {"keys": servers.keys, "aggregation": servers.aggregation})
processes.begin((2, 9))  # what fails at this step, and what works again
shrink(schedule, fails)  # the few faults for which a run still fails
"""

from reticent_sim.engine.faults.calls import FaultyServers, PhoneNetwork
from reticent_sim.engine.faults.fault import CALL_KINDS, CALLS, KINDS, STEPS, Fault, Kind, Moment
from reticent_sim.engine.faults.intervals import absences, read_intervals
from reticent_sim.engine.faults.phones import FullDiskStore, SkewedClock
from reticent_sim.engine.faults.processes import ProcessFaults, ProcessOutcome, fill_disk, free_disk
from reticent_sim.engine.faults.sampling import SAMPLED, sample
from reticent_sim.engine.faults.schedule import FaultSchedule, PhoneFaults
from reticent_sim.engine.faults.shrinking import ShrinkProgress, shrink

__all__ = [
    "CALLS",
    "CALL_KINDS",
    "KINDS",
    "SAMPLED",
    "STEPS",
    "Fault",
    "FaultSchedule",
    "FaultyServers",
    "FullDiskStore",
    "Kind",
    "Moment",
    "PhoneFaults",
    "PhoneNetwork",
    "ProcessFaults",
    "ProcessOutcome",
    "ShrinkProgress",
    "SkewedClock",
    "absences",
    "fill_disk",
    "free_disk",
    "read_intervals",
    "sample",
    "shrink",
]
